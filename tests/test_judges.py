"""The judges against the simulator's truth: what they see and hear in it, and that they notice what is wrong."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from cosmos_demo.pico import judges, world
from cosmos_demo.pico.judges import Named
from cosmos_demo.pico.sounds import SAMPLE_RATE, render_sound

FPS = 10.0


@pytest.fixture(scope="module")
def stills() -> tuple[world.Clips, np.ndarray]:
    clips = world.sample_stills(40, torch.Generator().manual_seed(40))
    return clips, world.render(clips)[:, 0].numpy()


@pytest.fixture(scope="module")
def videos() -> world.Clips:
    return world.sample_videos(60, 17, FPS, torch.Generator().manual_seed(41))


def share_right(clips: world.Clips, frames: np.ndarray, least: float) -> float:
    """Share of true objects that are seen in all they are, at their box; objects too many count as wrong."""
    right = total = 0
    for index, frame in enumerate(frames):
        seen, true = judges.objects_seen(frame), judges.true_objects(clips, index)
        pairs = judges.matched(seen, true)
        right += sum(one.size == other.size and judges.box_iou(one.box, other.box) > least for one, other in pairs)
        total += max(len(true), len(seen))
    return right / total


def degraded(frames: np.ndarray) -> np.ndarray:
    """Frames as an autoencoder may give them back: blurred by a 3x3 box, with noise."""
    padded = np.pad(frames.astype(np.float32), ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")
    height, width = frames.shape[1:3]
    soft = sum(padded[:, y : y + height, x : x + width] for y in range(3) for x in range(3)) / 9
    return (soft + np.random.default_rng(0).normal(0, 6, soft.shape)).clip(0, 255).astype(np.uint8)


def test_objects_of_true_pictures_are_seen(stills: tuple[world.Clips, np.ndarray]) -> None:
    assert share_right(*stills, least=0.85) >= 0.98


def test_objects_are_seen_in_blurred_and_noisy_pictures(stills: tuple[world.Clips, np.ndarray]) -> None:
    clips, frames = stills
    assert share_right(clips, degraded(frames), least=0.7) >= 0.98


def test_an_empty_table_has_no_objects(stills: tuple[world.Clips, np.ndarray]) -> None:
    clips, _ = stills
    empty = world.render(replace(clips, present=torch.zeros_like(clips.present)))[:3, 0].numpy()
    for frame in (*empty, *degraded(empty)):
        assert judges.objects_seen(frame) == []
        assert not judges.foreground(frame).any()


def test_a_wrong_picture_is_judged_wrong(stills: tuple[world.Clips, np.ndarray]) -> None:
    """The picture of another scene, of other colours, of other shapes."""
    clips, frames = stills
    colours = world.render(replace(clips, colour=(clips.colour + 1) % len(world.COLOURS)))[:, 0].numpy()
    shapes = world.render(replace(clips, shape=(clips.shape + 1) % len(world.SHAPES)))[:, 0].numpy()
    assert share_right(clips, np.roll(frames, 1, axis=0), least=0.5) < 0.1
    assert share_right(clips, colours, least=0.5) < 0.05
    assert share_right(clips, shapes, least=0.5) < 0.05


def test_the_foreground_is_where_the_objects_are(stills: tuple[world.Clips, np.ndarray]) -> None:
    """It has each shape's area, and overlaps by little with that of other scenes."""
    clips, frames = stills
    covers = {"ball": np.pi / 4, "cube": 1.0, "pyramid": 0.5}
    masks = [judges.foreground(frame) for frame in frames[:20]]
    for index, mask in enumerate(masks):
        areas = [
            covers[true.shape] * (true.box[2] - true.box[0]) * (true.box[3] - true.box[1])
            for true in judges.true_objects(clips, index)
        ]
        assert mask.sum() == pytest.approx(sum(areas), rel=0.1)
    assert np.mean([judges.mask_iou(one, other) for one, other in pairwise(masks)]) < 0.3


def test_each_object_is_matched_once_and_with_the_nearest() -> None:
    def ball(x: float, shape: str = "ball") -> judges.Seen:
        return judges.Seen(shape, "red", "small", (x, 0, x + 30, 30))

    near, far, true = ball(10), ball(200), ball(12)
    assert judges.matched([far, near], [true]) == [(near, true)]
    assert judges.matched([ball(10, "cube")], [true]) == []
    assert judges.matched([ball(10, "cube")], [true], shapes=False) == [(ball(10, "cube"), true)]


def test_overlaps() -> None:
    assert judges.box_iou((0, 0, 10, 10), (5, 0, 15, 10)) == pytest.approx(1 / 3)
    assert judges.box_iou((0, 0, 10, 10), (20, 0, 30, 10)) == 0
    one, nothing = np.ones((2, 2), bool), np.zeros((2, 2), bool)
    assert judges.mask_iou(one, nothing) == 0
    assert judges.mask_iou(nothing, nothing) == 1


def test_an_object_is_followed_and_its_bounce_found(videos: world.Clips) -> None:
    """Of clips with one object: place in every frame, and the moment it first hits the table after a fall."""
    bounces = 0
    for clip in (videos.count == 1).nonzero()[:8, 0].tolist():
        frames = rendered(videos, clip)
        start = judges.true_objects(videos, clip)[0]
        path = judges.track(frames, start)
        truth = torch.stack([videos.x[clip, :, 0], videos.y[clip, :, 0]], 1).numpy()
        assert np.abs(path - truth).max() < 3
        mine = (videos.impacts.clip == clip) & (videos.impacts.surface == world.SURFACES.index("floor"))
        times = videos.impacts.time[mine].tolist()
        bounce = judges.bounce_seen(path, start, FPS)
        assert (bounce is None) == (not times)
        if times:
            bounces += 1
            assert bounce == pytest.approx(times[0], abs=0.04)
    assert bounces >= 2


def rendered(clips: world.Clips, index: int) -> np.ndarray:
    """Frames of one of several clips."""
    names = ("shape", "colour", "size", "present", "x", "y", "visible", "camera", "kind", "target")
    return world.render(replace(clips, **{name: getattr(clips, name)[index : index + 1] for name in names}))[0].numpy()


def test_camera_travel_is_measured() -> None:
    clips, _ = world.sample_camera(6, 9, FPS, torch.Generator().manual_seed(42))
    steady = (clips.camera[:, -1, 2] - 1).abs() < 0.01
    frames, pans = world.render(clips).numpy(), clips.camera[..., 0].numpy()
    compared = 0
    for index in steady.nonzero()[:, 0].tolist():
        for at, move in enumerate(np.diff(pans[index])):
            if abs(move) < 23:
                compared += 1
                assert judges.shift(frames[index, at], frames[index, at + 1]) == pytest.approx(-move, abs=0.3)
    assert compared > 20


def test_rings_are_heard_when_where_and_of_what(videos: world.Clips) -> None:
    """Of impacts that have 0.15 s for themselves; and nothing else is heard."""
    waves = render_sound(videos, 1.7).numpy()
    heard = alone = strays = 0
    for clip, wave in enumerate(waves):
        mine = (videos.impacts.clip == clip).nonzero()[:, 0]
        times = videos.impacts.time[mine].numpy()
        rings = judges.onsets(wave, SAMPLE_RATE)
        strays += sum(not (np.abs(times - ring.time) < 0.02).any() for ring in rings)
        for impact, time in zip(mine.tolist(), times, strict=True):
            if (np.abs(times - time) < 0.15).sum() > 1:
                continue
            alone += 1
            near = [ring for ring in rings if abs(ring.time - time) < 0.01]
            size = world.SIZES[int(videos.size[clip, videos.impacts.object[impact]])]
            side = -np.cos(np.pi * float(videos.impacts.x[impact]) / world.WIDTH)
            heard += any(ring.size == size and abs(ring.side - side) < 0.2 for ring in near)
    assert alone > 40
    assert heard / alone > 0.9
    assert strays == 0
    assert judges.onsets(np.zeros((2, 16_000), np.float32), SAMPLE_RATE) == []


def test_a_timeline_counts_times_objects_and_surfaces() -> None:
    true = [(0.4, "the red ball hits the table"), (0.9, "the red ball hits the wall")]
    assert judges.timeline_f1(true, true) == 1
    assert judges.timeline_f1([], []) == 1
    assert judges.timeline_f1([], true) == 0
    assert judges.timeline_f1([(0.5, "A red ball hits the table."), (0.75, "red ball hits the wall")], true) == 1
    assert judges.timeline_f1([(0.6, true[0][1])], true) == 0
    assert judges.timeline_f1([(0.4, "the blue ball hits the table")], true) == 0
    assert judges.timeline_f1([(0.4, "the red ball hits the wall")], true) == 0
    assert judges.timeline_f1([true[0], true[0]], true) == 0.5


def test_answers_are_read_by_their_meaning() -> None:
    text = "There are two objects: a small red ball on the left and a big white box in the center."
    assert judges.named(text) == [Named("red", "ball", "left"), Named("white", "cube", "middle")]
    assert judges.said("Two spheres and a pyramid.", world.SHAPES) == ["ball", "pyramid"]
    assert judges.number("There are three cubes.") == judges.number("3") == 3
    assert judges.number("There are no cubes.") == 0
    assert judges.number("One or two.") is None
    assert judges.affirmed("Yes, there is a red ball.") is True
    assert judges.affirmed("No.") is False
    assert judges.affirmed("The ball is red.") is None
    assert judges.is_at(110, "left")
    assert not judges.is_at(130, "left")


def test_likeness_of_pictures() -> None:
    grey = np.full((4, 4, 3), 100, np.uint8)
    assert judges.psnr(grey, grey) == 99
    assert judges.psnr(grey, grey + np.uint8(1)) == pytest.approx(48.13, abs=0.01)
