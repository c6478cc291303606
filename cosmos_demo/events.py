"""What a run emits while it works, ending in exactly one `Answered` or `Generated`.

A run that can't go on raises a `cosmos_demo.errors.DemoError` from the iterator instead of emitting anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Queued:
    """The run waits for the accelerator; ``position`` runs go first (0 = next)."""

    position: int


@dataclass(frozen=True)
class Loading:
    """The checkpoint is being loaded; ``fraction`` 0 to 1, and what is being read now."""

    fraction: float
    what: str


@dataclass(frozen=True)
class Phase:
    """The run is in a phase without steps: ``encoding``, ``thinking``, ``generating``, ``decoding``, ``writing``.

    ``elapsed`` are the seconds so far where nothing else tells of progress.
    """

    name: str
    elapsed: float | None = None


@dataclass(frozen=True)
class Step:
    """Denoising step ``index`` of ``total`` (1-based) is done; seconds so far, and left until the last step."""

    index: int
    total: int
    elapsed: float
    remaining: float


@dataclass(frozen=True)
class Preview:
    """The current estimate of the clean picture (one frame of it): uint8 ``[H, W, 3]``."""

    step: int
    frame: np.ndarray


@dataclass(frozen=True)
class Token:
    """New text of the answer, in ``thinking`` or not."""

    text: str
    thinking: bool


@dataclass(frozen=True)
class Box:
    """A box on the picture, integers 0 to 1000 on each axis by itself, origin top left, x1 <= x2 and y1 <= y2."""

    x1: int
    y1: int
    x2: int
    y2: int
    label: str


@dataclass(frozen=True)
class Point:
    """A point on the picture, integers 0 to 1000 on each axis by itself, origin top left."""

    x: int
    y: int
    label: str


@dataclass(frozen=True)
class Span:
    """A stretch of the clip in seconds, ``start`` <= ``end``, with its caption."""

    start: float
    end: float
    caption: str


@dataclass(frozen=True)
class Answered:
    """The Reasoner's answer.

    Attributes:
        text: The answer without its thinking.
        thinking: The text between the think tags, empty without reasoning.
        boxes, points, spans, trajectory, label: What the task's parser found; empty or ``None`` otherwise.
        subjects: Describe-anything rows: ``subject_id``, ``category``, ``caption``.
        note: Why the answer could not be parsed or was cut off; empty when all is well.
        record: Settings, seed, versions and timings of the run (`records.py`).
    """

    text: str
    thinking: str = ""
    boxes: tuple[Box, ...] = ()
    points: tuple[Point, ...] = ()
    spans: tuple[Span, ...] = ()
    trajectory: tuple[Point, ...] = ()
    label: str | None = None
    subjects: tuple[dict[str, str], ...] = ()
    note: str = ""
    record: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Generated:
    """The Generator's result.

    Attributes:
        frames: uint8 ``[T, H, W, 3]``, one frame for a picture; ``None`` for inverse dynamics.
        fps: Frames per second of ``frames``.
        sound: float32 ``[channels, samples]`` in -1 to 1, as long as the frames, or ``None``.
        sample_rate: Of ``sound``, in Hz.
        actions: float32 ``[T, D]`` in the model's normalised action space, or ``None``.
        record: Settings, seed, versions and timings of the run (`records.py`).
    """

    frames: np.ndarray | None
    fps: int
    sound: np.ndarray | None = None
    sample_rate: int | None = None
    actions: np.ndarray | None = None
    record: dict[str, Any] = field(default_factory=dict)


Event = Queued | Loading | Phase | Step | Preview | Token | Answered | Generated
