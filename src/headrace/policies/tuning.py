"""What `spark.headrace.*` may say: settings that hardly anybody needs, read the same by all who look at them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.errors import SpecError
from headrace.policies.keyed.decide import FluxSettings
from headrace.units import parse_size

__all__ = ["PATIENCE", "SETTINGS", "Tuning", "tuning_of"]

_PREFIX = "spark.headrace."
# So many times the trigger may work on an epoch take: where seconds are asked for, an epoch of minutes is no slow one.
PATIENCE = 60
# By name what a setting may be: some words, a size (with a unit), sizes of bins, or a number of at least 1.
SETTINGS: Mapping[str, str | tuple[str, ...]] = {
    f"{_PREFIX}flux.moves": ("auto", "off"),
    f"{_PREFIX}flux.budget": "size",
    f"{_PREFIX}flux.buffer": "number",
    f"{_PREFIX}flux.ahead": "number",
    f"{_PREFIX}flux.minis": "number",
    f"{_PREFIX}flux.memory": "sizes",
    f"{_PREFIX}join.memory": "size",
    f"{_PREFIX}patience": "number",
    f"{_PREFIX}state.io": ("auto", "arrow", "spark"),
    f"{_PREFIX}rejected.files": "number",
    f"{_PREFIX}rejected.size": "size",
    f"{_PREFIX}sync": ("on", "off"),
}


@dataclass(frozen=True)
class Tuning:
    """The settings, with their defaults; no sizes of bins, or no memory of joins: what there is."""

    flux: FluxSettings = field(default_factory=FluxSettings)
    bin_bytes: tuple[int, ...] = ()
    join_bytes: int | None = None
    state_io: str = "auto"
    sync: bool = True  # whether what a commit depends on is forced to disk
    # Of files with rejected rows the newest are kept, so many and of this size together.
    rejected_files: int = 1000
    rejected_bytes: int = 256 << 20
    patience: int = PATIENCE


def tuning_of(conf: Mapping[str, str]) -> Tuning:
    """What a session's settings, or a pipeline file's, say; SpecError names the first one that makes no sense.

    >>> tuning_of({"spark.headrace.flux.budget": "2m", "spark.app.name": "x"}).flux.budget_bytes
    2097152
    """
    given: dict[str, str] = {}
    for name, text in conf.items():
        if not name.lower().startswith(_PREFIX):
            continue
        if name not in SETTINGS:
            raise SpecError(f"unknown setting '{name}'; known: {', '.join(SETTINGS)}")
        given[name.removeprefix(_PREFIX)] = str(text).strip()
    default = FluxSettings()
    sizes = _sizes(given, "flux.memory")
    return Tuning(
        FluxSettings(
            _word(given, "flux.moves") == "auto",
            (_sizes(given, "flux.budget") or (default.budget_bytes,))[0],
            _number(given, "flux.buffer", default.buffer_rows),
            _number(given, "flux.ahead", default.ahead),
            _number(given, "flux.minis", default.minis_per_bin),
        ),
        sizes,
        (_sizes(given, "join.memory") or (None,))[0],
        _word(given, "state.io"),
        _word(given, "sync") == "on",
        _number(given, "rejected.files", Tuning.rejected_files),
        (_sizes(given, "rejected.size") or (Tuning.rejected_bytes,))[0],
        _number(given, "patience", PATIENCE),
    )


def _word(given: Mapping[str, str], name: str) -> str:
    words = SETTINGS[_PREFIX + name]
    found = given.get(name, words[0]).lower()
    if found not in words:
        raise SpecError(f"{_PREFIX}{name} is '{found}'; it can be {', '.join(words)}")
    return found


def _number(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise SpecError(f"{_PREFIX}{name} is '{text}'; write a whole number of at least 1")
    return int(text)


def _sizes(given: Mapping[str, str], name: str) -> tuple[int, ...]:
    """Sizes with or without a unit; one alone where only one is wanted."""
    if name not in given:
        return ()
    several = SETTINGS[_PREFIX + name] == "sizes"
    try:
        sizes = tuple(parse_size(part) for part in (given[name].split(",") if several else [given[name]]))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        form = "a size such as 512m, or one for each bin with commas" if several else "a size such as 512m"
        raise SpecError(f"{_PREFIX}{name} is '{given[name]}'; write {form}")
    return sizes
