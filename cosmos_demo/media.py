"""Decode and encode pictures, video and sound, within limits; every file the app writes or reads passes here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Clip:
    """Decoded frames.

    Attributes:
        frames: uint8 ``[T, H, W, 3]``.
        fps: Frames per second of ``frames``.
        times: Seconds of each frame in the original file, ``[T]`` float64; timestamps in answers refer to these.
    """

    frames: np.ndarray
    fps: float
    times: np.ndarray
