"""What a run writes, others may read only if the user's umask lets them."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

# Nothing for anybody else.
UMASK = 0o077
SCRIPT = """
import os, sys
from pathlib import Path
home = Path(sys.argv[1])
os.umask(int(sys.argv[2], 8))
import headrace as hr
from headrace.engine.spark.session import build_session
spark = build_session("umask", "local[2]", {"spark.driver.memory": "600m", "spark.local.dir": str(home / "local")})
sql = "SELECT k, SUM(v) AS v FROM r [WINDOW 20 s] GROUP BY k"
pipe, out = hr.Pipeline("umask"), lambda name: str(home / "out" / name)
rows = spark.readStream.schema("ts TIMESTAMP, k STRING, v INT").json(str(home / "in"))
pipe.stream("r", rows, time="ts", lateness="5 seconds")
pipe.query("direct", sql, sink=hr.parquet(out("direct")))
pipe.query("finished", sql + " HAVING SUM(v) > 0", sink=hr.parquet(out("finished")))
pipe.query("distinct", sql.replace("SELECT", "SELECT DISTINCT"), sink=hr.parquet(out("distinct")))
pipe.query("running", "SELECT k, SUM(v) AS v FROM r [PARTITION BY k ROWS 3]", sink=hr.parquet(out("rows")))
pipe.query("csv", sql, sink=hr.csv(out("csv")))
pipe.query("json", sql, sink=hr.json(out("json")))
pipe.query("orc", sql, sink=hr.sink("orc", out("orc")))
pipe.start(spark, str(home / "out" / "state"), once=True, flush=True).await_termination()
os._exit(0)
"""


def test_files_are_created_with_the_users_umask(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = [{"ts": f"2024-03-10T01:30:{n:02d}Z", "k": f"k{n % 3}", "v": n} for n in range(40)]
    (tmp_path / "in" / "1.json").write_text("\n".join(map(json.dumps, [*rows, {"k": "no time"}])))
    child = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), f"{UMASK:o}"], check=False, capture_output=True, text=True
    )
    assert child.returncode == 0, child.stderr[-3000:]
    written = [path for path in (tmp_path / "out").rglob("*") if not path.is_symlink()]
    kinds = {str(path.relative_to(tmp_path / "out")).partition("/")[0] for path in written if path.is_file()}
    assert kinds == {"direct", "finished", "distinct", "rows", "csv", "json", "orc", "state"}
    assert list((tmp_path / "out" / "state" / "rejected").glob("epoch-*.json"))
    wide = {
        str(path.relative_to(tmp_path)): stat.filemode(os.stat(path).st_mode)
        for path in (tmp_path / "out", *written)
        if os.stat(path).st_mode & UMASK
    }
    assert wide == {}
