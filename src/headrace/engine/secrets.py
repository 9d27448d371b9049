"""Options that take their values from the environment, and texts that must not show what is secret."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from headrace.errors import Problem, SpecError

__all__ = ["Secrets", "resolve"]

_REFERENCE = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_SECRET_OPTION = re.compile(r"(?i)password|passwd|secret|token|credential|jaas|access[._-]?key|private[._-]?key")
# Secrets inside addresses and settings: password=..., password="...".
_ASSIGNED = re.compile(r"(?i)((?:password|passwd|secret|token)\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|[^\s&;,\"']+)")
_HIDDEN = "***"

Options = Iterable[tuple[str, str]]


def resolve(options: Options, owner: str, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Options with each `${env:NAME}` replaced by that variable; SpecError names those that are not set.

    >>> resolve([("user", "ann"), ("password", "${env:PW}")], "query 'q'", {"PW": "x"})
    {'user': 'ann', 'password': 'x'}
    """
    known = os.environ if environment is None else environment
    options = tuple(options)
    problems = [
        Problem(f"{owner}: option '{key}' asks for the environment variable {name}, which is not set",
                hint=f"set {name} where Headrace is started")
        for key, text in options for name in _REFERENCE.findall(text) if name not in known
    ]  # fmt: skip
    if problems:
        raise SpecError(problems)
    return {key: _REFERENCE.sub(lambda match: known[match.group(1)], text) for key, text in options}


class Secrets:
    """What must not be shown: values of options that are secret by name, and all that came from the environment."""

    def __init__(self, options: Options, environment: Mapping[str, str] | None = None) -> None:
        known = os.environ if environment is None else environment
        found: set[str] = set()
        for key, text in options:
            referred = _REFERENCE.findall(text)
            found |= {known.get(name, "") for name in referred}
            if _SECRET_OPTION.search(key) and not referred:
                found.add(text)
        # The longest first: one may be part of another.
        self._values = sorted((value for value in found if value), key=len, reverse=True)

    def hide(self, text: str) -> str:
        """The text with secrets made unreadable.

        >>> Secrets([("password", "pa55")]).hide("no entry for ann with pa55 at db?password=pa55&x=1")
        'no entry for ann with *** at db?password=***&x=1'
        """
        for value in self._values:
            text = text.replace(value, _HIDDEN)
        return _ASSIGNED.sub(rf"\1{_HIDDEN}", text)
