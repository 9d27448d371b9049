"""ROLLUP, CUBE and GROUPING SETS: one SELECT as several, each grouped at one level, whose results are united.

GROUP BY window(ts, '1 minute'), ROLLUP (a, b)      GROUP BY window(ts, '1 minute'), a, b
                                                    GROUP BY window(ts, '1 minute'), a       b is NULL
                                                    GROUP BY window(ts, '1 minute')          a and b are NULL

Coarser levels are answered from the panes of finer ones, as all queries with fewer keys are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product

from sqlglot import exp

from headrace.language.sql.report import Fault
from headrace.language.sql.spark_text import spark_text
from headrace.model import DataType

__all__ = ["GroupedLevel", "Level", "has_levels", "levels_of", "null_of"]

# Each level is a node that answers by itself: CUBE of five columns.
MOST_LEVELS = 32
_FEWER = "write the GROUPING SETS you want"
_CALLS = ("rollup", "cube")
_HIVE = ("rollup", "cube", "grouping_sets")
_NAMES = ("grouping", "grouping_id")

# What is grouped by at one level, each a node of GROUP BY.
Set = tuple[exp.Expr, ...]


@dataclass(frozen=True, slots=True)
class Level:
    """A SELECT grouped at one level.

    `absent` are the columns that it does not group by, `order` are those of all levels; None is the window. A level is
    `coarse` if another has its columns and more.
    """

    select: exp.Select
    absent: tuple[exp.Expr, ...]
    order: tuple[exp.Expr | None, ...]
    coarse: bool


@dataclass(frozen=True, slots=True)
class GroupedLevel:
    """What expressions mean at a level: NULL for the texts that are `absent`, numbers for GROUPING."""

    absent: Mapping[str, exp.Expr] = field(default_factory=dict)
    order: tuple[str | None, ...] = ()

    def value(self, node: exp.Expr) -> exp.Expr | None:
        """The constant that a bound expression is at this level, if it is one; raises Fault."""
        if self.absent and (found := self.absent.get(spark_text(node))) is not None:
            return found.copy()
        name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
        if name not in _NAMES:
            return None
        if not self.order:
            raise Fault(f"{name} goes with ROLLUP, CUBE and GROUPING SETS", node, "write GROUP BY ROLLUP (a, b)")
        wanted: list[str | None] = [spark_text(argument.unnest()) for argument in node.expressions]
        if name == "grouping" and len(wanted) != 1:
            raise Fault("grouping takes 1 argument", node, "grouping_id tells of several columns")
        unknown = [place for place, text in enumerate(wanted) if text not in self.order]
        if unknown:
            raise Fault(f"{name} takes columns of GROUP BY", node.expressions[unknown[0]])
        bits = [text in self.absent for text in (wanted or self.order)]
        number = sum(bit << place for place, bit in enumerate(reversed(bits)))
        return exp.cast(exp.Literal.number(number), "TINYINT" if name == "grouping" else "BIGINT")


def null_of(type_: DataType, at: exp.Expr) -> exp.Expr:
    """NULL of a type; raises Fault where only Spark knows the type."""
    if not type_.is_known:
        raise Fault("the type of this column is known to Spark alone, and a level without it needs one", at, "CAST it")
    return exp.cast(exp.Null(), str(type_))


def has_levels(select: exp.Select) -> bool:
    """Whether GROUP BY is at several levels."""
    group = select.args.get("group")
    if group is None:
        return False
    return any(group.args.get(name) for name in _HIVE) or any(_analytic(node) for node in group.expressions)


def levels_of(select: exp.Select, is_window: Callable[[exp.Expr], bool], windowed: bool) -> list[Level]:
    """The SELECT at each of its levels, finest first where SQL has them so; raises Fault.

    If it is not `windowed` in FROM, each level has a window of its own.
    """
    group = select.args["group"]
    sets = _sets(group)
    if len(sets) > MOST_LEVELS:
        raise Fault(f"GROUP BY has {len(sets)} levels; the most is {MOST_LEVELS}", group, _FEWER)
    hive = any(group.args.get(name) for name in _HIVE)
    order = _distinct([*(group.expressions if hive else ()), *(node for each in sets for node in each)])
    order = _in_order(order, group) if not hive else order
    levels, columns = [], [{spark_text(node) for node in each} for each in sets]
    for each, texts in zip(sets, columns, strict=True):
        if not windowed and not any(is_window(node) for node in each):
            raise Fault("a level of GROUP BY has no window, and windows never end", group,
                        "write GROUP BY window(ts, '1 minute'), ROLLUP (a, b)")  # fmt: skip
        at_level = select.copy()
        at_level.set("group", exp.Group(expressions=[node.copy() for node in each]))
        absent = tuple(node for node in order if spark_text(node) not in texts)
        known = tuple(None if is_window(node) else node for node in order)
        levels.append(Level(at_level, absent, known, any(texts < others for others in columns)))
    return levels


def _analytic(node: exp.Expr) -> bool:
    return isinstance(node, exp.GroupingSets) or (isinstance(node, exp.Anonymous) and node.name.lower() in _CALLS)


def _sets(group: exp.Group) -> list[Set]:
    """The sets of columns that GROUP BY groups by; ROLLUP and its kin beside each other multiply."""
    for name in _HIVE:
        for clause in group.args.get(name) or ():
            inside = clause.expressions if name == "grouping_sets" else group.expressions
            return _of(name, [_columns(node) for node in inside] if name != "grouping_sets" else [], clause)
    factors = [_factor(node) for node in group.expressions]
    return [tuple(_distinct(node for each in chosen for node in each)) for chosen in product(*factors)]


def _factor(node: exp.Expr) -> list[Set]:
    if not _analytic(node):
        return [(node,)]
    if isinstance(node, exp.GroupingSets):
        return _of("grouping_sets", [], node)
    return _of(node.name.lower(), [_columns(part) for part in node.expressions], node)


def _of(name: str, columns: Sequence[Set], node: exp.Expr) -> list[Set]:
    match name:
        case "rollup":
            return [_joined(columns[:count]) for count in range(len(columns), -1, -1)]
        case "cube":
            if 1 << len(columns) > MOST_LEVELS:
                raise Fault(f"CUBE of {len(columns)} columns has {1 << len(columns)} levels; the most is {MOST_LEVELS}",
                            node, _FEWER)  # fmt: skip
            return [_joined(each) for count in range(len(columns), -1, -1) for each in combinations(columns, count)]
        case _:
            return [each for part in node.expressions
                    for each in (_factor(part) if _analytic(part) else [_columns(part)])]  # fmt: skip


def _columns(node: exp.Expr) -> Set:
    """The columns of a set in parentheses, or the one column without."""
    if isinstance(node, exp.Tuple):
        return tuple(node.expressions)
    return (node.unnest(),)


def _joined(sets: Iterable[Set]) -> Set:
    return tuple(_distinct(node for each in sets for node in each))


def _distinct(nodes: Iterable[exp.Expr]) -> list[exp.Expr]:
    return list({spark_text(node): node for node in nodes}.values())


def _in_order(nodes: Sequence[exp.Expr], group: exp.Group) -> list[exp.Expr]:
    """Columns in the order in which the text of GROUP BY first has them."""
    seen = [spark_text(part) for part in group.walk(bfs=False) if isinstance(part, exp.Expr)]
    return sorted(nodes, key=lambda node: seen.index(spark_text(node)))
