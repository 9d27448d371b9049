"""Starts of Spark take its classes from a file, if there is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.cli.preparing import keep_classes
from headrace.engine.spark.class_archive import archive_file, archive_options
from headrace.errors import EnvironmentProblem


@pytest.mark.parametrize(
    ("options", "environment", "taken"),
    [
        pytest.param("", {}, True, id="nobody has said anything"),
        pytest.param("-Xss4m", {"SPARK_SUBMIT_OPTS": "-XX:+UseSerialGC"}, True, id="other options are kept"),
        pytest.param("-XX:SharedArchiveFile=x", {}, False, id="an archive of the user's"),
        pytest.param("", {"SPARK_SUBMIT_OPTS": "-Xshare:off"}, False, id="a user who wants none"),
        pytest.param("", {"JAVA_TOOL_OPTIONS": "-XX:ArchiveClassesAtExit=x"}, False, id="an archive in the making"),
    ],
)
def test_the_file_is_taken_unless_a_user_decides(
    options: str, environment: dict[str, str], taken: bool, tmp_path: Path
) -> None:
    file = tmp_path / "classes.jsa"
    assert archive_options(options, environment, file) == options, "there is no file yet"
    file.touch()
    found = archive_options(options, environment, file)
    assert found.startswith(options)
    assert (f"-XX:SharedArchiveFile={file}" in found) is taken


def test_a_folder_with_blanks_cannot_be_said_to_java(tmp_path: Path) -> None:
    file = tmp_path / "my classes.jsa"
    file.touch()
    assert archive_options("", {}, file) == ""


def test_spark_runs_with_the_file(spark: Any) -> None:
    """`./run test` makes the file; the process that has it maps it."""
    if not archive_file().exists():
        pytest.skip("this installation has no class archive: headrace prepare")
    maps = Path(f"/proc/{spark._jvm.java.lang.ProcessHandle.current().pid()}/maps")
    assert str(archive_file()) in maps.read_text()


def test_a_java_that_keeps_no_classes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'no such option' >&2\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    before = archive_file().stat().st_mtime if archive_file().exists() else None
    with pytest.raises(EnvironmentProblem, match=r"this Java keeps no classes, and Spark starts as ever; it said: "):
        keep_classes()
    assert (archive_file().stat().st_mtime if archive_file().exists() else None) == before
