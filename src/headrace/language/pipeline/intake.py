"""How much of a stream an epoch takes: whether the user has set that, and what the engine counts in where not."""

from __future__ import annotations

from headrace.language.pipeline.formats import FILE_SOURCES
from headrace.model import Source, Stream

__all__ = ["intake_unit", "is_set"]


def intake_unit(stream: Stream) -> str | None:
    """What the engine counts in to set how much of a stream an epoch takes: rows of Kafka's, bytes of files, or None.

    None is where the user has set it, and where files are taken latest first: with a limit, older ones would be late.
    """
    source = stream.source
    if source is None:
        return None
    if source.format == "kafka":
        return None if is_set(source, "maxoffsetspertrigger") else "rows"
    limited = is_set(source, "maxfilespertrigger") or is_set(source, "maxbytespertrigger")
    latest_first = any(key.lower() == "latestfirst" and text.lower() == "true" for key, text in source.options)
    return "bytes" if source.format in FILE_SOURCES and not limited and not latest_first else None


def is_set(source: Source, option: str) -> bool:
    """Whether a source has an option that begins so."""
    return any(key.lower().startswith(option) for key, _ in source.options)
