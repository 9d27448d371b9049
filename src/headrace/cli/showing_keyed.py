"""How keyed state looks in a terminal: the map of mini-partitions, the last moves and why they were made."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from headrace.units import format_bytes

__all__ = ["keyed_lines", "runs_of"]

# Moves shown; the manifest keeps a few more.
SHOWN = 5


def runs_of(numbers: Iterable[int]) -> str:
    """Numbers in order, neighbours drawn together.

    >>> runs_of([0, 1, 2, 5, 7, 8])
    '0-2 5 7-8'
    """
    runs = [[n for _, n in run] for _, run in groupby(enumerate(sorted(numbers)), lambda item: item[1] - item[0])]
    return " ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def keyed_lines(status: dict[str, Any]) -> list[str]:
    """Where the state of row windows and functions is, who waits, what moved last, and why."""
    lines: list[str] = []
    for name, state in status.get("flows", {}).items():
        if state.get("kind") != "keyed":
            continue
        seen = status["last_epoch"].get("flows", {}).get(name)
        owners = state["owners"]
        lines.append(
            f"state of {name}: {format_bytes(sum(state['state_bytes']))} in {len(owners)} mini-partitions, "
            f"{state['moves']} moves so far ({format_bytes(state['moved_bytes'])}); {state['reason']}"
        )
        for bin_, memory in enumerate(state["memory_bytes"]):
            own = [mini for mini, owner in enumerate(owners) if owner == bin_]
            size = format_bytes(sum(state["state_bytes"][mini] for mini in own))
            at = (
                ""
                if seen is None
                else f" at {seen['places'][bin_]}, busy {seen['busy_s'][bin_]:.2f} s of the last epoch"
            )
            room = "" if memory >= 1 << 60 else f" of {format_bytes(memory)}"
            lines.append(f"  bin {bin_}{at}: {size}{room}; mini-partitions {runs_of(own) or 'none'}")
            spilled = state["residence"][bin_]["spilled"]
            if spilled:
                lines.append(f"    on disk, taking turns: {runs_of(spilled)}")
        for item in state["moving"]:
            left = format_bytes(item["left_bytes"])
            lines.append(f"  on its way: {_move(item['move'])}; {left} to go, its rows wait")
        lines += [
            f"  shared by bins {runs_of(s['bins'])}: mini-partition {s['mini']}; {s['reason']}" for s in state["splits"]
        ]
        lines += [f"  alone in bin {i['bin']}: mini-partition {i['mini']}; {i['reason']}" for i in state["isolated"]]
        lines += [f"  moved in epoch {epoch}: {_move(move)}" for epoch, move in state["history"][-SHOWN:]]
    return lines


def _move(move: dict[str, Any]) -> str:
    size = format_bytes(move["state_bytes"])
    return f"mini-partition {move['mini']} ({size}) from bin {move['source']} to bin {move['target']}: {move['reason']}"
