"""What executors need to run our tasks: this very Headrace, sent to them, and the packages its kernels are made of."""

from __future__ import annotations

import importlib
import re
import shutil
import socket
import sys
import tempfile
import weakref
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import EnvironmentProblem

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["is_local", "pack", "prepare_executors"]

# What tasks import besides Headrace itself and PySpark, which comes with Spark.
NEEDED = ("numpy", "pyarrow", "polars")
# What these packages export is for drivers; importing it would ask executors for SQL and YAML parsers.
_BARE = frozenset({"headrace/__init__.py", "headrace/engine/__init__.py"})

_prepared: weakref.WeakSet[SparkContext] = weakref.WeakSet()


def is_local(context: SparkContext) -> bool:
    """Whether tasks run in this machine's processes only, with this process's Python."""
    return str(context.master).startswith("local") and not str(context.master).startswith("local-cluster")


def prepare_executors(context: SparkContext) -> None:
    """Sends the package to a cluster's executors, and refuses those that lack what it needs; once per context."""
    if is_local(context) or context in _prepared:
        return
    folder = tempfile.mkdtemp(prefix="headrace-")
    # Executors fetch the file from this process whenever one of them starts: it stays as long as the context.
    weakref.finalize(context, shutil.rmtree, folder, ignore_errors=True)
    context.addPyFile(str(pack(Path(folder))))
    tasks = max(2, context.defaultParallelism)
    try:
        lacking = sorted(set(context.parallelize(range(tasks), tasks).mapPartitions(_lacking).collect()))
    except Exception as failure:
        raise EnvironmentProblem(
            f"executors cannot run Python tasks: {_telling(str(failure))}; "
            "spark.pyspark.python names their Python, which must be of the driver's version"
        ) from failure
    if lacking:
        raise EnvironmentProblem(
            f"{'; '.join(lacking)}: install it for the Python of the executors, which spark.pyspark.python names, "
            "or ship an environment with spark.archives"
        )
    _prepared.add(context)


def pack(folder: Path) -> Path:
    """Writes the package's own modules, as they are imported here, into a zip file."""
    root = Path(__file__).parents[1]
    archive = folder / "headrace.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(root.rglob("*.py")):
            name = path.relative_to(root.parent).as_posix()
            packed.writestr(name, "" if name in _BARE else path.read_bytes())
    return archive


def _telling(text: str) -> str:
    """The line of a failure that says what happened: that of a Python error, else of a Java one.

    >>> _telling("An exception was thrown:\\n  File x, line 3\\nModuleNotFoundError: No module named a\\n at b.C(D)")
    'ModuleNotFoundError: No module named a'
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [line for line in lines if re.match(r"[\w.]*Error\b", line)]
    return [*python[:1], *(line for line in lines if "Exception: " in line), *lines, "no reason was given"][0]


def _lacking(numbers: Iterable[int]) -> Iterator[str]:
    """Runs in a task: a sentence for what cannot be imported there."""
    missing = []
    for name in NEEDED:
        try:
            importlib.import_module(name)
        except ImportError:
            missing.append(name)
    if missing:
        yield f"executors on {socket.gethostname()} lack {' and '.join(missing)} in {sys.executable}"
