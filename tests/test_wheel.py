"""The wheel in an environment of its own, far from the repository: what a user gets with `pip install`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
from world import results

import headrace

ROOT = Path(__file__).parents[1]
# What the sources have besides modules, and tasks or commands read at run time.
LEFT_BEHIND = {".pyc"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: building leaves folders behind."""
    copy = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "src" / "headrace", copy / "src" / "headrace", ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, "--wheel-dir", str(copy), str(copy)], check=True)
    (built,) = copy.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of scripts of a fresh environment with the wheel, and the packages of this one without Headrace."""
    home = tmp_path_factory.mktemp("fresh") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    python = home / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, str(wheel)], check=True)
    (packages,) = home.glob("lib/python*/site-packages")
    # Of a folder that is only named here Python reads no .pth file: the editable install stays out.
    (packages / "here.pth").write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    return home / "bin"


def run(folder: Path, *command: str) -> str:
    """What a command prints, in a folder and an environment that know nothing of the repository."""
    known = {key: os.environ[key] for key in ("PATH", "JAVA_HOME", "SPARK_SUBMIT_OPTS") if key in os.environ}
    done = subprocess.run(command, cwd=folder, env={**known, "HOME": str(folder)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_has_every_file_of_the_sources(wheel: Path) -> None:
    files = (path for path in (ROOT / "src" / "headrace").rglob("*") if path.is_file())
    wanted = {path.relative_to(ROOT / "src").as_posix() for path in files if path.suffix not in LEFT_BEHIND}
    assert wanted - set(zipfile.ZipFile(wheel).namelist()) == set()


def test_versions_are_one(installed: Path, tmp_path: Path) -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert headrace.__version__ == version("headrace") == wanted
    assert run(tmp_path, str(installed / "headrace"), "--version") == f"headrace {wanted}\n"
    code = "import headrace; print(headrace.__version__, headrace.__file__)"
    said, file = run(tmp_path, str(installed / "python"), "-c", code).split()
    assert said == wanted
    assert Path(file).is_relative_to(installed.parent)


def test_a_first_pipeline_runs_without_the_repository(installed: Path, tmp_path: Path) -> None:
    command = str(installed / "headrace")
    assert "next: headrace run first/pipeline.yml" in run(tmp_path, command, "init", "first")
    assert run(tmp_path, command, "check", "first/pipeline.yml") == "ok\n"
    file = tmp_path / "first" / "pipeline.yml"
    file.write_text(file.read_text().replace("rows: 300000", "rows: 20000"))
    run(tmp_path, command, "run", "first/pipeline.yml", "--once", "--flush")
    told = json.loads(run(tmp_path, command, "status", "first/state", "--json"))
    assert told["streams"]["events"]["used"] == 20_000
    # 50 keys in two windows: disorder puts a few rows before the first whole minute.
    assert len(results(tmp_path / "first" / "out" / "slowest")) == 100


def test_the_image_is_made_of_what_is_there() -> None:
    """Images are not built by the tests: what the file copies is there, and the tests' Pythons have its version."""
    text = (ROOT / "Dockerfile").read_text()
    copied = [word for line in re.findall(r"^COPY ((?:(?!--).)*)$", text, re.MULTILINE) for word in line.split()[:-1]]
    assert copied
    assert [name for name in copied if not (ROOT / name).exists()] == []
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    assert {f"!{name}" for name in copied} == {line for line in allowed if line.startswith("!")}
    (python,) = set(re.findall(r"^FROM python:([\d.]+)-slim", text, re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"Programming Language :: Python :: {python}" in project["classifiers"]
