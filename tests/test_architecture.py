"""Layers import downwards only, pure layers stay pure, and every module says what it offers.

Sources are parsed, not executed, so one broken module does not hide the others' faults.
"""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from every import of_every

PACKAGE = Path(__file__).parents[1] / "src" / "headrace"
DRAW = Path(__file__).parents[1] / "scripts" / "draw_imports.py"

_BASE = {"errors", "hiding", "units"}
_BELOW_ENGINE = _BASE | {"model", "language", "planning", "policies", "kernels"}
_BELOW_SITES = _BELOW_ENGINE | {"engine", "simulation"}
_BELOW_VIEWS = _BELOW_SITES | {"sites"}

# What each layer may import besides itself; see CONTRIBUTING.md. "" is `headrace` itself, the public face.
ALLOWED_IMPORTS: dict[str, set[str]] = {
    "hiding": set(),
    "errors": {"hiding"},
    "units": {"errors"},
    "model": _BASE,
    "language": _BASE | {"model"},
    "policies": _BASE | {"model"},
    "kernels": _BASE | {"model"},
    "planning": _BASE | {"model", "policies"},
    "engine": _BELOW_ENGINE,
    "simulation": _BELOW_ENGINE,
    "sites": _BELOW_SITES,
    "bench": _BELOW_VIEWS | {""},
    "reproduce": _BELOW_ENGINE | {"simulation"},
    "dashboard": _BELOW_VIEWS,
    "cli": _BELOW_VIEWS | {"", "bench", "dashboard", "reproduce"},
    "__main__": {"cli"},
    "api": _BELOW_VIEWS,
    "": _BELOW_VIEWS | {"api"},
}

PURE = ("errors", "hiding", "units", "model", "language", "planning", "policies")

# Layer to the packages it may not touch: pure layers handle no rows, and a simulated world has no Spark in it.
FOREIGN_IMPORTS: dict[str, set[str]] = {
    **{layer: {"pyspark", "py4j", "polars", "pyarrow", "pandas"} for layer in PURE},
    "simulation": {"pyspark", "py4j"},
    "reproduce": {"pyspark", "py4j"},
    "kernels": {"py4j", "pandas", "sqlglot", "yaml", "scipy"},
    "dashboard": {"pyspark", "py4j"},
}

# Reading these makes a decision depend on when, where or in which order it is made. None: every name of the module.
CLOCK_AND_CHANCE: dict[str, set[str] | None] = {
    "time": None,
    "secrets": None,
    "uuid": {"uuid1", "uuid4"},
    "os": {"urandom", "getpid"},
    "datetime.datetime": {"now", "today", "utcnow"},
    "datetime.date": {"today"},
    "numpy.random": None,
}
# A seeded generator that is passed in is welcome; the module's hidden one is not.
SEEDED = {"random.Random", "numpy.random.Generator"}
WITHOUT_CLOCK = (*PURE, "simulation", "reproduce")


def module_name(path: Path) -> str:
    parts = ("headrace", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def layer_of(module: str) -> str:
    return [*module.split("."), ""][1]


def modules_in(*layers: str) -> list[str]:
    return [module for module in MODULES if layer_of(module) in layers]


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"), filename=str(MODULES[module]))


def package_of(module: str) -> str:
    return module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]


def imports_of(module: str) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything imported, also inside functions and under TYPE_CHECKING."""
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                above = package_of(module).split(".")[: 1 - node.level or None]
                source = ".".join([*above, *filter(None, [source])])
            for alias in node.names:
                # A name taken from `headrace` is a layer or belongs to its public face.
                yield node.lineno, f"{source}.{alias.name}"


def imported_layer(name: str) -> str:
    layer = layer_of(name)
    return layer if (PACKAGE / layer).is_dir() or (PACKAGE / f"{layer}.py").is_file() else ""


def dotted(node: ast.expr, aliases: dict[str, str]) -> str:
    """The name an attribute chain stands for, imports resolved; empty if it is no such chain."""
    if isinstance(node, ast.Name):
        return aliases.get(node.id, "")
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value, aliases)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


def clocks_read(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of every use of a clock or of a hidden random generator."""
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.split(".")[0]
                aliases[alias.asname or root] = alias.name if alias.asname else root
        elif isinstance(node, ast.ImportFrom) and node.module:
            aliases |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name):
            name = dotted(node, aliases)
            owner, _, attribute = name.rpartition(".")
            hidden = owner == "random" and name not in SEEDED
            forbidden = CLOCK_AND_CHANCE.get(owner, set())
            if hidden or (name not in SEEDED and (forbidden is None or attribute in forbidden)):
                yield node.lineno, name


def exports_of(module: str) -> list[str] | None:
    for node in tree_of(module).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            assert isinstance(node, ast.Assign | ast.AnnAssign)
            assert node.value is not None
            exports: list[str] = ast.literal_eval(node.value)
            return list(exports)
    return None


def test_the_package_is_found():
    assert "headrace.errors" in MODULES


def test_every_folder_of_modules_is_a_package():
    bare = {path.parent for path in MODULES.values() if not (path.parent / "__init__.py").is_file()}
    assert not bare, "without __init__.py they are left out of the wheel, and doctests import them under other names"


@of_every(MODULES)
def test_imports_go_down_the_layers(module: str):
    layer = layer_of(module)
    assert layer in ALLOWED_IMPORTS, f"{module}: give layer '{layer}' a line in ALLOWED_IMPORTS"
    wrong = [
        f"{MODULES[module].name}:{line} imports {name}"
        for line, name in imports_of(module)
        if name.split(".")[0] == "headrace" and imported_layer(name) not in ALLOWED_IMPORTS[layer] | {layer}
    ]
    assert not wrong, f"'{layer}' may import {sorted(ALLOWED_IMPORTS[layer])}"


def test_an_epoch_knows_the_port_and_no_kind_of_operator():
    tree = tree_of("headrace.engine.epoch")
    operators = {name for _, name in imports_of("headrace.engine.epoch") if ".operators" in name}
    assert {name.rpartition(".")[0] for name in operators} == {"headrace.engine.operators.port"}
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not names & {"isinstance", "getattr", "hasattr", "type"}, "an epoch asks the port, never what is behind it"
    assert not {name for name in names if name.endswith("Plan")}
    assert MODULES["headrace.engine.epoch"].read_text().count("\n") <= 260, "six steps fit on a few screens"


def test_the_page_of_layers_shows_the_code():
    drawn = subprocess.run([sys.executable, DRAW, "--check"], capture_output=True, text=True, check=False)
    assert drawn.returncode == 0, drawn.stdout + drawn.stderr


def test_the_picture_of_layers_follows_the_imports(tmp_path: Path):
    for name, text in {
        "low/one.py": "",
        "mid/one.py": "from headrace.low import one",
        "top/one.py": "import headrace.mid.one\ndef f():\n    from headrace.low.one import x",
        "top/part/two.py": "from headrace.top import one",
    }.items():
        path = tmp_path / "headrace" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        (path.parent / "__init__.py").touch()
    command = [sys.executable, DRAW, "--count", "--source", str(tmp_path)]
    counted = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert counted[-4:] == [
        "4 modules in 4 folders, the largest 1",
        "4 edges between packages, 4 imports",
        "3 edges between layers",
        "no packages import each other",
    ]


def test_the_table_has_no_cycle():
    seen: set[str] = set()
    remaining = dict(ALLOWED_IMPORTS)
    while remaining:
        ready = {layer for layer, below in remaining.items() if below <= seen}
        assert ready, f"layers that import each other: {sorted(remaining)}"
        seen |= ready
        remaining = {layer: below for layer, below in remaining.items() if layer not in ready}


@of_every(modules_in(*FOREIGN_IMPORTS))
def test_layers_without_spark_do_not_import_it(module: str):
    foreign = {name.split(".")[0] for _, name in imports_of(module)} & FOREIGN_IMPORTS[layer_of(module)]
    assert not foreign, f"{module} belongs to a layer that handles no rows; move this to engine"


def test_a_start_imports_nothing_that_few_runs_need():
    few = ("deltalake", "duckdb", "matplotlib", "scipy")
    code = f"import headrace.cli.app, headrace.engine, sys; print([n for n in {few} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]", "each takes a good part of a second; import it where it is used"


@of_every(modules_in(*WITHOUT_CLOCK))
def test_time_and_chance_are_arguments(module: str):
    assert not list(clocks_read(tree_of(module))), f"{module}: take `now` or `rng` as an argument"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        pytest.param("import time\ntime.time()", ["time.time"], id="a clock by its module"),
        pytest.param("from time import monotonic as m\nm()", ["time.monotonic"], id="a clock by another name"),
        pytest.param("import datetime as d\nd.datetime.now()", ["datetime.datetime.now"], id="the date of today"),
        pytest.param(
            "from datetime import datetime\ndatetime.now()", ["datetime.datetime.now"], id="now from the class"
        ),
        pytest.param("import random\nrandom.shuffle([])", ["random.shuffle"], id="the hidden generator"),
        pytest.param("import numpy as np\nnp.random.rand()", ["numpy.random.rand"], id="numpy's hidden generator"),
        pytest.param(
            "import random\ndef f(rng: random.Random): rng.shuffle([])", [], id="a generator passed in is fine"
        ),
        pytest.param("from datetime import datetime\ndatetime(2020, 1, 1)", [], id="a given date is fine"),
        pytest.param("def f(time): return time.time()", [], id="an argument called time is fine"),
    ],
)
def test_the_clock_test_sees(source: str, found: list[str]):
    assert [name for _, name in clocks_read(ast.parse(source))] == found


@of_every([module for module in MODULES if layer_of(module) != "__main__"])
def test_every_module_names_what_it_offers(module: str):
    exports = exports_of(module)
    if exports is None:
        (docstring,) = tree_of(module).body or [None]
        is_bare = MODULES[module].name == "__init__.py" and (docstring is None or isinstance(docstring, ast.Expr))
        assert is_bare, f"{module} has no __all__"
        return
    # Their order is ruff's business (RUF022).
    assert len(exports) == len(set(exports))
    imported = importlib.import_module(module)
    missing = [name for name in exports if not hasattr(imported, name)]
    assert not missing, f"{module}.__all__ names what is not there"


@of_every([module for module, path in MODULES.items() if path.name == "__init__.py"])
def test_a_package_only_exports(module: str):
    def is_export(node: ast.stmt) -> bool:
        if isinstance(node, ast.Import | ast.ImportFrom):
            return True
        # The public face imports on demand, because tasks import the package it is the root of.
        if module == "headrace" and (
            isinstance(node, ast.FunctionDef) or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
        ):
            return True
        if isinstance(node, ast.Expr):
            return isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            return all(isinstance(target, ast.Name) and target.id in {"__all__", "__version__"} for target in targets)
        return False

    others = [f"line {node.lineno}" for node in tree_of(module).body if not is_export(node)]
    assert not others, f"{module}: only imports, __all__ and a docstring belong in __init__.py"


def closure_of(module: str) -> dict[str, str]:
    """All modules of Headrace that one of them brings along, and the foreign packages that each of these imports."""
    found: dict[str, str] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        lazy = {id(node) for function in ast.walk(tree_of(name)) if isinstance(function, ast.FunctionDef | ast.If)
                if isinstance(function, ast.FunctionDef) or "TYPE_CHECKING" in ast.dump(function.test)
                for node in ast.walk(function)}  # fmt: skip
        outside = set()
        for node in ast.walk(tree_of(name)):
            if id(node) in lazy or not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            for imported in [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]:
                if imported.split(".")[0] == "headrace":
                    parts = imported.split(".")
                    waiting += [m for i in range(len(parts)) if (m := ".".join(parts[: i + 1])) in MODULES]
                else:
                    outside.add(imported.split(".")[0])
        found[name] = " ".join(sorted(outside))
    return found


@of_every(modules_in("kernels"))
def test_a_task_imports_the_kernels_and_the_model_and_nothing_else(module: str):
    closure = closure_of(module)
    layers = {layer_of(name) for name in closure}
    assert layers <= {"", "kernels", "model", "errors", "hiding", "units"}
    outside = {package for packages in closure.values() for package in packages.split()}
    foreign = outside - set(sys.stdlib_module_names) - {"numpy", "polars", "pyarrow"}
    assert not foreign, f"{module}: executors have numpy, pyarrow and polars, and nothing else"
