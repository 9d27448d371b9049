"""What executors need to run our tasks: this very Headrace, sent to them, and the packages its kernels are made of."""

from __future__ import annotations

import importlib
import re
import shutil
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
    here = {name: str(importlib.import_module(name).__version__) for name in NEEDED}
    try:
        look = context.parallelize(range(tasks), tasks).mapPartitions(partial(find_lacking, here))
        lacking = sorted(set(look.collect()))
    except Exception as failure:
        raise EnvironmentProblem(
            f"executors cannot run Python tasks: {_telling(str(failure))}; "
            "spark.pyspark.python names their Python, which must be of the driver's version"
        ) from failure
    if lacking:
        raise EnvironmentProblem(
            f"{'; '.join(lacking)}: install the driver's versions for the Python of the executors, which "
            "spark.pyspark.python names, or ship an environment with spark.archives"
        )
    _prepared.add(context)


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
