"""Queries that read another query's results by its name: what that query says stands before them in a WITH.

    top:   SELECT src, SUM(length) AS n FROM packets GROUP BY window(ts, '1 minute'), src
    peak:  SELECT src, MAX(n) AS n FROM top [WINDOW 1 hour] GROUP BY src

    peak:  WITH `top` AS (SELECT src, SUM(length) AS n, window_start, window_end FROM packets GROUP BY ...)
           SELECT src, MAX(n) AS n FROM top [WINDOW 1 hour] GROUP BY src

So the text of a query says all that it reads: another text under the name that it reads makes it another query, and a
checkpoint needs no more than the text to run it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlglot import Token, TokenType, exp

from headrace.language.sql.levels import has_levels
from headrace.language.sql.reading import read_query, text_tokens
from headrace.language.sql.report import Fault, Report
from headrace.model import Query, SlidingWindow, Step, WindowAggregate

__all__ = ["Unfolded", "queries_read", "unfold"]

_EDGES = ("window_start", "window_end")


@dataclass(frozen=True, slots=True)
class Unfolded:
    """A text with `length` characters put in `at`, the definitions of `names`."""

    sql: str
    at: int = 0
    length: int = 0
    names: tuple[str, ...] = ()


def queries_read(sql: str, queries: Iterable[str], others: Iterable[str]) -> dict[str, int]:
    """Which of these queries a text reads, and where it first does; `others`, streams and tables, and WITH come first.

    >>> queries_read("WITH a AS (SELECT x FROM b) SELECT a.x FROM a JOIN C ON a.x = c.x", ["a", "b", "c"], {})
    {'b': 25, 'c': 51}
    """
    known = {name.lower(): name for name in queries}
    for name in others:
        known.pop(name.lower(), None)
    try:
        # Most queries read none: their text need not be parsed twice to know that.
        if not any(token.text.lower() in known for token in text_tokens(sql)):
            return {}
        tree = read_query(Report(sql, "")).tree
    except Fault:
        return {}  # what is wrong with it is said when it is bound
    own = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    found: dict[str, int] = {}
    for table in sorted(tree.find_all(exp.Table), key=lambda table: table.this.meta.get("start", 0)):
        name = table.name.lower()
        if table.args.get("db") is None and name in known and name not in own:
            found.setdefault(known[name], table.this.meta.get("start", 0))
    return found


def unfold(sql: str, queries: Mapping[str, Query], others: Iterable[str]) -> Unfolded:
    """The text with what the queries that it reads say; Fault if one of them has no results to read."""
    read = queries_read(sql, queries, others)
    if not read:
        return Unfolded(sql)
    for name, at in read.items():
        _refuse(queries[name], at)
    definitions = ", ".join(f"`{name}` AS (\n{_definition(queries[name])}\n)" for name in read)
    first = next(token for token in text_tokens(sql) if token.token_type is not TokenType.L_PAREN)
    if first.text.upper() == "WITH":
        at, added = first.end + 1, f" {definitions},"
    else:
        at, added = first.start, f"WITH {definitions} "
    return Unfolded(sql[:at] + added + sql[at:], at, len(added), tuple(read))


def _refuse(query: Query, at: int) -> None:
    root = query.root
    if isinstance(root, Step):
        raise Fault(f"query '{query.name}' is a function's, whose results have no time to read them by", at,
                    "write them to a sink, and declare that as a stream")  # fmt: skip
    if isinstance(root, WindowAggregate) and isinstance(root.window, SlidingWindow):
        raise Fault(f"when query '{query.name}' answers depends on the schedule, so that nothing can be said about its "
                    "answers", at, f"group '{query.name}' by window(ts, '10 minutes', '2 minutes')")  # fmt: skip


def _definition(query: Query) -> str:
    """The SELECT of a query, with the columns that its results have beside those it selects."""
    tokens = text_tokens(query.sql)
    while tokens[-1].token_type is TokenType.SEMICOLON:
        tokens = tokens[:-1]
    text = query.sql[: tokens[-1].end + 1]
    tree = read_query(Report(query.sql, query.name)).tree.unnest()
    if not isinstance(query.root, WindowAggregate) and not (isinstance(tree, exp.Select) and has_levels(tree)):
        return text
    ends = _select_list_end(tokens)
    added = len(query.finish.outputs) - len(tree.expressions)
    edges = "".join(f", {output.name}" for output in query.finish.outputs[:added] if output.name in _EDGES)
    return f"{text[:ends]}{edges} {text[ends:]}"


def _select_list_end(tokens: list[Token]) -> int:
    """Where the FROM of a text's own SELECT stands, whatever WITH has before it."""
    opened = next(index for index, token in enumerate(tokens) if token.token_type is not TokenType.L_PAREN)
    level, selects = 0, False
    for token in tokens[opened:]:
        level += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if level == 0 and token.token_type is TokenType.SELECT:
            selects = True
        elif level == 0 and selects and token.token_type is TokenType.FROM:
            return token.start
    raise AssertionError("a query that is bound reads FROM somewhere")
