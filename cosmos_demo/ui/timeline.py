"""Times of a clip as rows that seek its player, and values over its time as a plot; the page's script moves both."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from cosmos_demo.events import Span


def spans(found: Sequence[Span], duration: float, player: str) -> str:
    """Rows of a timeline; a click on one seeks the player whose element id is ``player``."""
    length = max([duration, *(span.end for span in found), 1e-6])
    rows = "".join(_row(span, length) for span in found)
    return f'<div class="timeline" data-clock="{escape(player)}" data-duration="{length:.3f}">{rows}</div>'


def plot(values: np.ndarray, groups: Sequence[tuple[str, Sequence[tuple[int, str]]]], fps: float, player: str) -> str:
    """One small plot for each group of channels, over the clip's own seconds.

    Args:
        values: ``[T, D]``; row i is the motion from frame i to frame i + 1.
        groups: Title, and the column and name of each of its channels.
        fps: Rows per second.
        player: Element id of the video player that the playhead follows.
    """
    duration = len(values) / fps
    charts = "".join(_chart(title, values, channels, fps) for title, channels in groups)
    return (
        f'<div class="plot" data-clock="{escape(player)}" data-duration="{duration:.3f}">{charts}'
        f'<p class="axis"><span>0 s</span><span>{duration:.1f} s</span></p></div>'
    )


def clock(seconds: float) -> str:
    """``0:03.4`` for 3.4 seconds."""
    minutes, rest = divmod(seconds, 60)
    return f"{int(minutes)}:{rest:04.1f}"


def _row(span: Span, length: float) -> str:
    left, width = 100 * span.start / length, 100 * (span.end - span.start) / length
    return (
        f'<button type="button" data-seek="{span.start:.3f}">'
        f'<span class="time">{clock(span.start)} to {clock(span.end)}</span>'
        f'<span class="track"><i class="span" style="left:{left:.2f}%;width:{max(width, 1):.2f}%"></i>'
        f'<i class="playhead"></i></span>'
        f'<span class="caption">{escape(span.caption)}</span></button>'
    )


def _chart(title: str, values: np.ndarray, channels: Sequence[tuple[int, str]], fps: float) -> str:
    chosen = values[:, [column for column, _ in channels]]
    low, high = float(chosen.min()), float(chosen.max())
    if high - low < 1e-6:
        low, high = low - 0.5, high + 0.5
    across = 100 * (np.arange(len(values)) + 0.5) / len(values)
    lines = legend = ""
    for place, (column, name) in enumerate(channels):
        down = 100 * (high - values[:, column]) / (high - low)
        points = " ".join(f"{x:.2f},{y:.2f}" for x, y in zip(across, down, strict=True))
        lines += f'<polyline class="line c{place % 6}" points="{points}"/>'
        legend += f'<span class="c{place % 6}">{escape(name)}</span>'
    zero = ""
    if low < 0 < high:
        at = 100 * high / (high - low)
        zero = f'<line class="zero" x1="0" x2="100" y1="{at:.2f}" y2="{at:.2f}"/>'
    return (
        f"<figure><figcaption><b>{escape(title)}</b>{legend}</figcaption>"
        f'<div class="chart"><span class="high">{high:.2f}</span><span class="low">{low:.2f}</span>'
        f'<div class="track" data-seekable><svg viewBox="0 0 100 100" preserveAspectRatio="none">{zero}{lines}</svg>'
        f'<i class="playhead"></i></div></div></figure>'
    )
