"""Control clips: edges where edges are, blur that removes detail."""

from __future__ import annotations

import numpy as np
import pytest

from cosmos_demo.generator import controls
from cosmos_demo.media import Clip


def _clip(frame: np.ndarray) -> Clip:
    return Clip(np.stack([frame, frame]), 10.0, np.array([0.0, 0.1]))


def _square() -> np.ndarray:
    frame = np.zeros((64, 64, 3), np.uint8)
    frame[16:48, 16:48] = 200
    return frame


def test_edges_are_the_thin_outline_of_a_square():
    edge = controls.edges(_clip(_square())).frames
    assert edge.shape == (2, 64, 64, 3)
    assert set(np.unique(edge)) == {0, 255}
    white = edge[0, :, :, 0] > 0
    rows, columns = np.nonzero(white)
    near = [(abs(rows - side) <= 1) | (abs(columns - side) <= 1) for side in (16, 47)]
    assert (near[0] | near[1]).all()
    assert white[32].sum() == 2
    assert 100 < white.sum() < 150


def test_faint_edges_appear_only_at_low_thresholds():
    frame = np.full((32, 32, 3), 100, np.uint8)
    frame[:, 16:] = 128
    counts = {name: int((controls.edges(_clip(frame), name).frames[0] > 0).sum()) for name in controls.EDGE_THRESHOLDS}
    assert counts["very_low"] == counts["low"] > 0
    assert counts["medium"] == counts["high"] == counts["very_high"] == 0


def test_weak_edges_count_only_beside_strong_ones():
    weak = np.zeros((5, 9), bool)
    weak[2, :4] = weak[2, 6:] = True
    strong = np.zeros_like(weak)
    strong[2, 0] = True
    assert controls._grow(weak, strong)[2].tolist() == [True] * 4 + [False] * 5


@pytest.mark.parametrize("strength", controls.BLUR_FACTORS)
def test_blur_keeps_the_mean_and_loses_detail(strength: str):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    soft = controls.blur(_clip(noise), strength).frames[0].astype(float)
    assert soft.mean() == pytest.approx(noise.mean(), abs=3)
    assert soft.std() < noise.std() / 4
