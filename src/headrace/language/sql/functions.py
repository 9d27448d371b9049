"""The scalar functions a query may call: deterministic, without side effects, known to Spark.

A row is `name/arguments`, such as `` or `concat/0-`. A function whose result type is not given here has one
that only Spark judges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.language.sql.coercion import common_type
from headrace.model import Column, DataType, Kind

__all__ = ["FUNCTIONS", "Function", "result_type"]

UNKNOWN = DataType(Kind.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Function:
    """A scalar function: its least and most arguments, and the rule for its result's type."""

    name: str
    least: int
    most: int | None
    rule: str


_BY_RULE = {
    "BOOLEAN": """
        array_contains/2 arrays_overlap/2 contains/2 endswith/2 equal_null/2 exists/2 forall/2 ilike/2-3 isnan/1
        isnotnull/1 isnull/1 like/2-3 luhn_check/1 map_contains_key/2 regexp/2 regexp_like/2 rlike/2 startswith/2
        is_valid_utf8/1 boolean/1 is_variant_null/1
    """,
    "INT": """
        array_size/1 ascii/1 bit_count/1 bit_length/1 cardinality/1 char_length/1 character_length/1 day/1
        dayofmonth/1 dayofweek/1 dayofyear/1 find_in_set/2 getbit/2 bit_get/2 hash/1- hour/1 instr/2 int/1
        json_array_length/1 len/1 length/1 levenshtein/2-3 locate/2-3 minute/1 month/1 octet_length/1 position/2-3
        quarter/1 regexp_count/2 regexp_instr/2-3 second/1 size/1 unix_date/1 weekday/1 weekofyear/1 year/1
    """,
    "BIGINT": """
        bigint/1 crc32/1 factorial/1 to_unix_timestamp/1-2 unix_micros/1 unix_millis/1 unix_seconds/1
        unix_timestamp/1-2 xxhash64/1- array_position/2 timestampdiff/3 width_bucket/4
    """,
    "SMALLINT": "smallint/1",
    "TINYINT": "tinyint/1",
    "FLOAT": "float/1",
    "DOUBLE": """
        acos/1 acosh/1 asin/1 asinh/1 atan/1 atan2/2 atanh/1 cbrt/1 cos/1 cosh/1 cot/1 csc/1 degrees/1 double/1 e/0
        exp/1 expm1/1 hypot/2 ln/1 log/1-2 log10/1 log1p/1 log2/1 months_between/2-3 pi/0 pow/2 power/2 radians/1
        rint/1 sec/1 sign/1 signum/1 sin/1 sinh/1 sqrt/1 tan/1 tanh/1
    """,
    "STRING": """
        base64/1 bin/1 btrim/1-2 char/1 chr/1 concat_ws/1- conv/3 date_format/2 dayname/1 elt/2- format_number/2
        format_string/1- from_unixtime/1-2 get_json_object/2 hex/1 initcap/1 lcase/1 left/2 lower/1 lpad/2-3 ltrim/1-2
        mask/1-5 md5/1 monthname/1 overlay/3-4 parse_url/2-3 printf/1- quote/1 regexp_extract/2-3 regexp_replace/3-4
        regexp_substr/2 repeat/2 replace/2-3 right/2 rpad/2-3 rtrim/1-2 schema_of_json/1-2 sha/1 sha1/1 sha2/2
        soundex/1 space/1 split_part/3 string/1 substr/2-3 substring/2-3 substring_index/3 to_char/2 to_csv/1-2
        to_json/1-2 to_varchar/2 translate/3 trim/1-2 typeof/1 ucase/1 upper/1 url_decode/1 url_encode/1
        try_url_decode/1 make_valid_utf8/1 validate_utf8/1 try_validate_utf8/1
    """,
    "BINARY": """
        binary/1 encode/2 to_binary/1-2 try_to_binary/1-2 unbase64/1 unhex/1 aes_decrypt/2-5 try_aes_decrypt/2-5
    """,
    "DATE": """
        add_months/2 date/1 date_from_unix_date/1 last_day/1 make_date/3 next_day/2 to_date/1-2 trunc/2
        try_to_date/1-2
    """,
    "TIMESTAMP": """
        date_trunc/2 from_utc_timestamp/2 make_timestamp_ltz/6-7 timestamp/1 timestamp_micros/1 timestamp_millis/1
        timestamp_seconds/1 to_timestamp_ltz/1-2 to_utc_timestamp/2 to_timestamp/1-2 try_to_timestamp/1-2
    """,
    "TIMESTAMP_NTZ": "make_timestamp_ntz/2-6 to_timestamp_ntz/1-2 convert_timezone/2-3",
    "INTERVAL": "make_dt_interval/0-4 make_ym_interval/0-2 make_interval/0-7",
    "first argument": """
        abs/1 array_compact/1 array_distinct/1 array_except/2 array_intersect/2 array_remove/2 array_sort/1-2 filter/2
        map_filter/2 negative/1 nullifzero/1 nullif/2 positive/1 reverse/1 slice/3 shiftleft/2 shiftright/2
        shiftrightunsigned/2 sort_array/1-2
    """,
    "common": "coalesce/1- greatest/2- ifnull/2 least/2- nvl/2",
    "second and third": "if/3 nvl2/3",
    "split": "split/2-3 regexp_extract_all/2-3 json_object_keys/1",
    "element": "array_max/1 array_min/1 element_at/2 get/2 try_element_at/2",
    "inner": "flatten/1",
    "parts": "map_entries/1 map_keys/1 map_values/1",
    "array": "array/0-",
    "map": "map/0-",
    "concat": "concat/0-",
    "date": "date_add/2-3 date_sub/2 dateadd/2-3",
    "days or units": "date_diff/2-3 datediff/2-3",
    "whole": "ceil/1-2 ceiling/1-2 floor/1-2",
    "round": "bround/1-2 round/1-2",
    "remainder": "mod/2 pmod/2 try_mod/2",
    "": """
        aggregate/3-4 array_append/2 array_insert/3 array_prepend/2 array_union/2 date_part/2 datepart/2
        make_timestamp/2-7 zeroifnull/1 array_join/2-3 array_repeat/2 arrays_zip/0- decode/2-
        from_csv/2-3 from_json/2-3 from_xml/2-3 map_concat/0- map_from_arrays/2
        map_from_entries/1 map_zip_with/3 reduce/3-4 schema_of_csv/1-2 sequence/2-3
        sentences/1-3 named_struct/2- str_to_map/1-3 struct/1- timestampadd/3 to_number/2 transform/2 transform_keys/2
        transform_values/2 try_add/2 try_divide/2 try_multiply/2 try_subtract/2 try_to_number/2 xpath/2
        xpath_boolean/2 xpath_double/2 xpath_float/2 xpath_int/2 xpath_long/2 xpath_number/2 xpath_short/2
        xpath_string/2 zip_with/3 parse_json/1 try_parse_json/1 variant_get/2-3 try_variant_get/2-3
        schema_of_variant/1 to_variant_object/1 nanvl/2 try_make_timestamp/6-7 try_make_interval/0-7 try_parse_url/2-3
    """,
}


def _read_table() -> dict[str, Function]:
    table: dict[str, Function] = {}
    for rule, text in _BY_RULE.items():
        for row in text.split():
            name, _, count = row.partition("/")
            least, dash, most = count.partition("-")
            bound = int(most) if most else (None if dash else int(least))
            table[name] = Function(name, int(least), bound, rule)
    return table


FUNCTIONS = _read_table()


def _element(arguments: Sequence[DataType]) -> DataType:
    """The type of an array's element or of a map's value."""
    outer = arguments[0] if arguments else UNKNOWN
    return outer.fields[-1].type if outer.kind in (Kind.ARRAY, Kind.MAP) else UNKNOWN


def _inner(outer: DataType) -> DataType:
    """The type of an array of arrays once it is flat."""
    inner = outer.fields[0].type if outer.kind is Kind.ARRAY else UNKNOWN
    return inner if inner.kind is Kind.ARRAY else UNKNOWN


def _parts(name: str, whole: DataType) -> DataType:
    """The type of a map's keys, values or entries."""
    if whole.kind is not Kind.MAP:
        return UNKNOWN
    key, value = (field.type for field in whole.fields)
    entry = DataType(Kind.STRUCT, fields=(Column("key", key), Column("value", value)))
    element = {"map_keys": key, "map_values": value}.get(name, entry)
    return DataType(Kind.ARRAY, fields=(Column("element", element),))


def _common(arguments: Sequence[DataType]) -> DataType:
    result = arguments[0]
    for argument in arguments[1:]:
        found = common_type(result, argument)
        if found is None:
            raise ValueError(f"{result} and {argument} have no common type")
        result = found
    return result


def result_type(function: Function, arguments: Sequence[DataType]) -> DataType:
    """Type of a call's result; ValueError when the arguments cannot go together.

    >>> str(result_type(FUNCTIONS["coalesce"], [DataType(Kind.INT), DataType(Kind.BIGINT)]))
    'BIGINT'
    """
    match function.rule:
        case "":
            return UNKNOWN
        case "first argument":
            return arguments[0]
        case "common":
            return _common(arguments)
        case "second and third":
            return _common(arguments[1:])
        case "split":
            return DataType(Kind.ARRAY, fields=(Column("element", DataType(Kind.STRING)),))
        case "element":
            return _element(arguments)
        case "inner":
            return _inner(arguments[0])
        case "parts":
            return _parts(function.name, arguments[0])
        case "array":
            return DataType(Kind.ARRAY, fields=(Column("element", _common(arguments)),)) if arguments else UNKNOWN
        case "map":
            if not arguments or len(arguments) % 2:
                return UNKNOWN
            key, value = _common(arguments[::2]), _common(arguments[1::2])
            return DataType(Kind.MAP, fields=(Column("key", key), Column("value", value)))
        case "concat":
            texts = not any(argument.kind in (Kind.ARRAY, Kind.BINARY, Kind.UNKNOWN) for argument in arguments)
            return DataType(Kind.STRING) if texts else UNKNOWN
        case "days or units":
            return DataType(Kind.INT if len(arguments) == 2 else Kind.BIGINT)
        case "whole":
            return DataType(Kind.BIGINT) if arguments[0].is_integer or arguments[0].is_float else UNKNOWN
        case "round":
            return arguments[0] if arguments[0].is_integer or arguments[0].is_float else UNKNOWN
        case "date":
            return DataType(Kind.DATE) if len(arguments) == 2 and function.name != "dateadd" else UNKNOWN
        case "remainder":
            return _common(arguments) if all(argument.is_integer for argument in arguments) else UNKNOWN
        case kind:
            return DataType(Kind[kind])
