"""Options as pipeline files write them and Spark takes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from headrace.hiding import remember
from headrace.language.pipeline.yaml_nodes import Value
from headrace.language.sql.call_options import TEXT_OPTIONS
from headrace.language.words import shown, words
from headrace.units import parse_duration

__all__ = ["check_file_options", "is_text_option", "read_options"]

# Options of files that name no place and no code, besides those of the texts in them.
_OF_FILES = words(
    "header multiline linesep encoding charset enforceschema wholetext rowtag roottag mergeschema compression "
    "datetimerebasemode int96rebasemode"
)


def is_text_option(name: str) -> bool:
    """Whether an option changes how rows are read from texts and files, or written to them, and nothing else.

    >>> is_text_option("multiLine"), is_text_option("rowValidationXSDPath")
    (True, False)
    """
    return name.lower() in TEXT_OPTIONS or name.lower() in _OF_FILES


def read_options(value: Value | None) -> tuple[tuple[str, str], ...]:
    """Options as Spark takes them, texts all; it ignores case in their names."""
    found: dict[str, tuple[str, str]] = {}
    for key, option in value.mapping().items() if value is not None else ():
        text = option.scalar_text()
        if key.lower() in found:
            option.document.add(
                f"options {shown(found[key.lower()][0])} and {shown(key)} differ only in case", option.line, "keep one"
            )
        elif key.lower() == "path":
            option.document.add(f"{option.path} stands among the options", option.line, "write path: beside format:")
        elif text is not None:
            found[key.lower()] = key, text
    # From here on: what is wrong elsewhere in the file may be said by showing them.
    remember(found.values())
    return tuple(found.values())


def check_file_options(value: Value | None) -> None:
    """Notes what makes no sense in the options that say which files an epoch takes; Spark would say it much later."""
    given: Mapping[str, Value] = (
        {key.lower(): option for key, option in value.content.items()}
        if value is not None and isinstance(value.content, dict)
        else {}
    )
    for key, option in given.items():
        text = option.scalar_text() if key in _FILE_OPTIONS and option.content is not None else None
        # What comes from the environment is known when the run starts.
        if text is None or "${" in text:
            continue
        what, fits = _FILE_OPTIONS[key]
        if not fits(text.strip()):
            option.wrong(what)
    if "maxfilespertrigger" in given and "maxbytespertrigger" in given:
        option = given["maxbytespertrigger"]
        option.document.add("Spark takes maxFilesPerTrigger or maxBytesPerTrigger, not both", option.line, "keep one")


def _whole(least: int, most: int) -> tuple[str, Callable[[str], bool]]:
    def fits(text: str) -> bool:
        return re.fullmatch(r"0|[1-9][0-9]{0,18}", text) is not None and least <= int(text) <= most

    return f"a whole number from {least} to {most}", fits


def _one_of(*known: str) -> tuple[str, Callable[[str], bool]]:
    return f"one of {', '.join(known)}", lambda text: text.lower() in known


def _keeps_rows(text: str) -> bool:
    return text.upper() in ("PERMISSIVE", "FAILFAST")


def _is_false(text: str) -> bool:
    return text.lower() == "false"


def _is_age(text: str) -> bool:
    try:
        return text.isdigit() or parse_duration(text) >= 0
    except ValueError:
        return False


_TRUTH = _one_of("true", "false")
_FILE_OPTIONS: Mapping[str, tuple[str, Callable[[str], bool]]] = {
    "maxfilespertrigger": _whole(1, 2**31 - 1),
    "maxbytespertrigger": _whole(1, 2**63 - 1),
    "maxfileage": ("a duration, such as '7 days'", _is_age),
    "maxcachedfiles": _whole(0, 2**31 - 1),
    "latestfirst": _TRUTH,
    "filenameonly": _TRUTH,
    "recursivefilelookup": _TRUTH,
    # Rows that Spark leaves out by itself are in nobody's ledger.
    "mode": ("PERMISSIVE or FAILFAST: rows that DROPMALFORMED drops are not counted", _keeps_rows),
    "ignorecorruptfiles": ("false: rows of files that Spark passes over are not counted", _is_false),
    "ignoremissingfiles": ("false: rows of files that Spark passes over are not counted", _is_false),
    "cleansource": _one_of("off", "archive", "delete"),
}
