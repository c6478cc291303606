"""The one contract between the app and whatever runs the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from cosmos_demo.events import Event
from cosmos_demo.requests import AnswerRequest, GenerateRequest


@dataclass(frozen=True)
class Score:
    """One measured skill of a checkpoint.

    Attributes:
        name: Its id.
        what: What was measured, in words.
        value, low, high: The figure and its 95 % interval, from ``n`` cases.
        target: What it should reach, and in ``met`` whether it does.
        unit: ``share`` of 1, a unit such as ``dB``, or empty for plain numbers.
        higher: Whether more is better.
    """

    name: str
    what: str
    value: float
    low: float
    high: float
    n: int
    target: float
    met: bool
    unit: str = ""
    higher: bool = True


@dataclass(frozen=True)
class Capabilities:
    """What the loaded checkpoint can do, read from its configs before any weights.

    Attributes:
        checkpoint: Short name shown to people, for example ``Cosmos3-Pico``.
        family: ``cosmos3_omni`` or ``cosmos3_edge``.
        unavailable: Mode or task name to the reason why this checkpoint can't serve it; what is absent is available.
            The key ``sound`` stands for sound with video, ``reasoner`` for all tasks.
        resolutions: Tiers the checkpoint was trained for, smallest first.
        defaults: Request field to the value this checkpoint prefers over the mode's published one, for example
            ``{"resolution": 256, "num_frames": 17}``. Under a mode's name stand fields for this mode alone.
        fixed: Request field to the only value allowed (distilled checkpoints: steps, guidance scale).
        sample_rate: Of the sound tokenizer in Hz, ``None`` without sound.
        action_dim: Width of the action head, ``None`` without one.
        home: One sentence on where the checkpoint is at home; empty when it has no such limit.
        scores: What was measured of it; empty when it brings no scorecard.
    """

    checkpoint: str
    family: str
    unavailable: Mapping[str, str] = field(default_factory=dict)
    resolutions: tuple[int, ...] = (256, 480, 720)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    sample_rate: int | None = None
    action_dim: int | None = None
    home: str = ""
    scores: tuple[Score, ...] = ()


@dataclass(frozen=True)
class Status:
    """The engine now: shown in the status line and by ``/status``.

    Attributes:
        checkpoint, device, dtype: For example ``Cosmos3-Pico``, ``cuda:0``, ``bfloat16``.
        state: ``not loaded``, ``loading``, ``ready``, ``failed``, or of servers ``unreachable``.
        detail: While loading what is read now, after a failure its message, of servers what is wrong.
        loaded: Fraction of the checkpoint read, 0 to 1.
        head: ``reasoner``, ``generator``, ``reasoner and generator`` or ``None`` when idle.
        waiting: Runs in the queue.
        memory: Bytes by name: ``weights``, ``allocated``, ``total`` where known.
        guardrails: What screens prompts and results, in words.
    """

    checkpoint: str
    device: str
    dtype: str
    state: str
    detail: str = ""
    loaded: float = 0.0
    head: str | None = None
    waiting: int = 0
    memory: Mapping[str, int] = field(default_factory=dict)
    guardrails: str = ""


class Engine(Protocol):
    """Runs requests of both heads. Iterators stream events; closing one cancels its run."""

    def capabilities(self) -> Capabilities: ...

    def status(self) -> Status: ...

    def answer(self, request: AnswerRequest) -> Iterator[Event]:
        """Stream an answer, ending in `events.Answered`.

        Raises:
            RequestError: before any accelerator work, when the request can't be served.
            DemoError: when the run fails.
        """
        ...

    def generate(self, request: GenerateRequest) -> Iterator[Event]:
        """Stream a generation, ending in `events.Generated`. Raises like `answer`."""
        ...

    def close(self) -> None:
        """Cancel what runs, refuse what waits, free the weights."""
        ...
