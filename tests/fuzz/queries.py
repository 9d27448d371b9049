"""Random queries, each in two spellings: Headrace's, and Spark's batch SQL over tables of the admitted rows.

The judge's tables have a column `_t`, the time of a row. `@ENDS@` in a judge's text stands for the ends of the windows
that were answered: which ones the bracket form answers is the schedule's choice.

Longer than 600 lines because each shape of query stands beside the judge's spelling of it, and shapes are made
of one another.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fuzz.expressions import ATOMS, NESTED, Leaves, aggregate, expression
from fuzz.rows import COLUMNS

__all__ = ["SHAPES", "Query", "make_query"]

SECOND = 1_000_000
_COLUMN = re.compile(r"‹([\w.]+)›")
_AGGREGATE = re.compile(r"«([^«»¦]*)¦([^«»¦]*)»")
_HOW = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}


@dataclass(frozen=True)
class Query:
    """A query: its text, the judge's, and of windows in brackets size and slide."""

    name: str
    shape: str
    sql: str
    judge: str
    sliding_us: tuple[int, int] | None = None
    streams: tuple[str, ...] = ("l",)
    sink: str = "parquet"


@dataclass(frozen=True)
class Source:
    """Rows in a FROM clause: the text before the window, the judge's, and the columns by kind."""

    alias: str
    text: str
    judge: str
    columns: Mapping[str, tuple[str, ...]]
    streams: tuple[str, ...]
    time: str | None = "ts"
    prefix: str = ""  # WITH ...
    judge_prefix: str = ""
    joined: bool = False


def _base_columns() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {"time": ("ts",), "long": ("n",)}
    for column in COLUMNS:
        found[column.kind] = (*found.get(column.kind, ()), column.name)
    return found


BASE = _base_columns()


def plain(text: str, over: bool = False, here: bool = False) -> str:
    """A symbolic text as SQL; `here` lets aggregates see only rows that are there."""

    def call(match: re.Match[str]) -> str:
        conditions = [
            part for part in ("here" if here else "", f"({match[2]})" if here and match[2] else match[2]) if part
        ]
        return f"{match[1]} FILTER (WHERE {' AND '.join(conditions)})" if conditions else match[1]

    return _COLUMN.sub(r"\1", _AGGREGATE.sub(call, text))


def leaves_of(source: Source, rng: random.Random, kinds: Sequence[str] | None = None) -> Leaves:
    """The columns of a source, qualified or not."""
    qualify = source.joined or rng.random() < 0.3

    def named(name: str) -> str:
        return f"‹{source.alias}.{name}›" if qualify and "." not in name else f"‹{name}›"

    return Leaves({k: [named(n) for n in v] for k, v in source.columns.items() if kinds is None or k in kinds})


# Sources ---------------------------------------------------------------------------------------------------------------


def _stream(rng: random.Random, name: str | None = None, alias: str | None = None) -> Source:
    name = name or rng.choice(("l", "l", "r"))
    alias = alias or (rng.choice((name, name, "a")))
    text = name if alias == name else f"{name} AS {alias}"
    return Source(alias, text, text, BASE, (name,))


def _projection(rng: random.Random, count: int) -> tuple[list[tuple[str, str, str]], str]:
    """Columns (name, kind, text) and a condition over a base stream."""
    leaves = Leaves({k: [f"‹{n}›" for n in v] for k, v in BASE.items()})
    kinds = rng.choices(
        ("int", "word", "double", "decimal", "bool", "string", "date", "time", "long", "wilddouble", "ints"), k=count
    )
    items = [(f"p{i}", kind, expression(kind, leaves, rng, 2)) for i, kind in enumerate(kinds)]
    condition = expression("bool", leaves, rng, 2) if rng.random() < 0.6 else ""
    return items, condition


def _subquery(rng: random.Random, alias: str = "v") -> Source:
    items, condition = _projection(rng, rng.randint(2, 4))
    name = rng.choice(("l", "r"))
    kept = rng.sample(("k", "g", "i", "x", "d", "b", "q"), 3)
    select = ", ".join([*(f"{plain(text)} AS {n}" for n, _, text in items), *kept, "n", "ts"])
    where = f" WHERE {plain(condition)}" if condition else ""
    columns = _named(
        [*((n, kind) for n, kind, _ in items), *((c, _kind(c)) for c in kept), ("n", "long"), ("ts", "time")]
    )
    inner, judged = f"SELECT {select} FROM {name}{where}", f"SELECT {select}, _t FROM {name}{where}"
    if rng.random() < 0.3:
        return Source(alias, alias, f"({judged}) AS {alias}", columns, (name,), prefix=f"WITH {alias} AS ({inner}) ")
    return Source(alias, f"({inner}) AS {alias}", f"({judged}) AS {alias}", columns, (name,))


def _union(rng: random.Random, alias: str = "v") -> Source:
    items, _ = _projection(rng, rng.randint(1, 3))
    kept = rng.sample(("k", "g", "i", "x", "d", "q"), 3)
    parts, judged = [], []
    streams = rng.choice((("l", "r"), ("l", "r"), ("l", "l")))
    for stream in streams:
        _, condition = _projection(rng, 1)
        select = ", ".join([*(f"{plain(text)} AS {n}" for n, _, text in items), *kept, "n", "ts"])
        where = f" WHERE {plain(condition)}" if condition else ""
        parts.append(f"SELECT {select} FROM {stream}{where}")
        judged.append(f"SELECT {select}, _t FROM {stream}{where}")
    columns = _named(
        [*((n, kind) for n, kind, _ in items), *((c, _kind(c)) for c in kept), ("n", "long"), ("ts", "time")]
    )
    return Source(alias, f"({' UNION ALL '.join(parts)}) AS {alias}", f"({' UNION ALL '.join(judged)}) AS {alias}", columns,
                  tuple(dict.fromkeys(streams)))  # fmt: skip


def _kind(name: str) -> str:
    return next(kind for kind, names in BASE.items() if name in names)


def _named(pairs: Sequence[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name, kind in pairs:
        found[kind] = (*found.get(kind, ()), name)
    return found


# Joins -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Joined:
    """A join in FROM: both texts, the leaves of all sides together, and the time of a result."""

    text: str
    judge: str
    leaves: Leaves
    sides: tuple[Source, ...]
    time: str


def _near(a: str, b: str, a_us: int, b_us: int) -> str:
    """Whether two rows, or a row and a pair with the time `a`, are within their ranges."""
    return f"unix_micros({b}) - unix_micros({a}) BETWEEN {-b_us} AND {a_us}"


def _join(rng: random.Random, three: bool) -> Joined:
    aliases = ("a", "o", "c") if three else ("a", "o")
    sides = [_stream(rng, rng.choice(("l", "r")), alias) for alias in aliases]
    if not three and rng.random() < 0.25:
        sides[1] = _subquery(rng, "o") if rng.random() < 0.5 else sides[1]
        sides[1] = replace(sides[1], text=sides[1].text) if not sides[1].prefix else _stream(rng, "r", "o")
    ranges = [rng.choice((0, 1, 2, 3, 4)) * SECOND if three else rng.choice((0, 1, 2, 4, 6, 9)) * SECOND for _ in sides]
    text = f"{sides[0].text} [RANGE {ranges[0] // SECOND} s]"
    judge = sides[0].judge
    time, nullable = f"{sides[0].alias}._t", frozenset[str]()
    half = rng.choice(("LEFT SEMI", "LEFT ANTI")) if not three and rng.random() < 0.2 else ""
    for number in range(1, len(sides)):
        before, new = sides[:number], sides[number]
        how = rng.choice(("", "", "", "LEFT", "RIGHT", "FULL")) if number == 1 else rng.choice(("", "", "LEFT"))
        how = half or how
        on = _predicate(rng, rng.choice(before), new)
        text += f" {how} JOIN {new.text} [RANGE {ranges[number] // SECOND} s] ON {plain(on)}"
        sure = [r for s, r in zip(before, ranges, strict=False) if s.alias not in nullable]
        near = [_near(time, f"{new.alias}._t", min(sure, default=max(ranges[:number])), ranges[number])]
        if number > 1:
            for side, range_us in zip(before, ranges, strict=False):
                each = f"unix_micros({new.alias}._t) - unix_micros({side.alias}._t) <= {range_us}"
                near.append(f"coalesce({each}, true)" if side.alias in nullable else each)
        judge += f" {how} JOIN {new.judge} ON ({plain(on)}) AND {' AND '.join(near)}"
        nullable |= frozenset([new.alias]) if how in ("LEFT", "FULL") else frozenset()
        nullable |= frozenset(s.alias for s in before) if how in ("RIGHT", "FULL") else frozenset()
        time = f"greatest({', '.join(s.alias + '._t' for s in sides[: number + 1])})"
    if half:
        sides, time = sides[:1], f"{sides[0].alias}._t"
    merged: dict[str, list[str]] = {}
    for side in sides:
        for kind, names in side.columns.items():
            merged.setdefault(kind, []).extend(f"‹{side.alias}.{n}›" for n in names)
    return Joined(text, judge, Leaves(merged), tuple(sides), time)


def _predicate(rng: random.Random, left: Source, right: Source) -> str:
    one = leaves_of(replace(left, joined=True), rng)
    other = leaves_of(replace(right, joined=True), rng)

    def side(kind: str, leaves: Leaves) -> str:
        found = (
            leaves.leaf(kind, rng) if rng.random() < 0.6 else expression(kind, replace(leaves, literals=0.0), rng, 1)
        )
        return found or expression(kind, leaves, rng, 2)

    def both(operator: str, kind: str, kind2: str | None = None) -> str:
        a, b = side(kind, one), side(kind2 or kind, other)
        return f"({a}) {operator} ({b})" if rng.random() < 0.5 else f"({b}) {_mirrored(operator)} ({a})"

    def band() -> str:
        kind, span = rng.choice((("int", "50"), ("double", "1000"), ("decimal", "10.5"), ("long", "100000000000")))
        a, b = side(kind, one), side(kind, other)
        return f"({a}) BETWEEN ({b}) - {span} AND ({b}) + {span}"

    def anything() -> str:
        mixed = Leaves({k: [*one.of.get(k, ()), *other.of.get(k, ())] for k in {*one.of, *other.of}}, literals=0.05)
        return expression("bool", mixed, rng, 2)

    def equal() -> str:
        return both(rng.choice(("=", "=", "=", "<=>")), rng.choice(("word", "word", "int", "int", *ATOMS)))

    def mixed() -> str:
        return both("=", *rng.choice((("int", "long"), ("int", "tiny"), ("double", "int"), ("decimal", "int"), ("wilddouble", "wildfloat"),
                                      ("decimal", "double"), ("small", "int"), ("bigdecimal", "decimal"), ("date", "time"))))  # fmt: skip

    def less() -> str:
        return both(
            rng.choice(("<", "<=", ">", ">=")),
            rng.choice(("int", "double", "word", "date", "wilddouble", "decimal", "time")),
        )

    parts = [rng.choices((equal, mixed, band, less, anything), (5, 1.5, 1.5, 1.5, 1.5))[0]()]
    while rng.random() < 0.35:
        parts.append(rng.choice((equal, less, band, anything))())
    if rng.random() < 0.05:
        return "TRUE"
    return (" OR " if rng.random() < 0.08 else " AND ").join(f"({part})" for part in parts)


def _mirrored(operator: str) -> str:
    return {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(operator, operator)


def _plain_join(name: str, rng: random.Random) -> Query:
    joined = _join(rng, rng.random() < 0.25)
    items = []
    # Plain columns of all joins are written by one job, expressions by one for each join.
    depth, leaves = rng.choice(
        ((0, replace(joined.leaves, literals=0.0)), (0, replace(joined.leaves, literals=0.0)), (2, joined.leaves))
    )
    for i in range(rng.randint(1, 5)):
        kind = rng.choice((*ATOMS, *NESTED)) if rng.random() < 0.6 else rng.choice(("int", "string", "double"))
        items.append(f"{expression(kind, leaves, rng, depth)} AS c{i}")
    items.append(", ".join(f"‹{side.alias}.n› AS n{i}" for i, side in enumerate(joined.sides)))
    where = f" WHERE {expression('bool', joined.leaves, rng, 2)}" if rng.random() < 0.3 else ""
    select = f"SELECT {', '.join(items)} FROM "
    return Query(name, "join", plain(f"{select}{joined.text}{where}"), plain(f"{select}{joined.judge}{where}"),
                 streams=_streams(joined.sides))  # fmt: skip


def _streams(sides: Sequence[Source]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(stream for side in sides for stream in side.streams))


def _join_source(rng: random.Random) -> Source:
    joined = _join(rng, rng.random() < 0.15)
    items = []
    for i in range(rng.randint(2, 4)):
        kind = rng.choice(("int", "word", "double", "decimal", "bool", "long"))
        items.append((f"p{i}", kind, expression(kind, joined.leaves, rng, rng.choice((0, 0, 1)))))
    select = ", ".join(f"{plain(text)} AS {n}" for n, _, text in items)
    where = f" WHERE {plain(expression('bool', joined.leaves, rng, 1))}" if rng.random() < 0.2 else ""
    text = f"(SELECT {select} FROM {joined.text}{where}) AS j"
    judge = f"(SELECT {select}, {joined.time} AS _t FROM {joined.judge}{where}) AS j"
    return Source("j", text, judge, _named([(n, kind) for n, kind, _ in items]), _streams(joined.sides), time=None)


# Windows of time --------------------------------------------------------------------------------------------------------


def _windowed(name: str, rng: random.Random, source: Source, shape: str) -> Query:
    size, slide = rng.choice(
        ((4, 4), (5, 5), (6, 2), (10, 5), (10, 3), (10, 10), (12, 4), (20, 5), (20, 20), (2.5, 0.5), (30, 10))
    )
    hopping = source.time is not None and rng.random() < 0.5
    cumulates = not hopping and not source.joined and size > slide and not size % slide and rng.random() < 0.3
    row = leaves_of(source, rng)
    keys = _keys(rng, row)
    where = _filter(rng, source, row) if rng.random() < 0.4 else ""
    post = _after_aggregation(rng, row, keys)
    distinct = rng.random() < 0.05
    items = _items(rng, keys, post)
    if distinct and rng.random() < 0.4 and not hopping:
        items = [(f"c{i}", kind, text) for i, (kind, text) in enumerate(_distinct_keys(rng, row))]
        keys, grouped = [(kind, text) for _, kind, text in items], False
    else:
        grouped = bool(keys)
    hiding = rng.choice(("k", "g", "i"))
    if rng.random() < 0.05 and "word" in row.of and not distinct and hiding not in {name for name, *_ in items}:
        # An alias that hides a column of the stream.
        items.append((hiding, "any", post("word")))
    if rng.random() < 0.1:
        items.append(("edge", "time", rng.choice(("window_end", "window_start"))))
    if rng.random() < 0.12 and grouped and not distinct:
        items.append(("over", "over", _over_window(rng, [text for _, text in keys], post("long"), "window_end")))
    group, group_judge = _group_by(rng, keys if grouped else [], items)
    having = post("bool") if rng.random() < 0.25 and (grouped or not distinct) else ""
    if having and rng.random() < 0.3 and (item := rng.choice(items))[1] in ("long", "int", "inexact", "decimal"):
        having = f"{item[0]} > {rng.choice((0, 1, 5))}"
    order, terms, limit, ties = _order(rng, keys, items, post, distinct)
    if order and any(kind == "any" for _, kind, _ in items):
        order, terms, limit, ties = "", [], None, False
    span = f"window(ts, '{_span(size)}'" + (f", '{_span(slide)}'" if slide != size or rng.random() < 0.3 else "")
    if hopping:
        # Spark takes a start below the slide only.
        offset = slide > 1 and rng.random() < 0.2
        span += (
            ")"
            if not offset
            else (f", '{_span(slide)}'" if ", '" + _span(slide) not in span[12:] else "") + ", '1 second')"
        )
        qualified = f"{source.alias}.{source.time}" if source.joined else source.time
        span = span.replace("window(ts", f"window({qualified}", 1)
        if group == " ALL":
            items.insert(0, ("w", "struct", span))
        else:
            group = f" {span}{',' if group else ''}{group}"
        items = [(n, kind, _spark_edges(text)) for n, kind, text in items]
        order, terms = _spark_edges(order), [(_spark_edges(text), direction) for text, direction in terms]
    select = ", ".join(_selected(n, text) for n, _, text in items)
    head = f"SELECT {'DISTINCT ' if distinct else ''}{select} FROM {source.text}"
    bracket = "" if hopping else f" [WINDOW {_span(size)}{f' SLIDE {_span(slide)}' if slide != size else ''}]"
    bracket = bracket.replace("SLIDE", "CUMULATE") if cumulates else bracket
    tail = f"{' WHERE ' + where if where else ''}{' GROUP BY' + group if group else ''}{' HAVING ' + having if having else ''}"
    tail += order + (f" LIMIT {limit}{' WITH TIES' if ties else ''}" if limit is not None else "")
    sql = plain(f"{source.prefix}{head}{bracket}{tail}")
    judge = _judge(
        source, hopping, distinct, items, where, (group, group_judge), having, (terms, limit, ties), size, span,
        int(slide * SECOND) if cumulates else None,
    )  # fmt: skip
    aligned = hopping or cumulates
    return Query(
        name, shape, sql, judge, None if aligned else (int(size * SECOND), int(slide * SECOND)), source.streams
    )


# Filters that are the same, that part the rows, and that make up others: what sharing looks for.
FILTERS = ("‹g› = 1", "‹g› = 2", "‹g› IN (1, 2)", "‹g› <> 1", "‹k› = 'k0'", "‹k› <> 'k0'", "‹i› > 0", "‹i› <= 0", "‹i› IS NULL",
           "‹i› > 0 AND ‹g› = 1", "NOT (‹i› > 0)", "‹g› = 1 OR ‹g› = 2", "‹i› BETWEEN 1 AND 500", "‹i› > 500", "‹x› < 0", "NULL = 1")  # fmt: skip


def _filter(rng: random.Random, source: Source, row: Leaves) -> str:
    """A filter that others have as well, or one of its own."""
    names = {name for names in source.columns.values() for name in names}
    known = [text for text in FILTERS if {*_COLUMN.findall(text)} <= names]
    return rng.choice(known) if known and rng.random() < 0.6 else expression("bool", row, rng, 2)


def _spark_edges(text: str) -> str:
    return text.replace("window_end", "window.end").replace("window_start", "window.start")


def _span(seconds: float) -> str:
    return f"{int(seconds)} seconds" if seconds == int(seconds) else f"{int(seconds * 1000)} milliseconds"


def _keys(rng: random.Random, row: Leaves) -> list[tuple[str, str]]:
    """Group keys (kind, text); often the same few, so that queries can share."""
    if rng.random() < 0.12:
        return []
    keys: list[tuple[str, str]] = []
    while not keys or rng.random() < 0.35:
        if rng.random() < 0.6:
            kind = rng.choice(("word", "int", "word", "bool"))
            found = row.leaf(kind, rng)
        else:
            kind = rng.choice(ATOMS)
            found = expression(kind, replace(row, literals=0.0), rng, rng.choice((0, 1, 2)))
        if found is not None and "‹" in found and found not in (text for _, text in keys):
            keys.append((kind, found))
    return keys


def _distinct_keys(rng: random.Random, row: Leaves) -> list[tuple[str, str]]:
    return _keys(rng, row) or [("word", row.leaf("word", rng) or "‹n›")]


class _Post:
    """Expressions over group keys and aggregates."""

    def __init__(self, rng: random.Random, row: Leaves, keys: Sequence[tuple[str, str]]) -> None:
        self.rng, self.row, self.keys = rng, row, keys
        self.used: list[tuple[str, str]] = []
        self.leaves = Leaves({}, self.make, 0.1)

    def make(self, kind: str) -> str | None:
        rng = self.rng
        own = [text for known, text in self.keys if known == kind]
        if own and rng.random() < 0.5:
            return rng.choice(own)
        again = [text for known, text in self.used if known == kind]
        if again and rng.random() < 0.4:
            return rng.choice(again)
        found = aggregate(self.row, rng, 2, kind)
        if found is None:
            return None
        self.used.append((found[1], found[0]))
        return found[0] if found[1] == kind else None

    def any_aggregate(self) -> tuple[str, str]:
        found = aggregate(self.row, self.rng, 2)
        assert found is not None
        self.used.append((found[1], found[0]))
        return found[1], found[0]

    def __call__(self, kind: str) -> str:
        return expression(kind, self.leaves, self.rng, self.rng.choice((1, 2)))


def _after_aggregation(rng: random.Random, row: Leaves, keys: Sequence[tuple[str, str]]) -> _Post:
    return _Post(rng, row, keys)


def _items(rng: random.Random, keys: Sequence[tuple[str, str]], post: _Post) -> list[tuple[str, str, str]]:
    """The SELECT list (name, kind, text): most keys, aggregates, and expressions over both."""
    items: list[tuple[str, str, str]] = []
    for kind, text in keys:
        if rng.random() < 0.85:
            items.append((_own_name(rng, text, items), kind, text))
    for _ in range(rng.randint(1, 4)):
        if rng.random() < 0.7:
            kind, text = post.any_aggregate()
        else:
            kind = rng.choice(
                ("int", "long", "double", "string", "bool", "decimal", "date", "inexact", "ints", "struct")
            )
            text = post(kind)
        items.append((f"c{len(items)}", kind, text))
    if not any("«" in text for *_, text in items):
        kind, text = post.any_aggregate()
        items.append((f"c{len(items)}", kind, text))
    return items


def _own_name(rng: random.Random, text: str, items: Sequence[tuple[str, str, str]]) -> str:
    """A column now and then keeps its name, without an alias; other items are numbered."""
    bare = re.fullmatch(r"‹(?:\w+\.)?(\w+)›", text)
    taken = {name for name, *_ in items}
    return bare[1] if bare and bare[1] not in taken and rng.random() < 0.4 else f"c{len(items)}"


def _selected(name: str, text: str) -> str:
    """An item of a SELECT list; a column under its own name has no alias."""
    return text if re.fullmatch(rf"‹(?:\w+\.)?{name}›", text) else f"{text} AS {name}"


def _group_by(
    rng: random.Random, keys: Sequence[tuple[str, str]], items: Sequence[tuple[str, str, str]]
) -> tuple[str, str]:
    """GROUP BY in one of its spellings; for the judge the same."""
    if not keys:
        return "", ""
    selected = {text: (i, n) for i, (n, _, text) in enumerate(items)}
    texts = {text for _, text in keys}
    # ALL groups by what has no aggregate, which must then be the keys and nothing else.
    only_keys = texts <= selected.keys() and all(
        kind != "over" and ("«" in text or text in texts) for _, kind, text in items
    )
    if only_keys and rng.random() < 0.3:
        return " ALL", " ALL"
    terms = []
    for _, text in keys:
        place, alias = selected.get(text, (None, None))
        how = rng.random()
        if place is not None and how < 0.2:
            terms.append(str(place + 1))
        elif alias is not None and how < 0.35:
            terms.append(alias)
        else:
            terms.append(text)
    joined = f" {', '.join(terms)}"
    return joined, joined


def _order(
    rng: random.Random,
    keys: Sequence[tuple[str, str]],
    items: Sequence[tuple[str, str, str]],
    post: _Post,
    distinct: bool,
) -> tuple[str, list[tuple[str, str]], int | None, bool]:
    """ORDER BY and LIMIT: the text, the terms as (expression or result column, direction), the limit, WITH TIES."""
    if rng.random() > 0.2:
        return "", [], None, False
    exact = [
        (n, kind, text)
        for n, kind, text in items
        if kind not in ("inexact", "specdouble", "map", "any", "double", "float")
    ]
    terms: list[tuple[str, str]] = []
    for n, kind, text in rng.sample(exact, min(len(exact), rng.randint(1, 2))):
        terms.append((f"={n}" if distinct or kind == "over" or rng.random() < 0.6 else text, _direction(rng)))
    if not distinct and rng.random() < 0.2:
        terms.append((post(rng.choice(("int", "long", "word"))), _direction(rng)))
    ties = False
    if distinct:
        if len(exact) < len(items):
            return "", [], None, False
        terms += [(f"={n}", "") for n, *_ in items]
    elif terms and rng.random() < 0.3:
        ties = True
    else:
        terms += [(text, _direction(rng)) for _, text in keys]
    if not terms:
        return "", [], None, False
    text = " ORDER BY " + ", ".join(f"{t.removeprefix('=')}{direction}" for t, direction in terms)
    limit = rng.choice((0, 1, 1, 1, 2, 2, 3, 3, 5, 10)) if ties or rng.random() < 0.85 else None
    return text, terms, limit, ties


def _direction(rng: random.Random) -> str:
    return rng.choice(
        ("", "", " DESC", " ASC", " NULLS LAST", " DESC NULLS FIRST", " ASC NULLS FIRST", " DESC NULLS LAST")
    )


def _judge(
    source: Source, hopping: bool, distinct: bool, items: Sequence[tuple[str, str, str]], where: str, group: tuple[str, str],
    having: str, order: tuple[list[tuple[str, str]], int | None, bool], size: float, span: str, step_us: int | None,
) -> str:  # fmt: skip
    """The judge's text; with a step windows begin at multiples of their size and end at each step."""
    terms, limit, ties = order
    aggregated = any("«" in text for *_, text in items)
    # Aggregates without keys have a row for an empty window, too, DISTINCT or not.
    always = not hopping and step_us is None and not group[0] and (aggregated or not distinct)
    extra = [f"{t} AS o{i}_" for i, (t, _) in enumerate(terms) if not t.startswith("=")]
    names = [n for n, *_ in items]
    where = f" WHERE {where}" if where else ""
    if hopping:
        start, end = ("window.start", "window.end") if group[0].strip() != "ALL" else (f"{span}.start", f"{span}.end")
        rows, grouped = f"{source.judge}{where}", group[0]
    else:
        start, end = "window_start", "window_end"
        inner = f"(SELECT *, true AS here FROM {source.judge}{where}) AS {source.alias}"
        on = f"{source.alias}._t >= ends.window_start AND {source.alias}._t < ends.window_end"
        begin, given = f"e - {int(size * SECOND)}", "@ENDS@"
        if step_us is not None:
            begin, now = f"(e - 1) div {int(size * SECOND)} * {int(size * SECOND)}", "unix_micros(_t)"
            first, last = (f"{now} div {us} * {us} + {us}" for us in (step_us, int(size * SECOND)))
            given = f"(SELECT DISTINCT explode(sequence({first}, {last}, {step_us}L)) AS e FROM {source.judge})"
        ends = f"(SELECT timestamp_micros({begin}) AS window_start, timestamp_micros(e) AS window_end FROM {given}) AS ends"
        rows = f"(SELECT * FROM {ends} {'LEFT ' if always else ''}JOIN {inner} ON {on}) AS {source.alias}"
        everything = group[1].strip() == "ALL"
        grouped = (
            " ALL" if everything else ", ".join([" window_start", "window_end", *([group[1]] if group[1] else [])])
        )
        if distinct and not group[0] and not aggregated:
            grouped = ""
    select = ", ".join([*(f"{text} AS {n}" for n, _, text in items), *extra, f"{start} AS ws_", f"{end} AS we_"])
    sql = f"SELECT {'DISTINCT ' if distinct else ''}{select} FROM {rows}{' GROUP BY' + grouped if grouped else ''}"
    sql += f" HAVING {having}" if having else ""
    if limit is not None:
        by = ", ".join(
            f"{t[1:] if t.startswith('=') else f'o{i}_'}{direction}" for i, (t, direction) in enumerate(terms)
        )
        sql = (
            f"SELECT *, {'rank' if ties else 'row_number'}() OVER (PARTITION BY we_ ORDER BY {by}) AS rn_ FROM ({sql})"
        )
        sql = f"SELECT * FROM ({sql}) WHERE rn_ <= {limit}"
    outputs = ", ".join(["ws_ AS window_start", "we_ AS window_end", *names])
    return plain(f"{source.judge_prefix}SELECT {outputs} FROM ({sql})", here=always)


def _single(name: str, rng: random.Random) -> Query:
    source = rng.choices((_stream, _subquery, _union), (6, 2, 1.5))[0](rng)
    return _windowed(name, rng, source, "window")


def _over_join(name: str, rng: random.Random) -> Query:
    if rng.random() < 0.6:
        return _windowed(name, rng, _join_source(rng), "window over join")
    joined = _join(rng, False)
    side = rng.choice(joined.sides)
    columns = {k: tuple(t.strip("‹›") for t in v) for k, v in joined.leaves.of.items()}
    source = Source(side.alias, joined.text, joined.judge, columns, _streams(joined.sides), time="ts", joined=True)
    # Only Spark's form can stand beside a join: draw until that is what comes.
    while True:
        made = _windowed(name, rng, source, "window over join")
        if made.sliding_us is None:
            return made


def _answers(rng: random.Random, alias: str = "v") -> Source:
    """The answers of aligned windows, which have the time of Spark's window_time."""
    name, (_, condition) = rng.choice(("l", "r")), _projection(rng, 1)
    size, slide = rng.choice(((1, 1), (2, 1), (3, 3), (4, 2), (5, 5)))
    keys = rng.sample(("k", "g", "b"), rng.randint(1, 3))
    select = ", ".join([*keys, "COUNT(*) AS p0", "MAX(d) AS p1", "MIN(n) AS n", "COUNT(DISTINCT i) AS p2"])
    where = f" WHERE {plain(condition)}" if condition else ""
    having = f" HAVING COUNT(*) {rng.choice(('> 1', '< 5'))}" if rng.random() < 0.3 else ""
    span = f"window(ts, '{_span(size)}', '{_span(slide)}')"
    tail = f"FROM {name}{where} GROUP BY {span}, {', '.join(keys)}{having}"
    columns = [*((key, _kind(key)) for key in keys), ("p0", "long"), ("p1", "decimal"), ("n", "long"), ("p2", "long")]
    time = "timestamp_micros(unix_micros(window.end) - 1) AS _t"
    text, judge = (f"(SELECT {items} {tail}) AS {alias}" for items in (select, f"{select}, {time}"))
    return Source(alias, text, judge, _named(columns), (name,), time=None)


def _over_answers(name: str, rng: random.Random) -> Query:
    return _windowed(name, rng, _answers(rng), "window over answers")


# OVER the answers of windows ----------------------------------------------------------------------------------------------

_RANKING = ("row_number()", "rank()", "dense_rank()", "ntile(3)", "percent_rank()", "cume_dist()")
_FRAMES = ("", " ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING", " ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
           " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING")  # fmt: skip


def _over_window(rng: random.Random, keys: Sequence[str], value: str, window: str) -> str:
    """A call with OVER whose order all keys decide, last in an order of their own."""
    some = rng.sample(list(keys), rng.randint(0, min(1, len(keys) - 1)))
    first = [f"{rng.choice((value, *keys))}{_direction(rng)}"] if rng.random() < 0.8 else []
    order = f"PARTITION BY {', '.join([window, *some])} ORDER BY {', '.join([*first, *keys])}"
    how = rng.random()
    if how < 0.5:
        return f"{rng.choice(_RANKING)} OVER ({order})"
    if how < 0.7:
        return f"{rng.choice(('lag', 'lead'))}({rng.choice((value, *keys))}, {rng.randint(0, 2)}) OVER ({order})"
    if how < 0.85:
        return f"{rng.choice(('first_value', 'last_value'))}({value}) OVER ({order}{rng.choice(_FRAMES[1:])})"
    if how < 0.95:
        return f"{rng.choice(('count', 'min', 'max'))}({value}) OVER ({order}{rng.choice(_FRAMES)})"
    return f"{rng.choice(('count', 'min', 'max'))}({value}) OVER (PARTITION BY {', '.join([window, *some])})"


def _top(name: str, rng: random.Random) -> Query:
    """The first rows of a key in each window: the same text for both."""
    stream, (_, condition) = rng.choice(("l", "r")), _projection(rng, 1)
    size, slide = rng.choice(((2, 1), (3, 3), (4, 2), (10, 5)))
    keys = rng.sample(("k", "g", "b", "x"), rng.randint(1, 3))
    aggregates = {"p0": "COUNT(*)", "p1": "MAX(d)", "p2": "COUNT(DISTINCT i)", "p3": "SUM(i)"}
    where = f" WHERE {plain(condition)}" if condition and rng.random() < 0.5 else ""
    tail = f"FROM {stream}{where} GROUP BY window(ts, '{_span(size)}', '{_span(slide)}'), {', '.join(keys)}"
    named = ", ".join(f"{text} AS {column}" for column, text in aggregates.items())
    window = rng.choice(("window", "window.end"))
    if rng.random() < 0.5:
        over = _over_window(rng, keys, rng.choice(list(aggregates.values())), window)
        inner = f"SELECT window, {', '.join(keys)}, {named}, {over} AS r {tail}"
    else:
        over = _over_window(rng, keys, rng.choice(list(aggregates)), window)
        kept = rng.choice(("", " WHERE p0 > 1", " WHERE p3 IS NOT NULL"))
        inner = f"SELECT *, {over} AS r FROM (SELECT window, {', '.join(keys)}, {named} {tail}) AS v{kept}"
    limit = rng.choice(("", " WHERE r <= 2", " WHERE r = 1", " WHERE r > 1"))
    sql = f"SELECT window.start AS a, {', '.join(keys)}, p0, p1, r FROM ({inner}) AS t{limit}"
    return Query(name, "top", sql, sql, streams=(stream,))


def _levels(name: str, rng: random.Random) -> Query:
    """GROUP BY at several levels: the same text for both."""
    stream, (_, condition) = rng.choice(("l", "r")), _projection(rng, 1)
    size, slide = rng.choice(((3, 3), (4, 2), (10, 5)))
    keys = rng.sample(("k", "g", "b", "i % 3", "upper(k)"), rng.randint(1, 3))
    listed, span = ", ".join(keys), f"window(ts, '{_span(size)}', '{_span(slide)}')"
    one, last = keys[0], keys[-1]
    group = rng.choice((f"ROLLUP ({listed})", f"CUBE ({listed})", f"{one}, ROLLUP ({listed})", f"ROLLUP (({one}, {last}))",
                        f"GROUPING SETS (({listed}), ({last}), ())", f"GROUPING SETS (({listed}), {one})",
                        f"ROLLUP ({one}), CUBE ({last})"))  # fmt: skip
    items = [f"{key} AS c{i}" for i, key in enumerate(keys)]
    items += rng.sample(
        ("COUNT(*) AS p0", "MAX(d) AS p1", "COUNT(DISTINCT i) AS p2", "SUM(i) AS p3", f"MAX({last}) AS p4"), 2
    )
    items += rng.sample(
        (f"GROUPING({one}) AS e0", "grouping_id() AS e1", f"coalesce(CAST({last} AS STRING), 'all') AS e2"), 2
    )
    where = f" WHERE {plain(condition)}" if condition and rng.random() < 0.5 else ""
    # Spark does not find the columns of a level in HAVING beside window(..).
    having = rng.choice(("", " HAVING COUNT(*) > 1"))
    inner = f"SELECT window, {', '.join(items)} FROM {stream}{where} GROUP BY {span}, {group}{having}"
    named = [item.rpartition(" AS ")[2] for item in items]
    sql = f"SELECT window.start AS a, {', '.join(named)} FROM ({inner}) AS t"
    return Query(name, "levels", sql, sql, streams=(stream,))


# Windows of rows ---------------------------------------------------------------------------------------------------------


def _rows(name: str, rng: random.Random) -> Query:
    source = rng.choices((_stream, _subquery, _union), (5, 2, 1))[0](rng)
    kinds = [kind for kind in source.columns if kind not in NESTED]
    row = leaves_of(source, rng, kinds)
    keys = _keys(rng, row) or [("word", row.leaf("word", rng) or "‹n›")]
    count = rng.choice((1, 2, 3, 7, 40))
    post = _Post(rng, row, [])
    qualified = f"‹{source.alias}.n›" if rng.random() < 0.3 else "‹n›"
    items = [("n0", qualified)]
    for _ in range(rng.randint(0, 2)):
        items.append((f"c{len(items)}", expression(rng.choice(ATOMS), row, rng, rng.choice((0, 0, 1)))))
    for _ in range(rng.randint(1, 3)):
        text = (
            post.any_aggregate()[1]
            if rng.random() < 0.75
            else post(rng.choice(("int", "long", "double", "bool", "decimal")))
        )
        items.append((f"c{len(items)}", text))
    if not any("«" in text for _, text in items):
        items.append((f"c{len(items)}", post.any_aggregate()[1]))
    where = f" WHERE {expression('bool', row, rng, 2)}" if rng.random() < 0.35 else ""
    by = ", ".join(text for _, text in keys)
    select = ", ".join(f"{text} AS {n}" for n, text in items)
    text = f"{source.prefix}SELECT {select} FROM {source.text} [PARTITION BY {by} ROWS {count}]{where}"
    if source.time is not None and rng.random() < 0.4:
        # The same in the words of SQL.
        before = f"{count - 1} PRECEDING" if count > 1 or rng.random() < 0.5 else "CURRENT ROW"
        over = f" OVER (PARTITION BY {by} ORDER BY ‹{source.time}› ROWS BETWEEN {before} AND CURRENT ROW)"
        framed = ", ".join(f"{_AGGREGATE.sub(lambda call: call[0] + over, item)} AS {n}" for n, item in items)
        text = f"{source.prefix}SELECT {framed} FROM {source.text}{where}"
    sql = plain(text)
    rows = plain(
        f"SELECT *, row_number() OVER (PARTITION BY {by} ORDER BY _t, ‹n›) AS rn_, struct({by}) AS key_ FROM {source.judge}{where}"
    )
    judged = ", ".join(f"{_over(text, source.alias)} AS {n}" for n, text in items)
    judge = (
        f"WITH rows_ AS ({rows}) SELECT {judged} FROM rows_ AS now_ JOIN rows_ AS past_ "
        f"ON now_.key_ <=> past_.key_ AND past_.rn_ BETWEEN now_.rn_ - {count - 1} AND now_.rn_ "
        "GROUP BY now_.key_, now_.rn_"
    )
    return Query(name, "rows", sql, judge, streams=source.streams)


def _over(text: str, alias: str) -> str:
    """Columns inside aggregates belong to the rows of the window, others to the row that is answered."""
    pieces = re.split(r"(«[^«»]*»)", text)

    def column(prefix: str, suffix: str) -> str:
        return rf"{prefix}\1{suffix}"

    made = []
    for piece in pieces:
        bare = re.sub(rf"‹{alias}\.", "‹", piece)
        inside = piece.startswith("«")
        made.append(_COLUMN.sub(column("past_." if inside else "any_value(now_.", "" if inside else ")"), bare))
    return plain("".join(made))


# -------------------------------------------------------------------------------------------------------------------------

SHAPES = {
    "window": (_single, 7.0),
    "join": (_plain_join, 1.5),
    "window over join": (_over_join, 0.5),
    "rows": (_rows, 1.0),
    "window over answers": (_over_answers, 0.5),
    "top": (_top, 0.5),
    "levels": (_levels, 0.3),
}


def make_query(name: str, seed: str, shapes: Sequence[str] = tuple(SHAPES)) -> Query:
    """The query that belongs to a seed."""
    rng = random.Random(seed)
    shape = rng.choices(list(shapes), [SHAPES[each][1] for each in shapes])[0]
    query = SHAPES[shape][0](name, rng)
    sink = rng.choices(("parquet", "options", "call"), (96, 2, 2))[0]
    return replace(query, sink=sink)
