"""YAML read as nodes with line numbers: safe, bounded, every key once.

Plain values are read by the core schema of YAML 1.2: a number is written in decimal digits, a truth value is true or
false, and everything else is a text: no, on, 010, 1:30, 1_000 and 2026-01-01 are what they look like.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import yaml

from headrace.errors import Problem
from headrace.language.pipeline.as_written import AsWritten
from headrace.language.pipeline.files import MOST_BYTES
from headrace.language.suggest import nearest
from headrace.language.words import shown
from headrace.units import parse_duration

__all__ = ["Document", "Value", "read_yaml"]

# A pipeline file is written by people; these are far above what they write and far below what hurts.
MOST_NODES = 100_000
MOST_LEVELS = 60
# Characters of a number: no whole number that counts anything, and no double, needs more.
MOST_DIGITS = 40
# What counts and sizes are held in.
_INT64 = 2**63

Scalar = str | int | float | bool | None


class Document:
    """One file and the problems found in it."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []

    def add(self, message: str, line: int | None = None, hint: str | None = None, query: str | None = None) -> None:
        self.problems.append(Problem(message, file=self.file, line=line, hint=hint, query=query))


@dataclass(frozen=True, slots=True)
class Value:
    """A YAML value, where it stands, and typed ways to read it that note a problem and go on."""

    document: Document
    path: str
    line: int
    content: Scalar | dict[str, Value] | list[Value]
    source: AsWritten | None = None
    written: str = ""
    unread: bool = False  # what is wrong with it has been noted

    def place(self, offset: int) -> tuple[int, int | None]:
        """Line and column in the file of a character of this text; without a column if that cannot be said."""
        if self.source is None or not isinstance(self.content, str):
            return self.line, None
        return self.source.place(self.content, offset)

    def wrong(self, expected: str, hint: str | None = None) -> None:
        """Note that this value is not what was expected."""
        if not self.unread:
            self.document.add(
                f"{self.path or 'the file'} should be {expected}, not {_shown(self.content)}", self.line, hint
            )

    def mapping(self, known: Mapping[str, object] | None = None) -> dict[str, Value]:
        """The entries of a mapping; with `known`, other keys are problems. Values of `known` say what each is for."""
        if not isinstance(self.content, dict):
            self.wrong("a mapping", f"known keys: {', '.join(known)}" if known else None)
            return {}
        for key, value in self.content.items() if known is not None else ():
            if key not in (known or {}):
                where = f"in {self.path}" if self.path else "at the top of the file"
                self.document.add(f"unknown key '{key}' {where}", value.line, nearest(key, known or {}))
        return dict(self.content)

    def items(self) -> list[Value]:
        """The entries of a list."""
        if not isinstance(self.content, list):
            self.wrong("a list")
            return []
        return list(self.content)

    def text(self) -> str | None:
        """A string; None after noting a problem."""
        if isinstance(self.content, str):
            return self.content
        self.wrong("a text")
        return None

    def word(self) -> str | None:
        """A string that is not empty."""
        text = self.text()
        if text is not None and not text.strip():
            self.wrong("a text that is not empty")
            return None
        return text

    def scalar_text(self) -> str | None:
        """A string, number or truth value, as it is written; true is 'true', as Spark's options spell it."""
        if isinstance(self.content, bool):
            return "true" if self.content else "false"
        if isinstance(self.content, (str, int, float)):
            return self.written
        self.wrong("a text, a number or true/false")
        return None

    def number(self, least: float = -1e300, most: float = 1e300) -> float | None:
        """A number within bounds, which are finite."""
        if not isinstance(self.content, (int, float)) or isinstance(self.content, bool):
            self.wrong("a number")
        elif not least <= self.content <= most:
            self.wrong(f"a number from {least:g} to {most:g}")
        else:
            return float(self.content)
        return None

    def whole(self, least: int = -_INT64, most: int = _INT64 - 1) -> int | None:
        """A whole number within bounds."""
        if not isinstance(self.content, int) or isinstance(self.content, bool):
            self.wrong("a whole number")
        elif not least <= self.content <= most:
            self.wrong(f"a whole number from {least} to {most}")
        else:
            return self.content
        return None

    def truth(self) -> bool:
        """true or false."""
        if not isinstance(self.content, bool):
            self.wrong("true or false")
            return False
        return self.content

    def duration_us(self) -> int | None:
        """Microseconds of a duration such as '5 seconds'."""
        text = self.content
        if not isinstance(text, str):
            self.wrong("a duration", "write a number and a unit, such as '5 seconds'")
            return None
        try:
            return parse_duration(text)
        except ValueError as exc:
            self.document.add(f"{self.path}: {exc}", self.line)
            return None


def _shown(content: Scalar | dict[str, Value] | list[Value]) -> str:
    match content:
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case None:
            return "nothing"
        case bool():
            return "true" if content else "false"
        case str():
            return shown(content)
    return str(content)


def read_yaml(text: str, document: Document) -> Value | None:
    """The root of a YAML text; notes problems, and gives None when it cannot be read at all.

    >>> document = Document("p.yml")
    >>> root = read_yaml("a: 1\\nb: [x, true]", document)
    >>> root.mapping()["b"].line, [item.content for item in root.mapping()["b"].items()]
    (2, ['x', True])
    """
    if len(text) > MOST_BYTES:
        document.add(f"the file has {len(text)} characters; the most is {MOST_BYTES}")
        return None
    loader = _Loader(text) if text.isprintable() or _readable(text) else None
    if loader is None:
        document.add("the file holds characters that YAML does not allow", hint="save it as UTF-8 text")
        return None
    try:
        node = loader.get_single_node()
        if node is None:
            document.add("the file is empty", 1, "a pipeline has name, streams and queries")
            return None
        return _Reader(document).value(node, "", 0)
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        document.add(f"not YAML: {exc.problem or exc.context}", mark.line + 1 if mark else None)
    except (yaml.YAMLError, RecursionError, ValueError) as exc:
        document.add(f"not YAML: {str(exc).splitlines()[0] if str(exc) else type(exc).__name__}")
    except _TooLarge as exc:
        document.add("the file is too large or too deep once its aliases are unfolded", exc.line)
    finally:
        loader.dispose()
    return None


def _readable(text: str) -> bool:
    try:
        yaml.reader.Reader(text)
    except yaml.YAMLError:
        return False
    return True


class _TooLarge(Exception):
    """More nodes or levels than people write."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


class _Loader(yaml.SafeLoader):
    """Composes nodes by YAML 1.2's core schema and stops at what is too large or too deep."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - as in its base
    nodes = levels = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.nodes, self.levels = self.nodes + 1, self.levels + 1
        if self.nodes > MOST_NODES or self.levels > MOST_LEVELS:
            raise _TooLarge(self.peek_event().start_mark.line + 1)  # type: ignore[no-untyped-call]
        try:
            return super().compose_node(parent, index)
        finally:
            self.levels -= 1


_KINDS = {
    "bool": (re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), "tTfF"),
    "int": (re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z"), "-+0123456789"),
    "float": (
        re.compile(
            r"(?:[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
            r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
        ),
        "-+0123456789.",
    ),
    "null": (re.compile(r"(?:~|null|Null|NULL|)\Z"), ["~", "n", "N", ""]),
}
_TAG = "tag:yaml.org,2002:"
for _kind, (_form, _first) in _KINDS.items():
    _Loader.add_implicit_resolver(_TAG + _kind, _form, list(_first))


class _Reader:
    """Turns nodes into values, counting them: an alias is counted each time it is used."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.count = 0

    def value(self, node: yaml.Node, path: str, level: int) -> Value:
        self.count += 1
        line = node.start_mark.line + 1
        if self.count > MOST_NODES or level > MOST_LEVELS:
            raise _TooLarge(line)
        content: Scalar | dict[str, Value] | list[Value] = None
        source, written, unread = None, "", False
        if isinstance(node, yaml.MappingNode):
            entries = dict(self._entries(node, path, level))
            unread = not self._accepts(node, ("map",), path)
            content = None if unread else entries
        elif isinstance(node, yaml.SequenceNode):
            items = [self.value(child, f"{path}[{i}]", level + 1) for i, child in enumerate(node.value)]
            unread = not self._accepts(node, ("seq",), path)
            content = None if unread else items
        else:
            written, known = str(node.value), len(self.document.problems)
            content = self._scalar(node, written, path, line)
            unread = len(self.document.problems) > known
            mark = node.start_mark
            source = AsWritten(str(mark.buffer)[mark.index : node.end_mark.index], line, mark.column + 1)
        return Value(self.document, path, line, content, source, written, unread)

    def _entries(self, node: yaml.MappingNode, path: str, level: int) -> Iterator[tuple[str, Value]]:
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            line = key_node.start_mark.line + 1
            if not self._accepts(key_node, ("str", *_KINDS), f"a key in {path or 'the file'}"):
                continue
            if key is None or key == "<<" or not key or not key.isprintable():
                self.document.add(
                    "a key must be a plain word", line, "merge keys (<<) and compound keys are not accepted"
                )
                continue
            if key in seen:
                self.document.add(f"key {shown(key)} stands twice, first on line {seen[key]}", line, "keep one")
                continue
            seen[key] = line
            yield key, self.value(value_node, f"{path}.{key}" if path else key, level + 1)

    def _accepts(self, node: yaml.Node, kinds: tuple[str, ...], path: str) -> bool:
        """Whether a node has a tag of these kinds; any other asks for code that nothing here runs."""
        tag = str(node.tag)
        if tag.startswith(_TAG) and tag.removeprefix(_TAG) in kinds:
            return True
        # A key that is a list or a mapping has a problem of its own.
        if isinstance(node, yaml.ScalarNode) or kinds in (("map",), ("seq",)):
            self.document.add(
                f"{path or 'the file'}: the tag {shown(tag.replace(_TAG, '!!'))} is not accepted",
                node.start_mark.line + 1,
                "write a plain value",
            )
            return False
        return True

    def _scalar(self, node: yaml.Node, written: str, path: str, line: int) -> Scalar:
        if not self._accepts(node, ("str", *_KINDS), path):
            return None
        kind = str(node.tag).removeprefix(_TAG)
        if any("\ud800" <= c <= "\udfff" for c in written):
            self.document.add(f"{path} holds half a character, which is no text", line, "write the character itself")
            return None
        if kind == "str":
            return written
        if not _KINDS[kind][0].match(written):
            self.document.add(f"{path}: {shown(written)} is not what the tag !!{kind} says", line, "remove the tag")
            return None
        if kind == "null":
            return None
        if kind == "bool":
            return written.lower() == "true"
        if len(written) > MOST_DIGITS:
            self.document.add(f"{path} is a number of {len(written)} characters; the most is {MOST_DIGITS}", line)
            return None
        return int(written) if kind == "int" else float(written.lower().replace(".inf", "inf").replace(".nan", "nan"))
