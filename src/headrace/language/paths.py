"""Names and paths as pipeline files write them."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["absolute", "is_name"]

# Letters before a colon: s3a://bucket, hdfs:///x, file:/tmp. One letter is left to Windows drives.
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def absolute(path: str, base: Path) -> str:
    """A plain path made absolute beside the file; a URI stays as it is.

    >>> absolute("data/in", Path("/srv/pipe")), absolute("s3a://bucket/in", Path("/srv/pipe"))
    ('/srv/pipe/data/in', 's3a://bucket/in')
    """
    return path if _URI.match(path) else str(base / path)


def is_name(text: str) -> bool:
    """Whether a text can name a stream, a query or a site: it becomes an identifier and a directory.

    >>> is_name("top_talkers"), is_name("../x")
    (True, False)
    """
    return bool(_NAME.match(text)) and len(text) <= 128
