"""The papers by their short names."""

from __future__ import annotations

from headrace.errors import SpecError
from headrace.reproduce.figure import Paper
from headrace.reproduce.fit import FIT
from headrace.reproduce.flux import FLUX
from headrace.reproduce.placement import PLACEMENT
from headrace.reproduce.sharing import SHARING
from headrace.reproduce.ssp import SSP

__all__ = ["PAPERS", "chosen"]

# In the order of the reports; a paper's figures stand in its own module.
PAPERS: dict[str, Paper] = {
    "ssp": SSP,
    "fit": FIT,
    "flux": FLUX,
    "sharing": SHARING,
    "placement": PLACEMENT,
}


def chosen(name: str | None) -> tuple[Paper, ...]:
    """The paper of this name, or all of them."""
    if name is None:
        return tuple(PAPERS.values())
    if name not in PAPERS:
        raise SpecError(f"there is no paper '{name}'; known: {', '.join(PAPERS)}")
    return (PAPERS[name],)
