"""Local storage keeps the contract, and survives what a crash leaves."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from storage_contract import *  # noqa: F403 - the contract's tests run here

from headrace.engine.state.storage import LocalStorage, Storage, open_storage


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
        "import os, sys; from headrace.engine.state.storage import LocalStorage; "
        "lock = LocalStorage(sys.argv[1]).lock('lock'); os.kill(os.getpid(), 9)"
    )
    child = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, capture_output=True, text=True)
    assert child.returncode == -9, child.stderr
    assert (tmp_path / "lock").read_text().startswith("process "), "it was held"
    holder = LocalStorage(str(tmp_path)).holder("lock")
    assert holder is not None
    assert holder.alive is False
    lock = LocalStorage(str(tmp_path)).lock("lock")
    assert lock.lost(look=True) is None
    lock.release()


def test_a_lock_whose_file_was_removed_is_lost(tmp_path: Path):
    lock = LocalStorage(str(tmp_path)).lock("lock")
    (tmp_path / "lock").unlink()
    assert lock.lost(look=True) == f"somebody removed {tmp_path}/lock"
    other = LocalStorage(str(tmp_path)).lock("lock")
    assert lock.lost(look=True) == f"somebody removed {tmp_path}/lock"
    lock.release()
    other.release()


@pytest.fixture(params=[errno.EPERM, errno.ENOTSUP, errno.ENOSYS, None], ids=["EPERM", "ENOTSUP", "ENOSYS", "missing"])
def without_links(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(request.param, os.strerror(request.param))

    if request.param is None:
        monkeypatch.delattr(os, "link")
    else:
        monkeypatch.setattr(os, "link", refuse)


@pytest.mark.usefixtures("without_links")
def test_a_file_is_created_whole_and_once_where_there_are_no_links(tmp_path: Path):
    storage = LocalStorage(str(tmp_path))
    storage.create("m/1.json", b"first")
    with pytest.raises(FileExistsError):
        storage.create("m/1.json", b"second")
    assert (storage.read("m/1.json"), storage.names("m")) == (b"first", ["1.json"])


@pytest.mark.usefixtures("without_links")
def test_of_many_that_create_a_file_without_links_one_succeeds(tmp_path: Path):
    def create(number: int) -> int | None:
        try:
            LocalStorage(str(tmp_path), sync=False).create("a", str(number).encode())
        except FileExistsError:
            return None
        return number

    with ThreadPoolExecutor(8) as pool:
        winners = [number for number in pool.map(create, range(40)) if number is not None]
    assert [str(number).encode() for number in winners] == [LocalStorage(str(tmp_path)).read("a")]


def test_another_failure_to_link_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(OSError, match="No space left"):
        LocalStorage(str(tmp_path)).create("a", b"1")


def traced(monkeypatch: pytest.MonkeyPatch, root: Path) -> list[str]:
    """What is forced to disk and what gets a name, in order, as paths under a root."""
    calls: list[str] = []
    real = {name: getattr(os, name) for name in ("fsync", "link", "replace")}

    def short(path: object) -> str:
        return str(path).removeprefix(f"{root}/").removeprefix(str(root)).partition("/.")[0] or "."

    def fsync(descriptor: int) -> None:
        calls.append(f"sync {short(os.readlink(f'/proc/self/fd/{descriptor}'))}")
        real["fsync"](descriptor)

    def named(name: str) -> Callable[..., None]:
        def call(source: object, target: object) -> None:
            calls.append(f"name {short(target)}")
            real[name](source, target)

        return call

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", named("link"))
    monkeypatch.setattr(os, "replace", named("replace"))
    return calls


def test_what_a_file_depends_on_is_on_disk_before_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    state, results = LocalStorage(str(tmp_path / "state")), LocalStorage(str(tmp_path / "results"))
    for path in ("state/chunks/1", "results/staged"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"")
    state.create("manifests/0", b"")
    calls = traced(monkeypatch, tmp_path)
    state.persist(["chunks", "chunks/1"])
    results.move("staged", "epoch-1")
    state.create("manifests/1", b"")
    at = calls.index("name state/manifests/1")
    assert sorted(calls[:at]) == sorted(
        ["name results/epoch-1", "sync results", "sync results/epoch-1", "sync state/chunks", "sync state/chunks/1",
         "sync state/manifests"]
    )  # fmt: skip
    assert calls[at + 1 :] == ["sync state/manifests"]
    state.create("manifests/2", b"")
    assert calls[at + 2 :] == ["sync state/manifests", "name state/manifests/2", "sync state/manifests"]


def test_nothing_is_forced_to_disk_where_that_is_turned_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    calls = traced(monkeypatch, tmp_path)
    storage = LocalStorage(str(tmp_path), sync=False)
    storage.create("a/b", b"")
    storage.persist(["a"])
    storage.persist_all("a")
    storage.move("a/b", "c/d")
    storage.replace("e", b"")
    assert [call for call in calls if call.startswith("sync")] == []
