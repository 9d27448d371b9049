"""What happens in a run, a JSON object per line on standard output, for programs that collect logs.

Every line has `time` (ISO 8601, UTC), `level` (info, warning) and `event`:
decision   what was decided for an epoch, as `headrace status --json` shows it, with reasons
epoch      what is true after an epoch: streams, queries, state and the last epoch, as in `headrace status --json`
note       `text`, what a user should know
end        the last epoch, when the run ends, and the queries that have failed with their causes
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from headrace.engine import Manifest, describe
from headrace.hiding import hidden
from headrace.model import EpochDecision

__all__ = ["JsonLog"]

_EPOCH = ("epoch", "batch", "streams", "queries", "state", "last_epoch")


class JsonLog:
    """Writes a line for everything it is told."""

    def __init__(self, checkpoint: str, write: Callable[[str], Any] | None = None) -> None:
        self._checkpoint, self._write = checkpoint, write or sys.stdout.write

    def note(self, text: str) -> None:
        self._line("warning" if "fail" in text else "info", "note", text=text)

    def decision(self, decision: EpochDecision) -> None:
        self._line("info", "decision", **decision.to_json())

    def epoch(self, manifest: Manifest) -> None:
        status = describe(self._checkpoint, manifest)
        failed = any(query["cause"] for query in status["queries"].values())
        self._line("warning" if failed else "info", "epoch", **{key: status[key] for key in _EPOCH})

    def close(self, manifest: Manifest | None) -> None:
        queries = {} if manifest is None else manifest.queries
        failed = {name: state.failed for name, state in queries.items() if state.failed is not None}
        epoch = -1 if manifest is None else manifest.epoch
        self._line("warning" if failed else "info", "end", epoch=epoch, failed=failed)

    def _line(self, level: str, event: str, **fields: Any) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._write(json.dumps({"time": now, "level": level, "event": event, **hidden(fields)}) + "\n")
        sys.stdout.flush()
