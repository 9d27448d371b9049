"""The window(...) of a GROUP BY: where it stands, what it says, and the name that stands for it elsewhere."""

from __future__ import annotations

from sqlglot import exp

from headrace.language.sql.brackets import read_span, time_window
from headrace.language.sql.report import Fault, offset_of
from headrace.language.sql.spark_text import spark_text
from headrace.model import HoppingWindow

__all__ = ["hopping", "is_window_call", "window_call", "without_calls"]


def window_call(select: exp.Select) -> exp.Anonymous | None:
    """The window(...) that GROUP BY groups by, directly, by alias or by position."""
    group = select.args.get("group")
    for node in group.expressions if group is not None else ():
        found = _is_window(_pointed_at(node, select))
        if found is not None:
            return found
    if group is not None and group.args.get("all"):
        return next((found for item in select.expressions if (found := _is_window(item.unalias())) is not None), None)
    return None


def is_window_call(node: exp.Expr, select: exp.Select) -> bool:
    """Whether a node of GROUP BY is window(...), directly, by alias or by position."""
    return _is_window(_pointed_at(node, select)) is not None


def _is_window(node: exp.Expr) -> exp.Anonymous | None:
    return node if isinstance(node, exp.Anonymous) and node.name.lower() == "window" else None


def _pointed_at(node: exp.Expr, select: exp.Select) -> exp.Expr:
    """What a GROUP BY position or alias of a window stands for; anything else stands for itself."""
    items = select.expressions
    if (
        isinstance(node, exp.Literal)
        and not node.is_string
        and node.this.isdecimal()
        and 1 <= int(node.this[:6]) <= len(items)
    ):
        target: exp.Expr = items[int(node.this[:6]) - 1].unalias()
        return target
    if isinstance(node, exp.Column) and not node.table:
        for item in items:
            if isinstance(item, exp.Alias) and item.alias.lower() == node.name.lower() and _is_window(item.this):
                return item.unalias()
    return node


def without_calls(select: exp.Select, call: exp.Anonymous | None, called: str) -> exp.Select:
    """The SELECT with every copy of its window(...) call replaced by the name it is `called` by."""
    if call is None:
        return select
    text = spark_text(call).lower()

    def replace(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Anonymous) and node.name.lower() == "window" and spark_text(node).lower() == text:
            name = exp.column(called)
            name.meta.update(node.meta)
            own = called != "window" and isinstance(node.parent, exp.Select) and node.arg_key == "expressions"
            return exp.alias_(name, "window") if own else name
        if isinstance(node, exp.Dot) and isinstance(node.this, exp.Anonymous) and spark_text(node.this).lower() == text:
            return exp.column(node.expression.name, table=called)
        return node

    copy = select.transform(replace)
    assert isinstance(copy, exp.Select)
    return copy


def hopping(call: exp.Anonymous) -> HoppingWindow:
    """The window that window(ts, size, slide, start) asks for; raises Fault."""
    arguments = call.expressions
    at = offset_of(call) or 0
    if not 2 <= len(arguments) <= 4:
        raise Fault(
            f"window takes 2 to 4 arguments, not {len(arguments)}", call, "write window(ts, '10 minutes', '2 minutes')"
        )
    spans: list[int] = []
    for argument, what in zip(
        arguments[1:], ("the window's size", "the window's slide", "the window's start"), strict=False
    ):
        literal = (
            argument.this if isinstance(argument, exp.Interval) and argument.args.get("unit") is None else argument
        )
        text = literal.this if isinstance(literal, exp.Literal) and literal.is_string else None
        if (
            isinstance(argument, exp.Interval)
            and argument.args.get("unit") is not None
            and isinstance(argument.this, exp.Literal)
        ):
            text = f"{argument.this.this} {argument.args['unit'].sql('spark')}"
        if text is None:
            raise Fault(
                f"{what} must be a text such as '10 minutes'", argument, "write window(ts, '10 minutes', '2 minutes')"
            )
        spans.append(read_span(text, what, at))
    size = spans[0]
    slide = spans[1] if len(spans) > 1 else size
    window = time_window(size, slide, at, spans[2] % slide if len(spans) > 2 and slide else 0)
    assert isinstance(window, HoppingWindow)
    return window
