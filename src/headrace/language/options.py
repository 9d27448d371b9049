"""Options as pipeline files write them and Spark takes them."""

from __future__ import annotations

from headrace.language.yaml_nodes import Value

__all__ = ["read_options"]


def read_options(value: Value | None) -> tuple[tuple[str, str], ...]:
    """Options as Spark takes them, texts all."""
    found = ((key, option.scalar_text()) for key, option in (value.mapping().items() if value is not None else ()))
    return tuple((key, text) for key, text in found if text is not None)
