"""The page's pictures, as SVG: small functions over lists of numbers."""

import math
from collections.abc import Callable, Sequence
from xml.sax.saxutils import escape

_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM = 860, 80, 20, 14, 34


def _svg(height: float, parts: Sequence[str], title: str) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height:g}" role="img" aria-label="{escape(title)}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def _rectangle(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> str:
    tip = f"<title>{escape(title)}</title>" if title else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}" class="{kind}">{tip}</rect>'
    )


def _ticks(top: float) -> list[float]:
    """Round byte counts from 0 up to `top`, some five."""
    unit = 1024.0 ** math.floor(math.log(top, 1024))
    rough = top / unit / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = unit * power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [step * index for index in range(int(top / step) + 1)]


def curve(
    points: Sequence[Sequence[float]], limit: float, marks: Sequence[float], show: Callable[[float], str], title: str
) -> str:
    """A curve of steps over operators, the limit where it is near, and marks at the ends of steps."""
    if not points:
        return ""
    height, bottom = 240, 240 - _BOTTOM
    highest = max(y for _, y in points)
    near = limit if limit < 3 * highest else highest
    top, last = 1.05 * max(highest, near, 1), max(points[-1][0], 1)

    def x(value: float) -> float:
        return _LEFT + value / last * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return bottom - value / top * (bottom - _TOP)

    parts = [_line(x(mark), _TOP, x(mark), bottom, "mark") for mark in marks[:200]]
    for tick in _ticks(top):
        parts.append(_line(_LEFT, y(tick), _WIDTH - _RIGHT, y(tick), "grid"))
        parts.append(_text(_LEFT - 6, y(tick) + 4, show(tick).replace(".00", ""), "end"))
    path = [f"M{x(points[0][0]):.1f} {bottom:.1f}"]
    for at, value in points:
        path.append(f"H{x(at):.1f}V{y(value):.1f}")
    path.append(f"H{x(last):.1f}V{bottom:.1f}Z")
    parts.append(f'<path d="{"".join(path)}" class="area"/>')
    if near == limit:
        parts += [
            _line(_LEFT, y(limit), _WIDTH - _RIGHT, y(limit), "limit"),
            _text(_WIDTH - _RIGHT, y(limit) - 4, f"the chip's {show(limit)}", "end", "over"),
        ]
    parts.append(_text(_WIDTH - _RIGHT, height - 10, f"operators, {last:,} in all; lines: ends of steps", "end"))
    return _svg(height, parts, title)


def bars(rows: Sequence[tuple[str, float, str]], show: Callable[[float], str], title: str) -> str:
    """Horizontal bars with a label, a length and a class each."""
    if not rows:
        return ""
    label, row, longest = 300, 20, max(length for _, length, _ in rows) or 1
    parts = []
    for at, (name, length, kind) in enumerate(rows):
        y = at * row + 4
        width = length / longest * (_WIDTH - label - 110)
        parts.append(_text(label - 8, y + 12, name if len(name) < 44 else "…" + name[-42:], "end"))
        parts.append(_rectangle(label, y, max(width, 1), row - 6, kind, f"{name}: {show(length)}"))
        parts.append(_text(label + max(width, 1) + 6, y + 12, show(length)))
    return _svg(len(rows) * row + 8, parts, title)


def columns(values: Sequence[float], title: str) -> str:
    """A column for each step."""
    if not values:
        return ""
    height, bottom = 150, 150 - _BOTTOM
    highest = max(values) or 1
    wide = min(40.0, (_WIDTH - _LEFT - _RIGHT) / len(values))
    parts = [
        _line(_LEFT, bottom, _WIDTH - _RIGHT, bottom, "grid"),
        _text(_LEFT - 6, _TOP + 4, f"{highest:g}", "end"),
        _text(_LEFT - 6, bottom + 4, "0", "end"),
    ]
    for at, value in enumerate(values):
        tall = value / highest * (bottom - _TOP)
        kind = "bar" if at < 2 else "bad"
        parts.append(
            _rectangle(_LEFT + at * wide + 2, bottom - tall, wide - 4, tall, kind, f"step {at + 1}: {value:g}")
        )
        if wide > 16:
            parts.append(_text(_LEFT + at * wide + wide / 2, bottom + 16, str(at + 1), "middle"))
    return _svg(height, parts, title)


def differences(rows: Sequence[dict], title: str) -> str:
    """A point for each layer on a logarithmic scale, and the step of what is allowed; in the order of execution."""
    if not rows:
        return ""
    height, bottom, low, high = 240, 240 - _BOTTOM, -10.0, 1.0

    def x(at: int) -> float:
        return _LEFT + (at + 0.5) / len(rows) * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        power = math.log10(value) if 0 < value < math.inf else (high if value else low)
        return bottom - (min(max(power, low), high) - low) / (high - low) * (bottom - _TOP)

    parts = []
    for power in range(int(low), int(high) + 1, 2):
        parts.append(_line(_LEFT, y(10.0**power), _WIDTH - _RIGHT, y(10.0**power), "grid"))
        parts.append(_text(_LEFT - 6, y(10.0**power) + 4, f"1e{power}" if power > low else "equal", "end"))
    half = (_WIDTH - _LEFT - _RIGHT) / len(rows) / 2
    begin = 0
    for at, row in enumerate(rows):  # one line over all neighbours with one tolerance: its dashes are to be seen
        if at + 1 == len(rows) or rows[at + 1]["tolerance"] != row["tolerance"]:
            parts.append(_line(x(begin) - half, y(row["tolerance"]), x(at) + half, y(row["tolerance"]), "limit"))
            begin = at + 1
    for at, row in enumerate(rows):
        tip = escape(f"{row['kind']} {row['layer']}: {row['difference']:.2g} (allowed {row['tolerance']:.0e})")
        kind = "point" if row["agrees"] else "bad"
        place = f'cx="{x(at):.1f}" cy="{y(row["difference"]):.1f}" r="3.5"'
        parts.append(f'<circle {place} class="{kind}"><title>{tip}</title></circle>')
    parts.append(_text(_WIDTH - _RIGHT, height - 10, "layers in the order of execution, then gradients", "end"))
    return _svg(height, parts, title)
