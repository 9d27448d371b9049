"""A grammar of typed expressions: templates whose holes name the kind of value that goes there.

Texts stay symbolic until they are rendered: a column is `‹name›` or `‹alias.name›`, an aggregate is `«call¦condition»`,
so that Headrace and the judge can each be given their own spelling of one expression.

Kinds starting with `wild` hold extremes; nothing is computed from them that could overflow. `inexact` are floats whose
last digits depend on the order of rows: they are selected and compared, never printed, rounded or ordered by.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["AGGREGATES", "ATOMS", "KINDS", "NESTED", "Leaves", "aggregate", "expression"]

# What stands for a value of any kind of a family.
FAMILIES: dict[str, tuple[str, ...]] = {
    "string": ("string", "word"),
    "num": ("int", "long", "double", "decimal", "float", "bigdecimal", "small"),
    "atom": (
        "int", "word", "string", "long", "double", "decimal", "bool", "date", "time", "ntz", "binary", "float", "tiny",
        "small", "bigdecimal", "wildint", "wildlong", "wilddouble", "wildfloat", "wilddecimal", "wilddate", "wildtime",
    ),
    "any": ("int", "word", "double", "decimal", "bool", "date", "wilddouble", "ints", "strings", "struct", "map"),
}  # fmt: skip
ATOMS = FAMILIES["atom"]
NESTED = ("ints", "strings", "struct", "map")
KINDS = (*ATOMS, *NESTED, "specdouble")

_CHOICES = (
    "coalesce({K}, {K})", "if({bool}, {K}, {K})", "CASE WHEN {bool} THEN {K} ELSE {K} END", "nvl({K}, {K})",
    "CASE WHEN {bool} THEN {K} WHEN {bool} THEN {K} END", "nvl2({any}, {K}, {K})", "ifnull({K}, {K})",
)  # fmt: skip
_ORDERED = ("greatest({K}, {K})", "least({K}, {K}, {K})", "nullif({K}, {K})")

PRODUCTIONS: dict[str, tuple[str, ...]] = {
    "int": (
        "{int} + {int}", "{int} - {int}", "{int} * {2..9}", "{int} % {2..9}", "-({int})", "abs({int})", "+{int}",
        "pmod({int}, {2..9})", "mod({int}, {2..9})", "{int} DIV {2..9}", "length({string})", "char_length({string})",
        "character_length({string})", "len({string})", "octet_length({string})", "bit_length({string})",
        "ascii({string})", "instr({string}, {word})", "locate({word}, {string})", "locate({word}, {string}, 2)",
        "position({word}, {string})", "position({word} IN {string})", "levenshtein({word}, {word})", "year({date})",
        "month({date})", "day({date})", "dayofmonth({date})", "dayofweek({date})", "dayofyear({date})",
        "weekday({date})", "weekofyear({date})", "quarter({date})", "hour({time})", "minute({time})",
        "second({time})", "hour({ntz})", "datediff({date}, {date})", "date_diff({date}, {date})", "unix_date({date})",
        "size({ints})", "cardinality({strings})", "array_size({ints})", "size({map})", "try_element_at({ints}, {1..3})",
        "get({ints}, {0..3})", "try_element_at({map}, 'a')", "{map}['b']", "({struct}).a", "array_max({ints})",
        "array_min({ints})", "CASE {int} WHEN {0..4} THEN {int} WHEN {0..4} THEN 7 END", "CAST({tiny} AS INT)",
        "CAST({small} AS INT)", "CAST({bool} AS INT)", "CAST({double} AS INT)", "CAST({decimal} AS INT)",
        "TRY_CAST({string} AS INT)", "bit_count({wildint})", "bit_count({wildlong})", "{int} & {int}", "{int} | {int}",
        "{int} ^ {int}", "~{int}", "shiftleft({int}, {0..3})", "shiftright({int}, {0..3})", "{int} << {0..3}",
        "{int} >> {0..3}", "shiftrightunsigned({0..99}, {0..3})", "extract(MONTH FROM {time})",
        "extract(DOW FROM {date})", "date_part('YEAR', {date})", "find_in_set({word}, 'w1,w2,k0')",
        "regexp_count({string}, '[a-e]')", "regexp_instr({string}, '[0-9]')", "zeroifnull({int})", "nullifzero({int})",
        "aggregate({ints}, 0, (acc, el) -> acc + coalesce(el, 0))", "json_array_length(to_json({ints}))", "int({decimal})",
        "try_add({int}, {int})", "try_subtract({int}, {wildint})", "try_multiply({int}, {wildint})", "try_mod({int}, {0..2})",
        "reduce({ints}, 1, (acc, el) -> acc + nvl(el, 1), acc -> acc * 2)", "cardinality({map})", "sign({int}) + {0..3}",
    ),
    "long": (
        "{long} + {int}", "{long} - {long}", "{int} * {long}", "CAST({int} AS BIGINT)", "bigint({int})", "ceil({double})",
        "unix_micros({time})", "unix_millis({time})", "unix_seconds({time})", "crc32({binary})", "floor({double})",
        "floor({int})", "ceiling({double})", "factorial(pmod({int}, 20))", "timestampdiff(SECOND, {time}, {time})",
        "timestampdiff(HOUR, {time}, {time})", "width_bucket({double}, -100.0D, 100.0D, 5)", "array_position({ints}, {int})",
        "to_unix_timestamp({time})", "unix_timestamp({time})", "try_multiply({long}, {wildlong})", "{long} DIV {2..9}",
        "try_add({wildlong}, {long})", "{long} % 1000", "{wildlong} & {long}", "shiftright({wildlong}, {1..9})",
        "CAST({time} AS BIGINT)", "~{long}", "abs({long})", "round({long}, -3)", "datediff(HOUR, {time}, {time})",
        "TRY_CAST({wilddouble} AS BIGINT)", "TRY_CAST({wilddecimal} AS BIGINT)", "{long} | {int}",
    ),
    "double": (
        "{double} + {double}", "{double} - {double}", "{double} * {2..9}", "{int} / {2..9}", "{int} / nullif({int}, 0)",
        "CAST({int} AS DOUBLE)", "CAST({decimal} AS DOUBLE)", "double({long})", "sqrt(abs({double}))", "abs({double})",
        "round({double}, {0..2})", "bround({double}, 1)", "rint({double})", "sign({double})", "signum({int})",
        "ln(abs({double}) + 1)", "exp({double} / 1e6)", "cbrt({double})", "sin({int})", "cos({double})", "tan({int})",
        "atan({double})", "atan2({double}, {double})", "degrees({double})", "radians({double})", "log10(abs({double}) + 1)",
        "log2(abs({double}) + 1)", "log1p(abs({double}))", "expm1({double} / 1e6)", "hypot({double}, {double})",
        "pow({int}, 2)", "power(2, {0..9})", "sinh({double} / 1e6)", "tanh({double})", "asin({double} / 1e6)",
        "acos({double} / 1e6)", "asinh({double})", "acosh(abs({double}) + 1)", "atanh({double} / 1e6)", "cot({int} + 0.5D)",
        "sec({double})", "csc({int} + 0.5D)", "log(2, abs({double}) + 1)", "e() * {double}", "{double} + pi()",
        "nanvl({wilddouble}, {double})", "months_between({date}, {date})", "try_divide({double}, {double})",
        "CAST({float} AS DOUBLE)", "TRY_CAST({string} AS DOUBLE)", "{double} % {2..9}", "-({double})", "cosh({double} / 1e6)",
        "{float} + {double}", "{float} / {2..9}", "{decimal} / 2.5D", "1.5e2 + {double}", "pmod({double}, 7)",
        "greatest({double}, {wilddouble})", "{wilddouble} / 2", "try_subtract({double}, {double})",
    ),
    "float": ("CAST({double} AS FLOAT)", "abs({float})", "float({int})", "{float} + {float}", "-({float})"),
    "decimal": (
        "{decimal} + {decimal}", "{decimal} - {decimal}", "{decimal} * {2..9}", "{decimal} / {2..9}", "-({decimal})",
        "CAST({int} AS DECIMAL(10,3))", "CAST({double} AS DECIMAL(20,4))", "round({decimal}, 1)", "ceil({decimal})",
        "floor({decimal})", "abs({decimal})", "bround({decimal}, 0)", "{decimal} % 7.5", "try_divide({decimal}, {decimal})",
        "{decimal} * 0.125", "{int} + 1.50", "round({decimal}, -2)", "try_add({decimal}, {decimal})", "CAST({d} AS DECIMAL(12,1))",
    ),
    "bigdecimal": (
        "{bigdecimal} + {decimal}", "{bigdecimal} - {bigdecimal}", "{bigdecimal} / 3", "CAST({bigdecimal} AS DECIMAL(38,6))",
        "round({bigdecimal}, 3)", "{bigdecimal} * 2", "CAST({decimal} AS DECIMAL(38,10))", "try_multiply({bigdecimal}, {wilddecimal})",
        "try_add({wilddecimal}, {bigdecimal})", "abs({bigdecimal})",
    ),
    "word": ("upper({word})", "lower({word})", "left({word}, {0..2})", "concat({word}, {word})", "repeat({word}, {0..2})",
             "({struct}).b", "get({strings}, {0..2})", "array_join({strings}, '+')", "substring({word}, 2)"),
    "string": (
        "upper({string})", "lower({string})", "initcap({string})", "trim({string})", "ltrim({string})", "rtrim({string})",
        "btrim({string}, 'a ')", "TRIM(BOTH 'a' FROM {string})", "TRIM(LEADING 'k' FROM {string})", "reverse({string})",
        "substring({string}, {1..3}, {0..4})", "substring({string} FROM {1..3} FOR {0..4})",
        "overlay({string} PLACING {word} FROM {1..3})", "substr({string}, -{1..3})", "left({string}, {0..3})", "right({string}, {0..3})",
        "concat({string}, {string})", "concat({string}, {int})", "{string} || {word}", "concat_ws('-', {string}, {word})",
        "concat_ws(',', {strings})", "replace({string}, 'a', 'ä')", "translate({string}, 'abc', 'xy')", "lcase({string})",
        "lpad({string}, {1..9}, '*')", "rpad({string}, {1..9})", "repeat({word}, {0..3})", "space({0..4})", "ucase({string})",
        "CAST({int} AS STRING)", "CAST({long} AS STRING)", "CAST({decimal} AS STRING)", "CAST({date} AS STRING)",
        "CAST({time} AS STRING)", "CAST({bool} AS STRING)", "CAST({ntz} AS STRING)", "string({wildlong})", "hex({string})",
        "CAST({wilddate} AS STRING)", "CAST({wildtime} AS STRING)", "CAST({bigdecimal} AS STRING)", "CAST({wilddecimal} AS STRING)",
        "CAST({float} AS STRING)", "CAST({wildfloat} AS STRING)", "hex({int})", "bin({int})", "base64({binary})", "md5({string})",
        "sha1({string})", "sha2({string}, 256)", "soundex({string})", "date_format({time}, 'yyyy-MM-dd HH:mm')",
        "date_format({date}, 'E D')", "dayname({date})", "monthname({date})", "format_number({decimal}, 2)",
        "format_string('%s-%d', {word}, {int})", "printf('%05d', {int})", "regexp_replace({string}, '[a-z]', '#')",
        "regexp_extract({string}, '([a-z])(.)', 1)", "regexp_substr({string}, '[a-c]+')", "split_part({string}, ',', 1)",
        "substring_index({string}, 'a', 1)", "get(split({string}, ','), 0)", "elt({1..3}, {word}, {string})", "chr({int})",
        "get_json_object(to_json({struct}), '$.a')", "to_json({struct})", "to_json({map})", "to_json({ints})", "typeof({any})",
        "char(65 + pmod({int}, 26))", "conv({int}, 10, 16)", "mask({string})", "overlay({string}, 'zz', 2)", "quote({string})",
        "url_encode({string})", "array_join({strings}, '+', '?')", "decode({int}, 1, 'one', 2, 'two', 'many')",
        "from_unixtime(unix_seconds({time}))", "to_char({decimal}, 'S999999999.99')", "to_csv({struct})", "make_valid_utf8({string})",
        "try_url_decode({string})", "nullif({string}, '')", "date_format({ntz}, 'HH')", "lower(upper({string}))", "hex({binary})",
        "to_json(named_struct('x', {int}, 'y', {string}))", "CASE {word} WHEN 'k0' THEN 'hot' ELSE {string} END",
        "regexp_replace({string}, '(.)(.)', '$2$1')", "to_varchar({decimal}, '999999999.99')",
    ),
    "bool": (
        "{int} > {int}", "{int} = {int}", "{long} <= {int}", "{double} < {int}", "{wilddouble} > {double}", "{decimal} <> {decimal}",
        "{wildlong} >= {long}", "{bigdecimal} > {int}", "{wilddecimal} < {bigdecimal}", "{string} = {word}", "{string} < {string}",
        "{string} <=> {string}", "{date} > DATE '2024-02-01'", "{wilddate} < {date}", "{binary} = X'6162'", "{any} IS NULL",
        "{time} >= TIMESTAMP '2024-03-10 01:30:20'", "{ntz} > TIMESTAMP_NTZ '2024-03-01 00:00:00'", "{wildtime} < {time}",
        "{any} IS NOT NULL", "{wilddouble} <=> {wilddouble}", "isnan({wilddouble})", "{int} BETWEEN {0..9} AND {10..500}",
        "{int} NOT BETWEEN -50 AND {0..50}", "{int} IN (1, 2, {0..9})", "{string} IN ('a', 'b', 'k1', 'Zürich')",
        "{int} NOT IN (0, NULL)", "{string} LIKE 'a%'", "{string} NOT LIKE '%a%'", "{string} LIKE ANY ('a%', '%1')",
        "{string} NOT LIKE ALL ('a%', '%1')", "{string} ILIKE 'A_'", "{string} LIKE 'a\\\\%b'",
        "{string} LIKE '%a!_%' ESCAPE '!'", "{string} RLIKE '^[a-k]'", "startswith({string}, 'a')", "endswith({string}, {word})",
        "contains({string}, 'a')", "({bool}) AND ({bool})", "({bool}) OR ({bool})", "NOT ({bool})", "({bool}) = ({bool})",
        "array_contains({ints}, {int})", "arrays_overlap({ints}, {ints})", "exists({ints}, el -> el > 0)",
        "forall({ints}, el -> el > 0)", "map_contains_key({map}, 'a')", "equal_null({int}, {int})", "coalesce({bool}, false)",
        "({bool}) IS TRUE", "({bool}) IS NOT FALSE", "isnull({any})", "isnotnull({any})", "regexp_like({string}, '[0-9]+')",
        "{wildfloat} = {wildfloat}", "{wilddouble} = {wildfloat}", "{small} > {tiny}", "{tiny} = {int}", "{word} = 'k0'",
        "({struct}).a > {0..5}", "{float} < {double}", "{decimal} > {double}", "{date} < {time}", "NOT {bool} OR {bool}",
        "{ints} = {ints}", "{struct} = {struct}", "{int} <> {long}", "{wildint} < {long}", "{wildlong} = {wilddouble}",
        "{int} == {int}", "{int} != {int}", "is_valid_utf8({string})", "like({string}, '%a%')",
    ),
    "date": (
        "date_add({date}, {int})", "date_sub({date}, {int})", "add_months({date}, {1..5})", "last_day({date})",
        "next_day({date}, 'MON')", "trunc({date}, 'MM')", "to_date({time})", "date({time})", "CAST({time} AS DATE)",
        "make_date(2024, {1..12}, {1..28})", "date_from_unix_date({int})", "{date} + INTERVAL '3' DAY", "CAST({ntz} AS DATE)",
        "try_to_date(CAST({date} AS STRING))", "to_date(date_format({date}, 'yyyyMMdd'), 'yyyyMMdd')", "{date} + {int}", "{date} - 3",
    ),
    "time": (
        "date_trunc('HOUR', {time})", "date_trunc('minute', {time})", "{time} + INTERVAL '90' MINUTE", "{time} - INTERVAL 1 DAY",
        "timestampadd(MINUTE, {int}, {time})", "timestamp_seconds({int})", "timestamp_millis({long})", "timestamp_micros({long})",
        "CAST({date} AS TIMESTAMP)", "from_utc_timestamp({time}, 'Asia/Tokyo')", "to_utc_timestamp({time}, 'America/New_York')",
        "make_timestamp(2024, 3, {1..28}, {0..23}, 5, 6.5)", "timestamp({date})", "dateadd(HOUR, {int}, {time})",
        "date_trunc('DAY', {ntz})", "{time} + INTERVAL 1 HOUR 30 MINUTES", "CAST({ntz} AS TIMESTAMP)",
        "to_timestamp(date_format({time}, 'yyyy-MM-dd HH:mm:ss'), 'yyyy-MM-dd HH:mm:ss')",
    ),
    "ntz": ("CAST({time} AS TIMESTAMP_NTZ)", "{ntz} + INTERVAL '1' HOUR", "make_timestamp_ntz(2024, 3, 1, {0..23}, 0, 1.5)",
            "convert_timezone('UTC', 'Asia/Tokyo', {ntz})", "CAST({date} AS TIMESTAMP_NTZ)"),
    "binary": ("CAST({string} AS BINARY)", "encode({string}, 'UTF-8')", "unhex('4A4B')", "unbase64('YWI=')", "binary({string})",
               "substring({binary}, 1, 2)", "concat({binary}, X'00')", "to_binary(hex({int}), 'hex')"),
    "ints": (
        "array({int}, {int})", "array_sort({ints})", "sort_array({ints}, false)", "array_distinct({ints})",
        "array_except({ints}, {ints})", "array_intersect({ints}, {ints})", "array_union({ints}, {ints})", "array_compact({ints})",
        "array_remove({ints}, {int})", "array_append({ints}, {int})", "array_prepend({ints}, {int})", "slice({ints}, 1, 2)",
        "reverse({ints})", "filter({ints}, el -> el > 0)", "transform({ints}, el -> el * 2)", "concat({ints}, {ints})",
        "sequence(1, {1..5})", "array_repeat({int}, {0..3})", "flatten(array({ints}, {ints}))", "map_values({map})",
        "zip_with({ints}, {ints}, (p, o) -> p + o)", "array_insert({ints}, 1, {int})", "transform({ints}, (el, at_) -> el + at_)",
    ),
    "strings": ("split({string}, ',')", "array({word}, {string})", "sort_array({strings})", "array_distinct({strings})",
                "map_keys({map})", "transform({strings}, el -> upper(el))", "regexp_extract_all({string}, '([a-z])', 1)"),
    "struct": ("struct({int} AS a, {word} AS b)", "named_struct('a', {int}, 'b', {word})"),
    "map": ("map('a', {int}, 'b', {int})", "map_filter({map}, (mk, mv) -> mv > 0)", "transform_values({map}, (mk, mv) -> mv + 1)",
            "map_from_arrays(array('a', 'b'), array({int}, {int}))"),
    "tiny": ("CAST(pmod({int}, 100) AS TINYINT)", "tinyint(pmod({int}, 9))"),
    "small": ("CAST({int} AS SMALLINT)", "smallint({int})"),
    "wildint": ("hash({atom})", "hash({int}, {word})"),
    "wildlong": ("xxhash64({atom})", "CAST({wildint} AS BIGINT)", "xxhash64({string}, {int})"),
    "wilddouble": ("CAST({wildfloat} AS DOUBLE)", "CAST({wildlong} AS DOUBLE)", "-({wilddouble})", "sqrt({double})", "abs({wilddouble})",
                   "{double} * 1e300"),
    "wildfloat": ("CAST({wilddouble} AS FLOAT)", "-({wildfloat})"),
    "wilddate": ("greatest({wilddate}, {date})",),
    "wildtime": ("greatest({wildtime}, {time})", "CAST({wilddate} AS TIMESTAMP)"),
    "wilddecimal": ("-({wilddecimal})", "CAST({bigdecimal} AS DECIMAL(38,18))"),
    "inexact": ("{inexact} + {int}", "{inexact} * 2", "-({inexact})"),
}  # fmt: skip

_LITERALS: dict[str, Callable[[random.Random], str]] = {
    "int": lambda rng: str(rng.choice((0, 1, 2, 3, 7, 100))),
    "word": lambda rng: rng.choice(("'k0'", "'k1'", "'w2'", "'a'")),
    "string": lambda rng: rng.choice(("'k1'", "'a'", "''", "'Zürich'", "'e'", "'😀'", "'it''s'")),
    "long": lambda rng: rng.choice(("5000000000", "3L", "CAST(7 AS BIGINT)")),
    "double": lambda rng: rng.choice(("0.5D", "1e3", "2.25D", "-0.25D")),
    "decimal": lambda rng: rng.choice(("1.50", "0.07", "12.5BD", "-3.25")),
    "bigdecimal": lambda rng: "CAST(1.5 AS DECIMAL(38,10))",
    "bool": lambda rng: rng.choice(("true", "false")),
    "date": lambda rng: rng.choice(("DATE '2024-02-29'", "DATE '2024-01-15'")),
    "time": lambda rng: "TIMESTAMP '2024-03-10 01:30:10'",
    "ntz": lambda rng: "TIMESTAMP_NTZ '2024-03-10 01:30:10'",
    "binary": lambda rng: "X'6162'",
    "float": lambda rng: "CAST(1.5 AS FLOAT)",
    "tiny": lambda rng: "3Y",
    "small": lambda rng: "30S",
    "ints": lambda rng: "array(1, 2)",
    "strings": lambda rng: "array('a', 'w1')",
    "struct": lambda rng: "named_struct('a', 1, 'b', 'w1')",
    "map": lambda rng: "map('a', 1)",
    "wildint": lambda rng: "2147483647",
    "wildlong": lambda rng: "9223372036854775807",
    "wilddouble": lambda rng: rng.choice(("double('NaN')", "double('Infinity')", "-0.0D", "1e308")),
    "wildfloat": lambda rng: "float('NaN')",
    "wilddate": lambda rng: "DATE '0001-01-01'",
    "wildtime": lambda rng: "TIMESTAMP '9999-12-31 23:59:59'",
    "wilddecimal": lambda rng: "CAST('99999999999999999999.5' AS DECIMAL(38,18))",
    "inexact": lambda rng: "0.5D",
    "specdouble": lambda rng: "double('-Infinity')",
}

_HOLE = re.compile(r"\{([a-zA-Z]+|\d+\.\.\d+)\}")


@dataclass(frozen=True)
class Leaves:
    """What an expression may be made of: per kind the texts that stand for a value, and how likely a literal is."""

    of: Mapping[str, Sequence[str]]
    make: Callable[[str], str | None] = field(default=lambda kind: None)
    literals: float = 0.08

    def leaf(self, kind: str, rng: random.Random) -> str | None:
        """A text of that kind that is no literal, if there is one."""
        made = self.make(kind)
        if made is not None:
            return made
        known = self.of.get(kind)
        return rng.choice(list(known)) if known else None


def expression(kind: str, leaves: Leaves, rng: random.Random, depth: int) -> str:
    """A random expression of a kind (or of one kind of a family), at most `depth` calls deep."""
    kind = rng.choice(FAMILIES[kind]) if kind in FAMILIES and kind != "string" else kind
    if kind == "string" and rng.random() < 0.3:
        kind = "word"
    if depth <= 0 or rng.random() < 0.3:
        found = None if rng.random() < leaves.literals else leaves.leaf(kind, rng)
        if found is not None:
            return found
        if depth <= 0:
            return _LITERALS[kind](rng)
    templates = PRODUCTIONS.get(kind, ())
    common = ()
    if kind not in ("inexact", "specdouble"):
        common = tuple(t.replace("{K}", f"{{{kind}}}") for t in (*_CHOICES, *(() if kind in NESTED else _ORDERED)))
    if not templates or rng.random() < 0.15:
        templates = common
    if not templates:
        return leaves.leaf(kind, rng) or _LITERALS[kind](rng)
    return _filled(rng.choice(templates), leaves, rng, depth)


def _filled(template: str, leaves: Leaves, rng: random.Random, depth: int) -> str:
    def fill(match: re.Match[str]) -> str:
        hole = match.group(1)
        if ".." in hole:
            least, most = map(int, hole.split(".."))
            return str(rng.randint(least, most))
        if hole == "d":
            hole = "decimal"
        inner = expression(hole, leaves, rng, depth - 1)
        # A call, a name or a literal binds tighter than anything; the rest goes in parentheses.
        before = template[: match.start()].rstrip()[-1:]
        after = template[match.end() :].lstrip()[:1]
        enclosed = before in ("(", ",") and after in (")", ",")
        return inner if enclosed or _is_tight(inner) else f"({inner})"

    return _HOLE.sub(fill, template)


def _is_tight(text: str) -> bool:
    return re.fullmatch(r"[\w.]+|‹[\w.]+›|'[^']*'|\w+\([^()]*\)", text) is not None


# Calls with holes of row expressions, and the kind of their result; None is the kind of the argument. What stands before
# a bar makes the result one that depends on no order.
AGGREGATES: tuple[tuple[str, str | None, float], ...] = (
    ("COUNT(*)", "long", 3), ("COUNT({any})", "long", 2), ("COUNT(1)", "long", 0.3), ("COUNT(DISTINCT {atom})", "long", 3),
    ("SUM({int})", "long", 3), ("SUM({long})", "long", 1.5), ("SUM({tiny})", "long", 0.7), ("SUM({small})", "long", 0.7),
    ("SUM({double})", "inexact", 1.5), ("SUM({float})", "inexact", 0.7), ("SUM({specdouble})", "inexact", 0.7),
    ("SUM({decimal})", "decimal", 1.5), ("SUM({bigdecimal})", "bigdecimal", 1), ("SUM(DISTINCT {int})", "long", 0.7),
    ("SUM(DISTINCT {decimal})", "decimal", 0.4), ("AVG({int})", "double", 1), ("AVG({double})", "inexact", 1),
    ("AVG({decimal})", "decimal", 1), ("AVG({bigdecimal})", "bigdecimal", 0.5), ("mean({specdouble})", "inexact", 0.4),
    ("AVG(DISTINCT {int})", "double", 0.4), ("MIN({atom})", None, 3), ("MAX({atom})", None, 3), ("MIN(DISTINCT {atom})", None, 0.3),
    ("MAX({specdouble})", "specdouble", 0.5), ("MIN({specdouble})", "specdouble", 0.5),
    ("STDDEV({int})", "inexact", 0.5), ("STDDEV({double})", "inexact", 0.4), ("STDDEV({decimal})", "inexact", 0.3), ("STDDEV_POP({int})", "inexact", 0.4), ("VARIANCE({small})", "inexact", 0.3), ("VARIANCE({float})", "inexact", 0.3),
    ("VAR_POP({specdouble})", "inexact", 0.4), ("var_samp({int})", "inexact", 0.3), ("std({small})", "inexact", 0.3),
    ("bool_and({bool})", "bool", 0.6), ("bool_or({bool})", "bool", 0.6), ("every({bool})", "bool", 0.3), ("some({bool})", "bool", 0.3),
    ("count_if({bool})", "long", 1), ("MEDIAN({num})", "inexact", 1), ("MEDIAN({specdouble})", "inexact", 0.5),
    ("PERCENTILE({num}, 0.9)", "inexact", 0.7), ("PERCENTILE({int}, 0.05)", "inexact", 0.5),
    ("PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY {num})", "inexact", 0.6),
    ("PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY {num})", "inexact", 0.6),
    ("PERCENTILE_DISC(0.9) WITHIN GROUP (ORDER BY {wilddouble})", "inexact", 0.3),
    ("bit_and({int})", "int", 0.3), ("bit_or({long})", "long", 0.3), ("bit_xor({small})", "small", 0.3),
    ("COUNT(DISTINCT {int}, {word})", "long", 0.5), ("COUNT(DISTINCT {atom}, {specdouble})", "long", 0.2),
    ("try_sum({int})", "long", 0.3), ("try_avg({decimal})", "decimal", 0.2), ("STDDEV(DISTINCT {small})", "inexact", 0.2),
    ("covar_pop({int}, {small})", "inexact", 0.3), ("covar_samp({small}, {tiny})", "inexact", 0.2),
    ("regr_count({int}, {double})", "long", 0.2), ("regr_avgx({int}, {small})", "inexact", 0.2),
    ("xxhash64(sort_array(@))|collect_list({int})", "long", 0.4),
    ("xxhash64(sort_array(@))|collect_set({word})", "long", 0.4), ("size(@)|array_agg({atom})", "int", 0.3),
    ("element_at(@, 2)|percentile({int}, array(0.1, 0.9))", "inexact", 0.3),
    ("SUM({wildint})", "long", 0.3), ("AVG({wildint})", "inexact", 0.2), ("SUM({wilddecimal})", "wilddecimal", 0.1),
)  # fmt: skip


def aggregate(leaves: Leaves, rng: random.Random, depth: int, wanted: str | None = None) -> tuple[str, str] | None:
    """A random aggregate call and the kind of its result; None if no aggregate has the kind wanted."""
    fitting = [a for a in AGGREGATES if wanted is None or a[1] == wanted or (a[1] is None and wanted in ATOMS)]
    if not fitting:
        return None
    call, kind, _ = rng.choices(fitting, [weight for *_, weight in fitting])[0]
    if kind is None:
        kind = wanted or rng.choice(ATOMS)
        call = call.replace("{atom}", f"{{{kind}}}")
    condition = expression("bool", leaves, rng, 1) if rng.random() < 0.2 else ""
    # Arguments are mostly plain columns, so that queries have something to share.
    around, _, call = call.rpartition("|")
    text = _filled(call, leaves, rng, depth if rng.random() < 0.4 else 1)
    return (around or "@").replace("@", f"«{text}¦{condition}»"), kind
