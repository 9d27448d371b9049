"""What goes wrong in tasks leaves them as a failure that says whose it is; a panic of Polars is a query's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from headrace.errors import CorruptStateError, EngineError, LockedError, QueryFailure, StateError
from headrace.kernels import compact
from headrace.kernels.absorb import AbsorbTask, EpochColumns
from headrace.kernels.answer import AnswerSpec, DemandSpec, answers
from headrace.kernels.border import Bordered, TaskFailed, kernels, reported, told
from headrace.kernels.chunks import read_part, write_chunk
from headrace.kernels.compact import CompactTask
from headrace.kernels.deliver import DeliverTask, Work
from headrace.kernels.finish import DirectFinish
from headrace.kernels.panes import Layout
from headrace.model import LONGEST_CAUSE, ROWS, Due, Failure, Fault, shown

LAYOUT = Layout("s", 10, 1, False, ((ROWS, "rows", "wide"),), None)
SPEC = AnswerSpec(10, False, ("c0",), (), (DemandSpec(LAYOUT, (("s", (0,)),), False),))


def panic(*_: Any) -> Any:
    raise pl.exceptions.PanicException("index out of bounds\nnote: run with RUST_BACKTRACE=1")


def test_a_panic_becomes_a_sentence():
    with pytest.raises(QueryFailure) as failure, kernels():
        panic()
    assert told(failure.value) == "the kernel gave up: index out of bounds; please report it with the query"


class Broken:
    """Panes of which nobody can make anything."""

    def __init__(self, failure: BaseException) -> None:
        self._failure = failure

    def view(self, *_: Any) -> Any:
        raise self._failure


def test_panes_that_cannot_be_put_together_fail_their_queries():
    broken: Any = Broken(pl.exceptions.PanicException("no"))
    found = list(answers([(SPEC, Due((10,))), (SPEC, Due((20,)))], broken, 0))
    failure = Failure(Fault.QUERY, "the kernel gave up: no; please report it with the query")
    assert found == [(0, failure), (1, failure)]


@pytest.mark.parametrize("error", [CorruptStateError("altered"), OSError("no such disk"), MemoryError()])
def test_damaged_panes_are_nobodys_failure(error: Exception):
    broken: Any = Broken(error)
    with pytest.raises(type(error)):
        list(answers([(SPEC, Due((10,)))], broken, 0))


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        pytest.param(QueryFailure("x"), Fault.QUERY, id="a query's"),
        pytest.param(ValueError("OSError: CorruptStateError: x"), Fault.QUERY, id="whatever a text says"),
        pytest.param(pl.exceptions.PanicException("x"), Fault.QUERY, id="a kernel's panic"),
        pytest.param(CorruptStateError("x"), Fault.CORRUPT, id="damaged state"),
        pytest.param(LockedError("x"), Fault.LOCKED, id="another engine's state"),
        pytest.param(StateError("x"), Fault.STATE, id="other errors about state"),
        pytest.param(EngineError("x"), Fault.MACHINE, id="the engine's own"),
        pytest.param(TimeoutError("x"), Fault.MACHINE, id="the network"),
        pytest.param(PermissionError("x"), Fault.MACHINE, id="a permission"),
        pytest.param(MemoryError("x"), Fault.MACHINE, id="memory"),
    ],
)
def test_a_failure_leaves_its_task_as_what_it_is(error: BaseException, fault: Fault):
    def task(_: Any) -> Iterator[int]:
        yield 1
        raise error

    results = Bordered(task)(None)
    assert next(results) == 1
    with pytest.raises(TaskFailed) as raised:
        next(results)
    failure = reported(f"Traceback (most recent call last): ...\n{raised.value}\n\n at org.apache.spark")
    assert failure is not None
    assert failure.fault is fault
    if fault not in (Fault.QUERY, Fault.MACHINE):
        assert type(failure.error()) is type(error)


def test_no_value_of_a_row_passes_for_a_failure():
    forged = Bordered(panic, seal="0" * 32)
    with pytest.raises(TaskFailed) as raised:
        list(forged(None))
    assert reported(str(raised.value)) is None
    assert reported("headrace.errors.CorruptStateError: state file x is missing") is None


def test_a_cause_is_cut_once_secrets_are_hidden():
    assert shown("x" * (LONGEST_CAUSE - 12) + " password=tiger") == "x" * (LONGEST_CAUSE - 12) + " password..."
    assert shown("password=tiger " + "y" * 1000).startswith("password=*** y")
    assert len(shown("y" * 10**6)) == LONGEST_CAUSE


def test_answers_that_cannot_be_written_fail_their_query_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    schema = pa.schema([("n", pa.int64())])
    finish = DirectFinish((("n", "a0"),), (), None, schema)
    works = (
        Work(SPEC, Due((10,)), DirectFinish((("n", "gone"),), (), None, schema), str(tmp_path)),
        Work(SPEC, Due((10,)), finish, str(tmp_path)),
    )
    frame = pl.DataFrame({"a0": [1, 2]})
    monkeypatch.setattr(DirectFinish, "head", lambda self, _: panic() if self.outputs[0][1] == "gone" else frame)
    bad, good = sorted(DeliverTask(works).deliver(iter([(0, frame, None), (1, frame, None)])), key=lambda d: d.work)
    assert (bad.error or "").startswith("the kernel gave up")
    assert (good.error, good.rows) == (None, 2)


def test_absorbing_says_which_kernel_gave_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(AbsorbTask, "_absorbed", panic)
    with pytest.raises(QueryFailure, match="the kernel gave up"):
        list(AbsorbTask(None, 1, (), EpochColumns((), (), (), False))(iter(())))


def test_what_cannot_be_merged_is_kept_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Other synopses of the same chunks are merged; who reads the one that cannot be merged fails, and nobody else."""
    forms = tuple(Layout(id_, 10, 1, False, ((ROWS, "rows", "wide"),), None) for id_ in ("bad", "good"))
    frames = [pl.DataFrame({"p": [0, 10], "k0": ["a", "b"], ROWS: [n, n]}) for n in (1, 2)]
    names = []
    for frame in frames:
        chunk = write_chunk(str(tmp_path), 1, 0, [(form.id, 10, 0, frame) for form in forms])
        assert chunk is not None
        names.append(chunk.name)
    merge = compact.merge
    monkeypatch.setattr(compact, "merge", lambda f, form, by: panic() if form.id == "bad" else merge(f, form, by))
    told_of = {form.id: tuple(names) for form in forms}
    (made,) = CompactTask(str(tmp_path), 2, 1, told_of, forms, {form.id: 0 for form in forms})([0])
    kept = list(read_part(str(tmp_path), made.name, "bad", 0))
    assert sorted(row for frame in kept for row in frame.rows()) == sorted(row for f in frames for row in f.rows())
    (merged,) = read_part(str(tmp_path), made.name, "good", 0)
    assert sorted(merged.rows()) == [(0, "a", 3), (10, "b", 3)]


# What comes first --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "ties", "wanted"),
    [
        pytest.param(2, False, ["ab", "ef"], id="the first rows of each window, the rest of the columns decide"),
        pytest.param(2, True, ["abc", "ef"], id="with ties of the last within the limit"),
        pytest.param(1, True, ["a", "ef"], id="NULL ties with NULL"),
        pytest.param(3, True, ["abc", "efg"], id="no ties beyond the limit"),
        pytest.param(0, False, ["", ""], id="none"),
        pytest.param(0, True, ["", ""], id="none ties with none"),
        pytest.param(None, False, ["abcd", "efgh"], id="no limit"),
    ],
)
def test_the_first_rows_of_each_window(limit: int | None, ties: bool, wanted: list[str]):
    frame = pl.DataFrame(
        {"window_end": [1] * 4 + [2] * 4, "x": [9, 5, 5, 1, None, None, 7, 6], "s": list("abcdefgh")},
    ).sample(fraction=1, shuffle=True, seed=3)
    finish = DirectFinish((("s", "s"),), (("x", True, True),), limit, pa.schema([("s", pa.string())]), ties)
    for parts in (1, 3):
        # On any part of the rows first, and then on what is left.
        left = pl.concat(finish.head(frame[i::parts]) for i in range(parts))
        found = finish.head(left)
        assert ["".join(sorted(found.filter(pl.col("window_end") == w)["s"])) for w in (1, 2)] == wanted


def test_the_rows_after_the_first_of_each_window():
    frame = pl.DataFrame({"window_end": [1] * 4 + [2] * 2, "x": [9, 5, 5, 1, 7, 6], "s": list("abcdef")})
    schema = pa.schema([("s", pa.string())])
    finish = DirectFinish((("s", "s"),), (("x", True, True),), 3, schema, offset=1)
    for parts in (1, 3):
        left = pl.concat(finish.head(frame[i::parts]) for i in range(parts))
        assert finish.table(finish.head(left))["s"].to_pylist() == ["b", "c", "f"]
