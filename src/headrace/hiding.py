"""Texts without secrets: whatever Headrace shows, logs or writes down about a run passes through `hide`.

Secret are the values of options that are secret by name, passwords inside addresses and settings, and every value that
an option took from the environment. A process remembers those it has met, so that no caller has to carry them along.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

__all__ = ["REFERENCE", "Options", "Secrets", "hidden", "hide", "holds_secret", "is_secret_option", "remember"]

# How an option asks for an environment variable.
REFERENCE = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")

_SHOWN_INSTEAD = "***"
_SECRET_WORDS = r"passw(?:or)?d|passphrase|secret|token|credential|jaas|connection[._-]?string"
_SECRET_KEYS = (
    r"(?:api|access|account|private|shared|master|encryption|signing|storage|subscription|keystore)[._-]?(?:access)?"
    r"[._-]?key"
)
# `auth`, `pwd` and `sas` as words of their own: an author and a SASL mechanism are no secrets.
_SECRET_PARTS = r"(?<![a-z])(?:pwd|pass|sas|auth|authorization|sig|signature)(?![a-z])"
_SECRET_OPTION = re.compile(f"(?i){_SECRET_WORDS}|{_SECRET_KEYS}|{_SECRET_PARTS}|user[._-]?info")
# Secrets inside addresses and settings: password=..., "AccountKey": "...", pwd='...'.
_ASSIGNED = re.compile(
    rf"(?i)((?:passw(?:or)?d|passphrase|secret|{_SECRET_KEYS}|{_SECRET_PARTS})[\"']?\s*[=:]\s*|token[\"']?\s*=\s*)"
    r"(\"[^\"]*\"|'[^']*'|[^\s&;,\"']+)"
)
# user:password@ of an address, and Oracle's user/password@; up to the last @ of the word: a password may hold others.
_IN_ADDRESS = re.compile(
    r"(?i)((?<![a-z0-9])[a-z][a-z0-9+.-]*://[^\s/:@\"']*:|(?<![a-z0-9])jdbc:\w+:\w*:[^\s/:@\"']+/)([^\s\"'<>]*)(@)"
)
# Values that options with telling names often have, and that say nothing.
_PLAIN = frozenset({"", "true", "false", "none", "null", "yes", "no", "on", "off", "default", "simple", "basic"})
# A shorter value is hidden where it stands alone, not inside other words; a single character is nobody's secret.
_SHORT = 6

Options = Iterable[tuple[str, str]]


def is_secret_option(name: str) -> bool:
    """Whether the value of an option is secret by the option's name.

    >>> [name for name in ("pwd", "fs.azure.account.key.x", "kafka.sasl.mechanism", "author") if is_secret_option(name)]
    ['pwd', 'fs.azure.account.key.x']
    """
    return _SECRET_OPTION.search(name) is not None


def holds_secret(name: str, text: str) -> bool:
    """Whether the text of an option is, or contains, a secret; `${env:NAME}` is none, as it says only where one is.

    >>> [holds_secret(*pair) for pair in (("password", "x1"), ("password", "${env:PW}"), ("url", "ftp://ann:x1@host"))]
    [True, False, True]
    """
    return any(value.lower() not in _PLAIN for value in _values(name, text, {}))


class Secrets:
    """Values that must not be shown, and how to leave them out of a text."""

    def __init__(self, options: Options = (), environment: Mapping[str, str] | None = None) -> None:
        self._values: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self.add(options, environment)

    def add(self, options: Options, environment: Mapping[str, str] | None = None) -> None:
        """Takes note of the secrets in options; variables they refer to are looked up in `environment`."""
        found = {value for key, text in options for value in _values(key, text, environment or {})}
        found = {form for value in found if len(value) > 1 and value.lower() not in _PLAIN for form in _forms(value)}
        if not found <= self._values:
            self._values |= found
            # The longest first: one may be part of another.
            ordered = sorted(self._values, key=lambda value: (-len(value), value))
            self._pattern = re.compile("|".join(map(_matching, ordered)))

    def hide(self, text: str) -> str:
        """The text with secrets made unreadable.

        >>> Secrets([("password", "pa55")]).hide("no entry for ann with pa55 at db?password=pa55&x=1")
        'no entry for ann with *** at db?password=***&x=1'
        """
        if self._pattern is not None:
            text = self._pattern.sub(_SHOWN_INSTEAD, text)
        text = _IN_ADDRESS.sub(rf"\1{_SHOWN_INSTEAD}\3", text)
        return _ASSIGNED.sub(rf"\1{_SHOWN_INSTEAD}", text)


# Words of a login module's settings that are no secrets.
_LOGIN_WORDS = frozenset({"required", "requisite", "sufficient", "optional", "username", "password"})


def _words(text: str) -> Iterator[str]:
    """The words of a login module's settings: a complaint about one that is malformed quotes any of them."""
    found = re.split(r"[\s;=\"']+", text)
    return (word for word in found if len(word) >= _SHORT and word not in _LOGIN_WORDS and "LoginModule" not in word)


def _values(key: str, text: str, environment: Mapping[str, str]) -> Iterator[str]:
    """The secrets in one option."""
    referred = REFERENCE.findall(text)
    yield from (environment[name] for name in referred if name in environment)
    whole = REFERENCE.sub(lambda match: environment.get(match.group(1), match.group()), text)
    if is_secret_option(key) and not REFERENCE.fullmatch(whole):
        yield whole
        if "jaas" in key.lower():
            yield from _words(whole)
    for match in (*_ASSIGNED.finditer(whole), *_IN_ADDRESS.finditer(whole)):
        inner = match.group(2).strip("\"'")
        if not REFERENCE.search(inner):
            yield inner


def _forms(value: str) -> Iterator[str]:
    """A value as it may be written: plain, line by line, inside JSON, a program's text or an address."""
    lines = [line.strip() for line in value.splitlines() if len(line.strip()) >= _SHORT]
    for text in (value, *lines):
        yield text
        yield json.dumps(text)[1:-1]
        yield repr(text)[1:-1]
        yield quote(text, safe="")
        yield quote_plus(text)


def _matching(value: str) -> str:
    text = re.escape(value)
    return text if len(value) >= _SHORT else rf"(?<!\w){text}(?!\w)"


_KNOWN = Secrets()


def remember(options: Options, environment: Mapping[str, str] | None = None) -> None:
    """Has this process hide the secrets of options from now on."""
    _KNOWN.add(options, environment)


def hide(text: str) -> str:
    """The text without any secret that this process has met, and without what looks like one."""
    return _KNOWN.hide(text)


def hidden(value: Any) -> Any:
    """Plain values, as JSON has them, with every text in them hidden."""
    match value:
        case str():
            return hide(value)
        case Mapping():
            return {hide(key) if isinstance(key, str) else key: hidden(each) for key, each in value.items()}
        case list() | tuple():
            return [hidden(each) for each in value]
    return value
