"""The `engine:` of a pipeline file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace.language.pipeline.options import read_options
from headrace.language.pipeline.paths import absolute, read_path
from headrace.language.pipeline.yaml_nodes import Value
from headrace.language.words import shown
from headrace.model import EngineSettings

__all__ = ["read_engine"]

_KEYS = {
    "trigger": "how long an epoch may take",
    "checkpoint": "where state is kept",
    "schedule": "when queries are executed",
    "join": "how joins run",
    "shedding": "whether load may be shed, and by which plan",
    "backlog": "what becomes of rows that gathered while nothing ran",
    "objective": "what is kept when load is shed",
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
                settings["checkpoint"] = read_path(value, base)
            case "bins" | "metrics":
                settings[key] = value.whole()
            case "packages":
                found = (each.word() for each in _listed(value))
                settings[key] = tuple(word.strip() for word in found if word is not None)
            case "jars":
                paths = (read_path(each, base) for each in _listed(value))
                settings[key] = tuple(path for path in paths if path is not None)
            case "conf":
                settings["conf"] = read_options(value)
                for name, each in value.content.items() if isinstance(value.content, dict) else ():
                    if not name.startswith("spark."):
                        value.document.add(
                            f"{value.path} has {shown(name)}, and Spark takes no setting of that name",
                            each.line,
                            "settings of Spark begin with 'spark.'",
                        )
            case "schedule" | "join" | "shedding" | "backlog" | "objective":
                settings[key] = value.word()
    settings = {key: value for key, value in settings.items() if value is not None}
    for key in ("backlog", "objective"):
        if key in settings and settings.get("shedding", "off") == "off":
            section.document.add(
                f"engine has '{key}', and sheds nothing", lines[key], "add shedding: fit, or leave it out"
            )
    for key in list(settings):
        try:
            EngineSettings(**{key: settings[key]})
        except ValueError as exc:
            section.document.add(str(exc), lines.get(key.removesuffix("_us"), section.line))
            del settings[key]
    return EngineSettings(**settings)


def _listed(value: Value) -> list[Value]:
    """The entries of a list, or one alone."""
    return value.items() if isinstance(value.content, list) else [value]
