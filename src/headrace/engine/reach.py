"""Whether tasks can reach a folder with Arrow: they read what the driver wrote there, and it reads what they wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from uuid import uuid4

from headrace.engine.chunks import open_filesystem
from headrace.engine.jobs import Jobs
from headrace.engine.storage import Storage

__all__ = ["tasks_reach"]


def tasks_reach(storage: Storage, folder: str, jobs: Jobs, tasks: int) -> str | None:
    """None if they do, else what went wrong; a job of `tasks` tasks, so that it comes to all executors."""
    sign = uuid4().hex
    storage.create(f"{folder}/_probe-{sign}", sign.encode())
    probe = _Probe(f"{storage.root}/{folder}/_probe-{sign}", sign.encode())
    try:
        faults = [fault for fault in jobs.run(probe, tasks) if fault is not None]
        unseen = [i for i in range(tasks) if storage.read(f"{folder}/_probe-{sign}-{i}") != sign.encode()]
        return "; ".join(faults[:1]) or ("files that tasks write there are not seen by the driver" if unseen else None)
    except Exception as failure:  # a worker that died, too, has not reached it
        return next((line.strip() for line in str(failure).splitlines() if line.strip()), type(failure).__name__)
    finally:
        for name in storage.names(folder):
            if name.startswith(f"_probe-{sign}"):
                storage.delete(f"{folder}/{name}")


@dataclass(frozen=True)
class _Probe:
    uri: str
    sign: bytes

    def __call__(self, numbers: Iterable[int]) -> Iterator[str | None]:
        for number in numbers:
            try:
                filesystem, path = open_filesystem(self.uri)
                with filesystem.open_input_file(path) as file:
                    same = file.read() == self.sign
                with filesystem.open_output_stream(f"{path}-{number}") as out:
                    out.write(self.sign)
                yield None if same else f"{self.uri} has another content there"
            except Exception as error:  # whatever Arrow says, it means no
                yield f"{type(error).__name__}: {error}".splitlines()[0]
