"""Whether tasks can reach a folder with Arrow: they read what the driver wrote there, and it reads what they wrote."""

from __future__ import annotations

from uuid import uuid4

from headrace.engine.spark.jobs import Jobs
from headrace.engine.state.storage import Storage
from headrace.kernels.orders import Probe

__all__ = ["tasks_reach"]


def tasks_reach(storage: Storage, folder: str, jobs: Jobs, tasks: int) -> str | None:
    """None if they do, else what went wrong; a job of `tasks` tasks, so that it comes to all executors."""
    sign = uuid4().hex
    storage.create(f"{folder}/_probe-{sign}", sign.encode())
    probe = Probe(f"{storage.root}/{folder}/_probe-{sign}", sign.encode())
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
