"""The papers by their short names."""

from __future__ import annotations

from headrace.errors import SpecError
from headrace.reproduce.figure import Paper
from headrace.reproduce.flux import FLUX
from headrace.reproduce.ssp import SSP

__all__ = ["PAPERS", "chosen"]

# In the order of the reports; a paper's figures stand in its own module.
PAPERS: dict[str, Paper] = {
    "ssp": SSP,
    "flux": FLUX,
}


def chosen(name: str | None) -> tuple[Paper, ...]:
    """The paper of this name, or all of them."""
    if name is None:
        return tuple(PAPERS.values())
    if name not in PAPERS:
        raise SpecError(f"there is no paper '{name}'; known: {', '.join(PAPERS)}")
    return (PAPERS[name],)
