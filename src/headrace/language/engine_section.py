"""The `engine:` of a pipeline file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace.language.options import read_options
from headrace.language.paths import absolute
from headrace.language.yaml_nodes import Value
from headrace.model import EngineSettings

__all__ = ["read_engine"]

_KEYS = {
    "trigger": "how long an epoch may take",
    "checkpoint": "where state is kept",
    "schedule": "when queries are executed",
    "join": "how joins run",
    "shedding": "whether load may be shed",
    "bins": "how many bins own state",
    "conf": "Spark settings",
    "packages": "what Spark fetches from Maven",
    "jars": "jars Spark needs beside its own",
    "metrics": "the port of the metrics page",
}


def read_engine(section: Value | None, base: Path) -> EngineSettings:
    """The settings of one site's engine; problems are noted in the section's document."""
    settings: dict[str, Any] = {"checkpoint": absolute("state", base)}
    if section is None:
        return EngineSettings(**settings)
    lines: dict[str, int] = {}
    for key, value in section.mapping(_KEYS).items():
        lines[key] = value.line
        match key:
            case "trigger":
                settings["trigger_us"] = value.duration_us()
            case "checkpoint":
                text = value.word()
                settings["checkpoint"] = None if text is None else absolute(text, base)
            case "bins" | "metrics":
                settings[key] = value.whole()
            case "packages":
                settings[key] = tuple(_words(value))
            case "jars":
                settings[key] = tuple(absolute(path, base) for path in _words(value))
            case "conf":
                settings["conf"] = read_options(value)
            case "schedule" | "join" | "shedding":
                # YAML reads a bare `off` as false.
                settings[key] = "off" if value.content is False else value.word()
    settings = {key: value for key, value in settings.items() if value is not None}
    for key in list(settings):
        try:
            EngineSettings(**{key: settings[key]})
        except ValueError as exc:
            section.document.add(str(exc), lines.get(key.removesuffix("_us"), section.line))
            del settings[key]
    return EngineSettings(**settings)


def _words(value: Value) -> list[str]:
    """A list of words, or one word alone."""
    found = (each.word() for each in (value.items() if isinstance(value.content, list) else [value]))
    return [word.strip() for word in found if word is not None]
