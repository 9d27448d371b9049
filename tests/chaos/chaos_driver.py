"""One life of the engine: `python chaos_driver.py HOME SEED LIFE WITHOUT`; services are in HOME/services.json.

WITHOUT names a safeguard that the engine is to run without, which the suite must notice ("nothing": with all of them).
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

from chaos_faults import Faults, make_storage_fail
from chaos_plan import HARMLESS, Act, Ask, Life, Plan, make_plan
from chaos_world import Journal, World, pipeline_text, send_messages, write_files

import headrace as hr
from headrace.cli.rereading import Rereading
from headrace.engine import Hooks, build_session, session_settings
from headrace.errors import HeadraceError, LockedError
from headrace.model import SCHEDULE


class Driver:
    """Plays the acts of one life."""

    def __init__(self, home: Path, plan: Plan, number: int) -> None:
        self.home, self.disk, self.plan, self.number = home, home / "disk", plan, number
        self.life: Life = plan.lives[number]
        self.journal, self.world = Journal(home), World(plan)
        self.services: dict[str, Any] = json.loads((home / "services.json").read_text())
        self.file = home / "pipeline.yml"
        self.faults: Faults | None = None
        self.spark: Any = None

    def session(self, pipe: hr.Pipeline) -> Any:
        master = self.services.get("master") or f"local[{self.life.cores},4]"
        conf = {"spark.driver.memory": "1g", "spark.headrace.flux.minis": "4",
                "spark.sql.shuffle.partitions": str(self.life.cores)}  # fmt: skip
        if "master" in self.services:
            conf |= {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1",
                     "spark.driver.bindAddress": "127.0.0.1"}  # fmt: skip
        return build_session("chaos", master, session_settings(pipe.model, conf))

    def play(self) -> None:
        for at, act in enumerate(self.life.acts):
            number = sum(len(life.acts) for life in self.plan.lives[: self.number]) + at
            self.faults = Faults(act, self.number, number, self.disk, self.journal, self.rival)
            before = self.edited_to()
            half = (act.first + act.last) // 2 if act.live else act.last
            self.give(half)
            self.edit(before if act.live and before else act.asks)
            pipe = hr.Pipeline.from_file(self.file)
            self.spark = self.spark or self.session(pipe)
            self.faults.committed = self.last_manifest()["epoch"]
            self.faults.begin()
            failure = self.run(pipe, act, half)
            self.faults.end()
            expected = any(fault.kind not in HARMLESS for fault in act.faults)
            self.journal.note("act", number=number, failure=failure, expected=expected)

    def run(self, pipe: hr.Pipeline, act: Act, half: int) -> str | None:
        """Runs an act to its end; what ended it, if anything did."""
        assert self.faults is not None
        hooks = Hooks(clocks=self.faults.clocks, probe=self.faults.probe, on_decision=self.decided,
                      on_epoch=self.committed, on_note=lambda text: self.journal.note("note", text=text))  # fmt: skip
        run = None
        try:
            run = pipe.start(self.spark, once=not act.live, flush=act.flush, hooks=hooks)
            if not act.live:
                run.await_termination()
                return None
            run.process_all_available()
            self.edit_running(run, pipe, act.asks)
            self.give(act.last)
            run.process_all_available()
            run.stop()
        except (HeadraceError, OSError) as failure:
            if act.live:
                self.give(act.last)
            if run is not None:
                with contextlib.suppress(HeadraceError, OSError):
                    run.stop()
            return f"{type(failure).__name__}: {failure}"
        return None

    def give(self, last: int) -> None:
        """Files up to a number, and as many messages; those that were given before are there already."""
        write_files(self.world, self.home, last)
        if self.plan.kafka:
            send_messages(self.world, self.services["servers"], last)

    def edited_to(self) -> tuple[Ask, ...]:
        """The queries that the journal says run now."""
        lines = self.journal.read("edit")
        return tuple(Ask(**ask) for ask in lines[-1]["asks"]) if lines else ()

    def edit(self, asks: tuple[Ask, ...]) -> None:
        """Writes the file before a start, and notes what that changes and when."""
        self.file.write_text(pipeline_text(self.plan, asks, self.life.bins, self.services))
        if asks != self.edited_to():
            self.journal.note("edit", asks=[vars(ask) for ask in asks], batch=self.last_decided(), live=False)

    def edit_running(self, run: Any, pipe: hr.Pipeline, asks: tuple[Ask, ...]) -> None:
        """Edits the file under a run that has nothing to do just now."""
        if asks == self.edited_to():
            return
        said: list[str] = []
        rereading = Rereading(self.file, pipe.model, said.append)
        self.file.write_text(pipeline_text(self.plan, asks, self.life.bins, self.services))
        self.journal.note("edit", asks=[vars(ask) for ask in asks], batch=run.progress.batch, live=True)
        rereading.reread(run)
        refused = [line for line in said if "was not taken over" in line or "waits for" in line]
        assert not refused, said

    def last_manifest(self) -> dict[str, Any]:
        """What the last committed epoch says; before the first, what comes before a first."""
        folder = self.disk / "state" / "manifests"
        found = sorted(int(path.stem) for path in folder.glob("[0-9]*.json")) if folder.exists() else []
        if not found:
            return {"epoch": -1, "batch": -1}
        value = json.loads((folder / f"{found[-1]}.json").read_bytes().partition(b"\n")[2])
        assert isinstance(value, dict)
        return value

    def last_decided(self) -> int:
        """The last batch that was decided: an epoch that was begun is run again before an edit takes effect."""
        last = self.last_manifest()
        begun = self.disk / "state" / "decisions" / f"{last['epoch'] + 1}.json"
        found = json.loads(begun.read_bytes().partition(b"\n")[2]) if begun.exists() else last
        return int(found["batch"])

    def decided(self, decision: Any) -> None:
        value = decision.to_json()
        value["nodes"] = {node: made for node, made in value["nodes"].items() if node == SCHEDULE}
        self.journal.note("decision", **{k: v for k, v in value.items() if k != "what"})

    def committed(self, manifest: Any) -> None:
        assert self.faults is not None
        self.faults.committed = manifest.epoch
        failed = {name: query.failed for name, query in manifest.queries.items() if query.failed}
        self.journal.note("epoch", epoch=manifest.epoch, batch=manifest.batch, failed=failed,
                          replay=manifest.observed.replay)  # fmt: skip

    def rival(self) -> str:
        """What a second engine on the same checkpoint is told."""
        try:
            run = hr.Pipeline.from_file(self.file).start(self.spark, once=True)
            run.await_termination()
        except LockedError:
            return "refused"
        except Exception as failure:
            return f"{type(failure).__name__}: {failure}"
        return "ran"


def decide_by_chance(seed: int) -> None:
    """Takes the decisions about flows away from the policies."""
    from joins import by_chance
    from keyed_chaos import Chaos

    from headrace.engine.operators import keyed
    from headrace.planning import joining

    joining.choose_way, joining.PERIOD = by_chance(random.Random(seed)), 1
    keyed.decide_keyed, keyed.SNAPSHOT_EPOCHS = Chaos(random.Random(seed)), 2


def main() -> None:
    home, seed, number, without = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    services = json.loads((home / "services.json").read_text())
    plan = make_plan(seed, **services["there"])
    if without != "nothing":
        from chaos_without import take_away

        take_away(without)
    if plan.by_chance:
        decide_by_chance(seed * 100 + number)
    driver = Driver(home, plan, number)
    make_storage_fail(lambda: None if driver.faults is None else driver.faults.storage)
    driver.play()
    if number == len(plan.lives) - 1:
        driver.journal.note("end")
    os._exit(0)


if __name__ == "__main__":
    main()
