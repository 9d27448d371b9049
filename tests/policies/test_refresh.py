"""When a table is read anew, case by case."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.language import parse_schema
from headrace.model import Snapshot, Source, Table
from headrace.policies import RETRY_US, Current, Read, decide_refresh
from headrace.units import SECOND_US

HOUR_US = 3600 * SECOND_US
HOSTS = Table("hosts", parse_schema("host STRING, zone INT"), Source("parquet", "hosts"), refresh_us=HOUR_US)
ONCE = replace(HOSTS, refresh_us=None)
NOW_US = 10 * HOUR_US
KNOWN = Snapshot("a", HOSTS.definition, NOW_US - HOUR_US // 2, 3, 100, "no snapshot yet")
OLD = replace(KNOWN, read_us=NOW_US - HOUR_US)


@pytest.mark.parametrize(
    ("table", "known", "starting", "wanted"),
    [
        pytest.param(HOSTS, None, True, Read("no snapshot yet"), id="a table that was never read is"),
        pytest.param(HOSTS, None, False, Read("no snapshot yet"), id="also for a query that comes later"),
        pytest.param(HOSTS, KNOWN, False, Current(KNOWN), id="what is not due serves on"),
        pytest.param(HOSTS, KNOWN, True, Current(KNOWN), id="after a restart, too"),
        pytest.param(HOSTS, OLD, False, Read("refresh every 1 h", OLD), id="what is due is read"),
        pytest.param(ONCE, OLD, False, Current(OLD), id="without a refresh a run reads once"),
        pytest.param(ONCE, KNOWN, True, Read("read at every start", KNOWN), id="and the next run again"),
        pytest.param(
            replace(HOSTS, source=Source("parquet", "others")), KNOWN, False,
            Read("another source or other columns than before"), id="another source makes a snapshot useless",
        ),
        pytest.param(
            replace(HOSTS, columns=parse_schema("host STRING, zone BIGINT")), KNOWN, False,
            Read("another source or other columns than before"), id="so do other columns",
        ),
        pytest.param(
            HOSTS, replace(OLD, tried_us=NOW_US - RETRY_US + 1), False,
            Current(replace(OLD, tried_us=NOW_US - RETRY_US + 1)), id="what failed just now waits",
        ),
        pytest.param(
            HOSTS, replace(OLD, tried_us=NOW_US - RETRY_US), False,
            Read("refresh every 1 h", replace(OLD, tried_us=NOW_US - RETRY_US)), id="and is tried again after a minute",
        ),
        pytest.param(
            ONCE, replace(OLD, tried_us=NOW_US - RETRY_US), False,
            Read("read at every start", replace(OLD, tried_us=NOW_US - RETRY_US)),
            id="a table that could not be read at the start is tried again",
        ),
    ],
)  # fmt: skip
def test_a_table_is_read_when_it_has_to_be(table: Table, known: Snapshot | None, starting: bool, wanted: object):
    assert decide_refresh(table, known, NOW_US, starting) == wanted
