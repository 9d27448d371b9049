"""Local storage keeps the contract, and survives what a crash leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from storage_contract import *  # noqa: F403 - the contract's tests run here

from headrace.engine.storage import LocalStorage, Storage, open_storage


@pytest.fixture
def reopen(tmp_path: Path) -> Callable[[], Storage]:
    return lambda: LocalStorage(str(tmp_path / "checkpoint"))


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_plain_paths_and_file_uris_are_local(tmp_path: Path, form: str):
    opened = open_storage(form.format(tmp_path))
    assert isinstance(opened, LocalStorage)
    assert opened.root == str(tmp_path)


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    opened = open_storage("state")
    opened.create("a", b"1")
    monkeypatch.chdir("/")
    assert opened.read("a") == b"1"


def test_another_file_system_needs_spark():
    with pytest.raises(ValueError, match="hdfs://host/x needs a Spark session to be reached"):
        open_storage("hdfs://host/x")


def test_a_failed_write_leaves_neither_file_nor_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    storage = LocalStorage(str(tmp_path))
    storage.replace("a", b"old")
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        storage.replace("a", b"new")
    assert (storage.names(""), storage.read("a")) == (["a"], b"old")


def test_a_lock_is_gone_with_its_process(tmp_path: Path):
    script = (
        "import os, sys; from headrace.engine.storage import LocalStorage; "
        "lock = LocalStorage(sys.argv[1]).lock('lock'); os.kill(os.getpid(), 9)"
    )
    child = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, capture_output=True, text=True)
    assert child.returncode == -9, child.stderr
    assert (tmp_path / "lock").read_text().startswith("process "), "it was held"
    lock = LocalStorage(str(tmp_path)).lock("lock")
    assert lock.held()
    lock.release()
