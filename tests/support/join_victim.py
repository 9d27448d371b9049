"""A driver that tests kill while ways to join switch in every epoch: python join_victim.py HOME POINT@EPOCH SEED"""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path

from joins import pipeline

from headrace.engine import Hooks, build_session
from headrace.engine import join as join_module
from headrace.policies import JoinStats, JoinWay

QUERIES = {
    "equal": "SELECT l.n, r.n AS m FROM l [RANGE 4 s] JOIN r [RANGE 9 s] ON l.k = r.k",
    "outer": "SELECT l.n, r.n AS m FROM l [RANGE 6 s] FULL JOIN r [RANGE 2 s] ON l.k = r.k AND (l.n + r.n) % 2 = 0",
    "band": "SELECT l.n, r.n AS m FROM l [RANGE 3 s] LEFT JOIN r [RANGE 3 s] ON l.x BETWEEN r.x - 1.5 AND r.x + 1.5",
}


def by_chance(rng: random.Random):  # type: ignore[no-untyped-def]
    """A policy that knows nothing: any way, any roles, any hot keys, any host for any slice, all at random."""

    def choose(stats: JoinStats, wanted: str = "auto", before: JoinWay | None = None, slices: int = 4) -> JoinWay:
        ways = ["split left", "split right", "biclique"]
        ways += ["hash", "hybrid left", "hybrid right"] if stats.equality else []
        way, _, split = rng.choice(ways).partition(" ")
        heavy = sorted({*stats.left.heavy, *stats.right.heavy})
        hot = tuple(key for key in heavy if rng.random() < 0.5) if way == "hybrid" else ()
        hosts = tuple(rng.randrange(len(stats.speeds)) for _ in range(slices))
        return JoinWay(way, split or None, hot, hosts, "by chance")

    return choose


def main() -> None:
    home, kill, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    point, _, epoch = kill.partition("@")
    seen: dict[str, int] = {}
    join_module.choose_way = by_chance(random.Random(seed))
    join_module.PERIOD = 1

    def probe(name: str) -> None:
        seen[name] = seen.get(name, 0) + 1
        if name == point and seen[name] == int(epoch) + 1:
            (home / "killed").write_text(kill)
            os.kill(os.getpid(), signal.SIGKILL)

    spark = build_session("victim", "local[2]", {"spark.driver.memory": "1g"})
    run = pipeline(spark, home, QUERIES).start(
        spark, str(home / "state"), once=True, flush=True, hooks=Hooks(probe=probe)
    )
    run.await_termination()
    os._exit(0)


if __name__ == "__main__":
    main()
