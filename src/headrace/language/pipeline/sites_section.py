"""The `sites:`, `placement:` and `links:` of a pipeline file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.language.pipeline.network_files import MOST_PLACES
from headrace.language.pipeline.paths import is_name, read_path
from headrace.language.pipeline.rates import read_byte_rate
from headrace.language.pipeline.yaml_nodes import Document, Value
from headrace.language.suggest import nearest
from headrace.language.words import shown
from headrace.model import LinkSettings, PlacementSettings, Site, Stream
from headrace.units import parse_size

__all__ = ["DeclaredSite", "read_links", "read_placement", "read_sites"]

# Cores of one Spark application; the largest that are heard of have some ten thousand.
_MOST_CORES = 1_000_000
_SITE_KEYS = {
    "streams": "the streams that are born there",
    "proxy": "whether answers are wanted there",
    "cores": "the cores that its Spark has",
    "capacity": "the bytes per second that its operators may read",
    "at": "latitude and longitude",
    "node": "its name in the network's file, if that is another",
}
_PLACEMENT_KEYS = {"strategy": "how operators are placed", "max_latency": "how old an answer may be"}
_LINK_KEYS = {"path": "a folder that both ends of each link reach", "limit": "bytes that a sender may be ahead"}
# What stands for the site's name in the source of a stream that is born at several.
_PLACEHOLDER = "{site}"


@dataclass(frozen=True, slots=True)
class DeclaredSite:
    """A site, the line it stands on, and its name in the network's file if it says one."""

    site: Site
    line: int
    node: str | None = None


def read_sites(
    section: Value | None, declared: Value | None, streams: Sequence[Stream], document: Document
) -> tuple[DeclaredSite, ...]:
    """Every site; `declared` are the file's streams as written. Problems are noted in the section's document."""
    names = list(declared.content) if declared is not None and isinstance(declared.content, dict) else []
    if section is None:
        _check_sources(streams, {}, declared, document)
        return ()
    found: list[DeclaredSite] = []
    seen: dict[str, str] = {}
    entries = section.mapping()
    if len(entries) > MOST_PLACES:
        section.document.add(f"{len(entries)} sites; the most is {MOST_PLACES}", section.line)
        return ()
    for name, value in entries.items():
        if not is_name(name):
            value.document.add(f"{shown(name)} cannot name a site", value.line, "use letters, digits and _")
        elif name.lower() in seen:
            value.document.add(
                f"sites '{seen[name.lower()]}' and '{name}' differ only in case", value.line, "rename one"
            )
        else:
            seen[name.lower()] = name
            found.append(_read_site(name, value, names))
    homes = {name: [each.site.name for each in found if name in each.site.streams] for name in names}
    _check_sites(section, found, [name for name, sites in homes.items() if not sites])
    _check_sources(streams, homes, declared, document)
    return tuple(found)


def _read_site(name: str, value: Value, streams: Sequence[str]) -> DeclaredSite:
    entries = value.mapping(_SITE_KEYS) if value.content is not None else {}
    born: list[str] = []
    for item in entries["streams"].items() if "streams" in entries else ():
        stream = item.word()
        if stream is None:
            continue
        if stream not in streams:
            item.document.add(f"site '{name}': unknown stream '{stream}'", item.line, nearest(stream, sorted(streams)))
        elif stream in born:
            item.document.add(f"site '{name}' lists stream '{stream}' twice", item.line, "keep one")
        else:
            born.append(stream)
    site = Site(
        name,
        tuple(born),
        entries["proxy"].truth() if "proxy" in entries else False,
        entries["cores"].whole(1, _MOST_CORES) if "cores" in entries else None,
        read_byte_rate(entries["capacity"]) if "capacity" in entries else None,
        _read_place(entries["at"]) if "at" in entries else None,
    )
    node = entries["node"].scalar_text() if "node" in entries else None
    return DeclaredSite(site, value.line, None if node is None else node.strip())


def _read_place(value: Value) -> tuple[float, float] | None:
    if not isinstance(value.content, list) or len(value.content) != 2:
        value.wrong("latitude and longitude in degrees", "write at: [48.86, 2.35]")
        return None
    latitude, longitude = value.content[0].number(-90, 90), value.content[1].number(-180, 180)
    return None if latitude is None or longitude is None else (latitude, longitude)


def _check_sites(section: Value, sites: Iterable[DeclaredSite], homeless: Iterable[str]) -> None:
    proxies = [each.site.name for each in sites if each.site.proxy]
    if len(proxies) != 1:
        found = ", ".join(proxies) or "none"
        section.document.add(
            f"exactly one site must be the proxy, where answers are wanted; found {found}",
            section.line,
            "write proxy: true at one site",
        )
    for stream in sorted(homeless):
        section.document.add(f"stream '{stream}' arrives at no site", section.line, "list it under one site's streams")


def _check_sources(
    streams: Sequence[Stream], homes: dict[str, list[str]], declared: Value | None, document: Document
) -> None:
    """That a stream of several sites is read from a place of its own at each, and any other stream from one place."""
    for stream in streams:
        source = stream.source
        if source is None:
            continue
        texts = [*([] if source.path is None else [source.path]), *(text for _, text in source.options)]
        says = any(_PLACEHOLDER in text for text in texts)
        born = homes.get(stream.name, [])
        line = _line_of_source(declared, stream.name)
        if says and (len(born) == 1 or not homes):
            why = f"the stream is born at {born[0]} alone" if born else "the file has no sites"
            document.add(
                f"the source of stream '{stream.name}' says {_PLACEHOLDER}, and {why}",
                line,
                "it stands for the name of each site of a stream that is born at several",
            )
        elif len(born) > 1 and not says and source.path is not None:
            document.add(
                f"stream '{stream.name}' is born at {', '.join(born)}, and its path is the same at all",
                line,
                f"write {_PLACEHOLDER} where the site's name stands in it, such as 'data/{_PLACEHOLDER}/packets'",
            )


def _line_of_source(declared: Value | None, stream: str) -> int | None:
    value = declared
    for key in (stream, "source", "path"):
        inside = value.content if value is not None else None
        if not isinstance(inside, dict) or key not in inside:
            break
        value = inside[key]
    return None if value is None else value.line


def read_placement(section: Value | None, sites: Sequence[DeclaredSite], document: Document) -> PlacementSettings:
    """How operators are placed; problems are noted in the document."""
    if section is None:
        return PlacementSettings()
    entries = section.mapping(_PLACEMENT_KEYS)
    strategy = (entries["strategy"].word() if "strategy" in entries else None) or "optimal"
    span = entries["max_latency"].duration_us() if "max_latency" in entries else None
    if span == 0:
        entries["max_latency"].wrong("longer than nothing")
    if not sites:
        document.add("placement without sites", section.line, "declare the sites that operators are placed on")
    try:
        return PlacementSettings(strategy, span)
    except ValueError as exc:
        document.add(str(exc), entries["strategy"].line)
        return PlacementSettings()


def read_links(section: Value | None, sites: Sequence[DeclaredSite], base: Path, document: Document) -> LinkSettings:
    """Where links are, and how full they may be; problems are noted in the document."""
    if section is None:
        return LinkSettings()
    entries = section.mapping(_LINK_KEYS)
    if not sites:
        document.add("links without sites", section.line, "declare the sites that they join")
    path = read_path(entries["path"], base) if "path" in entries else None
    text = entries["limit"].text() if "limit" in entries else None
    if text is None:
        return LinkSettings(path)
    try:
        return LinkSettings(path, parse_size(text))
    except ValueError as exc:
        entries["limit"].wrong("a size", str(exc))
        return LinkSettings(path)
