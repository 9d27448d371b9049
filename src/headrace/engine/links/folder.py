"""The folder of a link: what its sender says was sent, and what its receiver says it has."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.engine.state.sealed import seal, unseal
from headrace.engine.state.storage import Storage
from headrace.errors import CorruptStateError, LockedError
from headrace.model import Link, LinkEpoch, LinkReceipt, plain, restored

__all__ = ["SENT", "LinkFolder"]

SENT = "sent"
_RECEIVED = "received.json"
_FILE = re.compile(r"epoch-(\d{9})-\d{3,}\.[\w.]+")
# Of one epoch; a job has as many tasks at most.
_MOST_FILES = 100_000


@dataclass(frozen=True)
class LinkFolder:
    """Reads and writes the small files of a link; whatever they say is checked before it is believed."""

    link: Link
    storage: Storage

    def sent(self) -> list[int]:
        """The epochs that were sent and are still told of, in order."""
        names = (name.removesuffix(".json") for name in self.storage.names(SENT))
        return sorted(int(name) for name in names if name.isascii() and name.isdigit())

    def epoch(self, number: int) -> LinkEpoch:
        """What was sent in an epoch; CorruptStateError if the file is not that, or not of this link."""
        path = f"{SENT}/{number}.json"
        where = f"{self.storage.root}/{path}"
        try:
            found = restored(LinkEpoch, unseal(self.storage.read(path), where))
        except ValueError as exc:
            raise CorruptStateError(f"{where} is nothing that a site sends: {exc}") from exc
        if (found.link, found.epoch) != (self.link.id, number):
            raise CorruptStateError(f"{where} is of epoch {found.epoch} of link {found.link}: somebody put it there")
        wrong = [file.name for file in found.files if not _is_of(file.name, number)]
        if wrong or len(found.files) > _MOST_FILES:
            raise CorruptStateError(f"{where} names {wrong[0]!r:.80} as a file of epoch {number}" if wrong else
                                    f"{where} names {len(found.files)} files")  # fmt: skip
        return found

    def send(self, epoch: LinkEpoch) -> None:
        """Says what was sent: from here on the receiver may take it."""
        try:
            self.storage.create(f"{SENT}/{epoch.epoch}.json", seal(_object(plain(epoch))))
        except FileExistsError as exc:
            raise LockedError(f"epoch {epoch.epoch} of link {self.storage.root} was sent by another engine") from exc

    def receipt(self) -> LinkReceipt | None:
        """What the receiver has; None if it has nothing yet."""
        data = self.storage.read(_RECEIVED)
        where = f"{self.storage.root}/{_RECEIVED}"
        if data is None:
            return None
        try:
            found = restored(LinkReceipt, unseal(data, where))
        except ValueError as exc:
            raise CorruptStateError(f"{where} is nothing that a site says it received: {exc}") from exc
        if found.link != self.link.id:
            raise CorruptStateError(f"{where} is of link {found.link}: somebody put it there")
        return found

    def acknowledge(self, receipt: LinkReceipt) -> None:
        """Says what was received: from here on the sender may remove it."""
        self.storage.replace(_RECEIVED, seal(_object(plain(receipt))))

    def files_of(self, number: int) -> list[str]:
        """The files of an epoch that are there."""
        return [name for name in self.storage.names("") if _is_of(name, number)]

    def remove(self, received: int) -> None:
        """Removes what was received: files up to that epoch, and what is told of epochs before it."""
        for name in self.storage.names(""):
            if (match := _FILE.fullmatch(name)) is not None and int(match.group(1)) <= received:
                self.storage.delete(name)
        for number in self.sent():
            if number < received:
                self.storage.delete(f"{SENT}/{number}.json")


def _is_of(name: str, epoch: int) -> bool:
    match = _FILE.fullmatch(name)
    return match is not None and int(match.group(1)) == epoch


def _object(value: object) -> dict[str, object]:
    assert isinstance(value, dict)
    return value
