"""The `expect:` of a stream or query: one expectation, or a list, each a text or `{that: ..., else: ...}`."""

from __future__ import annotations

from headrace.language.expectations import Given
from headrace.language.pipeline.yaml_nodes import Value
from headrace.model import OTHERWISE

__all__ = ["read_expect"]

_KEYS = {"that": "what is expected", "else": "warn, fail or stop"}


def read_expect(value: Value | None) -> tuple[Given, ...]:
    """What is expected, each with what follows where it is not so; problems are noted."""
    found: list[Given] = []
    items = [] if value is None else value.items() if isinstance(value.content, list) else [value]
    for item in items:
        if not isinstance(item.content, dict):
            text, otherwise = item.word(), "warn"
        else:
            entries = item.mapping(_KEYS)
            text = entries["that"].word() if "that" in entries else None
            if "that" not in entries:
                item.document.add(f"{item.path} says nothing that is expected", item.line, "write that: rows > 0")
            otherwise = (entries["else"].word() if "else" in entries else None) or "warn"
            if otherwise not in OTHERWISE:
                entries["else"].wrong(f"one of {', '.join(OTHERWISE)}")
                continue
        if text is not None and any(text == known for known, _ in found):
            item.document.add(f"{item.path} is expected twice", item.line, "keep one")
        elif text is not None:
            found.append((text.strip(), otherwise))
    return tuple(found)
