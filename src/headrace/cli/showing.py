"""How progress and status look: tables in a terminal, plain lines elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rich.console import Console, Group
from rich.table import Table

from headrace.cli.showing_keyed import keyed_lines
from headrace.units import format_bytes, format_duration

__all__ = [
    "crossing_lines",
    "engine_line",
    "epoch_line",
    "join_lines",
    "link_lines",
    "live_view",
    "schedule_lines",
    "shedding_lines",
    "show_status",
    "table_lines",
    "when",
]

# Rows of a table that are shown; a screen has room for about as many.
SHOWN = 20
# Queries named in the line of an epoch.
NAMED = 8
# A file or a pipe has no width; this is wide enough for names and causes as people write them.
PLAIN_WIDTH = 160


def when(us: int | None) -> str:
    """An instant in UTC, to the second.

    >>> when(1_704_067_200_000_000)
    '2024-01-01 00:00:00'
    """
    return "-" if us is None else datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")


def epoch_line(status: dict[str, Any]) -> str:
    """One epoch in one line."""
    last = status["last_epoch"]
    rows = sum(last["rows"].values())
    seconds = last["seconds"]
    due = [f"{name} {count}" for name, count in last["due"].items()]
    if len(due) > NAMED:
        due = [*due[:NAMED], f"... and of {len(due) - NAMED} queries more"]
    rate = f"{rows / seconds:,.0f} rows/s" if seconds else ""
    return (
        f"epoch {status['epoch']}: {rows:,} rows in {seconds:.2f} s ({rate}), {last['jobs']} Spark jobs, "
        f"windows answered: {', '.join(due) or 'none'}"
    )


def _streams(status: dict[str, Any]) -> Table:
    table = Table(title="streams", title_justify="left", expand=False)
    for name in ("stream", "rows in", "used", "late", "shed", "rejected", "event time", "watermark"):
        table.add_column(name, justify="right" if name in ("rows in", "used", "late", "shed", "rejected") else "left")
    for name, s in status["streams"].items():
        counts = (f"{s[key]:,}" for key in ("rows_in", "used", "late", "shed", "rejected"))
        table.add_row(name, *counts, when(s["last_us"]), when(s["watermark_us"]))
    return table


def _queries(status: dict[str, Any]) -> Group:
    """All queries, or when there are many those that need a look: failed ones, then the latest."""
    numbers = ("windows answered", "result rows", "asked for", "achieved", "late")
    table = Table(title="queries", title_justify="left", expand=False)
    for name in ("query", "state", *numbers, "answered up to"):
        table.add_column(name, justify="right" if name in numbers else "left")
    stopped = status.get("engine", {}).get("alive") is False
    items = list(status["queries"].items())
    if len(items) > SHOWN:
        items.sort(key=lambda item: (item[1]["state"] != "failed", -item[1]["late_us"]))
    for name, q in items[:SHOWN]:
        table.add_row(
            name,
            _state_of(q, stopped),
            # Results that come with their rows, or with other queries' answers, are no windows of this one.
            "-" if q["rows"] and not q["answers"] else f"{q['answers']:,}",
            f"{q['rows']:,}" if q["rows"] else "-",
            _period(q["requested_period_us"]),
            _period(q["achieved_period_us"]),
            _period(q["late_us"]),
            when(q["answered_us"]),
        )
    if len(items) <= SHOWN:
        return Group(table)
    rest = [q for _, q in items[SHOWN:]]
    counts = {state: sum(q["state"] == state for q in rest) for state in ("running", "ended", "failed")}
    states = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    late = max(q["late_us"] for q in rest)
    return Group(table, f"... and {len(rest)} more ({states}), at most {_period(late)} late")


def _state_of(query: dict[str, Any], stopped: bool) -> str:
    if query["state"] == "failed":
        return f"failed: {query['cause']}"
    return "stopped" if stopped and query["state"] == "running" else str(query["state"])


def _period(us: int | None) -> str:
    """A length of event time, short.

    >>> _period(20_000_000), _period(12_345_678), _period(0), _period(None)
    ('20 s', '12.3 s', '-', '-')
    """
    if not us:
        return "-"
    text = format_duration(us)
    return text if len(text) <= 6 else f"{us / 1e6:,.1f} s"


def _synopses(status: dict[str, Any]) -> Group:
    table = Table(title="panes kept", title_justify="left", expand=False)
    for name in ("synopsis", "streams", "by", "where", "measures", "pane", "from"):
        table.add_column(name, justify="right" if name in ("measures", "pane") else "left")
    items = list(status["synopses"].items())
    for id_, s in items[:SHOWN]:
        streams, keys = dict.fromkeys(s.get("streams", ())), s.get("keys", ())
        table.add_row(
            id_,
            ", ".join(streams),
            ", ".join(keys) or "-",
            s.get("where") or "-",
            str(len(s["measures"])),
            format_duration(s["pane_us"]),
            when(s["since_us"]) if s["since_us"] is not None else "the beginning",
        )
    return Group(table, *([f"... and {len(items) - SHOWN} more"] if len(items) > SHOWN else []))


def join_lines(status: dict[str, Any]) -> list[str]:
    """How joins run now, and why; what each host was sent and holds."""
    lines = []
    for name, flow in status.get("flows", {}).items():
        if flow.get("kind") != "join":
            continue
        lines.append(f"join {name}: {flow['way']['reason']}")
        seen = status["last_epoch"].get("flows", {}).get(name)
        if seen is not None:
            hosts = zip(seen["received"], seen["held"], strict=True)
            each = ", ".join(f"{sum(got):,} + {sum(held):,}" for got, held in list(hosts)[:SHOWN])
            lines.append(f"  rows sent + held by host: {each}; {seen['pairs']:,} pairs")
        if flow.get("shed"):
            lines.append(f"  shed for lack of memory: {flow['shed']:,} rows")
    return lines


def decided(decision: dict[str, Any], kind: str) -> dict[str, Any] | None:
    """What was decided of a kind that there is one of, if anything was."""
    return next((node for node in decision.get("nodes", {}).values() if node.get("kind") == kind), None)


def shedding_lines(status: dict[str, Any]) -> list[str]:
    """What is shed, where and why, and what it has cost each query."""
    lines = []
    last = status["decisions"][-1] if status["decisions"] else {}
    now = decided(last, "shedding")
    if now is not None and now["acting"]:
        lines.append(f"against overload act: {', '.join(now['acting'])}")
    if now is not None and now["keep"]:
        verb = "would be kept" if now["strategy"] == "off" else "are kept"
        parts = [f"{part:.0%} of {edge}" for edge, part in sorted(now["keep"].items())]
        lines.append(f"epoch {last['epoch']}: {', '.join(parts[:SHOWN])} {verb}; {now['reason']}")
    lost = {name: each for name, each in status.get("shedding", {}).get("queries", {}).items() if each["shed"]}
    for name, each in sorted(lost.items(), key=lambda item: -item[1]["shed"])[:SHOWN]:
        lines.append(f"  {name} has lost {each['shed']:,} of {each['rows']:,} rows")
    return lines


def table_lines(status: dict[str, Any]) -> list[str]:
    """What rows are looked up in: how much of each table, and when it was read.

    >>> read = {"version": "a", "read_us": 1_704_067_200_000_000, "rows": 1200, "bytes": 34_000, "tried_us": None,
    ...         "reason": "no snapshot yet"}
    >>> table_lines({"tables": {"hosts": read}})
    ['table hosts: 1,200 rows (34 kB) read at 2024-01-01 00:00:00: no snapshot yet']
    """
    return [
        f"table {name}: {each['rows']:,} rows ({format_bytes(each['bytes'])}) read at {when(each['read_us'])}"
        + (f", tried again at {when(each['tried_us'])}" if each["tried_us"] is not None else "")
        + f": {each['reason']}"
        for name, each in status.get("tables", {}).items()
    ]


def schedule_lines(decision: dict[str, Any]) -> list[str]:
    """What was decided last about when queries run, and why."""
    schedule = decided(decision, "schedule")
    assert schedule is not None
    lines = [f"schedule of epoch {decision['epoch']}: {schedule['policy']}; {schedule['reason']}"]
    groups = schedule["groups"]
    for group in groups[:SHOWN]:
        lines.append(f"  {group['group']}: {group['reason']}")
    if len(groups) > SHOWN:
        lines.append(f"  ... and {len(groups) - SHOWN} more groups")
    return lines


def link_lines(status: dict[str, Any]) -> list[str]:
    """How far each link is, and what is on its way.

    >>> link = {"link": "r_1", "from": "rome", "to": "hub", "sent_epoch": 7, "received_epoch": 5, "waiting_epochs": 2,
    ...         "waiting_bytes": 3_400_000, "lag_us": 20_000_000, "carries": "panes", "sent_bytes": 56_000_000}
    >>> print(*link_lines({"links": [link]}))
    link r_1 from rome to hub: 56 MB of panes, sent epoch 7, received epoch 5; 2 epochs, 3.4 MB and 20 s of event time \
on the way
    """
    return [
        f"link {each['link']} from {each['from']} to {each['to']}: {format_bytes(each['sent_bytes'])} of "
        f"{each['carries']}, sent epoch {each['sent_epoch']}, received epoch {each['received_epoch']}; "
        f"{each['waiting_epochs']} epochs, {format_bytes(each['waiting_bytes'])} and "
        f"{format_duration(each['lag_us'] or 0)} of event time on the way"
        for each in status.get("links", ())
    ]


def crossing_lines(status: dict[str, Any]) -> list[str]:
    """What crosses between sites per second of event time, beside what the placement counted on.

    >>> one = {"sender": "rome", "receiver": "hub", "distance_ms": 25.0, "bytes": 9000, "bytes_per_s": 3000.0,
    ...        "planned_bytes_per_s": 4000.0}
    >>> print(*crossing_lines({"plan": {"strategy": "optimal"}, "crossings": [one]}), sep="\\n")
    from rome to hub: 9 kB as yet, 3 kB/s, planned 4 kB/s; 25 ms away
    bytes/s times ms (optimal): 75,000 measured, 100,000 planned
    """
    if not status.get("plan"):
        return []
    lines, measured, planned = [], 0.0, 0.0
    for each in status["crossings"]:
        distance, rate, counted_on = each["distance_ms"] or 0.0, each["bytes_per_s"], each["planned_bytes_per_s"]
        measured += (rate or 0.0) * distance
        planned += counted_on * distance
        known = "" if rate is None else f"{format_bytes(int(rate))}/s, "
        away = f"; {distance:g} ms away" if each["distance_ms"] is not None else ""
        lines.append(
            f"from {each['sender']} to {each['receiver']}: {format_bytes(each['bytes'])} as yet, {known}"
            f"planned {format_bytes(int(counted_on))}/s{away}"
        )
    lines.append(f"bytes/s times ms ({status['plan']['strategy']}): {measured:,.0f} measured, {planned:,.0f} planned")
    return lines


def expected_lines(status: dict[str, Any]) -> list[str]:
    """What is expected and was not so, and what was there instead.

    >>> one = {"owner": "query q", "text": "rows > 0", "judged": 9, "unmet": 2, "since": 7, "found": "there are 0"}
    >>> expected_lines({"expected": [one]})
    ['query q is not as expected since epoch 7: rows > 0 (in 2 of 9 epochs; the last time there are 0)']
    """
    lines = []
    for each in status.get("expected", ()):
        if each["unmet"]:
            now = "was not as expected" if each["since"] is None else f"is not as expected since epoch {each['since']}"
            epochs = f"in {each['unmet']:,} of {each['judged']:,} epochs; the last time {each['found']}"
            lines.append(f"{each['owner']} {now}: {each['text']} ({epochs})")
    return lines


def live_view(status: dict[str, Any], *, with_epoch: bool = True) -> Group:
    """Streams, queries and the last epoch."""
    if status["epoch"] < 0:
        return Group("waiting for the first rows")
    state = status["state"]
    held = f"state: {format_bytes(state['bytes'])} in {state['chunks']} chunks"
    epoch = [epoch_line(status)] if with_epoch else []
    return Group(_streams(status), _queries(status), *epoch, held)


def rejected_lines(status: dict[str, Any]) -> list[str]:
    """Which streams have lost rows that could not be read, and where these rows are."""
    counts = {name: (s["rejected"], s["rows_in"]) for name, s in status["streams"].items() if s["rejected"]}
    lines = [f"{gone:,} of {all_:,} rows of stream '{name}' were rejected" for name, (gone, all_) in counts.items()]
    if lines:
        removed = status.get("rejected", {}).get("removed_files", 0)
        kept = "the newest of them are kept" if removed else "they are kept"
        lines.append(f"{kept}, with the reason, in {status['checkpoint']}/rejected")
        if removed:
            lines.append(f"{removed:,} older files of rejected rows were removed to keep within the limits")
    return lines


def engine_line(engine: dict[str, Any]) -> str:
    """Whether an engine runs, in words.

    >>> engine_line({"owner": "process 7 on a", "alive": True})
    'process 7 on a runs it'
    >>> engine_line({"owner": "process 7 on a", "alive": False})
    'no engine runs it; the last one, process 7 on a, did not come to its end'
    """
    owner, alive = engine["owner"], engine["alive"]
    if owner is None:
        return "no engine runs it"
    if alive is None:
        return f"{owner} has it, or died with it"
    return f"{owner} runs it" if alive else f"no engine runs it; the last one, {owner}, did not come to its end"


def show_status(status: dict[str, Any]) -> None:
    """Prints a checkpoint's status."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    console.print(f"checkpoint {status['checkpoint']}: {engine_line(status['engine'])}", highlight=False, markup=False)
    if status["epoch"] < 0:
        console.print("no epoch has been committed yet")
        return
    console.print(live_view(status))
    if status["synopses"]:
        console.print(_synopses(status))
    for line in (
        *expected_lines(status),
        *link_lines(status),
        *crossing_lines(status),
        *table_lines(status),
        *join_lines(status),
        *keyed_lines(status),
        *shedding_lines(status),
    ):
        console.print(line, markup=False, highlight=False)
    last = next((d for d in reversed(status["decisions"]) if decided(d, "schedule")), None)
    for line in schedule_lines(last) if last else ():
        console.print(line, markup=False, highlight=False)
    for decision in status["decisions"]:
        for idle in decision["idle"]:
            console.print(f"epoch {decision['epoch']}: stream {idle['stream']} is idle ({idle['reason']})")
        if decision["flush"]:
            console.print(f"epoch {decision['epoch']}: flushed ({decision['flush']['reason']})")
    for line in rejected_lines(status):
        console.print(line, markup=False, highlight=False)
