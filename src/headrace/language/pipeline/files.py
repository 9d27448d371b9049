"""Files that people write, read whole: regular files of UTF-8 text, of a bounded size."""

from __future__ import annotations

import os
import stat
from pathlib import Path

__all__ = ["MOST_BYTES", "read_text"]

# Far above what people write and far below what hurts.
MOST_BYTES = 1_000_000


def read_text(place: Path, most: int = MOST_BYTES) -> str:
    """The text of a file; OSError or ValueError with a sentence if it is no file of text, or a large one."""
    # Without waiting: opening a pipe that nobody writes to would take for ever.
    descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise ValueError("it is a folder")
        if not stat.S_ISREG(mode):
            raise ValueError("it is a pipe or a device, not a regular file")
        with open(descriptor, "rb", closefd=False) as file:
            # A file may be larger than it says: those that the kernel makes up have no size.
            content = file.read(most + 1)
    finally:
        os.close(descriptor)
    if len(content) > most:
        raise ValueError(f"it is larger than {most} bytes")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text; save it as UTF-8") from None
