"""Links between sites: what is sent along one, and the small files that say so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.model.ledger import Entry
from headrace.model.site_measures import SiteMeasures, check_sites
from headrace.model.site_plan import SitePlan

__all__ = ["Link", "LinkEnds", "LinkEpoch", "LinkFile", "LinkMeter", "LinkReceipt", "LinkSettings"]

# Some minutes of a busy link; a disk that is shared by several must have room for it.
DEFAULT_LIMIT_BYTES = 10_000_000_000


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Where links are, and how many bytes a sender may be ahead of its receivers; without a path, beside the state."""

    path: str | None = None
    limit_bytes: int = DEFAULT_LIMIT_BYTES

    def __post_init__(self) -> None:
        if self.limit_bytes < 1:
            raise ValueError(f"a link's limit is 1 byte or more, not {self.limit_bytes}")


@dataclass(frozen=True, slots=True)
class Link:
    """The results of query `query` of one site, which are rows of stream `stream` at another.

    `dated` says that its rows have the stream's time; others are dated by the watermark they were sent at. `back` says
    that the receiver sends to the sender as well, perhaps by way of others. With `panes` the results are panes, which
    are the stream's column of that name, each dated by its last instant.
    """

    id: str
    sender: str
    receiver: str
    query: str
    stream: str
    dated: bool = True
    back: bool = False
    panes: str | None = None


@dataclass(frozen=True, slots=True)
class LinkFile:
    """A file of a link, with its size, checksum and rows."""

    name: str
    bytes: int
    crc: int
    rows: int = 0


@dataclass(frozen=True, slots=True)
class LinkEpoch:
    """What a sender's epoch put on a link: its files, and the watermark and ledger of the streams behind them.

    `before` is the epoch sent before it, -1 if it is the first: from one to the next nothing can be missing unnoticed.
    `total_bytes` and `total_rows` are those of all files that were ever sent along the link, `first_us` and `last_us`
    the first and last event time of the streams behind it. `measured` is what its sender has measured, and what it was
    told of other sites. Panes that begin before `since_us` are not sent: their rows
    came before anybody had asked for them.
    """

    link: str
    sender: str
    epoch: int
    before: int
    files: tuple[LinkFile, ...] = ()
    watermark_us: int | None = None
    ledger: Mapping[str, Entry] = field(default_factory=dict)
    total_bytes: int = 0
    since_us: int | None = None
    total_rows: int = 0
    first_us: int | None = None
    last_us: int | None = None
    measured: Mapping[str, SiteMeasures] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_sites(self.measured)
        if not -1 <= self.before < self.epoch:
            raise ValueError(f"epoch {self.epoch} cannot follow epoch {self.before}")

    @property
    def bytes(self) -> int:
        """Of all its files."""
        return sum(file.bytes for file in self.files)

    @property
    def rows(self) -> int:
        """Of all its files."""
        return sum(file.rows for file in self.files)


@dataclass(frozen=True, slots=True)
class LinkReceipt:
    """Up to which epoch a receiver has committed what came along a link, and whose checkpoints are at its ends."""

    link: str
    receiver: str
    sender: str
    epoch: int


@dataclass(frozen=True, slots=True)
class LinkMeter:
    """How far a link's sender is, what the link has carried since it began, and what waits for its receiver."""

    link: Link
    epoch: int
    bytes: int
    rows: int
    waiting_epochs: int
    waiting_bytes: int


@dataclass(frozen=True, slots=True)
class LinkEnds:
    """The links that begin and end at a site, where they are, and the plan behind them; none without sites."""

    path: str = ""
    sends: tuple[Link, ...] = ()
    receives: tuple[Link, ...] = ()
    limit_bytes: int = DEFAULT_LIMIT_BYTES
    site: str = ""
    plan: SitePlan = field(default_factory=SitePlan)
