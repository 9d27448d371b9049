"""Spark's Java classes, loaded and checked once and kept in a file, so that later starts take half the time.

Java calls the file a dynamic archive of shared classes (JEP 350). It suits the Java and the jars it was made with; with
any others Java leaves it alone and starts as ever.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["archive_file", "archive_options"]

# Whoever gives one of these has an archive of their own, or wants none.
_THEIRS = ("-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit", "-Xshare:")
# Java says why it leaves an archive alone; nothing needs to be done about it.
_SILENT = "-Xlog:cds=off,cds+dynamic=off,class+path=off"


def archive_file() -> Path:
    """Where the archive is: beside the installed packages, and gone with them."""
    return Path(sys.prefix) / "share" / "headrace" / "classes.jsa"


def archive_options(options: str, environment: Mapping[str, str], file: Path) -> str:
    """The driver's Java options with the archive, if there is one and nobody has decided otherwise.

    >>> archive_options("-Xss4m", {}, Path("/nowhere"))
    '-Xss4m'
    >>> archive_options("-Xshare:off", {}, Path("/"))
    '-Xshare:off'
    """
    given = f"{options} {environment.get('SPARK_SUBMIT_OPTS', '')} {environment.get('JAVA_TOOL_OPTIONS', '')}"
    # Options are split at blanks.
    if any(theirs in given for theirs in _THEIRS) or not file.exists() or " " in str(file):
        return options
    return f"{options} -XX:SharedArchiveFile={file} {_SILENT}".strip()
