"""Values as plain JSON and back: what a dataclass's annotations say is all there is to know.

A value of a union says which one it is by the word under `kind`, its class's `KIND`.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

__all__ = ["Plain", "plain", "restored"]

Plain = None | bool | int | float | str | list["Plain"] | dict[str, "Plain"]
T = TypeVar("T")
_TAG = "kind"


def plain(value: object) -> Plain:
    """Dataclasses as objects, tuples as arrays, keys of mappings as strings; the inverse of `restored`."""
    if is_dataclass(value) and not isinstance(value, type):
        kind = getattr(value, "KIND", None)
        tag: dict[str, Plain] = {} if kind is None else {_TAG: kind}
        return tag | {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{type(value).__name__} is no plain value: {value!r}")


def restored(wanted: type[T], value: object) -> T:
    """The value of a type that `plain` made this of; ValueError names the place where it is none."""
    return cast(T, _restored(wanted, value, wanted.__name__))


def _restored(wanted: Any, value: Any, place: str) -> Any:
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin in (types.UnionType, Union):
        return _one_of(arguments, value, place)
    if origin is tuple:
        return _tuple(arguments, value, place)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise ValueError(f"{place} must be an object, not {value!r:.80}")
        key = int if arguments[0] is int else str
        return {key(name): _restored(arguments[1], item, f"{place}.{name}") for name, item in value.items()}
    if is_dataclass(wanted):
        return _dataclass(wanted, value, place)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if wanted is type(None) or wanted is None:
        wanted = type(None)
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise ValueError(f"{place} must be {wanted.__name__}, not {value!r:.80}")
    return value


def _one_of(choices: tuple[Any, ...], value: Any, place: str) -> Any:
    if value is None and type(None) in choices:
        return None
    tagged = {choice.KIND: choice for choice in choices if hasattr(choice, "KIND")}
    if tagged:
        kind = value.get(_TAG) if isinstance(value, Mapping) else None
        if kind not in tagged:
            raise ValueError(f"{place} is of no known kind {kind!r:.80}; known: {', '.join(sorted(tagged))}")
        return _dataclass(tagged[kind], value, place)
    for choice in choices:
        try:
            return _restored(choice, value, place)
        except ValueError:
            continue
    raise ValueError(f"{place} cannot be {value!r:.80}")


def _tuple(arguments: tuple[Any, ...], value: Any, place: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{place} must be an array, not {value!r:.80}")
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return tuple(_restored(arguments[0], item, f"{place}[{i}]") for i, item in enumerate(value))
    if len(value) != len(arguments):
        raise ValueError(f"{place} must have {len(arguments)} items, not {len(value)}")
    return tuple(_restored(a, item, f"{place}[{i}]") for i, (a, item) in enumerate(zip(arguments, value, strict=True)))


@cache
def _hints(wanted: type) -> dict[str, Any]:
    return get_type_hints(wanted)


def _dataclass(wanted: Any, value: Any, place: str) -> Any:
    if not isinstance(value, Mapping):
        raise ValueError(f"{place} must be an object, not {value!r:.80}")
    hints, known = _hints(wanted), {field.name: field for field in fields(wanted)}
    strange = value.keys() - known.keys() - {_TAG}
    if strange:
        raise ValueError(f"{place} has an unknown '{min(strange)}'; known: {', '.join(known)}")
    for name, field in known.items():
        if name not in value and field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{place} has no '{name}'")
    return wanted(**{name: _restored(hints[name], value[name], f"{place}.{name}") for name in known if name in value})
