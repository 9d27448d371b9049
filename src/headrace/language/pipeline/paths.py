"""Names and paths as pipeline files write them."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from urllib.parse import unquote

from headrace.language.pipeline.yaml_nodes import Value
from headrace.language.words import shown

__all__ = ["absolute", "is_name", "is_uri", "local_path", "read_path", "why_no_path"]

# Letters before a colon: s3a://bucket, hdfs:///x, file:/tmp. One letter is left to Windows drives.
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# What file systems take, in bytes: a name, and a whole path.
_LONGEST_NAME, _LONGEST_PATH = 255, 4095
# Marks that make text read in another order than it has.
_DISORDER = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def absolute(path: str, base: Path) -> str:
    """A plain path made absolute beside the file; a URI stays as it is, its scheme in small letters.

    >>> absolute("data/in", Path("/srv/pipe")), absolute("S3A://Bucket/in", Path("/srv/pipe"))
    ('/srv/pipe/data/in', 's3a://Bucket/in')
    """
    match = _URI.match(path)
    return str(base / path) if match is None else match.group().lower() + path[match.end() :]


def is_uri(path: str) -> bool:
    """Whether a path names its file system."""
    return _URI.match(path) is not None


def local_path(path: str) -> Path | None:
    """The place of a path on this machine; None if it is on another file system.

    >>> local_path("/srv/in"), local_path("file:///srv/in"), local_path("s3a://bucket/in")
    (PosixPath('/srv/in'), PosixPath('/srv/in'), None)
    """
    if path.lower().startswith("file:"):
        return Path("/" + unquote(path[5:]).lstrip("/"))
    return None if is_uri(path) else Path(path)


def is_name(text: str) -> bool:
    """Whether a text can name a stream, a query or a site: it becomes an identifier and a directory.

    >>> is_name("top_talkers"), is_name("../x")
    (True, False)
    """
    return bool(_NAME.match(text)) and len(text) <= 128


def why_no_path(text: str) -> str | None:
    """Why a text cannot be a path, if it cannot.

    >>> why_no_path("out"), why_no_path("~/out")
    (None, "'~/out' is not expanded; write the whole path")
    """
    odd = next((c for c in text if unicodedata.category(c) in ("Cc", "Cs") or c in _DISORDER), None)
    if odd is not None:
        return f"{shown(text)} holds the character U+{ord(odd):04X}, which no path should have"
    if text.startswith("~") or "${" in text:
        return f"{shown(text)} is not expanded; write the whole path"
    parts = text.encode().split(b"/")
    if not is_uri(text) and (len(text.encode()) > _LONGEST_PATH or max(map(len, parts)) > _LONGEST_NAME):
        return f"{shown(text)} is longer than file systems take"
    return None


def read_path(value: Value, base: Path) -> str | None:
    """An absolute path or a URI; None after noting what is wrong with it."""
    text = value.word()
    if text is None:
        return None
    why = why_no_path(text)
    if why is not None:
        value.document.add(f"{value.path}: {why}", value.line)
        return None
    return absolute(text, base)
