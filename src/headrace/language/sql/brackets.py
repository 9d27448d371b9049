"""Cuts `[WINDOW ..]`, `[RANGE ..]` and `[PARTITION BY .. ROWS ..]` out of the tokens of a query.

sqlglot's parser cannot be subclassed where its compiled build is installed, so the clauses leave before it reads. Each
is remembered by the position of the name it follows, which is how the FROM clause finds it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from sqlglot import Token, TokenType, exp

from headrace.language.sql.report import Fault
from headrace.language.words import words
from headrace.model import CumulativeWindow, HoppingWindow, RangeWindow, SlidingWindow
from headrace.units import parse_duration

__all__ = ["MOST_ROWS", "Clause", "RowsClause", "cut_brackets", "read_span", "time_window"]

FORMS = "[WINDOW 10 min SLIDE 2 min], [WINDOW 1 day CUMULATE 1 h], [RANGE 10 s] or [PARTITION BY k ROWS 100]"
CALENDAR_UNITS = ("month", "months", "year", "years", "quarter", "quarters")
# A week by the second is 604,800 panes; beyond a million the answer costs more than its rows.
MOST_PANES = 1_000_000
# More rows per key than this is a table, not a window.
MOST_ROWS = 1_000_000

_NAMES = frozenset({TokenType.VAR, TokenType.IDENTIFIER})
# sqlglot reads PARTITION BY as one token.
_KEYWORDS = ("WINDOW", "RANGE", "PARTITION", "PARTITION BY", "ROWS")
# Words after which the tables of a FROM clause are over.
_ENDS_FROM = words("""
    ON USING WHERE GROUP HAVING ORDER LIMIT OFFSET SELECT UNION INTERSECT EXCEPT SORT CLUSTER DISTRIBUTE QUALIFY
""")


@dataclass(frozen=True, slots=True)
class RowsClause:
    """`[PARTITION BY k ROWS 100]`, its keys as tokens not yet read, or as expressions; for a function, no ROWS."""

    keys: tuple[tuple[Token, ...] | exp.Expr, ...]
    rows: int | None


@dataclass(frozen=True, slots=True)
class Clause:
    """One bracket clause and where it stands."""

    window: SlidingWindow | CumulativeWindow | RangeWindow | RowsClause
    start: int
    text: str


@dataclass(slots=True)
class _Level:
    """What is known of one level of parentheses while the tokens pass by."""

    selects: bool = False
    in_from: bool = False


def read_span(text: str, what: str, at: int) -> int:
    """Microseconds of a positive duration that a window can have; raises Fault.

    >>> read_span("'10 minutes'", "WINDOW", 0)
    600000000
    """
    body = text.strip().strip("'\"").strip()
    words = body.lower().split()
    if not words:
        raise Fault(f"{what} has no duration", at, f"write {what} 10 min")
    if any(word.lstrip("0123456789") in CALENDAR_UNITS for word in words):
        raise Fault(f"{what} {body}: months and years differ in length", at, "count in days, such as '30 days'")
    if body.startswith("-"):
        raise Fault(f"{what} {body} is negative", at, "write a positive duration")
    try:
        return parse_duration(body)
    except ValueError as exc:
        raise Fault(f"{what}: {exc}", at) from exc


def time_window(size_us: int, slide_us: int, at: int, start_us: int | None = None) -> SlidingWindow | HoppingWindow:
    """A window of event time whose slide is not longer than it is; raises Fault."""
    if size_us == 0 or slide_us == 0:
        raise Fault(
            "a window needs a size and a slide above zero", at, "write, for example, [WINDOW 10 min SLIDE 2 min]"
        )
    if slide_us > size_us:
        raise Fault("SLIDE is longer than WINDOW, so rows between windows would count nowhere", at,
                    "make SLIDE at most the size of the window")  # fmt: skip
    panes = size_us // gcd(size_us, slide_us, start_us or 0)
    if panes > MOST_PANES:
        raise Fault(f"the window would be cut into {panes} panes; the most is {MOST_PANES}", at, "use a longer slide")
    return SlidingWindow(size_us, slide_us) if start_us is None else HoppingWindow(size_us, slide_us, start_us)


def _is_word(token: Token, *words: str) -> bool:
    return token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER) and token.text.upper() in words


def _is_name(token: Token) -> bool:
    return token.token_type in _NAMES or (token.text[:1].isalpha() and token.token_type is not TokenType.STRING)


def _slice(sql: str, tokens: Sequence[Token]) -> str:
    return sql[tokens[0].start : tokens[-1].end + 1] if tokens else ""


def _read(sql: str, inside: Sequence[Token], start: int) -> SlidingWindow | CumulativeWindow | RangeWindow | RowsClause:
    if not inside or not _is_word(inside[0], *_KEYWORDS):
        found = _slice(sql, inside)[:40]
        raise Fault(f"[{found}] is not a window", start, f"write {FORMS}")
    head, body = inside[0].text.upper(), inside[1:]
    if head == "WINDOW":
        cut = next((i for i, token in enumerate(body) if _is_word(token, "SLIDE", "CUMULATE")), len(body))
        if cut < len(body) and _is_word(body[cut], "CUMULATE"):
            return _cumulative(_slice(sql, body[:cut]), _slice(sql, body[cut + 1 :]), start)
        size = read_span(_slice(sql, body[:cut]), "WINDOW", start)
        slide = read_span(_slice(sql, body[cut + 1 :]), "SLIDE", start) if cut < len(body) else size
        window = time_window(size, slide, start)
        assert isinstance(window, SlidingWindow)
        return window
    if head == "RANGE":
        return RangeWindow(read_span(_slice(sql, body), "RANGE", start))
    return _read_rows(sql, inside, start)


def _cumulative(size: str, step: str, start: int) -> CumulativeWindow:
    size_us, step_us = read_span(size, "WINDOW", start), read_span(step, "CUMULATE", start)
    if step_us and size_us % step_us:
        raise Fault(f"the window is not a whole number of steps of {step}", start, "write [WINDOW 1 day CUMULATE 1 h]")
    window = time_window(size_us, step_us, start)
    return CumulativeWindow(window.size_us, window.slide_us)


def _read_rows(sql: str, inside: Sequence[Token], start: int) -> RowsClause:
    remedy = "write [PARTITION BY k ROWS 100]"
    cut = next((i for i, token in enumerate(inside) if _is_word(token, "ROWS")), None)
    head = inside[:cut]
    by = 1 if head and head[0].text.upper().split() == ["PARTITION", "BY"] else 2
    if not head or not head[0].text.upper().startswith("PARTITION"):
        raise Fault(f"[{_slice(sql, inside)[:60]}] needs both PARTITION BY and ROWS", start, remedy)
    if by == 2 and (len(head) < 2 or not _is_word(head[1], "BY")):
        raise Fault("expected BY after PARTITION", start, remedy)
    keys: list[list[Token]] = [[]]
    depth = 0
    for token in head[by:]:
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        if keys[-1] and depth == 0 and _is_word(token, "WINDOW", "RANGE"):
            raise Fault(
                f"PARTITION BY goes with ROWS, not with {token.text.upper()}", start,
                "for time windows by key write [WINDOW 10 min] and GROUP BY k",
            )  # fmt: skip
        if keys[-1] and depth == 0 and token.text.upper() in ("ORDER", "ORDER BY"):
            raise Fault("rows of a key are in the order of event time", start, "leave ORDER BY out")
        if token.token_type is TokenType.COMMA and depth == 0:
            keys.append([])
        else:
            keys[-1].append(token)
    if not all(keys):
        raise Fault("PARTITION BY has an empty key", start, remedy)
    if cut is None:
        return RowsClause(tuple(tuple(key) for key in keys), None)
    count = inside[cut + 1 :]
    if len(count) != 1 or not count[0].text.isdecimal() or not 1 <= int(count[0].text[:9]) <= MOST_ROWS:
        raise Fault(
            f"ROWS {_slice(sql, count) or '(nothing)'} is not a number of rows from 1 to {MOST_ROWS}", start, remedy
        )
    return RowsClause(tuple(tuple(key) for key in keys), int(count[0].text))


def _anchor(before: Token, after: Sequence[Token]) -> tuple[int, Token | None]:
    """Position of the name a clause belongs to, and the alias to add when it follows a nameless subquery."""
    if before.token_type is not TokenType.R_PAREN:
        return before.start, None
    rest = [token for token in after[:2] if not _is_word(token, "AS")][:1]
    named = bool(after) and (_is_word(after[0], "AS") or after[0].token_type in _NAMES)
    if rest and named:
        return rest[0].start, None
    return before.start, Token(
        TokenType.IDENTIFIER, f"_subquery_{before.start}", before.line, before.col, before.start, before.end
    )


def cut_brackets(sql: str, tokens: Sequence[Token]) -> tuple[list[Token], Mapping[int, list[Clause]], list[Fault]]:
    """The tokens without bracket clauses, the clauses by position of the name they follow, and what was wrong.

    >>> from sqlglot.dialects.spark import Spark
    >>> sql = "SELECT tags[0], COUNT(*) FROM s [WINDOW 10 min] GROUP BY 1"
    >>> rest, clauses, faults = cut_brackets(sql, Spark().tokenize(sql))
    >>> " ".join(token.text for token in rest), str(clauses[30][0].window), faults
    ('SELECT tags [ 0 ] , COUNT ( * ) FROM s GROUP BY 1', '[WINDOW 10 min SLIDE 10 min]', [])
    """
    kept: list[Token] = []
    clauses: dict[int, list[Clause]] = {}
    faults: list[Fault] = []
    levels = [_Level()]
    index = 0
    while index < len(tokens):
        token = tokens[index]
        level = levels[-1]
        if token.token_type is TokenType.L_BRACKET:
            end = _closing(tokens, index)
            inside = tokens[index + 1 : end]
            if level.in_from:
                index = end + 1
                faults.extend(_take(sql, tokens[index : index + 2], inside, kept, clauses, token.start))
                continue
            if len(inside) > 1 and _looks_like_clause(inside):
                faults.append(Fault(f"[{_slice(sql, inside)[:60]}] does not follow a table", token.start,
                                    "write it right after a stream, subquery or alias in FROM"))  # fmt: skip
                index = end + 1
                continue
        _step(levels, token)
        kept.append(token)
        index += 1
    return kept, clauses, faults


def _closing(tokens: Sequence[Token], opening: int) -> int:
    depth = 0
    for index in range(opening, len(tokens)):
        kind = tokens[index].token_type
        depth += {TokenType.L_BRACKET: 1, TokenType.R_BRACKET: -1}.get(kind, 0)
        if depth == 0:
            return index
    raise Fault("this '[' is never closed", tokens[opening].start, f"write {FORMS}")


def _looks_like_clause(inside: Sequence[Token]) -> bool:
    follows = (TokenType.NUMBER, TokenType.STRING)
    return (_is_word(inside[0], "WINDOW", "RANGE", "ROWS") and inside[1].token_type in follows) or _is_word(
        inside[0], "PARTITION", "PARTITION BY"
    )


def _take(
    sql: str,
    after: Sequence[Token],
    inside: Sequence[Token],
    kept: list[Token],
    clauses: dict[int, list[Clause]],
    start: int,
) -> list[Fault]:
    try:
        if not kept or not (_is_name(kept[-1]) or kept[-1].token_type is TokenType.R_PAREN):
            raise Fault("a window must follow a table", start, "write FROM stream [WINDOW 10 min SLIDE 2 min]")
        if _is_word(kept[-1], "FROM", "JOIN", "AS"):
            raise Fault(
                f"a window must follow a table, not {kept[-1].text}", start, "write FROM stream [WINDOW 10 min]"
            )
        window = _read(sql, inside, start)
        anchor, alias = _anchor(kept[-1], after)
        if alias is not None:
            kept.append(alias)
        clauses.setdefault(anchor, []).append(Clause(window, start, f"[{_slice(sql, inside)}]"))
    except Fault as fault:
        return [fault]
    return []


def _step(levels: list[_Level], token: Token) -> None:
    level = levels[-1]
    if token.token_type is TokenType.L_PAREN:
        # (a JOIN b): a parenthesis in FROM that is no subquery keeps holding tables.
        levels.append(_Level(selects=level.in_from, in_from=level.in_from))
    elif token.token_type is TokenType.R_PAREN:
        if len(levels) > 1:
            levels.pop()
    elif _is_word(token, "SELECT"):
        level.selects, level.in_from = True, False
    elif level.selects and _is_word(token, "FROM", "JOIN"):
        level.in_from = True
    elif token.text.upper().split(" ")[0] in _ENDS_FROM and not _is_quoted(token):
        level.in_from = False


def _is_quoted(token: Token) -> bool:
    return token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
