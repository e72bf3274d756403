"""Line charts as inline SVG, without a plotting library: generators run where there is none."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH, HEIGHT = 560, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 14, 30
COLOURS: Final = ("#2563eb", "#d97706", "#059669")

Points = Sequence[tuple[float, float | None]]


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over time; a None in a line is a gap in it."""

    title: str
    unit: str
    lines: Mapping[str, Points]

    def svg(self) -> str:
        """The chart, or words when there is nothing to draw."""
        values = [y for points in self.lines.values() for _, y in points if y is not None]
        times = [x for points in self.lines.values() for x, _ in points]
        if not values or max(times) <= min(times):
            return f"<p class=none>{escape(self.title)}: not measured</p>"
        frame = _Frame(min(times), max(times), max([*values, 1e-9]))
        drawn = [
            f'<polyline points="{piece}" stroke="{colour}"/>'
            for (_, points), colour in zip(self.lines.items(), COLOURS, strict=False)
            for piece in _pieces(points, frame)
        ]
        title = escape(f"{self.title}, {self.unit}" if self.unit else self.title)
        return (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>{title}</title>'
            f'{"".join(_grid(frame))}<g class="lines">{"".join(drawn)}</g></svg>'
        )

    def legend(self) -> str:
        """The lines' names in their colours, where there are several."""
        if len(self.lines) < 2:
            return ""
        named = zip(self.lines, COLOURS, strict=False)
        return " ".join(
            f'<span style="color:{colour}">&#9632; {escape(name)}</span>' for name, colour in named
        )


@dataclass(frozen=True, slots=True)
class _Frame:
    """From data to pixels; the y axis begins at 0, or changes would look larger than they are."""

    left: float
    right: float
    top: float

    def x(self, value: float) -> float:
        return _LEFT + (value - self.left) / (self.right - self.left) * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - _BOTTOM - value / ticks(0.0, self.top)[-1] * (HEIGHT - _TOP - _BOTTOM)


def ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Round numbers from at most `low` to at least `high`."""
    span = max(high - low, 1e-12)
    power = 10.0 ** math.floor(math.log10(span / about))
    step = next(power * m for m in (1, 2, 5, 10) if span / (power * m) <= about)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [n * step for n in range(first, last + 1)]


def _grid(frame: _Frame) -> Iterator[str]:
    for value in ticks(0.0, frame.top):
        y = frame.y(value)
        yield f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_number(value)}</text>'
    for value in ticks(frame.left, frame.right, 6):
        if frame.left <= value <= frame.right:
            x = frame.x(value)
            yield f'<text x="{x:.1f}" y="{HEIGHT - 10}" text-anchor="middle">{_number(value)} s</text>'


def _pieces(points: Points, frame: _Frame) -> Iterator[str]:
    piece: list[str] = []
    for x, y in [*points, (0.0, None)]:
        if y is not None and math.isfinite(y):
            piece.append(f"{frame.x(x):.1f},{frame.y(y):.1f}")
        elif piece:
            yield " ".join(piece if len(piece) > 1 else piece * 2)
            piece = []


def _number(value: float) -> str:
    return f"{value:.6g}"
