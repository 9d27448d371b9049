"""Runs the cells of a notebook one after the other, and prints what each shows, as a notebook would.

    python notebook.py NOTEBOOK

Prints a JSON object: by the number of a cell that shows something, what it shows as HTML, or as a text.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

__all__ = ["run_cells"]


def run_cells(path: Path) -> tuple[dict[int, str], dict[str, Any]]:
    """What cells show, and the names they have made."""
    cells = json.loads(path.read_text())["cells"]
    names: dict[str, Any] = {"__name__": "__main__"}
    shown: dict[int, str] = {}
    for number, cell in enumerate(cells):
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]), f"cell {number}")
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"cell {number}", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
            if value is not None:
                shown[number] = value._repr_html_() if hasattr(value, "_repr_html_") else repr(value)
    return shown, names


if __name__ == "__main__":
    print(json.dumps(run_cells(Path(sys.argv[1]))[0]))
