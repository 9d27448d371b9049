"""Small files that carry a checksum of themselves."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from headrace.errors import CorruptStateError

__all__ = ["seal", "unseal"]


def seal(value: Mapping[str, Any]) -> bytes:
    """A value as JSON, behind its checksum."""
    body = json.dumps(value, separators=(",", ":")).encode()
    return f"{zlib.crc32(body):08x}".encode() + b"\n" + body


def unseal(data: bytes | None, where: str) -> dict[str, Any]:
    """The value that was sealed; CorruptStateError names the file if it is not that any more."""
    if data is None:
        raise CorruptStateError(f"{where} is missing")
    crc, _, body = data.partition(b"\n")
    if f"{zlib.crc32(body):08x}".encode() != crc:
        raise CorruptStateError(f"{where} is altered or truncated: it does not match its checksum")
    value = json.loads(body)
    if not isinstance(value, dict):
        raise CorruptStateError(f"{where} holds no object")
    return value
