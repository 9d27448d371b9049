"""`./run fuzz`: rounds of random queries until as many as asked for have been generated."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from fuzz.play import Round, play, reason
from headrace.errors import HeadraceError


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run fuzz", description=__doc__)
    parser.add_argument("--queries", type=int, default=2000, help="how many queries to generate (2000)")
    parser.add_argument("--seed", default="1", help="where chance begins (1)")
    parser.add_argument("--pipeline", type=int, default=200, help="queries that run together in one pipeline (200)")
    parser.add_argument("--first", type=int, default=0, help="the first round; those before it are left out (0)")
    parser.add_argument("--replay", help="a round's seed and queries, such as 1.3:17,18, as printed with a mismatch")
    parser.add_argument("--shapes", help="only queries of these shapes: window, join, rows, 'window over join', ...")
    arguments = parser.parse_args()

    from headrace.engine import build_session

    spark = build_session("fuzz", "local[2,4]", {"spark.driver.memory": "2g", "spark.log.level": "OFF"})
    shapes = arguments.shapes.split(",") if arguments.shapes else None
    total: Counter[str] = Counter()
    refusals: Counter[str] = Counter()
    compared = windows = 0
    try:
        with tempfile.TemporaryDirectory() as home:
            if arguments.replay:
                seed, _, numbers = arguments.replay.partition(":")
                only = [int(number) for number in numbers.split(",")]
                made = play(spark, Path(home) / "replay", seed, 0, only=only, shapes=shapes, say=_say)
                for outcome in made.outcomes:
                    print(f"{outcome.verdict}: {outcome.query.sql}\n  judge: {outcome.query.judge}\n  {outcome.detail}")
                return int(bool(made.of("mismatch")))
            number = arguments.first
            while number * arguments.pipeline < arguments.queries:
                count = min(arguments.pipeline, arguments.queries - number * arguments.pipeline)
                began = time.monotonic()
                seed = f"{arguments.seed}.{number}"
                number += 1
                try:
                    made = play(spark, Path(home) / seed, seed, count, shapes=shapes, say=_say)
                except HeadraceError as failure:
                    # A run that stops takes all its queries along: whatever made it, that must not happen.
                    print(f"\nMISMATCH the run of round {seed} stopped: {failure}", flush=True)
                    total["mismatch"] += 1
                    continue
                total += made.count()
                refusals.update(reason(outcome.detail) for outcome in made.of("refused"))
                compared += sum(outcome.rows for outcome in made.of("equal"))
                windows += sum(outcome.windows for outcome in made.of("equal"))
                _show(made)
                print(f"round {made.seed}: {time.monotonic() - began:.0f} s; so far {dict(total)}, "
                      f"{compared} rows and {windows} windows compared", flush=True)  # fmt: skip
    except KeyboardInterrupt:
        print("\ninterrupted; the round under way is not counted", flush=True)
    finally:
        spark.stop()
    print(f"\n{sum(total.values())} queries: {dict(total)}; {compared} rows and {windows} windows in brackets compared")
    for text, times in refusals.most_common(25):
        print(f"{times:6} refused: {text}")
    return int(total["mismatch"] > 0)


def _say(text: str) -> None:
    print(text, flush=True)


def _show(made: Round) -> None:
    for outcome in made.of("mismatch"):
        print(f"\nMISMATCH {outcome.query.shape}, sink {outcome.query.sink}\n  {outcome.query.sql}\n  {outcome.detail}")
        print(f"  replay: ./run fuzz --replay {outcome.seed}")
    for outcome in [*made.of("failed in both"), *made.of("refused by both")][:6]:
        print(f"  {outcome.verdict}: {outcome.detail[:300]}")
    print({name: round(seconds, 1) for name, seconds in made.seconds.items()})


if __name__ == "__main__":
    sys.exit(main())
