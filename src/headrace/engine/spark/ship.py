"""What executors need to run our tasks: this very Headrace, sent to them, and the packages its kernels are made of."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import sys
import tempfile
import weakref
import zipfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import EnvironmentProblem
from headrace.kernels.lacking import NEEDED, find_lacking

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["is_local", "pack", "prepare_executors"]

# The parts of Headrace that they import; nothing else is sent.
SENT = ("__init__.py", "errors.py", "hiding.py", "units.py", "model", "kernels")

CLUSTER_REMEDY = (
    "install the driver's versions for the Python of the executors, which spark.pyspark.python names and which must be "
    "of the driver's version, or ship an environment with spark.archives"
)
LOCAL_REMEDY = (
    "PYSPARK_PYTHON names another Python than this one; before the session is made, write: import os, sys; "
    'os.environ["PYSPARK_PYTHON"] = sys.executable'
)

_prepared: weakref.WeakSet[SparkContext] = weakref.WeakSet()


def is_local(context: SparkContext) -> bool:
    """Whether tasks run in this machine's processes only, with this process's Python."""
    return str(context.master).startswith("local") and not str(context.master).startswith("local-cluster")


def prepare_executors(context: SparkContext) -> None:
    """Sends the package to a cluster's executors, and refuses those that lack what it needs; once per context.

    Local tasks are run by this process's Python, unless its user has named another, which is looked at likewise.
    """
    if context in _prepared:
        return
    if is_local(context):
        named = context.getConf().get("spark.pyspark.python", None) or os.environ.get("PYSPARK_PYTHON")
        if named is None:
            # What Spark took when the session was made is whatever `python3` is on the path.
            context.pythonExec = sys.executable
        elif not _is_this_python(named):
            _refuse_lacking(context, 1, LOCAL_REMEDY)
        _prepared.add(context)
        return
    folder = tempfile.mkdtemp(prefix="headrace-")
    # Executors fetch the file from this process whenever one of them starts: it stays as long as the context.
    weakref.finalize(context, shutil.rmtree, folder, ignore_errors=True)
    context.addPyFile(str(pack(Path(folder))))
    _refuse_lacking(context, max(2, context.defaultParallelism), CLUSTER_REMEDY)
    _prepared.add(context)


def _is_this_python(named: str) -> bool:
    """Whether a command is this process's Python; links are not followed: those of environments lead elsewhere."""
    return os.path.abspath(shutil.which(named) or named) == os.path.abspath(sys.executable)


def _refuse_lacking(context: SparkContext, tasks: int, remedy: str) -> None:
    """EnvironmentProblem if tasks cannot run, or lack packages."""
    here = {name: str(importlib.import_module(name).__version__) for name in NEEDED}
    try:
        look = context.parallelize(range(tasks), tasks).mapPartitions(partial(find_lacking, here))
        lacking = sorted(set(look.collect()))
    except Exception as failure:
        raise EnvironmentProblem(f"executors cannot run Python tasks: {_telling(str(failure))}; {remedy}") from failure
    if lacking:
        raise EnvironmentProblem(f"{'; '.join(lacking)}; {remedy}")


def pack(folder: Path) -> Path:
    """Writes the modules that tasks import, as they are here, into a zip file."""
    root = Path(__file__).parents[2]
    archive = folder / "headrace.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for top in SENT:
            for path in sorted((root / top).rglob("*.py")) if (root / top).is_dir() else [root / top]:
                packed.write(path, path.relative_to(root.parent).as_posix())
    return archive


def _telling(text: str) -> str:
    """The line of a failure that says what happened: that of a Python error, else of a Java one.

    >>> _telling("An exception was thrown:\\n  File x, line 3\\nModuleNotFoundError: No module named a\\n at b.C(D)")
    'ModuleNotFoundError: No module named a'
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [line for line in lines if re.match(r"[\w.]*Error\b", line)]
    return [*python[:1], *(line for line in lines if "Exception: " in line), *lines, "no reason was given"][0]
