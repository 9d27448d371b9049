"""What must have come of a plan, worked out by DuckDB and without the engine: results, ledger, and every fault.

Which rows were in which batch is read from Spark's own logs; by which clock they were judged, from the decisions that
the driver has noted. Rows are admitted here by the contract on time. Then every query, in every stretch of batches it
ran for, is computed by DuckDB and compared by EXCEPT ALL, both ways.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from chaos_plan import AHEAD_S, LATENESS_S, STEP_S, Ask, Plan
from chaos_world import PARTITIONS, SCHEMA, SECOND, START, Journal, Row, World, place_of

COLUMNS = {
    "hop": "window_start, window_end, k, v, n",
    "slide": "window_start, window_end, k, v, n",
    "total": "window_start, window_end, v, n",
    "having": "window_start, window_end, g, v, n",
    "pairs": "a, b",
    "left": "a, b",
    "rows": "k, id, v, n",
    "counted": "k, id, n",
}


class Wrong(AssertionError):
    """A plan did not come out as it must."""


@dataclass(frozen=True)
class Stretch:
    """A query and the batches it ran for: after `since`, up to `until` (None: to the end, and flushed)."""

    ask: Ask
    since: int
    until: int | None


@dataclass
class Stream:
    """What the contract on time says about a stream, batch by batch."""

    admitted: list[list[tuple[Any, ...]]]
    watermark: list[float]  # after each batch
    greatest: list[float]
    late: int = 0
    rejected: int = 0

    @property
    def used(self) -> int:
        return sum(map(len, self.admitted))


class Judge:
    """Judges one home after its plan has been played."""

    def __init__(self, home: Path, plan: Plan, tables: dict[str, list[tuple[Any, ...]]]) -> None:
        self.home, self.disk, self.plan, self.world = home, home / "disk", plan, World(plan)
        self.journal, self.tables = Journal(home), tables

    def judge(self) -> dict[str, int]:
        """Raises Wrong at the first thing that is not as it must be; else what was compared."""
        self.check_faults()
        self.check_decisions()
        self.check_failures()
        counts = {"epochs": len(self.journal.read("epoch")), "batches": len(self.batches["q"]),
                  "replays": sum(bool(line["replay"]) for line in self.journal.read("epoch"))}  # fmt: skip
        self.check_ledger()
        rows = 0
        for stretch in self.stretches:
            rows += self.check_results(stretch)
        self.check_leftovers()
        return {**counts, "stretches": len(self.stretches), "rows": rows}

    # faults, decisions, failures -------------------------------------------------------------------------------------

    def check_faults(self) -> None:
        fired = {(line["act"], line["fault"]): line for line in self.journal.read("fired")}
        acts = [act for life in self.plan.lives for act in life.acts]
        for number, act in enumerate(acts):
            for at, fault in enumerate(act.faults):
                line = fired.get((number, at))
                if line is None:
                    raise Wrong(f"act {number}: the fault '{fault}' did not happen")
                if fault.kind == "rival" and line["answer"] != "refused":
                    raise Wrong(f"act {number}: a second engine was not refused: {line['answer']}")
                if fault.kind in ("kill worker", "kill executor") and not line["pid"]:
                    raise Wrong(f"act {number}: there was no process for '{fault}'")
        for line in self.journal.read("act"):
            if line["failure"] is not None and not line["expected"]:
                raise Wrong(f"act {line['number']} failed, though its faults are harmless: {line['failure']}")

    def check_decisions(self) -> None:
        """An epoch that was run again was decided the same; time goes forwards, and never falls behind the true one."""
        known: dict[int, Any] = {}
        for line in self.journal.read("decision"):
            del line["at_s"]
            if known.setdefault(line["epoch"], line) != line:
                raise Wrong(f"epoch {line['epoch']} was decided twice: {known[line['epoch']]}, then {line}")
        last = 0
        for epoch, line in sorted(known.items()):
            true = START + (epoch + 1) * STEP_S * SECOND
            if line["wall_us"] < max(true, last):
                raise Wrong(f"epoch {epoch} has the time {line['wall_us']}, it was {true}, the epoch before had {last}")
            last = line["wall_us"]

    def check_failures(self) -> None:
        """No fault of a machine may be a query's."""
        for line in self.journal.read("epoch"):
            if line["failed"]:
                raise Wrong(f"epoch {line['epoch']} failed queries: {line['failed']}")

    # rows ------------------------------------------------------------------------------------------------------------

    @cached_property
    def batches(self) -> dict[str, list[list[Row]]]:
        """The rows of each batch, by stream, from the offsets that Spark has logged."""
        found: dict[str, list[list[Row]]] = {"q": [], "r": []}
        before: dict[str, Any] = {"q": -1, "r": [0] * PARTITIONS if self.plan.kafka else -1}
        folder = self.disk / "state" / "spark" / "offsets"
        logs = sorted((path for path in folder.glob("[0-9]*") if path.name.isdigit()), key=lambda path: int(path.name))
        if [int(path.name) for path in logs] != list(range(len(logs))):
            raise Wrong("Spark has forgotten its first batches")
        for log in logs:
            # Spark knows sources by their position; the engine has them by name.
            for stream, text in zip("qr", log.read_text().splitlines()[-2:], strict=True):
                end = before[stream] if text == "-" else json.loads(text)
                if stream == "r" and self.plan.kafka:
                    after = [end["r"][str(p)] for p in range(PARTITIONS)] if isinstance(end, dict) else end
                    numbers = [o * PARTITIONS + p for p in range(PARTITIONS) for o in range(before["r"][p], after[p])]
                    found["r"].append([self.world.messages[number] for number in sorted(numbers)])
                    before["r"] = after
                else:
                    after = end["logOffset"] if isinstance(end, dict) else end
                    files = [f for b in range(before[stream] + 1, after + 1) for f in self._files(stream)[b]]
                    found[stream].append([row for file in files for row in self.world.rows[stream][file]])
                    before[stream] = after
        for stream in ("q", "r"):
            given = sum(map(len, self.world.rows[stream]))
            if (taken := sum(map(len, found[stream]))) != given:
                raise Wrong(f"stream {stream}: {taken} rows are in batches, {given} were given")
        return found

    def _files(self, stream: str) -> dict[int, list[int]]:
        """The files that Spark's log of a source names, by the source's own number of a batch."""
        seen: dict[int, set[int]] = defaultdict(set)
        for path in (self.disk / "state" / "spark" / "sources" / str("qr".index(stream))).iterdir():
            if path.name.partition(".")[0].isdigit():
                for line in path.read_text().splitlines()[1:]:
                    entry = json.loads(line)
                    seen[entry["batchId"]].add(int(Path(entry["path"]).name.partition(".")[0]))
        return {batch: sorted(files) for batch, files in seen.items()}

    @cached_property
    def streams(self) -> dict[str, Stream]:
        """What the contract on time admits."""
        walls = {line["batch"]: line["wall_us"] for line in self.journal.read("decision") if line["flush"] is None}
        found = {}
        for name, batches in self.batches.items():
            stream, watermark, greatest = Stream([], [], []), -math.inf, -math.inf
            for number, batch in enumerate(batches):
                kept = []
                for row in batch:
                    time = None if row.values is None else row.values[0]
                    if time is None or time > walls[number] + AHEAD_S * SECOND:
                        stream.rejected += 1
                    elif time < watermark:
                        stream.late += 1
                    else:
                        assert row.values is not None
                        kept.append(row.values)
                greatest = max([greatest, *(values[0] for values in kept)])
                watermark = max(watermark, greatest - LATENESS_S[name] * SECOND)
                stream.admitted.append(kept)
                stream.watermark.append(watermark)
                stream.greatest.append(greatest)
            found[name] = stream
        return found

    def check_ledger(self) -> None:
        manifest = self.manifest
        for name, stream in self.streams.items():
            entry = manifest["ledger"][name]
            ours = (stream.used, stream.late, 0, stream.rejected)
            theirs = tuple(entry[key] for key in ("used", "late", "shed", "rejected"))
            if ours != theirs:
                raise Wrong(f"ledger of {name} (used, late, shed, rejected): {theirs}, it must be {ours}")
        folder = self.disk / "state" / "rejected"
        kept = [
            json.loads(line)["stream"] for path in folder.glob("epoch-*.json") for line in path.read_text().splitlines()
        ]
        for name, stream in self.streams.items():
            if kept.count(name) != stream.rejected:
                raise Wrong(f"{kept.count(name)} rejected rows of {name} are kept, {stream.rejected} were rejected")

    @cached_property
    def manifest(self) -> dict[str, Any]:
        folder = self.disk / "state" / "manifests"
        last = max(int(path.stem) for path in folder.glob("[0-9]*.json"))
        found = json.loads((folder / f"{last}.json").read_bytes().partition(b"\n")[2])
        assert isinstance(found, dict)
        return found

    def check_leftovers(self) -> None:
        """After a clean end nothing lies about that no manifest names."""
        named = {chunk["name"] for chunk in self.manifest["chunks"]}
        there = {path.name for path in (self.disk / "state" / "state").iterdir()}
        if there != named:
            raise Wrong(
                f"state files that no manifest names: {sorted(there - named)}; missing: {sorted(named - there)}"
            )

    # results ---------------------------------------------------------------------------------------------------------

    @cached_property
    def stretches(self) -> list[Stretch]:
        """Each query with the batches it ran for, from the edits that were noted."""
        running: dict[Ask, int] = {}
        found = []
        for line in self.journal.read("edit"):
            asks = {Ask(**ask) for ask in line["asks"]}
            found += [Stretch(ask, since, line["batch"]) for ask, since in running.items() if ask not in asks]
            running = {ask: since for ask, since in running.items() if ask in asks}
            running |= {ask: line["batch"] for ask in asks if ask not in running}
        return found + [Stretch(ask, since, None) for ask, since in running.items()]

    def check_results(self, stretch: Stretch) -> int:
        """Compares one stretch; how many rows."""
        ask, until = stretch.ask, stretch.until
        connection = duckdb.connect()
        connection.execute("SET TimeZone = 'UTC'")
        self._load(connection, stretch, until)
        if ask.is_flow:
            connection.execute(f"CREATE TABLE must AS {_flow(ask, self._marks(until))}")
            connection.execute("CREATE VIEW may AS FROM must")
        else:
            self._windows(connection, stretch)
        self._found(connection, ask)
        columns = COLUMNS[ask.kind]
        lacking = connection.execute(f"SELECT {columns} FROM must EXCEPT ALL SELECT {columns} FROM found").fetchall()
        beyond = connection.execute(f"SELECT {columns} FROM found EXCEPT ALL SELECT {columns} FROM may").fetchall()
        if self.plan.by_chance and ask.kind == "rows" and until is not None:
            lacking = []  # by chance rows may be waiting for their state when their query is dropped
        count, must = (
            connection.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0] for name in ("found", "must")
        )
        if lacking or beyond:
            raise Wrong(
                f"{stretch}: {count} rows found, {must} must be there; "
                f"{len(lacking)} are lacking, such as {lacking[:3]}; {len(beyond)} are too many, such as {beyond[:3]}"
            )
        return int(count)

    def _marks(self, until: int | None) -> float:
        """Before which time rows of r are final."""
        if until is None:
            return math.inf
        marks = self.streams["r"].watermark
        return marks[min(until, len(marks) - 1)] if until >= 0 and marks else -math.inf

    def _load(self, connection: Any, stretch: Stretch, until: int | None) -> None:
        """The rows that a query may have seen; aggregates may use panes that others have kept before they came."""
        first = stretch.since + 1 if stretch.ask.is_flow else 0
        for name, stream in self.streams.items():
            rows = [
                values for batch in stream.admitted[first : None if until is None else until + 1] for values in batch
            ]
            columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
            arrays = [pa.array(list(column), field.type) for column, field in zip(columns, SCHEMA, strict=True)]
            connection.register(f"{name}_rows", pa.Table.from_arrays(arrays, schema=SCHEMA))
            connection.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT *, epoch_us(ts) AS t FROM {name}_rows")

    def _windows(self, connection: Any, stretch: Stretch) -> None:
        """All windows there are, exactly; which of them must be there, and which may."""
        ask, until = stretch.ask, stretch.until
        name = "q" if ask.kind == "total" else "r"
        stream = self.streams[name]
        self._load(connection, stretch, None)
        connection.execute(f"CREATE TABLE every AS {_aggregate(ask, name)}")
        seen = stream.greatest[stretch.since] if stretch.since >= 0 else -math.inf
        marks = stream.watermark
        ended = math.inf if until is None else marks[until] if until >= 0 else -math.inf
        self._found(connection, ask)
        bounds = f"epoch_us(window_start) > {_number(seen)} AND epoch_us(window_end) <= {_number(ended)}"
        if ask.kind == "slide":
            # It may be answered more often than it asks for. What must be there: of every `slide` of time an answer,
            # and every answer that is there, whole.
            slide = ask.slide_s * SECOND
            connection.execute(
                f"CREATE TABLE owed AS SELECT DISTINCT epoch_us(window_end) // {slide} AS number FROM every "
                f"WHERE {bounds} AND epoch_us(window_end) % {slide} = 0"
            )
            gaps = connection.execute(
                f"SELECT number FROM owed EXCEPT SELECT (epoch_us(window_end) + {slide - 1}) // {slide} FROM found"
            ).fetchall()
            if gaps:
                raise Wrong(f"{stretch}: no answer for the slides {gaps[:5]}")
            connection.execute(
                "CREATE TABLE must AS SELECT * FROM every WHERE window_end IN (SELECT window_end FROM found)"
            )
        else:
            connection.execute(
                f"CREATE TABLE must AS SELECT * FROM every WHERE ({bounds}) OR "
                "window_end IN (SELECT window_end FROM found)"
            )
        connection.execute(f"CREATE TABLE may AS SELECT * FROM every WHERE epoch_us(window_end) <= {_number(ended)}")

    def _found(self, connection: Any, ask: Ask) -> None:
        """What is in the query's sink."""
        folder = self.disk / "out" / place_of(ask)
        if ask.sink == "jdbc":
            rows = self.tables.get(place_of(ask), [])
            names = COLUMNS[ask.kind].split(", ")
            values = ", ".join(f"({', '.join(_literal(name, text) for name, text in zip(names, row, strict=True))})"
                               for row in rows)  # fmt: skip
            types = {"window_start": "TIMESTAMPTZ", "window_end": "TIMESTAMPTZ", "k": "VARCHAR"}
            columns = ", ".join(f"{name} {types.get(name, 'BIGINT')}" for name in names)
            connection.execute(f"CREATE OR REPLACE TABLE found ({columns})")
            if rows:
                connection.execute(f"INSERT INTO found VALUES {values}")
            return
        if ask.sink == "delta":
            from deltalake import DeltaTable

            there = (folder / "_delta_log").exists() and any((folder / "_delta_log").iterdir())
            tables = [DeltaTable(str(folder)).to_pyarrow_table()] if there else []
        else:
            tables = [pq.read_table(path) for path in sorted(folder.glob("*.parquet"))] if folder.exists() else []
        tables = [table for table in tables if table.num_rows]
        if tables:
            schema = tables[0].schema
            connection.register("found_rows", pa.concat_tables([table.cast(schema) for table in tables]))
            connection.execute("CREATE OR REPLACE TABLE found AS SELECT * FROM found_rows")
        else:
            kind = "every" if not ask.is_flow else "must"
            connection.execute(f"CREATE OR REPLACE TABLE found AS SELECT * FROM {kind} LIMIT 0")


def _number(value: float) -> str:
    return "9e18" if value == math.inf else "-9e18" if value == -math.inf else str(int(value))


def _literal(name: str, text: str) -> str:
    if text == "":
        return "NULL"
    return f"'{text}'::TIMESTAMPTZ" if name.startswith("window") else f"'{text}'" if name == "k" else text


def _aggregate(ask: Ask, stream: str) -> str:
    """Every window that holds rows, by DuckDB: aligned ones, and of those that may come more often all that may."""
    select, group = {
        "hop": ("k, sum(i)::BIGINT AS v, count(*) AS n", ", k"),
        "slide": ("k, max(i) AS v, count(*) AS n", ", k"),
        "total": ("sum(i)::BIGINT AS v, count(DISTINCT k) AS n", ""),
        "having": ("g, sum(i)::BIGINT + 1 AS v, count(*) * 2 AS n", ", g"),
    }[ask.kind]
    size, slide = ask.size_s * SECOND, ask.slide_s * SECOND
    # Spark's windows start at multiples of the slide; those of the papers' form end at edges of panes: whole seconds.
    step = SECOND if ask.kind == "slide" else slide
    phase = 0 if ask.kind == "slide" else size % slide
    ends = f"""SELECT DISTINCT e FROM (SELECT unnest(range((t // {step}) * {step} + {phase} - {step},
        t + {size} + {step} + 1, {step})) AS e, t FROM {stream}) WHERE t >= e - {size} AND t < e"""
    return f"""SELECT make_timestamptz(e - {size}) AS window_start, make_timestamptz(e) AS window_end, {select}
        FROM ({ends}) AS w JOIN {stream} ON t >= e - {size} AND t < e WHERE {ask.where}
        GROUP BY e{group}{" HAVING count(*) > 1" if ask.kind == "having" else ""}"""


def _flow(ask: Ask, before: float) -> str:
    """Results that come with rows; of row windows those of rows before a time, which are final."""
    if ask.kind in ("pairs", "left"):
        left, right = ask.size_s * SECOND, ask.slide_s * SECOND
        within = f"((q.t BETWEEN r.t - {right} AND r.t) OR (r.t BETWEEN q.t - {left} AND q.t))"
        how = "LEFT " if ask.kind == "left" else ""
        return f"SELECT r.id AS a, q.id AS b FROM r {how}JOIN q ON r.k = q.k AND r.i < q.i AND {within}"
    if ask.kind == "rows":
        over = f"OVER (PARTITION BY k ORDER BY t ROWS BETWEEN {ask.size_s - 1} PRECEDING AND CURRENT ROW)"
        rows = f"SELECT k, id, t, sum(i) {over} AS v, count(*) {over} AS n FROM r WHERE {ask.where}"
        return f"SELECT k, id, v::BIGINT AS v, n FROM ({rows}) WHERE t < {_number(before)}"
    rows = "SELECT k, id, t, row_number() OVER (PARTITION BY k ORDER BY t) AS n FROM r"
    return f"SELECT k, id, n FROM ({rows}) WHERE t < {_number(before)}"
