"""Questions over the socket of an engine: answers as they are, errors as errors, and nobody else's socket."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.engine.watch import questions
from headrace.engine.watch.questions import Questions, ask_engine
from headrace.errors import EngineError, SpecError

TABLE = pa.table({"k": ["a", None], "v": pa.array([1, 2], pa.decimal128(38, 10))})


def answer(sql: str) -> pa.Table:
    if sql == "wrong":
        raise SpecError("unknown column 'pirce'; did you mean 'price'?")
    if sql == "broken":
        raise RuntimeError("a bug")
    return TABLE if sql == "rows" else TABLE.slice(0, 0)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of temporary files whose name is short enough for sockets."""
    short = Path(tempfile.mkdtemp(prefix="hr"))
    monkeypatch.setattr(questions.tempfile, "gettempdir", lambda: str(short))
    return short / f"headrace-{os.geteuid()}"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[str]:
    served = Questions(str(tmp_path / "state"), answer)
    yield str(tmp_path / "state")
    served.close()


def test_answers_come_whole_one_after_the_other(root: str) -> None:
    assert ask_engine(root, "rows") == TABLE
    empty = ask_engine(root, "none")
    assert empty is not None
    assert (empty.num_rows, empty.schema) == (0, TABLE.schema)


def test_errors_are_those_of_the_engine(root: str) -> None:
    with pytest.raises(SpecError, match=r"^unknown column 'pirce'; did you mean 'price'\?$"):
        ask_engine(root, "wrong")
    with pytest.raises(EngineError, match=r"^the engine could not answer: a bug$"):
        ask_engine(root, "broken")


@pytest.mark.parametrize("sent", [b"", b"\n", b"no json\n", b'{"sql": 1}\n', b"[" * 900_000 + b"\n", b"x" * 1_500_000])
def test_whatever_is_sent_the_next_question_is_answered(root: str, place: Path, sent: bytes) -> None:
    (file,) = place.iterdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(str(file))
        try:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(10) == b""
        except (BrokenPipeError, ConnectionResetError):
            pass  # more than it reads
    assert ask_engine(root, "rows") == TABLE


@pytest.mark.parametrize("said", [b"", b"{", b"{}\n", b"{}\nARROW1", b'{"error"'])
def test_an_engine_that_ends_while_it_answers_has_not_answered(
    said: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller reads the panes itself."""
    monkeypatch.setattr(Questions, "_reply", lambda self, sql: said)
    served = Questions(str(tmp_path / "state"), answer)
    assert ask_engine(str(tmp_path / "state"), "rows") is None
    served.close()


def test_the_spelling_of_a_checkpoint_does_not_matter(root: str, tmp_path: Path) -> None:
    for other in (f"file:{root}", f"file://{root}", f"{tmp_path}/x/../state", f"{root}/"):
        assert ask_engine(other, "rows") == TABLE
    assert ask_engine(f"{root}2", "rows") is None


def test_a_socket_goes_with_its_engine_and_one_left_by_a_kill_is_replaced(tmp_path: Path, place: Path) -> None:
    state = str(tmp_path / "state")
    killed = Questions(state, answer)
    assert killed._socket is not None
    os.close(killed._socket.detach())
    assert len(list(place.iterdir())) == 1
    served = Questions(state, answer)
    assert ask_engine(state, "rows") == TABLE
    served.close()
    assert list(place.iterdir()) == []
    assert ask_engine(state, "rows") is None


@pytest.mark.parametrize("how", ["open to others", "a link", "a file"])
def test_a_folder_that_is_not_ours_alone_is_not_used(how: str, tmp_path: Path, place: Path) -> None:
    if how == "open to others":
        place.mkdir()
        place.chmod(0o755)
    elif how == "a link":
        (tmp_path / "theirs").mkdir(mode=0o700)
        place.symlink_to(tmp_path / "theirs")
    else:
        place.touch()
    served = Questions(str(tmp_path / "state"), answer)
    assert ask_engine(str(tmp_path / "state"), "rows") is None
    served.close()


def test_the_folder_is_for_its_user_alone(root: str, place: Path) -> None:
    del root
    assert place.stat().st_mode & 0o777 == 0o700
