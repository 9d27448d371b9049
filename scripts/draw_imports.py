"""Draws `docs/layers.md` from the code: which packages import which. `./run layers` writes it, with --check compares.

With --count it prints how many modules each folder has, and how many imports go from one package to another; with
--source SRC of another tree than this one.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "layers.md"
# What everything may import is left out of pictures.
EVERYWHERE = {"errors", "hiding", "units"}
# The face of the package, which imports on demand, and what only calls the command line.
FACES = {"", "__main__"}
Edges = set[tuple[str, str]]


def modules_in(source: Path) -> dict[str, Path]:
    """The modules of a source tree by dotted name, without `headrace` in front; the package itself has no name."""
    found = {}
    for path in sorted((source / "headrace").rglob("*.py")):
        parts = path.relative_to(source / "headrace").with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(path: Path) -> Iterator[str]:
    """Dotted names that a module imports from Headrace, wherever in it; the project writes no relative imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "headrace")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "headrace":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported(modules: Mapping[str, Path]) -> Counter[tuple[str, str]]:
    """How many of a module's imports come from another, by both."""
    found: Counter[tuple[str, str]] = Counter()
    for module, path in modules.items():
        for name in imports_of(path):
            parts = name.split(".")[1:]
            while parts and ".".join(parts) not in modules:
                parts.pop()
            found[module, ".".join(parts)] += 1
    return found


def folder_of(module: str, modules: Mapping[str, Path]) -> str:
    """The package that a module is in; one that lies beside the packages is one of its own."""
    return module if modules[module].name == "__init__.py" or "." not in module else module.rpartition(".")[0]


def layer_of(module: str) -> str:
    return module.partition(".")[0]


def layers_drawn(edges: Edges) -> Edges:
    """The imports between layers that do not follow from others."""
    below: dict[str, set[str]] = {}
    for upper, lower in edges:
        below.setdefault(upper, set()).add(lower)

    def reached(layer: str) -> set[str]:
        return {each for lower in below.get(layer, ()) for each in (lower, *reached(lower))}

    return {(upper, lower) for upper, lower in edges if not any(lower in reached(o) for o in below[upper] - {lower})}


def mermaid(edges: Edges) -> str:
    def node(name: str) -> str:
        return f"{name.replace('.', '_')}[{name}]"

    lines = (f"  {node(upper)} --> {node(lower)}" for upper, lower in sorted(edges))
    return "\n".join(("```mermaid", "graph TD", *lines, "```"))


def page(source: Path) -> str:
    """The page: layers, and the folders of each layer that has several."""
    modules = modules_in(source)
    pairs = imported(modules)
    layers = {(layer_of(a), layer_of(b)) for a, b in pairs}
    layers = {(a, b) for a, b in layers if a != b and not {a, b} & (EVERYWHERE | FACES)}
    text = [
        "# Layers and folders",
        "An arrow says that a package imports another. `./run layers` draws this page from the code; a test compares.",
        f"Every package may import {', '.join(f'`{each}`' for each in sorted(EVERYWHERE))}. Arrows between layers that "
        "follow from others are left out.",
        mermaid(layers_drawn(layers)),
    ]
    for layer in sorted({layer_of(module) for module in modules} - FACES):
        folders = {folder_of(module, modules) for module in modules if layer_of(module) == layer}
        inner = {(folder_of(a, modules), folder_of(b, modules)) for a, b in pairs}
        inner = {(a, b) for a, b in inner if a != b and {a, b} <= folders}
        if len(folders) > 2:
            text += [f"## {layer}", mermaid(inner)]
    return "\n\n".join(text) + "\n"


def count(source: Path) -> str:
    """Modules by folder, and imports between packages."""
    modules = modules_in(source)
    sizes = Counter(folder_of(module, modules) for module, path in modules.items() if path.name != "__init__.py")
    between: Counter[tuple[str, str]] = Counter()
    for (a, b), number in imported(modules).items():
        upper, lower = folder_of(a, modules), folder_of(b, modules)
        if upper != lower:
            between[upper, lower] += number
    layers = {(layer_of(upper), layer_of(lower)) for upper, lower in between}
    both = [f"{upper} and {lower}" for upper, lower in sorted(between) if upper < lower and (lower, upper) in between]
    lines = [f"{number:4}  {folder or 'headrace'}" for folder, number in sorted(sizes.items())]
    lines += [
        f"{sum(sizes.values())} modules in {len(sizes)} folders, the largest {max(sizes.values())}",
        f"{len(between)} edges between packages, {sum(between.values())} imports",
        f"{len({(upper, lower) for upper, lower in layers if upper != lower})} edges between layers",
        f"{', '.join(both) or 'no packages'} import each other",
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--count", action="store_true")
    parser.add_argument("--source", type=Path, default=ROOT / "src")
    arguments = parser.parse_args()
    if arguments.count:
        print(count(arguments.source))
        return 0
    drawn = page(arguments.source)
    if arguments.check:
        same = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == drawn
        print(f"{PAGE.relative_to(ROOT)} {'shows the code' if same else 'is behind the code: ./run layers'}")
        return 0 if same else 1
    PAGE.write_text(drawn, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
