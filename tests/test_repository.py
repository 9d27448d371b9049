"""The repository keeps its own house: sizes, paths, pins, and the command list."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from every import of_every

ROOT = Path(__file__).parents[1]
MOST_LINES = 600
TEXT = {"", ".cfg", ".csv", ".json", ".md", ".py", ".sh", ".sql", ".toml", ".txt", ".yaml", ".yml"}
# Folders of people and of build machines; a path that only ends in such a name is fine.
MACHINE_PATH = re.compile(r"(?<![\w.${}~-])(?:/(?:home|root|Users|work|mnt)/|[A-Z]:\\Users\\)\w")
PIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.!+]+")

SOURCES = sorted((ROOT / "src").rglob("*.py"))


def own_files() -> list[Path]:
    """Text files of the project, without what tools leave behind."""

    def is_own(path: Path) -> bool:
        parts = path.relative_to(ROOT).parts
        hidden = any(part.startswith(".") for part in parts) and parts[0] not in {".ci", ".gitignore"}
        generated = any(part == "__pycache__" or part.endswith(".egg-info") for part in parts) or parts[0] in {
            "artifacts",
            "build",
            "dist",
            "out",
            "spark-warehouse",
            "state",
        }
        return path.is_file() and path.suffix in TEXT and not hidden and not generated

    found: list[Path] = []
    for top in sorted(ROOT.iterdir()):
        if top.name not in {".git", ".venv"}:
            found += [path for path in ([top] if top.is_file() else sorted(top.rglob("*"))) if is_own(path)]
    return found


@of_every(SOURCES)
def test_a_long_module_says_why(path: Path):
    text = path.read_text(encoding="utf-8")
    if (lines := text.count("\n")) > MOST_LINES:
        reason = ast.get_docstring(ast.parse(text)) or ""
        assert f"Longer than {MOST_LINES} lines because" in reason, (
            f"{lines} lines: split it, or say why not at its top"
        )


def test_no_file_names_a_path_of_somebodys_machine():
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in own_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]
    assert not found


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        pytest.param("see /" + "home/ann/data", True, id="a home folder"),
        pytest.param("path=/" + "root/x", True, id="after an equals sign"),
        pytest.param("a/home/b and spark/work/app", False, id="part of a relative path"),
        pytest.param("https://example.org/home/page", False, id="part of an address"),
    ],
)
def test_the_path_test_sees(text: str, is_found: bool):
    assert bool(MACHINE_PATH.search(text)) is is_found


def test_constraints_are_plain_pins_of_every_dependency():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not PIN.fullmatch(line)] == []
    pinned = {normal(line.partition("==")[0]) for line in lines}
    assert len(pinned) == len(lines)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    names = {normal(re.split(r"[<>=!~\[; ]", each)[0]) for each in wanted}
    assert names - pinned == set()


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_run_help_lists_every_command():
    script = (ROOT / "run").read_text(encoding="utf-8")
    commands = re.findall(r"^    ([a-z]+)\)", script.partition("case $command in")[2], re.MULTILINE)
    listed = subprocess.run([ROOT / "run", "help"], capture_output=True, text=True, check=True).stdout
    assert "test" in commands
    assert [command for command in commands if not re.search(rf"^  {command}\b", listed, re.MULTILINE)] == []


LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


@of_every(PAGES)
def test_links_of_a_page_lead_somewhere(page: Path):
    links = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]
    assert not [link for link in links if not (page.parent / link).exists()]


def test_the_readme_is_a_door():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.count("\n") <= 170
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert not pages - set(re.findall(r"docs/([\w-]+\.md)", text)), "a page that the README does not link to"
