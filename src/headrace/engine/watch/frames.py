"""What a run says of itself as tables for notebooks: pandas DataFrames, a row per query, stream or decision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from headrace.model import EpochDecision, plain

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["as_html", "decisions_frame", "queries_frame", "streams_frame"]

_QUERIES = ("query", "state", "cause", "answers", "rows", "answered_until", "late_s", "period_s")
_STREAMS = ("stream", "rows_in", "used", "late", "shed", "rejected", "last", "watermark")
_DECISIONS = ("epoch", "about", "decision", "reason")
# Times of a frame are pandas timestamps in UTC, NaT where there is none.
_TIMES = ("answered_until", "last", "watermark")


def queries_frame(status: Mapping[str, Any]) -> pd.DataFrame:
    """A row per query: its state, what it has answered, and how far behind it is, in seconds of event time."""
    return _frame(
        _QUERIES,
        (
            (name, q["state"], q["cause"], q["answers"], q["rows"], q["answered_us"], _seconds(q["late_us"]),
             _seconds(q["achieved_period_us"]))
            for name, q in status["queries"].items()
        ),
    )  # fmt: skip


def streams_frame(status: Mapping[str, Any]) -> pd.DataFrame:
    """A row per stream: where its rows went, the greatest event time seen, and its watermark."""
    return _frame(
        _STREAMS,
        (
            (name, s["rows_in"], s["used"], s["late"], s["shed"], s["rejected"], s["last_us"], s["watermark_us"])
            for name, s in status["streams"].items()
        ),
    )


def decisions_frame(decisions: Iterable[EpochDecision]) -> pd.DataFrame:
    """A row per thing decided for an epoch, with its reason, the newest epoch last."""
    rows: list[tuple[int, str, str, str]] = []
    for each in decisions:
        rows += [(each.epoch, f"stream {idle.stream}", "idle", idle.reason) for idle in each.idle]
        if each.flush is not None:
            rows.append((each.epoch, "streams", "flush", each.flush.reason))
        if each.intake is not None:
            rows.append((each.epoch, "intake", f"{each.intake.rows} rows", each.intake.reason))
        for node, decided in each.nodes.items():
            told = plain(decided)
            assert isinstance(told, dict)
            about = node if node.isidentifier() else "all queries"
            rows.append((each.epoch, about, str(told.get("kind")), str(told.get("reason") or "")))
    return _frame(_DECISIONS, rows)


def as_html(title: str, *frames: pd.DataFrame) -> str:
    """Frames under a title as a notebook shows them; every text is escaped."""
    return f"<b>{escape(title)}</b>" + "".join(str(frame.to_html(index=False, na_rep="")) for frame in frames)


def _frame(columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> pd.DataFrame:
    import pandas as pd

    made = pd.DataFrame(list(rows), columns=list(columns))
    for name in set(columns).intersection(_TIMES):
        made[name] = pd.to_datetime(made[name], unit="us", utc=True)
    return made


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / 1e6
