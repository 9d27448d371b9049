"""What every Storage does. A test file imports the tests and gives a fixture `reopen`: a function that opens the same
place again, as another engine would."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from headrace.engine.state.storage import Holder, Storage
from headrace.errors import LockedError

__all__ = [
    "storage",
    "test_a_created_file_is_read_back",
    "test_a_file_is_created_once_only",
    "test_a_file_that_is_not_there_is_nothing",
    "test_a_folder_is_deleted_with_all_in_it",
    "test_a_lock_has_a_holder_until_it_is_given_back",
    "test_a_lock_is_free_after_release",
    "test_a_lock_keeps_a_second_engine_out",
    "test_a_move_needs_its_source",
    "test_a_refused_lock_names_its_owner_and_the_remedy",
    "test_delete_takes_what_is_there_and_no_more",
    "test_files_above_are_made",
    "test_folders_are_made_once_or_more",
    "test_locks_of_two_places_do_not_meet",
    "test_move_takes_the_place_of_another",
    "test_names_are_sorted",
    "test_no_temporary_files_stay_behind",
    "test_replace_takes_the_place_of_another",
    "test_two_views_of_one_place_see_the_same",
]

Reopen = Callable[[], Storage]
CONTENTS = [
    pytest.param(b"", id="nothing"),
    pytest.param(b'{"a": 1}\n', id="text"),
    pytest.param(bytes(range(256)) * 300, id="every byte"),
]


@pytest.fixture
def storage(reopen: Reopen) -> Storage:
    return reopen()


@pytest.mark.parametrize("data", CONTENTS)
def test_a_created_file_is_read_back(storage: Storage, data: bytes):
    storage.create("a/b.json", data)
    assert storage.read("a/b.json") == data
    assert storage.size("a/b.json") == len(data)


def test_a_file_that_is_not_there_is_nothing(storage: Storage):
    assert storage.read("a/b") is None
    assert storage.size("a/b") is None
    assert storage.names("a") == []


def test_a_file_is_created_once_only(storage: Storage):
    storage.create("m/1.json", b"first")
    with pytest.raises(FileExistsError):
        storage.create("m/1.json", b"second")
    assert storage.read("m/1.json") == b"first"


@pytest.mark.parametrize("data", CONTENTS)
def test_replace_takes_the_place_of_another(storage: Storage, data: bytes):
    storage.replace("f", b"first")
    storage.replace("f", data)
    assert storage.read("f") == data


def test_move_takes_the_place_of_another(storage: Storage):
    storage.create("from/a", b"new")
    storage.create("to/deep/a", b"old")
    storage.move("from/a", "to/deep/a")
    storage.create("from/b", b"b")
    storage.move("from/b", "nowhere/yet/b")
    assert (storage.read("to/deep/a"), storage.read("nowhere/yet/b"), storage.names("from")) == (b"new", b"b", [])


def test_a_move_needs_its_source(storage: Storage):
    with pytest.raises(OSError):  # noqa: PT011 - every file system words it in its own way
        storage.move("not/there", "target")
    assert storage.read("target") is None


def test_names_are_sorted(storage: Storage):
    for name in ("10", "9", "b", "a"):
        storage.create(f"d/{name}", b"")
    storage.make_folder("d/c")
    storage.create("d/c/inner", b"")
    assert storage.names("d") == ["10", "9", "a", "b", "c"]


def test_no_temporary_files_stay_behind(storage: Storage):
    storage.create("d/a", b"1")
    with pytest.raises(FileExistsError):
        storage.create("d/a", b"2")
    storage.replace("d/a", b"3")
    storage.replace("d/b", b"4")
    assert storage.names("d") == ["a", "b"]


def test_delete_takes_what_is_there_and_no_more(storage: Storage):
    storage.create("d/a", b"")
    storage.create("d/ab", b"")
    storage.delete("d/a")
    storage.delete("d/a")
    storage.delete("not/there")
    assert storage.names("d") == ["ab"]


def test_a_folder_is_deleted_with_all_in_it(storage: Storage):
    storage.create("d/e/f", b"")
    storage.create("d/g", b"")
    storage.create("h", b"")
    storage.delete("d")
    assert (storage.names("d"), storage.read("d/e/f"), storage.read("h")) == ([], None, b"")


def test_folders_are_made_once_or_more(storage: Storage):
    storage.make_folder("a/b/c")
    storage.make_folder("a/b/c")
    assert storage.names("a/b") == ["c"]
    assert storage.names("a/b/c") == []


def test_files_above_are_made(storage: Storage):
    storage.create("x/y/z/1", b"1")
    storage.replace("x/w/2", b"2")
    assert storage.names("x") == ["w", "y"]


def test_two_views_of_one_place_see_the_same(storage: Storage, reopen: Reopen):
    storage.create("a", b"1")
    other = reopen()
    assert other.read("a") == b"1"
    assert other.root == storage.root


def test_a_lock_keeps_a_second_engine_out(storage: Storage, reopen: Reopen):
    held = storage.lock("lock")
    try:
        with pytest.raises(LockedError):
            storage.lock("lock")
        with pytest.raises(LockedError):
            reopen().lock("lock")
        assert held.lost(look=True) is None, "being asked for does not free it"
    finally:
        held.release()


def test_a_refused_lock_names_its_owner_and_the_remedy(storage: Storage, reopen: Reopen):
    held = storage.lock("lock")
    try:
        with pytest.raises(LockedError, match=r"checkpoint .* is in use by process \d+ on .*; stop that run"):
            reopen().lock("lock")
    finally:
        held.release()


def test_a_lock_has_a_holder_until_it_is_given_back(storage: Storage, reopen: Reopen):
    assert reopen().holder("lock") == Holder()
    held = storage.lock("lock")
    try:
        found = reopen().holder("lock")
        assert found.owner is not None
        assert found.owner.startswith(f"process {os.getpid()} on ")
        assert found.alive in (True, None), "it is not said to be dead"
        assert held.lost(look=True) is None, "being looked at does not free it"
    finally:
        held.release()
    assert reopen().holder("lock") == Holder()


def test_a_lock_is_free_after_release(storage: Storage, reopen: Reopen):
    held = storage.lock("lock")
    held.release()
    assert held.lost() is not None
    other = reopen().lock("lock")
    assert other.lost(look=True) is None
    held.release()  # a second release harms nobody
    assert other.lost(look=True) is None
    with pytest.raises(LockedError):
        storage.lock("lock")
    other.release()


def test_locks_of_two_places_do_not_meet(storage: Storage):
    one, other = storage.lock("a/lock"), storage.lock("b/lock")
    assert one.lost(look=True) is None
    assert other.lost(look=True) is None
    one.release()
    other.release()
