"""A loss curve as an SVG picture: two lines of points, one for every step and one for their running mean."""

from __future__ import annotations

from html import escape
from pathlib import Path

import numpy as np

WIDTH, HEIGHT, MARGIN = 640, 360, 48
"""Pixels."""
KEPT = 0.95
"""How much of the running mean a step keeps."""


def write_curve(path: Path, losses: np.ndarray, title: str) -> None:
    """Draws positive losses [steps] over their steps, on a logarithmic scale."""
    low, high = np.floor(np.log10(losses.min())), np.ceil(np.log10(losses.max()))
    ticks = [_tick(exponent, low, high) for exponent in np.arange(low, high + 1)]
    lines = [
        _line(losses, low, high, 'stroke="#9db8d9"'),
        _line(_running_mean(losses), low, high, 'stroke="#1f4e8c" stroke-width="2"'),
    ]
    steps = f'<text x="{WIDTH - MARGIN}" y="{HEIGHT - 16}" text-anchor="end">step {len(losses)}</text>'
    heading = f'<text x="{MARGIN}" y="24">{escape(title)}</text>'
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
        f'font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n'
        + "\n".join([heading, *ticks, *lines, steps])
        + "\n</svg>\n",
        "utf-8",
    )


def _running_mean(losses: np.ndarray) -> np.ndarray:
    means = np.empty(len(losses))
    mean = float(losses[0])
    for step, loss in enumerate(losses):
        mean = KEPT * mean + (1 - KEPT) * float(loss)
        means[step] = mean
    return means


def _height(exponents: np.ndarray, low: float, high: float) -> np.ndarray:
    share = (exponents - low) / max(high - low, 1)
    return HEIGHT - MARGIN - share * (HEIGHT - 2 * MARGIN)


def _line(values: np.ndarray, low: float, high: float, style: str) -> str:
    across = np.linspace(MARGIN, WIDTH - MARGIN, len(values))
    points = zip(across, _height(np.log10(values), low, high), strict=True)
    return f'<polyline fill="none" {style} points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'


def _tick(exponent: float, low: float, high: float) -> str:
    y = float(_height(np.asarray(exponent), low, high))
    return (
        f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>'
        f'<text x="{MARGIN - 6}" y="{y + 4:.1f}" text-anchor="end">{10**exponent:g}</text>'
    )
