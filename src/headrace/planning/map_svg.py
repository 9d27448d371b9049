"""A placement as a map: sites where they are, what runs there, and links as wide as what flows.

Sites lie at their coordinates (equirectangular: a degree of longitude is as long as at the mean latitude), or on a
circle if one that takes part has none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from headrace.planning.drawing import format_ms
from headrace.policies.placement import Placement, Problem
from headrace.units import format_bytes

__all__ = ["draw_svg"]

Point = tuple[float, float]
Box = tuple[float, float, float, float]

WIDTH, LEAST_HEIGHT, MOST_HEIGHT = 1000.0, 420.0, 760.0
# Room around the map for labels, and below it for the sums.
MARGIN_X, MARGIN_Y, FOOT = 120.0, 60.0, 46.0
# Mean width of a character, as a share of its size, in the fonts that browsers take for sans-serif.
CHARACTER = 0.56
# Names of parts that a site lists before it counts the rest, and characters of a name before it is cut.
MOST_PARTS, MOST_CHARACTERS = 4, 28
# Sites where nothing runs are named up to so many; more would hide the others.
MOST_IDLE_NAMES = 30
# Links longer than this say their milliseconds, too; those of all links are in their tooltips.
ROOM_FOR_MS = 220.0
# Pixels between a site and a label that is still beside it.
FAR = 20.0
# Stroke widths of the least and the greatest flow.
THIN, THICK = 1.5, 9.0

_STYLE = (
    "text{font-family:Helvetica,Arial,sans-serif;font-size:12px;fill:#22303c}"
    ".site{font-weight:bold}.part{font-size:11px;fill:#4a5a68}.rate{font-size:11px;fill:#1f4e79}"
    ".idle{font-size:10px;fill:#8a97a3}.halo{stroke:#ffffff;stroke-width:3px;stroke-linejoin:round}"
)


def draw_svg(problem: Problem, placement: Placement, at: Mapping[str, Point] | None = None, title: str = "") -> str:
    """An SVG map of a placement; `at` gives latitude and longitude by site, for those that have them."""
    links = problem.links_of(placement.sites)
    parts: dict[str, list[str]] = {}
    for part in problem.parts:
        parts.setdefault(placement.sites[part.name], []).append(part.name)
    where, height = _layout(problem.network.sites, sorted(parts), at or {})
    read = {flow.source for flow in problem.flows}
    goals = {placement.sites[part.name] for part in problem.parts if part.name not in read}
    fed = {flow.target for flow in problem.flows}
    births = {placement.sites[part.name] for part in problem.parts if part.name not in fed}
    most = max(links.values(), default=0.0)
    curves = {link: _curve(where[link[0]], where[link[1]]) for link in links}
    taken = _Taken(
        [(x - r, y - r, x + r, y + r) for site, (x, y) in where.items() for r in (9 if site in parts else 3,)],
        [point for curve in curves.values() for point in curve.points()],
    )
    body = [_link(curves[link], rate, most) for link, rate in sorted(links.items(), key=lambda item: -item[1])]
    # Sites that take part choose their places first.
    busy = [_site(site, names, where[site], site in goals, site in births, taken) for site, names in parts.items()]
    idle = [site for site in where if site not in parts]
    body += [_idle(site, where[site], len(idle) <= MOST_IDLE_NAMES, taken) for site in idle]
    body += busy
    # The shortest first: they have the fewest places for their label.
    for link in sorted(links, key=lambda link: curves[link].far):
        rate, ms = f"{format_bytes(links[link])}/s", format_ms(problem.network.distance_ms(*link))
        text = f"{rate}, {ms}" if curves[link].far > ROOM_FOR_MS else rate
        body.append(_rate(text, f"{link[0]} to {link[1]}: {rate}, {ms}", curves[link], taken))
    foot = f"{title}: " if title else ""
    foot += (
        f"{format_bytes(sum(links.values()))}/s on {len(links)} links, longest path {format_ms(placement.latency_ms)}"
    )
    total = height + FOOT
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {total:.0f}" '
            f'width="{WIDTH:.0f}" height="{total:.0f}" role="img">',
            f"<title>{_escaped(foot)}</title><style>{_STYLE}</style>",
            f'<rect width="{WIDTH:.0f}" height="{total:.0f}" fill="#ffffff"/>',
            *body,
            *_legend(foot, total - FOOT / 2),
            "</svg>",
        ]
    )


def _layout(sites: Sequence[str], used: Sequence[str], at: Mapping[str, Point]) -> tuple[dict[str, Point], float]:
    """Where sites are drawn, and how high the drawing is."""
    if all(site in at for site in used):
        return _projected({site: at[site] for site in sites if site in at})
    drawn = sites if len(sites) <= MOST_IDLE_NAMES else used
    height = 620.0
    turns = {site: 2 * math.pi * i / len(drawn) - math.pi / 2 for i, site in enumerate(drawn)}
    reach = (WIDTH / 2 - 2 * MARGIN_X, height / 2 - MARGIN_Y)
    middle = (WIDTH / 2, height / 2)
    return {
        site: (middle[0] + reach[0] * math.cos(turn), middle[1] + reach[1] * math.sin(turn))
        for site, turn in turns.items()
    }, height


def _projected(at: Mapping[str, Point]) -> tuple[dict[str, Point], float]:
    """Sites on an equirectangular map that is cut where no site is: the Pacific for one network, Africa for another."""
    longitudes = sorted({lon % 360 for _, lon in at.values()})
    gaps = [((b - a) % 360, b) for a, b in zip([longitudes[-1], *longitudes], longitudes, strict=False)]
    west = max(gaps)[1] if len(longitudes) > 1 else longitudes[0]
    squeeze = math.cos(math.radians(sum(lat for lat, _ in at.values()) / len(at)))
    plane = {site: (((lon - west) % 360) * squeeze, -lat) for site, (lat, lon) in at.items()}
    left, right = min(x for x, _ in plane.values()), max(x for x, _ in plane.values())
    top, bottom = min(y for _, y in plane.values()), max(y for _, y in plane.values())
    # A hundredth of a degree is a town: places nearer than that are drawn as one.
    wide, high = max(right - left, 0.01), max(bottom - top, 0.01)
    scale = min((WIDTH - 2 * MARGIN_X) / wide, (MOST_HEIGHT - 2 * MARGIN_Y) / high)
    height = min(MOST_HEIGHT, max(LEAST_HEIGHT, high * scale + 2 * MARGIN_Y))
    x0, y0 = (WIDTH - (right - left) * scale) / 2, (height - (bottom - top) * scale) / 2
    return {site: (x0 + (x - left) * scale, y0 + (y - top) * scale) for site, (x, y) in plane.items()}, height


@dataclass(frozen=True)
class _Curve:
    """A bow from one site to another, to the right of its way: the way back does not lie upon it."""

    start: Point
    bend: Point
    end: Point

    def point(self, share: float) -> Point:
        rest = 1 - share
        x, y = (
            rest * rest * a + 2 * rest * share * b + share * share * c
            for a, b, c in zip(self.start, self.bend, self.end, strict=True)
        )
        return x, y

    @property
    def far(self) -> float:
        return math.dist(self.start, self.end)

    def points(self) -> list[Point]:
        """A point every few pixels."""
        steps = max(2, int(self.far / 8))
        return [self.point(i / steps) for i in range(steps + 1)]


def _curve(start: Point, end: Point) -> _Curve:
    dx, dy = end[0] - start[0], end[1] - start[1]
    far = math.hypot(dx, dy) or 1.0
    # A bow of an eighth of the way shows its direction and stays near the straight line.
    bend = ((start[0] + end[0]) / 2 - dy / 8, (start[1] + end[1]) / 2 + dx / 8)
    # It ends before the marker of its site.
    short = min(13.0, far / 3)
    back = math.hypot(end[0] - bend[0], end[1] - bend[1]) or 1.0
    tip = (end[0] - (end[0] - bend[0]) / back * short, end[1] - (end[1] - bend[1]) / back * short)
    return _Curve(start, bend, tip)


def _link(curve: _Curve, rate: float, most: float) -> str:
    width = THIN + (THICK - THIN) * math.sqrt(rate / most if most else 0.0)
    (x, y), (bx, by), (ex, ey) = curve.start, curve.bend, curve.end
    turn = math.degrees(math.atan2(ey - by, ex - bx))
    # The head is drawn by itself: markers grow with the stroke, and hide what is behind them.
    head = 5 + width * 0.9
    return (
        f'<path d="M{x:.1f},{y:.1f} Q{bx:.1f},{by:.1f} {ex:.1f},{ey:.1f}" fill="none" stroke="#4d8fc4" '
        f'stroke-opacity="0.75" stroke-width="{width:.2f}"/>'
        f'<path d="M0,0 L{-head:.1f},{head / 2:.1f} L{-head:.1f},{-head / 2:.1f} Z" fill="#2f6fa5" '
        f'transform="translate({ex:.1f},{ey:.1f}) rotate({turn:.1f})"/>'
    )


class _Taken:
    """Places that labels have, so that the next finds another; links may be crossed, if need be."""

    def __init__(self, boxes: list[Box], crossed: list[Point]) -> None:
        self._boxes, self._crossed = boxes, crossed

    def place(self, candidates: Iterator[Box], crossing: float = 12.0) -> Box:
        """The first of the candidates that hide the least; a point of a link counts as so many pixels of a label."""
        best = min(candidates, key=lambda box: self._hidden(box, crossing))
        self._boxes.append(best)
        return best

    def free(self, candidates: Iterator[Box]) -> Box | None:
        """The first candidate that hides no label and no site."""
        best = next((box for box in candidates if self._hidden(box, 0) == 0), None)
        self._boxes += [] if best is None else [best]
        return best

    def _hidden(self, box: Box, crossing: float) -> float:
        left, top, right, bottom = box
        outside = max(0.0, 4 - left) + max(0.0, right - WIDTH + 4) + max(0.0, 4 - top)
        covered = sum(
            max(0.0, min(right, x1) - max(left, x0)) * max(0.0, min(bottom, y1) - max(top, y0))
            for x0, y0, x1, y1 in self._boxes
        )
        links = sum(left < x < right and top < y < bottom for x, y in self._crossed) if crossing else 0
        return covered + 100 * outside + crossing * links


def _around(point: Point, wide: float, high: float, gap: float = 13.0, farther: bool = True) -> Iterator[Box]:
    """Boxes beside a point: right, left, below, above, the corners; then the same farther away."""
    x, y = point
    for away in (gap, gap + 10, gap + 24, gap + 40) if farther else (gap,):
        for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1)):
            left = x + away if dx > 0 else x - away - wide if dx < 0 else x - wide / 2
            top = y + away * 0.6 if dy > 0 else y - away * 0.6 - high if dy < 0 else y - high / 2
            yield left, top, left + wide, top + high


def _site(site: str, names: Sequence[str], point: Point, goal: bool, born: bool, taken: _Taken) -> str:
    fill = "#2e8b57" if goal else "#e08e2b" if born else "#3d6f99"
    rest = len(names) - MOST_PARTS
    lines = [_cut(name) for name in names[: MOST_PARTS if rest > 1 else len(names)]]
    lines += [f"and {rest} more"] if rest > 1 else []
    wide = max(len(_cut(site)) * 12 * (CHARACTER + 0.05), *(len(line) * 11 * CHARACTER for line in lines))
    left, top, right, bottom = taken.place(_around(point, wide, 15 + 13 * len(lines)))
    # A label that found no place beside its site is tied to it.
    near = (min(max(point[0], left), right), min(max(point[1], top), bottom))
    tie = f'<path d="M{point[0]:.1f},{point[1]:.1f} L{near[0]:.1f},{near[1]:.1f}" stroke="#8a97a3"/>'
    # On the left of its site a label ends at the site.
    anchor, x = ("end", right) if right <= point[0] else ("start", left)
    ring = f'<circle cx="{point[0]:.1f}" cy="{point[1]:.1f}" r="11" fill="none" stroke="{fill}" stroke-width="1.5"/>'
    texts = [_text(_cut(site), x, top + 12, "site", anchor)]
    texts += [_text(line, x, top + 25 + 13 * i, "part", anchor) for i, line in enumerate(lines)]
    return (
        f"<g><title>{_escaped(site)}: {_escaped(', '.join(names))}</title>{tie if math.dist(point, near) > FAR else ''}"
        f'<circle cx="{point[0]:.1f}" cy="{point[1]:.1f}" r="7.5" fill="{fill}" stroke="#ffffff" stroke-width="1.5"/>'
        f"{ring if goal else ''}{''.join(texts)}</g>"
    )


def _idle(site: str, point: Point, named: bool, taken: _Taken) -> str:
    dot = f'<circle cx="{point[0]:.1f}" cy="{point[1]:.1f}" r="3" fill="#c3ccd4"/>'
    box = taken.free(_around(point, len(_cut(site)) * 10 * CHARACTER, 12, 6.0, farther=False)) if named else None
    # Where there is no room its tooltip names it.
    label = "" if box is None else _text(_cut(site), box[0], box[1] + 9, "idle", "start")
    return f"<g><title>{_escaped(site)}</title>{dot}{label}</g>"


def _rate(text: str, told: str, curve: _Curve, taken: _Taken) -> str:
    wide = len(text) * 11 * CHARACTER

    def candidates() -> Iterator[Box]:
        for away in (0, -10, 10, -20, 20):
            for share in (0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74):
                x, y = curve.point(share)
                yield x - wide / 2, y + away - 7, x + wide / 2, y + away + 7

    left, top, right, _ = taken.place(candidates(), crossing=0)
    label = _text(text, (left + right) / 2, top + 11, "rate", "middle")
    return f"<g><title>{_escaped(told)}</title>{label}</g>"


def _text(text: str, x: float, y: float, kind: str, anchor: str) -> str:
    """A text upon its own white outline: legible across a link, in viewers that paint strokes last, too."""
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return (
        f'<text class="{kind} halo" {where}>{_escaped(text)}</text><text class="{kind}" {where}>{_escaped(text)}</text>'
    )


def _legend(foot: str, y: float) -> Iterator[str]:
    yield f'<text x="16" y="{y + 5:.0f}">{_escaped(foot)}</text>'
    kinds = (("#e08e2b", "streams"), ("#3d6f99", "operators only"), ("#2e8b57", "answers"), ("#c3ccd4", "nothing"))
    for i, (colour, name) in enumerate(kinds):
        x = WIDTH - 440 + 115 * i
        yield f'<circle cx="{x:.0f}" cy="{y:.0f}" r="6" fill="{colour}"/>'
        yield f'<text class="part" x="{x + 11:.0f}" y="{y + 4:.0f}">{name}</text>'


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"


def _escaped(text: str) -> str:
    """A text as XML has it; characters that XML forbids become blanks."""
    return escape("".join(c if c.isprintable() else " " for c in text), {'"': "&quot;"})
