"""Questions to an engine that runs, over a socket that only its user can open.

A question is one line of JSON, `{"sql": ...}`; the answer is a line of JSON and, unless that names an error, an Arrow
stream. Nothing else can be asked for.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import stat
import tempfile
import threading
from collections.abc import Callable

import pyarrow as pa

from headrace.engine.state.storage import is_remote
from headrace.errors import EngineError, HeadraceError, SpecError
from headrace.hiding import hide

__all__ = ["Questions", "ask_engine"]

# Far above any SELECT and any sentence.
MOST_BYTES = 1_000_000
# Whoever connects asks at once, or goes.
PATIENCE_S = 5.0
# An engine that says nothing for so long is stopped or stuck; the panes can be read without it.
ANSWERS_WITHIN_S = 60.0


def _place(root: str) -> str | None:
    """Where the engine of a checkpoint listens: in a folder that only its user can enter; None if there is none."""
    folder = os.path.join(tempfile.gettempdir(), f"headrace-{os.geteuid()}")
    with contextlib.suppress(OSError):
        os.mkdir(folder, 0o700)
    try:
        found = os.lstat(folder)
    except OSError:
        return None
    # Somebody else may have been there first: their folder, or a link to one, is not ours.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        return None
    known = root if is_remote(root) else os.path.realpath(root.removeprefix("file://").removeprefix("file:"))
    # Names of sockets have about a hundred bytes, and paths of checkpoints may have more.
    return os.path.join(folder, hashlib.sha256(known.encode()).hexdigest()[:24])


class Questions:
    """Answers questions, one after the other, until it is closed; does nothing where sockets cannot be had."""

    def __init__(self, root: str, answer: Callable[[str], pa.Table]) -> None:
        self._root, self._answer = root, answer
        self._socket = _listening(root)
        if self._socket is not None:
            threading.Thread(target=self._serve, args=(self._socket,), daemon=True, name="headrace-asking").start()

    def close(self) -> None:
        """Ends it and takes the socket away."""
        if self._socket is None:
            return
        with contextlib.suppress(OSError):
            # Wakes the thread that waits for the next question.
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        if (place := _place(self._root)) is not None:
            with contextlib.suppress(OSError):
                os.unlink(place)

    def _serve(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            # Whatever is sent and however it goes, the next one is answered.
            with connection, contextlib.suppress(OSError, ValueError, RecursionError):
                connection.settimeout(PATIENCE_S)
                with connection.makefile("rb") as asked:
                    question = json.loads(asked.readline(MOST_BYTES))
                if isinstance(question, dict) and isinstance(question.get("sql"), str):
                    connection.sendall(self._reply(question["sql"]))

    def _reply(self, sql: str) -> bytes:
        try:
            table = self._answer(sql)
        except HeadraceError as error:
            return _failed(str(error), error.exit_code)
        except Exception as failure:
            return _failed(f"the engine could not answer: {hide(str(failure))}", EngineError.exit_code)
        written = pa.BufferOutputStream()
        with pa.ipc.new_stream(written, table.schema) as stream:
            stream.write_table(table)
        return b"{}\n" + bytes(written.getvalue())


def _failed(text: str, code: int) -> bytes:
    return json.dumps({"error": text[: MOST_BYTES // 8], "code": code}).encode() + b"\n"


def ask_engine(root: str, sql: str) -> pa.Table | None:
    """The answer of the engine that runs on a checkpoint, on this machine and for this user; None if there is none."""
    place = _place(root)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWERS_WITHIN_S)
        try:
            connection.connect(place or "")
            connection.sendall(json.dumps({"sql": sql}).encode() + b"\n")
            with connection.makefile("rb") as answer:
                head, rest = answer.readline(MOST_BYTES), answer.read()
        except OSError:
            return None
    try:
        said = json.loads(head)
        if "error" not in said:
            with pa.ipc.open_stream(rest) as stream:
                return stream.read_all()
    except (ValueError, OSError):
        # It ended before or while it answered; its panes are where they were.
        return None
    raise (SpecError if said.get("code") == SpecError.exit_code else EngineError)(str(said["error"]))


def _listening(root: str) -> socket.socket | None:
    if (place := _place(root)) is None:
        return None
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Whoever is here holds the checkpoint's lock: a socket that is there is of an engine that was killed.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place)
        listening.bind(place)
        listening.listen(8)
    except OSError:
        listening.close()
        return None
    return listening
