"""YAML read as nodes with line numbers: safe, bounded, every key once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import yaml

from headrace.errors import Problem, SpecError
from headrace.language.suggest import nearest
from headrace.units import parse_duration

__all__ = ["Document", "Value", "read_yaml"]

# A pipeline file is written by people; these are far above what they write and far below what hurts.
MOST_BYTES = 1_000_000
MOST_NODES = 100_000
MOST_LEVELS = 60

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
    block: bool = False

    def wrong(self, expected: str, hint: str | None = None) -> None:
        """Note that this value is not what was expected."""
        self.document.add(
            f"{self.path or 'the file'} should be {expected}, not {_shown(self.content)}", self.line, hint
        )

    def mapping(self, known: Mapping[str, str] | None = None) -> dict[str, Value]:
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
        """A string, number or truth value, as Spark's options spell it: true is 'true'."""
        if isinstance(self.content, bool):
            return "true" if self.content else "false"
        if isinstance(self.content, (str, int, float)):
            return str(self.content)
        self.wrong("a text, a number or true/false")
        return None

    def number(self) -> float | None:
        """A number that is finite."""
        if isinstance(self.content, (int, float)) and not isinstance(self.content, bool) and abs(self.content) < 1e300:
            return float(self.content)
        self.wrong("a number")
        return None

    def whole(self) -> int | None:
        """A whole number."""
        if isinstance(self.content, int) and not isinstance(self.content, bool):
            return self.content
        self.wrong("a whole number")
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
        except (ValueError, OverflowError) as exc:
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
            return f"'{content[:40]}'"
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
    loader = yaml.SafeLoader(text) if text.isprintable() or _readable(text) else None
    if loader is None:
        document.add("the file holds characters that YAML does not allow", hint="save it as UTF-8 text")
        return None
    try:
        node = loader.get_single_node()
        if node is None:
            document.add("the file is empty", 1, "a pipeline has name, streams and queries")
            return None
        return _Reader(loader, document).value(node, "", 0)
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        document.add(f"not YAML: {exc.problem or exc.context}", mark.line + 1 if mark else None)
    except (yaml.YAMLError, RecursionError, ValueError) as exc:
        document.add(f"not YAML: {str(exc).splitlines()[0] if str(exc) else type(exc).__name__}")
    except SpecError as exc:
        document.problems.extend(exc.problems)
    finally:
        loader.dispose()
    return None


def _readable(text: str) -> bool:
    try:
        yaml.reader.Reader(text)
    except yaml.YAMLError:
        return False
    return True


class _Reader:
    """Turns nodes into values, counting them: an alias is counted each time it is used."""

    def __init__(self, loader: yaml.SafeLoader, document: Document) -> None:
        self.loader = loader
        self.document = document
        self.count = 0

    def value(self, node: yaml.Node, path: str, level: int) -> Value:
        self.count += 1
        line = node.start_mark.line + 1
        if self.count > MOST_NODES or level > MOST_LEVELS:
            raise SpecError(
                Problem("the file is too large or too deep once its aliases are unfolded", self.document.file, line)
            )
        content: Scalar | dict[str, Value] | list[Value]
        block = False
        if isinstance(node, yaml.MappingNode):
            content = dict(self._entries(node, path, level))
        elif isinstance(node, yaml.SequenceNode):
            content = [self.value(child, f"{path}[{i}]", level + 1) for i, child in enumerate(node.value)]
        else:
            content = self._scalar(node, path, line)
            block = getattr(node, "style", None) in ("|", ">")
        return Value(self.document, path, line, content, block)

    def _entries(self, node: yaml.MappingNode, path: str, level: int) -> Iterator[tuple[str, Value]]:
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            line = key_node.start_mark.line + 1
            if key is None or key == "<<":
                self.document.add(
                    "a key must be a plain word", line, "merge keys (<<) and compound keys are not accepted"
                )
                continue
            if key in seen:
                self.document.add(f"key '{key}' stands twice, first on line {seen[key]}", line, "keep one")
                continue
            seen[key] = line
            yield key, self.value(value_node, f"{path}.{key}" if path else key, level + 1)

    def _scalar(self, node: yaml.Node, path: str, line: int) -> Scalar:
        allowed = ("str", "int", "float", "bool", "null", "timestamp")
        kind = str(node.tag).rpartition(":")[2]
        if not str(node.tag).startswith("tag:yaml.org,2002:") or kind not in allowed:
            self.document.add(f"{path}: the tag {node.tag} is not accepted", line, "write a plain value")
            return None
        if kind in ("str", "timestamp"):
            return str(node.value)
        found = self.loader.construct_object(node, deep=True)
        return found if isinstance(found, (str, int, float, bool)) else None
