"""The one way a tab runs the engine: from a click to moments that the tab draws, with an end in every case."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import gradio as gr
import numpy as np

from cosmos_demo.errors import DemoError, RequestError
from cosmos_demo.events import Answered, Event, Generated, Loading, Phase, Preview, Queued, Step, Token

log = logging.getLogger(__name__)

SHORTEST = 0.06
"""Seconds between two moments; what comes faster is drawn together."""

_PHASES = {
    "encoding": "Reading the prompt",
    "thinking": "Thinking",
    "generating": "Generating on the server",
    "decoding": "Decoding",
    "writing": "Writing the file",
}


@dataclass(frozen=True)
class Moment:
    """What is known of a run at one moment.

    Attributes:
        words: What happens now, for people.
        fraction: How much of it is done, 0 to 1; ``None`` when nobody knows.
        elapsed, remaining: Seconds of denoising so far and left; ``None`` outside of it.
        preview: The newest estimate of the picture, uint8 ``[H, W, 3]``.
        text, thinking: The answer so far.
        result: The last event of a run that finished.
        kept: What ``keep`` of `Runs.watch` made of it.
        error: Why it failed.
        cancelled: Somebody stopped it.
    """

    words: str = "Starting"
    fraction: float | None = None
    elapsed: float | None = None
    remaining: float | None = None
    preview: np.ndarray | None = None
    text: str = ""
    thinking: str = ""
    result: Answered | Generated | None = None
    kept: Any = None
    error: str = ""
    cancelled: bool = False

    @property
    def over(self) -> bool:
        """Whether the run has ended, in whichever way."""
        return self.cancelled or bool(self.error) or self.result is not None


class _Live:
    """A run that can be stopped from another thread, even before the engine has begun it."""

    def __init__(self) -> None:
        self._run: Iterator[Event] | None = None
        self._stopped = False
        self._lock = threading.Lock()

    def begin(self, begin: Callable[[], Iterator[Event]]) -> Iterator[Event]:
        run = begin()
        with self._lock:
            self._run = run
            if self._stopped:
                run.close()
        return run

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._run is not None:
                self._run.close()


class Runs:
    """The runs of all visitors, one for each tab of each visitor, so that a stop button stops only its own."""

    def __init__(self) -> None:
        self._live: dict[tuple[str, str], _Live] = {}

    def watch(
        self,
        begin: Callable[[], Iterator[Event]],
        visitor: str,
        tab: str,
        keep: Callable[[Any], Any] = lambda result: None,
    ) -> Iterator[Moment]:
        """Run what ``begin`` starts, let ``keep`` have its result, and yield the moments; the last one is over.

        A run of the same visitor on the same tab is stopped first. Closing this iterator stops the run: that is what
        happens when the visitor leaves.
        """
        self.stop(visitor, tab)
        live = self._live[visitor, tab] = _Live()
        moment, drawn = Moment(), time.monotonic()
        try:
            yield moment
            for event in live.begin(begin):
                moment = advance(moment, event)
                now = time.monotonic()
                if moment.result is not None:
                    yield replace(moment, kept=keep(moment.result))
                elif now - drawn >= SHORTEST or isinstance(event, Queued | Loading | Phase):
                    drawn = now
                    yield moment
            if not moment.over:
                yield replace(moment, cancelled=True)
        except DemoError as error:
            yield replace(moment, error=explain(error))
        except Exception:
            log.exception("A run on the %s tab failed.", tab)
            yield replace(moment, error="Something went wrong inside the app; its log says what. You can try again.")
        finally:
            live.stop()
            if self._live.get((visitor, tab)) is live:
                del self._live[visitor, tab]

    def stop(self, visitor: str, tab: str) -> None:
        """Stop this visitor's run on this tab, if there is one."""
        if live := self._live.get((visitor, tab)):
            live.stop()


def buttons(label: str, name: str) -> tuple[gr.Button, gr.Button]:
    """The button that runs a tab and the one that stops it, which shows only while there is something to stop."""
    with gr.Row(elem_classes="actions"):
        run = gr.Button(label, variant="primary", elem_id=f"{name}-run", scale=3)
        stop = gr.Button("Stop", variant="stop", elem_id=f"{name}-stop", scale=1, visible=False)
    return run, stop


def switched(run: gr.Button, stop: gr.Button, moment: Moment) -> dict[Any, Any]:
    """The updates of both buttons at a moment of the run."""
    return {run: gr.Button(interactive=moment.over), stop: gr.Button(visible=not moment.over)}


def advance(moment: Moment, event: Event) -> Moment:
    """The moment after ``event``."""
    match event:
        case Queued(position):
            ahead = "you are next" if position == 0 else f"{position} before you" if position > 1 else "one before you"
            return replace(moment, words=f"Waiting for the model, {ahead}", fraction=None)
        case Loading(fraction, what):
            return replace(moment, words=f"Loading the checkpoint: {what}", fraction=fraction)
        case Phase(name, elapsed):
            words = _PHASES.get(name, name.capitalize())
            return replace(moment, words=words, fraction=None, elapsed=elapsed, remaining=None)
        case Step(index, total, elapsed, remaining):
            words = f"Step {index} of {total}"
            return replace(moment, words=words, fraction=index / total, elapsed=elapsed, remaining=remaining)
        case Preview(frame=frame):
            return replace(moment, preview=frame)
        case Token(text, thinking=True):
            return replace(moment, words="Thinking", fraction=None, thinking=moment.thinking + text)
        case Token(text):
            return replace(moment, words="Answering", fraction=None, text=moment.text + text)
        case Answered() | Generated():
            return replace(moment, words="Done", fraction=1.0, result=event)


def explain(error: DemoError) -> str:
    """The error for a person at the page; a request's field is named in plain words."""
    if isinstance(error, RequestError):
        return f"{error.field.replace('_', ' ').capitalize()}: {error.message}"
    return str(error)
