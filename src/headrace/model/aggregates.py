"""The aggregates that windows keep: one table, which language, planning and kernels read.

An entry says how SQL names an aggregate, what it takes, the type of its result, what panes keep for it, and how its
value is read from that. Most new aggregates are one entry; one that keeps a new measure, or is read in a new way, needs
its kernel, too (`kernels/panes.py`, `kernels/windows.py`, `kernels/values.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.model.types import Column, DataType, Kind

__all__ = ["AGGREGATES", "PAIR", "SPELLINGS", "AggregateFunction", "result_type"]

_BIGINT = DataType(Kind.BIGINT)
_DOUBLE = DataType(Kind.DOUBLE)
# An aggregate of two values is one of a struct with these fields.
PAIR = ("of", "by")


def _bigint(argument: DataType) -> DataType:
    return _BIGINT


def _double(argument: DataType) -> DataType:
    return _DOUBLE


def _same(argument: DataType) -> DataType:
    return argument


def _sum(argument: DataType) -> DataType:
    if argument.kind is Kind.DECIMAL:
        return DataType(Kind.DECIMAL, min(38, argument.precision + 10), argument.scale)
    if not argument.is_known:
        return argument
    return _BIGINT if argument.is_integer else _DOUBLE


def _average(argument: DataType) -> DataType:
    if argument.kind is Kind.DECIMAL:
        return DataType(Kind.DECIMAL, min(38, argument.precision + 4), min(38, argument.scale + 4))
    return _DOUBLE if argument.is_known else argument


def _number(argument: DataType) -> DataType:
    return argument if argument.is_numeric or not argument.is_known else _DOUBLE


def _first_of_pair(argument: DataType) -> DataType:
    return argument.fields[0].type if argument.kind is Kind.STRUCT else argument


def _array(argument: DataType) -> DataType:
    return DataType(Kind.ARRAY, fields=(Column("element", argument),)) if argument.is_known else argument


def _counted(argument: DataType) -> DataType:
    item = DataType(Kind.STRUCT, fields=(Column("item", argument), Column("count", _BIGINT)))
    return DataType(Kind.ARRAY, fields=(Column("element", item),))


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """One aggregate.

    `names` are its names in SQL, the first of them the model's own. `takes` lists its arguments: the value, as `any`
    type, a `plain` (comparable) one, a `number`, an `integer`, a `condition`, or a `quantity` (a number or a time); one
    more value; `time`, which is the row's and not written; and literals, in brackets those that may be missing. What
    stands after `within` is named by WITHIN GROUP. `result` is the type of the result.

    `keeps` are the kinds of measures that a pane keeps for it, in the order in which they are read. An aggregate with a
    `detail` is read from rows counted by value (`value`; `rank`, where -0.0 stays what it is; `heaviest`), by
    HyperLogLog `register` or by DDSketch `bucket` instead, and so is one with DISTINCT. `reads` is how kernels read
    it. `distinct` says what DISTINCT does: nothing to the result (`same`), or it `counts`; without it, it is refused.
    `empty` is the result over no value. `means` is another aggregate, with parameters, that this one is.
    """

    names: str
    takes: str
    result: Callable[[DataType], DataType]
    keeps: str = ""
    detail: str | None = None
    reads: str = "value"
    distinct: str | None = None
    empty: int | tuple[()] | None = None
    means: tuple[str, tuple[float, ...]] | None = None

    @property
    def name(self) -> str:
        return self.names.split()[0]

    @property
    def value(self) -> str:
        """What it takes as its value."""
        words = self.takes.split()
        return words[words.index("within") + 1] if "within" in words else words[0]

    @property
    def second(self) -> str | None:
        """What it takes as its second value, if it has one."""
        words = self.takes.split()
        return words[1] if len(words) > 1 and words[1] in ("plain", "number", "time") else None

    @property
    def literals(self) -> tuple[str, ...]:
        """The literals it takes, in order; in brackets those that may be missing."""
        words = self.takes.split()
        return tuple(word for word in words if word.strip("[]") in _LITERALS)


_LITERALS = frozenset({"fraction", "accuracy", "deviation", "k", "tracked", "ignores"})
_A = AggregateFunction

_TABLE = (
    # Counts, sums and extremes.
    _A("count", "any", _bigint, keeps="count", distinct="counts", empty=0),
    _A("count_if", "condition", _bigint, means=("count", ())),
    _A("sum", "number", _sum, keeps="sum", reads="sum", distinct="counts"),
    _A("try_sum", "number", _sum, keeps="sum", reads="sum", distinct="counts"),
    _A("avg mean", "number", _average, keeps="sum count", reads="average", distinct="counts"),
    _A("try_avg", "number", _average, keeps="sum count", reads="average", distinct="counts"),
    _A("min", "plain", _same, keeps="min", distinct="same"),
    _A("max", "plain", _same, keeps="max", distinct="same"),
    _A("bool_and every", "condition", _same, distinct="same", means=("min", ())),
    _A("bool_or some any", "condition", _same, distinct="same", means=("max", ())),
    _A("bit_and", "integer", _same, keeps="bit_and", distinct="same"),
    _A("bit_or", "integer", _same, keeps="bit_or", distinct="same"),
    _A("bit_xor", "integer", _same, keeps="bit_xor"),
    # The value of the row with the greatest or least something; of the first and the last row.
    _A("max_by", "plain plain", _first_of_pair, keeps="max_by", reads="of"),
    _A("min_by", "plain plain", _first_of_pair, keeps="min_by", reads="of"),
    _A("first first_value any_value", "plain time [ignores]", _first_of_pair, means=("min_by", ())),
    _A("last last_value", "plain time [ignores]", _first_of_pair, means=("max_by", ())),
    # Statistics.
    _A("stddev_samp stddev std", "number", _double, keeps="moments", reads="variance", distinct="counts"),
    _A("stddev_pop", "number", _double, keeps="moments", reads="variance", distinct="counts"),
    _A("var_samp variance", "number", _double, keeps="moments", reads="variance", distinct="counts"),
    _A("var_pop", "number", _double, keeps="moments", reads="variance", distinct="counts"),
    _A("skewness", "number", _double, keeps="shape", reads="shape"),
    _A("kurtosis", "number", _double, keeps="shape", reads="shape"),
    _A("corr", "number number", _double, keeps="comoments", reads="comoments"),
    _A("covar_pop", "number number", _double, keeps="comoments", reads="comoments"),
    _A("covar_samp", "number number", _double, keeps="comoments", reads="comoments"),
    _A("regr_count", "number number", _bigint, keeps="comoments", reads="comoments", empty=0),
    _A("regr_avgx", "number number", _double, keeps="comoments", reads="comoments"),
    _A("regr_avgy", "number number", _double, keeps="comoments", reads="comoments"),
    _A("regr_sxx", "number number", _double, keeps="comoments", reads="comoments"),
    _A("regr_syy", "number number", _double, keeps="comoments", reads="comoments"),
    _A("regr_sxy", "number number", _double, keeps="comoments", reads="comoments"),
    _A("regr_slope", "number number", _double, keeps="comoments", reads="comoments"),
    _A("regr_intercept", "number number", _double, keeps="comoments", reads="comoments"),
    _A("regr_r2", "number number", _double, keeps="comoments", reads="comoments"),
    # Values in their order.
    _A("percentile", "number fraction", _double, detail="rank", reads="quantile"),
    _A("percentile_cont", "fraction within number", _double, means=("percentile", ())),
    _A("percentile_disc", "fraction within number", _double, detail="rank", reads="quantile"),
    _A("median", "number", _double, means=("percentile", (0.5,))),
    _A("mode", "plain", _same, detail="value", reads="mode"),
    _A("collect_list array_agg", "plain", _array, detail="value", reads="list", distinct="counts", empty=()),
    _A("collect_set", "plain", _array, detail="value", reads="set", distinct="same", empty=()),
    # Sketches.
    _A("approx_count_distinct", "plain [deviation]", _bigint, detail="register", reads="registers", empty=0),
    _A("approx_percentile percentile_approx", "quantity fraction [accuracy]", _number, detail="bucket",
       reads="quantile"),
    _A("approx_top_k", "plain [k] [tracked]", _counted, detail="heaviest", reads="heaviest"),
)  # fmt: skip

# The model's name -> the aggregate, of those that panes are kept for.
AGGREGATES = {entry.name: entry for entry in _TABLE if entry.means is None}
# A name in SQL -> the aggregate.
SPELLINGS = {name: entry for entry in _TABLE for name in entry.names.split()}


def result_type(function: str, argument: DataType) -> DataType:
    """Type of an aggregate's result, as Spark has it.

    >>> str(result_type("sum", DataType(Kind.DECIMAL, 10, 2))), str(result_type("avg", DataType(Kind.INT)))
    ('DECIMAL(20,2)', 'DOUBLE')
    """
    return AGGREGATES[function].result(argument)
