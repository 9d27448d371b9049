"""Functions that Spark has and a continuous query must not call, each with the reason and a way out."""

from __future__ import annotations

from headrace.model import SPELLINGS

__all__ = ["DENIED"]

_EVENT_TIME = "use the stream's time column, or window_end"
_REASONS = (
    (
        "rand random randn uniform randstr uuid shuffle aes_encrypt monotonically_increasing_id",
        "gives another value when an epoch is replayed",
        "hash the row instead, such as xxhash64(src)",
    ),
    (
        "spark_partition_id input_file_name input_file_block_start input_file_block_length",
        "depends on how Spark cuts the input",
        "put the value in a column of the stream",
    ),
    (
        "current_timestamp now current_date curdate localtimestamp current_time current_timezone",
        "reads the wall clock, which a replay cannot repeat",
        _EVENT_TIME,
    ),
    (
        "current_user user session_user current_catalog current_database current_schema current_path version",
        "depends on who runs the engine",
        "write the value as a literal",
    ),
    (
        "reflect java_method try_reflect",
        "calls Java code by name",
        "use SQL functions; reflection is never accepted",
    ),
    (
        "assert_true raise_error",
        "stops or stalls the query instead of giving a value",
        "filter with WHERE",
    ),
    (
        "nth_value",
        "depends on the order in which rows arrive",
        "use min_by(x, ts), or first(x)",
    ),
    (
        "histogram_numeric",
        "depends on the order in which rows arrive",
        "use approx_top_k(x, 10), or an array of percentiles",
    ),
    (
        "explode explode_outer posexplode posexplode_outer inline inline_outer stack json_tuple",
        "makes several rows out of one",
        "unfold the stream's rows where it is declared: select: *, explode(items) AS item",
    ),
    (
        "row_number rank dense_rank percent_rank ntile cume_dist lag lead",
        "goes with OVER",
        "write it with OVER (PARTITION BY window ORDER BY x) in a query that groups by window(ts, '1 minute')",
    ),
    (
        "rollup cube",
        "groups at several levels at once",
        "it stands in GROUP BY: GROUP BY window(ts, '1 minute'), ROLLUP (a, b)",
    ),
    (
        "session_window",
        "has windows without a fixed size",
        "use [WINDOW 10 min SLIDE 2 min] or window(ts, '10 minutes')",
    ),
    (
        "window_time",
        "is Spark's own way to name a window's end",
        "use window_end; it may stand in window(window_time(x.window), '1 hour') over a subquery x",
    ),
    (
        "product count_min_sketch approx_top_k_accumulate approx_top_k_combine hll_sketch_agg hll_union_agg "
        "theta_sketch_agg kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float "
        "bitmap_construct_agg bitmap_or_agg schema_of_variant_agg",
        "is an aggregate that windows do not keep",
        f"known aggregates: {', '.join(sorted({entry.name for entry in SPELLINGS.values()}))}",
    ),
    (
        "from_avro to_avro from_protobuf to_protobuf",
        "needs code or files outside the query",
        "decode rows before they enter the stream",
    ),
)

# name -> (reason, hint)
DENIED: dict[str, tuple[str, str]] = {
    name: (reason, hint) for names, reason, hint in _REASONS for name in names.split()
}
