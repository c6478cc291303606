"""Control clips for transfer that can be computed from an ordinary clip: edges and blur."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from PIL import Image, ImageFilter

from cosmos_demo.media import Clip

EDGE_THRESHOLDS = {
    "very_low": (20, 50),
    "low": (50, 100),
    "medium": (100, 200),
    "high": (200, 300),
    "very_high": (300, 400),
}
"""Weak and strong gradient (Sobel, absolute values added) of an edge, NVIDIA's presets for transfer."""
BLUR_FACTORS = {"low": 4, "medium": 10, "high": 16}
"""How many times smaller the blurred picture is made in between, NVIDIA's presets for transfer."""


def edges(clip: Clip, strength: str = "medium") -> Clip:
    """White edges on black, found as Canny does: thin ridges of the gradient, weak ones only where they touch strong.

    Args:
        clip: Any clip.
        strength: A name in `EDGE_THRESHOLDS`.
    """
    weak, strong = EDGE_THRESHOLDS[strength]
    return replace(clip, frames=np.stack([_canny(frame, weak, strong) for frame in clip.frames]))


def blur(clip: Clip, strength: str = "medium") -> Clip:
    """The clip without its fine detail.

    Args:
        clip: Any clip.
        strength: A name in `BLUR_FACTORS`.
    """
    factor = BLUR_FACTORS[strength]
    return replace(clip, frames=np.stack([_blurred(frame, factor) for frame in clip.frames]))


def _blurred(frame: np.ndarray, factor: int) -> np.ndarray:
    picture = Image.fromarray(frame)
    small = (max(1, picture.width // factor), max(1, picture.height // factor))
    soft = picture.filter(ImageFilter.GaussianBlur(factor / 2)).resize(small, Image.Resampling.BICUBIC)
    return np.asarray(soft.resize(picture.size, Image.Resampling.BICUBIC))


def _canny(frame: np.ndarray, weak: int, strong: int) -> np.ndarray:
    grey = np.asarray(Image.fromarray(frame).convert("L"), np.int32)
    padded = np.pad(grey, 1, mode="edge")
    gx = _sobel(padded)
    gy = _sobel(padded.T).T
    size = np.abs(gx) + np.abs(gy)
    ridge = size * _is_ridge(size, gx, gy)
    return np.repeat(_grow(ridge > weak, ridge > strong)[..., None].astype(np.uint8) * 255, 3, axis=2)


def _sobel(padded: np.ndarray) -> np.ndarray:
    """Horizontal Sobel gradient of a picture padded by one pixel."""
    smooth = padded[:-2] + 2 * padded[1:-1] + padded[2:]
    return smooth[:, 2:] - smooth[:, :-2]


def _is_ridge(size: np.ndarray, gx: np.ndarray, gy: np.ndarray) -> np.ndarray:
    """Where the gradient is largest along its own direction, rounded to 45 degrees."""
    around = np.pad(size, 1)
    height, width = size.shape

    def at(dy: int, dx: int) -> np.ndarray:
        return around[1 + dy : 1 + dy + height, 1 + dx : 1 + dx + width]

    angle = np.degrees(np.arctan2(gy, gx)) % 180
    sector = ((angle + 22.5) // 45).astype(int) % 4
    steps = ((0, 1), (1, 1), (1, 0), (1, -1))
    largest = np.zeros(size.shape, bool)
    for index, (dy, dx) in enumerate(steps):
        largest |= (sector == index) & (size > at(-dy, -dx)) & (size >= at(dy, dx))
    return largest


def _grow(weak: np.ndarray, strong: np.ndarray) -> np.ndarray:
    """Strong pixels, and weak ones connected to them."""
    edge, before = strong, None
    while before is None or (edge != before).any():
        before = edge
        around = np.pad(edge, 1)
        spread = np.zeros_like(edge)
        for dy in range(3):
            for dx in range(3):
                spread |= around[dy : dy + edge.shape[0], dx : dx + edge.shape[1]]
        edge = edge | (spread & weak)
    return edge
