"""Nexmark as `examples/nexmark` has it, over random events with disorder and across a restart, judged by DuckDB."""

from __future__ import annotations

import os
import random
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from world import START, Admission, admit, assert_same

import headrace as hr
from headrace.engine import Hooks

EXAMPLE = Path(__file__).parents[1] / "examples" / "nexmark"
LATENESS_S = 3
EPOCHS, ROWS = 4, 800
EVENTS = pa.schema([
    ("ts", pa.timestamp("us", "UTC")), ("key", pa.string()), ("value", pa.float64()), ("amount", pa.int32()),
    ("seq", pa.int64()),
])  # fmt: skip
SCHEMA = "ts TIMESTAMP, key STRING, value DOUBLE, amount INT, seq BIGINT"
PARTS = [("Phoenix", "AZ"), ("Portland", "OR"), ("Boise", "ID"), ("San Jose", "CA")]
CHANNELS = ["Google", "Facebook", "Baidu", "apple", "channel-17"]

SOLD = """CREATE VIEW sold AS SELECT A.id, A.category, A.seller, B.bidder, B.price, B.dateTime AS sold_at
    FROM auction A JOIN bid B ON A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires"""
TEN, HALF = "time_bucket(INTERVAL 10 SECOND, {})", "time_bucket(INTERVAL 30 SECOND, dateTime)"
BY_TEN = f"SELECT {TEN.format('sold_at')} AS w, id, category, seller, max(price) AS final FROM sold GROUP BY ALL"
MARKED = "regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)"
# By query what DuckDB makes of the admitted events.
JUDGE = {
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price, dateTime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """SELECT P.name, P.city, P.state, A.id FROM auction A JOIN person P ON A.seller = P.id
        AND A.dateTime BETWEEN P.dateTime - INTERVAL 1 MINUTE AND P.dateTime + INTERVAL 1 MINUTE
        WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')""",
    "q4": f"SELECT w, w + INTERVAL 10 SECOND, category, avg(final) FROM ({BY_TEN}) GROUP BY ALL",
    "q5": """SELECT e, auction, n FROM (
        SELECT e, auction, count(*) AS n, rank() OVER (PARTITION BY e ORDER BY count(*) DESC) AS r FROM (
            SELECT auction, time_bucket(INTERVAL 2 SECOND, dateTime) + INTERVAL 2 SECOND * i AS e
            FROM bid, range(1, 6) AS x(i)) GROUP BY e, auction) WHERE r = 1""",
    "q6": f"""SELECT seller, avg(final) OVER (PARTITION BY seller ORDER BY w, final ROWS 9 PRECEDING)
        FROM ({BY_TEN})""",
    "q7": f"""SELECT auction, price, bidder, dateTime FROM bid
        QUALIFY price = max(price) OVER (PARTITION BY {TEN.format("dateTime")})""",
    "q8": f"""SELECT DISTINCT P.id, P.name, {TEN.format("P.dateTime")} FROM person P JOIN auction A ON P.id = A.seller
        AND {TEN.format("P.dateTime")} = {TEN.format("A.dateTime")}""",
    "q9": f"""SELECT DISTINCT ON (w, id) w + INTERVAL 10 SECOND, id, seller, bidder, price, sold_at
        FROM (SELECT *, {TEN.format("sold_at")} AS w FROM sold) ORDER BY w, id, price DESC, sold_at, seller, bidder""",
    "q10": """SELECT auction, bidder, price, dateTime, extra, strftime(dateTime, '%Y-%m-%d'),
        strftime(dateTime, '%H-%M') FROM bid""",
    "q13": """SELECT auction, bidder, price, dateTime, 'side-' || (auction % 20) FROM bid""",
    "q14": """SELECT auction, bidder, 0.908 * price, CASE WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
        WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime' ELSE 'otherTime' END,
        dateTime, length(extra) - length(replace(extra, 'c', ''))
        FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
    "q15": """SELECT d, d + INTERVAL 1 HOUR * h, count(*), count(*) FILTER (price < 10000),
        count(*) FILTER (price >= 10000 AND price < 1000000), count(*) FILTER (price >= 1000000),
        count(DISTINCT bidder), count(DISTINCT bidder) FILTER (price < 10000), count(DISTINCT auction),
        count(DISTINCT auction) FILTER (price >= 1000000)
        FROM (SELECT *, date_trunc('day', dateTime) AS d FROM bid) JOIN range(1, 25) AS x(h)
        ON dateTime < d + INTERVAL 1 HOUR * h GROUP BY d, h""",
    "q16": f"""SELECT {HALF} AS w, w + INTERVAL 30 SECOND, channel, strftime(max(dateTime), '%H:%M'), count(*),
        count(*) FILTER (price < 10000), count(DISTINCT bidder), count(DISTINCT auction)
        FROM bid GROUP BY w, channel""",
    "q17": f"""SELECT {HALF} AS w, w + INTERVAL 30 SECOND, auction, count(*), count(*) FILTER (price < 10000),
        count(*) FILTER (price >= 10000 AND price < 1000000), min(price), max(price), avg(price), sum(price)::BIGINT
        FROM bid GROUP BY w, auction""",
    "q18": f"""SELECT DISTINCT ON (w, bidder, auction) w + INTERVAL 10 SECOND, auction, bidder, price, dateTime
        FROM (SELECT *, {TEN.format("dateTime")} AS w FROM bid) ORDER BY w, bidder, auction, dateTime DESC, price""",
    "q19": f"""SELECT e, auction, bidder, price, dateTime, r FROM (
        SELECT *, row_number() OVER (PARTITION BY e, auction ORDER BY price DESC, bidder, dateTime) AS r FROM (
            SELECT DISTINCT {TEN.format("dateTime")} + INTERVAL 10 SECOND AS e, auction, bidder, price, dateTime
            FROM bid)) WHERE r <= 10""",
    "q20": """SELECT B.auction, B.bidder, B.price, B.channel, B.dateTime, A.itemName, A.seller, A.category
        FROM bid B JOIN auction A ON B.auction = A.id
        AND A.dateTime BETWEEN B.dateTime - INTERVAL 1 MINUTE AND B.dateTime + INTERVAL 5 SECOND
        WHERE A.category = 10""",
    "q21": f"""SELECT auction, bidder, price, channel, CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1'
        WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3' ELSE {MARKED} END
        FROM bid WHERE {MARKED} <> '' OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')""",
    "q22": """SELECT auction, bidder, price, channel, split_part(url, '/', 4), split_part(url, '/', 5),
        split_part(url, '/', 6) FROM bid""",
}


def make_events(seed: int) -> list[list[dict[str, Any]]]:
    """Epochs of made events, in disorder, some of them too late."""
    rng, epochs = random.Random(seed), list[list[dict[str, Any]]]()
    for epoch in range(EPOCHS):
        rows = []
        for seq in range(epoch * ROWS, (epoch + 1) * ROWS):
            behind = rng.randint(0, 9_000_000) if rng.random() < 0.2 else 0
            at = datetime.fromtimestamp(START / 1e6, UTC) + timedelta(microseconds=seq * 20_000 - behind)
            key = f"key{rng.randint(0, 30):04d}"
            value, amount = rng.random() * 1000, rng.randint(0, 1499)
            rows.append({"ts": at, "key": key, "value": value, "amount": amount, "seq": seq})
        rng.shuffle(rows)
        epochs.append(rows)
    return epochs


def person(row: dict[str, Any]) -> dict[str, Any] | None:
    if row["seq"] % 50:
        return None
    city, state = PARTS[row["amount"] % 4]
    return {
        "ts": row["ts"], "id": 1000 + row["seq"] // 50, "name": f"person {row['key']}", "city": city, "state": state,
    }  # fmt: skip


def auction(row: dict[str, Any]) -> dict[str, Any] | None:
    group, place = divmod(row["seq"], 50)
    if not 1 <= place <= 3:
        return None
    return {
        "ts": row["ts"], "id": 1000 + group * 3 + place - 1, "itemName": f"item {row['key']}",
        "expires": row["ts"] + timedelta(seconds=5 + row["amount"] % 20),
        "seller": 1000 + max(0, group - row["amount"] % 20), "category": 10 + row["amount"] % 5,
    }  # fmt: skip


def bid(row: dict[str, Any]) -> dict[str, Any] | None:
    group, amount, key = row["seq"] // 50, row["amount"], row["key"]
    if row["seq"] % 50 <= 3:
        return None
    marked = f"&channel_id={amount}" if amount % 3 == 0 else ""
    return {
        "ts": row["ts"], "bidder": 1000 + max(0, group - amount % 25), "price": int(row["value"] * row["value"] * 60),
        "auction": 1000 + max(0, group * 3 - (group * 3 % 30 if amount % 2 == 0 else amount % 60)),
        "channel": CHANNELS[amount % 5], "extra": key + "c" * (1 + amount % 4),
        "url": f"https://www.nexmark.com/{key}/c{amount % 7}/item.htm?query=1{marked}",
    }  # fmt: skip


def made(what: Any, epochs: list[list[dict[str, Any]]]) -> Admission:
    """The admitted rows of a stream, by the contract on time."""
    tables = [pa.Table.from_pylist([found for row in rows if (found := what(row))]) for rows in epochs]
    stamp = pa.timestamp("us", "UTC")
    return admit([table.set_column(0, "ts", table["ts"].cast(stamp)) for table in tables], LATENESS_S)


def test_every_query_equals_duckdb_across_a_restart(spark: Any, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "pipeline.yml"
    text = file.read_text()
    start = text.index("source: &events")
    end = text.index("    select:", start)
    files = f"source: &events {{format: parquet, path: in, options: {{maxFilesPerTrigger: 1}}}}\n    schema: {SCHEMA}\n"
    text = text[:start] + files + text[end:].replace("source: *events", f"source: *events\n    schema: {SCHEMA}")
    file.write_text(text)
    epochs = make_events(seed=3)
    (tmp_path / "in").mkdir()
    seen: list[Any] = []
    for number, rows in enumerate(epochs):
        path = tmp_path / "in" / f".{number}"
        pq.write_table(pa.Table.from_pylist(rows, EVENTS), path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
        path.rename(tmp_path / "in" / f"{number}.parquet")
        if number in (EPOCHS // 2 - 1, EPOCHS - 1):
            pipe = hr.Pipeline.from_file(file)
            run = pipe.start(spark, once=True, flush=number == EPOCHS - 1, hooks=Hooks(on_epoch=seen.append))
            run.await_termination()
    last = seen[-1]
    assert {name: state.failed for name, state in last.queries.items() if state.failed} == {}
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name, what in (("person", person), ("auction", auction), ("bid", bid)):
        admitted = made(what, epochs)
        assert admitted.late > 0
        ledger = last.ledger[name]
        assert (ledger.used, ledger.late, ledger.rejected) == (admitted.rows.num_rows, admitted.late, 0)
        connection.register(f"{name}_rows", admitted.rows)
        connection.execute(f"CREATE TABLE {name} AS SELECT * EXCLUDE (ts), ts AS dateTime FROM {name}_rows")
    connection.execute(SOLD)
    assert last.queries.keys() == JUDGE.keys()
    for name, sql in JUDGE.items():
        out = f"read_parquet('{tmp_path}/out/{name}/**/*.parquet', hive_types_autocast = false)"
        found, wanted = connection.execute(f"FROM {out}").fetchall(), connection.execute(sql).fetchall()
        assert len(wanted) > 5, name
        try:
            assert_same(found, wanted)
        except AssertionError as wrong:
            raise AssertionError(f"{name}: {wrong}") from wrong
