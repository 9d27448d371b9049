"""Functions of the user's: how they are found by name, and how they travel to executors."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from headrace.errors import Problem, SpecError

__all__ = ["load_function", "packed"]


def load_function(name: str, query: str, what: str = "function") -> Callable[..., Any]:
    """The function that `module:name` names; SpecError if there is none."""
    module, _, attribute = name.partition(":")
    try:
        found = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as exc:
        raise SpecError(
            Problem(f"{what} '{name}' cannot be loaded: {exc}", query=query, hint=f"write {what}: module:name")
        ) from exc
    if not callable(found):
        raise SpecError(Problem(f"{what} '{name}' is not a function", query=query, hint=f"write {what}: module:name"))
    return found


def packed(function: Callable[..., Any] | None) -> bytes | None:
    """A function as bytes that any executor can make a function of, without the module it comes from."""
    if function is None:
        return None
    from pyspark import cloudpickle as untyped

    cloudpickle: Any = untyped
    module = sys.modules.get(getattr(function, "__module__", ""))
    if module is None or module.__name__ == "__main__":
        return bytes(cloudpickle.dumps(function))
    cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps(function))
    finally:
        cloudpickle.unregister_pickle_by_value(module)
