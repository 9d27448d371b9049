"""What a folder of results says of itself: whose it is, and what its files hold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "ANOTHER",
    "ANOTHER_HINT",
    "MARKER",
    "OTHERS",
    "OTHERS_HINT",
    "OTHER_FOLDERS",
    "FolderMark",
    "Shape",
    "why_another",
]

# The file of a folder of results that holds its mark; readers pass over names that begin so.
MARKER = "_headrace.json"
# What is said of a folder of another checkpoint's, and what to do.
OTHERS = "holds results of {}, whose files this one would replace"
OTHERS_HINT = (
    "to start anew remove that folder as well as the checkpoint; or choose another path, or go on with the checkpoint "
    "that made them"
)
# What is said of results with other columns than those that a place has, and what to do.
ANOTHER = "{} has results with other columns: {}"
OTHER_FOLDERS = "{} has results in folders by other columns"
ANOTHER_HINT = (
    "readers would find both kinds of rows: give the query another name or its sink another place, select the columns "
    "it had, or clear that place"
)
# Names and types of columns, in their order.
Shape = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class FolderMark:
    """The checkpoint that writes to a folder, and the columns of its results; None if an older Headrace made it.

    >>> FolderMark.from_json(FolderMark("c1", (("k", "STRING"),)).to_json())
    FolderMark(checkpoint='c1', columns=(('k', 'STRING'),), partition_by=())
    """

    checkpoint: str
    columns: Shape | None = None
    partition_by: tuple[str, ...] = ()

    def to_json(self) -> str:
        told = {"checkpoint": self.checkpoint, "columns": self.columns}
        return json.dumps({**told, "partition_by": self.partition_by} if self.partition_by else told)

    @classmethod
    def from_json(cls, text: str | bytes) -> FolderMark:
        """ValueError, KeyError or TypeError if the text is no mark."""
        found = json.loads(text)
        columns = found.get("columns")
        return cls(
            str(found["checkpoint"]),
            None if columns is None else tuple((str(name), str(type_)) for name, type_ in columns),
            tuple(map(str, found.get("partition_by", ()))),
        )


def why_another(had: Shape, now: Shape, unknown: Sequence[str] = ()) -> str | None:
    """How columns of results differ from those that a place has; types that are `unknown` yet may be any.

    >>> why_another((("k", "INT"), ("n", "BIGINT")), (("k", "INT"), ("n", "DOUBLE")))
    'n is DOUBLE, and was BIGINT'
    >>> why_another((("k", "INT"), ("n", "BIGINT")), (("k", "INT"), ("m", "BIGINT"), ("o", "INT")))
    'm and o are new, and n is gone'
    >>> why_another((("k", "INT"), ("n", "INT")), (("n", "INT"), ("k", "INT")))
    'they are in another order'
    """
    before, after = dict(had), dict(now)
    new, gone = [name for name in after if name not in before], [name for name in before if name not in after]
    told = [f"{' and '.join(names)} {'are' if len(names) > 1 else 'is'} {what}"
            for names, what in ((new, "new"), (gone, "gone")) if names]  # fmt: skip
    told += [
        f"{name} is {type_}, and was {before[name]}"
        for name, type_ in now
        if name in before and type_ not in (*unknown, before[name])
    ]
    if told:
        return ", and ".join(told)
    return None if [name for name, _ in had] == [name for name, _ in now] else "they are in another order"
