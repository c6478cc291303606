"""The status line: which checkpoint, where it runs, memory, which head works, who waits."""

from __future__ import annotations

from html import escape

import gradio as gr

from cosmos_demo.engines.base import Engine, Status

EVERY = 1.5
"""Seconds between two looks at the engine."""

_HEADS = {
    "reasoner": "Reasoner working",
    "generator": "Generator working",
    "reasoner and generator": "both heads working",
}


def line(status: Status) -> str:
    """The engine's state as HTML, all text escaped."""
    if status.state == "ready":
        lamp, now = ("busy", _HEADS[status.head]) if status.head else ("ready", "idle")
    elif status.state == "unreachable":
        lamp, now = "failed", "out of reach"
    elif status.state == "failed":
        lamp, now = "failed", "not loaded"
    else:
        lamp, now = "loading", f"loading {status.loaded:.0%}"
    waiting = f"{status.waiting} waiting" if status.waiting else "nobody waits"
    parts = [
        ("checkpoint", status.checkpoint),
        ("device", f"{status.device} {status.dtype}"),
        ("memory", _memory(status)),
        ("head", now),
        ("queue", waiting),
        ("guardrails", _guardrails(status)),
    ]
    hints = {"guardrails": status.guardrails}
    items = "".join(
        f'<li class="{name}" title="{escape(hints.get(name, text))}">{escape(text)}</li>'
        for name, text in parts
        if text
    )
    detail = f'<p class="detail">{escape(status.detail)}</p>' if status.detail else ""
    bar = f'<i class="load" style="width:{status.loaded:.0%}"></i>' if lamp == "loading" else ""
    return f'<div class="status {lamp}" role="status"><span class="lamp"></span><ul>{items}</ul>{detail}{bar}</div>'


def create(engine: Engine) -> None:
    """Put the status line here; it looks at the engine again every `EVERY` seconds."""
    shown = gr.HTML(line(engine.status()), elem_id="status")
    gr.Timer(EVERY).tick(
        lambda: line(engine.status()),
        outputs=shown,
        queue=False,
        show_progress="hidden",
        api_visibility="private",
    )


def _guardrails(status: Status) -> str:
    """On or off, so that it fits beside the rest; what is screened, or why nothing is, is the hint over it."""
    if not status.guardrails:
        return ""
    return "guardrails off" if status.guardrails.startswith("off") else "guardrails on"


def _memory(status: Status) -> str:
    used = status.memory.get("allocated") or status.memory.get("weights")
    if not used:
        return ""
    total = status.memory.get("total")
    return f"{size(used)} of {size(total)}" if total else size(used)


def size(number: int) -> str:
    """Bytes for people: ``86 MB``, ``31.4 GB``."""
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{number / 1e6:.0f} MB"
