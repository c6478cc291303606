"""What the checkpoint can do, as it was measured: a folded table, only there when the checkpoint has a scorecard."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import gradio as gr

from cosmos_demo.engines.base import Capabilities, Score

_HEADS = ("What was measured", "Figure", "95% interval", "Cases", "Target", "")


def create(can: Capabilities) -> None:
    """Put the table here, if there is one."""
    if can.scores:
        with gr.Accordion(f"What {can.checkpoint} can do", open=False, elem_id="scorecard"):
            gr.HTML(table(can.scores))


def table(scores: Sequence[Score]) -> str:
    """The scores as HTML, what misses its target marked."""
    met = sum(score.met for score in scores)
    heads = "".join(f'<th scope="col">{head}</th>' for head in _HEADS)
    rows = "".join(_row(score) for score in scores)
    return (
        f'<p class="about">{met} of {len(scores)} targets met.</p>'
        f'<table class="scores"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
    )


def figure(value: float, unit: str) -> str:
    """A figure for people: ``97.5%`` of a share, ``31.2 dB``, and 0.962 of plain numbers such as correlations."""
    if unit == "share":
        return f"{_short(100 * value, 1)}%"
    return f"{_short(value, 1)} {unit}" if unit else _short(value, 3)


def _short(value: float, digits: int) -> str:
    """At most so many digits after the point, without zeros at the end."""
    text = f"{value:.{digits}f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _row(score: Score) -> str:
    bound = "at least" if score.higher else "at most"
    cells = (
        figure(score.value, score.unit),
        f"{figure(score.low, score.unit)} to {figure(score.high, score.unit)}",
        str(score.n),
        f"{bound} {figure(score.target, score.unit)}",
        "met" if score.met else "not met",
    )
    inside = "".join(
        f'<td data-head="{head}">{escape(cell)}</td>' for head, cell in zip(_HEADS[1:], cells, strict=True)
    )
    state = "" if score.met else ' class="unmet"'
    return f'<tr{state}><th scope="row">{escape(score.name)}<small>{escape(score.what)}</small></th>{inside}</tr>'
