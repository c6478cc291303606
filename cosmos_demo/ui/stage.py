"""The stage of a tab: what to do first, then the run with its preview and progress, then how it ended."""

from __future__ import annotations

import base64
import io
from html import escape

import gradio as gr
import numpy as np
from PIL import Image

from cosmos_demo.ui.running import Moment


def empty(hint: str) -> str:
    """The stage before anything ran; ``hint`` says what to do."""
    return _frame("empty", False, f'{_LENS}<p class="hint">{escape(hint)}</p>')


def draw(moment: Moment, low: bool = False) -> str:
    """The stage at one moment of a run, or how the run ended without a result; ``low`` for runs without pictures."""
    if moment.error:
        return _frame(
            "failed", low, f'<p class="headline">This did not work</p><p class="hint">{escape(moment.error)}</p>'
        )
    picture = (
        f'<img src="{_data_url(moment.preview)}" alt="Preview" decoding="sync">' if moment.preview is not None else ""
    )
    if moment.cancelled:
        return _frame("cancelled", low, f'{picture}<p class="headline">Stopped</p>')
    waiting = "" if picture or low else _LENS
    return _frame("running", low, f"{picture}{waiting}{_meter(moment)}")


def hidden() -> gr.HTML:
    """The update that clears the stage for a result."""
    return gr.HTML(visible=False)


def shown(html: str) -> gr.HTML:
    """The update that shows ``html`` on the stage."""
    return gr.HTML(html, visible=True)


def _meter(moment: Moment) -> str:
    if moment.fraction is None:
        bar = '<div class="bar unknown" role="progressbar"><i></i></div>'
    else:
        percent = f"{moment.fraction:.0%}"
        bar = f'<div class="bar" role="progressbar" aria-valuenow="{percent}"><i style="width:{percent}"></i></div>'
    clock = ""
    if moment.elapsed is not None:
        left = "" if moment.remaining is None else f", {moment.remaining:.1f} s left"
        clock = f'<span class="clock">{moment.elapsed:.1f} s{left}</span>'
    return f'<div class="meter"><p><span class="words">{escape(moment.words)}</span>{clock}</p>{bar}</div>'


def _frame(state: str, low: bool, inside: str) -> str:
    return f'<div class="stage {state}{" low" if low else ""}" data-state="{state}" aria-live="polite">{inside}</div>'


def _data_url(frame: np.ndarray) -> str:
    file = io.BytesIO()
    Image.fromarray(frame).save(file, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()


_LENS = (
    '<svg class="lens" viewBox="0 0 96 64" aria-hidden="true">'
    '<circle cx="38" cy="32" r="24"/><circle cx="58" cy="32" r="24"/></svg>'
)
