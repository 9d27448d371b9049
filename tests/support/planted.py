"""Commands over pipelines full of secrets, in one process; a test reads all that it has written.

python planted.py HOME JARS
"""

from __future__ import annotations

import sys
import urllib.request
from pathlib import Path

import headrace as hr
from headrace.cli.app import _run
from headrace.engine import build_session


def main() -> None:
    home, jars = Path(sys.argv[1]), sys.argv[2]
    conf = ["--conf", f"spark.jars={jars}", "--conf", "spark.driver.memory=1g",
            "--conf", f"spark.hadoop.planted.password={(home / 'conf-secret').read_text()}"]  # fmt: skip
    good = str(home / "good.yml")
    codes = {"check": _run(["check", good, "--json"], True), "explain": _run(["explain", good], True),
             "explain --json": _run(["explain", good, "--json"], True),
             "good": _run(["run", good, "--once", "--flush", "--json", *conf], True)}  # fmt: skip
    for name in ("jdbc", "kafka", "path", "missing"):
        for debug in (False, True):
            codes[f"{name} {debug}"] = _run(["run", str(home / f"{name}.yml"), "--once", *conf], debug)
    codes["status"] = _run(["status", str(home / "state"), "--json"], True)
    codes["shown"] = _run(["status", str(home / "state")], True)
    run = hr.Pipeline.from_file(good).start(build_session("planted"), metrics=0)
    try:
        run.process_all_available()
        print(urllib.request.urlopen(str(run.metrics_url)).read().decode())
        print(run.status)
    finally:
        run.stop()
    (home / "codes").write_text(repr(codes))


if __name__ == "__main__":
    main()
