"""ROLLUP, CUBE and GROUPING SETS: the levels they are, what each means, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headrace.errors import SpecError
from headrace.language import bind_query
from headrace.model import Operator, Query, Results, Scan, Stream, Union, WindowAggregate

W = "window(ts, '1 minute')"


def levels(root: Operator) -> list[Results]:
    found = [scan.of for scan in (root.inputs if isinstance(root, Union) else (root,)) if isinstance(scan, Scan)]
    return [results for results in found if results is not None]


def keys(query: Query) -> list[list[str]]:
    """The columns that each level is grouped by, in the words of its stream."""
    found = []
    for level in levels(query.root):
        root = level.root
        assert isinstance(root, WindowAggregate)
        assert isinstance(root.input, Scan)
        names = {column.name: column.sql.removeprefix("packets.") for column in root.input.columns}
        found.append([names[key] for key in root.keys])
    return found


@pytest.mark.parametrize(
    ("group", "wanted"),
    [
        pytest.param(f"{W}, ROLLUP (src, dst)", [["src", "dst"], ["src"], []], id="ROLLUP"),
        pytest.param(f"{W}, CUBE (src, dst)", [["src", "dst"], ["src"], ["dst"], []], id="CUBE"),
        pytest.param(
            f"{W}, ROLLUP ((src, port), dst)", [["src", "port", "dst"], ["src", "port"], []], id="several at once"
        ),
        pytest.param(f"{W}, port, ROLLUP (src)", [["port", "src"], ["port"]], id="beside a column"),
        pytest.param(f"ROLLUP (src), {W}, CUBE (dst)", [["src", "dst"], ["src"], ["dst"], []], id="levels multiply"),
        pytest.param(f"{W}, GROUPING SETS ((src), dst, ())", [["src"], ["dst"], []], id="GROUPING SETS"),
        pytest.param(f"GROUPING SETS (({W}, src), ({W}))", [["src"], []], id="a window in each set"),
        pytest.param(f"{W}, src, dst GROUPING SETS (({W}, dst))", [["dst"]], id="GROUPING SETS after columns"),
        pytest.param(f"{W}, GROUPING SETS (ROLLUP (src), (src, dst))", [["src"], [], ["src", "dst"]], id="nested"),
        pytest.param(f"{W}, ROLLUP (1, upper(dst))", [["src", "UPPER(packets.dst)"], ["src"], []], id="by position"),
    ],
)
def test_levels(group: str, wanted: list[list[str]], streams: Mapping[str, Stream]) -> None:
    assert keys(bind_query("q", f"SELECT src AS s, COUNT(*) AS n FROM packets GROUP BY {group}", streams)) == wanted


def test_each_level_has_null_for_other_columns_and_numbers_for_grouping(streams: Mapping[str, Stream]) -> None:
    sql = (
        "SELECT src, upper(dst) AS d, MAX(src) AS m, GROUPING(src) AS g, grouping_id() AS i, grouping_id(src) AS j "
        f"FROM packets GROUP BY {W}, ROLLUP (src, upper(dst)) HAVING src IS NULL"
    )
    query = bind_query("q", sql, streams)
    assert [output.name for output in query.finish.outputs] == [
        "window_start", "window_end", "src", "d", "m", "g", "i", "j",
    ]  # fmt: skip
    (fine, middle, all_) = (level.finish for level in levels(query.root))
    assert [[output.sql for output in finish.outputs[2:-1]] for finish in (fine, middle, all_)] == [
        ["c0", "c1", "a0", "CAST(0 AS TINYINT)", "CAST(0 AS BIGINT)", "CAST(0 AS BIGINT)"],
        ["c0", "CAST(NULL AS STRING)", "a0", "CAST(0 AS TINYINT)", "CAST(1 AS BIGINT)", "CAST(0 AS BIGINT)"],
        ["CAST(NULL AS STRING)", "CAST(NULL AS STRING)", "a0", "CAST(1 AS TINYINT)", "CAST(3 AS BIGINT)",
         "CAST(1 AS BIGINT)"],
    ]  # fmt: skip
    assert [finish.having for finish in (fine, middle, all_)] == [
        "c0 IS NULL", "c0 IS NULL", "CAST(NULL AS STRING) IS NULL",
    ]  # fmt: skip


def test_what_is_read_by_name_has_its_window_at_every_level(streams: Mapping[str, Stream]) -> None:
    query = bind_query("totals", f"SELECT src, COUNT(*) AS n FROM packets GROUP BY {W}, ROLLUP (src)", streams)
    reader = bind_query("q", "SELECT * FROM totals WHERE src IS NULL", streams, queries={"totals": query})
    assert [output.name for output in reader.finish.outputs] == ["src", "n", "window_start", "window_end"]


@pytest.mark.parametrize(
    ("tail", "told"),
    [
        pytest.param("GROUP BY ROLLUP (src)", "a level of GROUP BY has no window", id="no window"),
        pytest.param(f"GROUP BY ROLLUP ({W}, src)", "a level of GROUP BY has no window", id="a total of all windows"),
        pytest.param(f"GROUP BY {W}, src WITH ROLLUP", f"write GROUP BY {W}, ROLLUP", id="WITH ROLLUP"),
        pytest.param(
            f"GROUP BY {W}, CUBE (src, dst, port, length, ok, amount)", "CUBE of 6 columns has 64 levels", id="too many"
        ),
        pytest.param(f"GROUP BY {W}, ROLLUP (src) ORDER BY src LIMIT 3", "answered level by level", id="LIMIT"),
        pytest.param(f"GROUP BY {W}, ROLLUP (COUNT(*))", "an aggregate cannot be a group key", id="an aggregate"),
        pytest.param(f"GROUP BY {W}, ROLLUP (tags)", "a group key must be a plain value", id="an array"),
        pytest.param(
            f"GROUP BY {W}, ROLLUP (dst) HAVING GROUPING(port) = 1", "columns of GROUP BY", id="not grouped by"
        ),
        pytest.param(f"GROUP BY {W}, dst HAVING GROUPING(dst) = 1", "goes with ROLLUP", id="GROUPING of one level"),
        pytest.param(f"GROUP BY {W}, (dst, src)", "GROUPING SETS", id="a set by itself"),
        pytest.param("GROUP BY window(ts, '1 minute'), ROLLUP (dst) WITH TOTALS", "", id="WITH TOTALS"),
    ],
)
def test_refused(tail: str, told: str, streams: Mapping[str, Stream]) -> None:
    with pytest.raises(SpecError) as caught:
        bind_query("q", f"SELECT COUNT(*) AS n FROM packets {tail}", streams)
    assert told in str(caught.value)
