"""The simulated tabletop against its own truth: pictures, physics, sounds and camera."""

from __future__ import annotations

import itertools
import math
from dataclasses import fields, replace

import pytest
import torch

from cosmos_demo.pico import sounds, world


def _drop(height: float, speed: float = 0.0, shape: str = "ball", frames: int = 17, fps: float = 10.0) -> world.Clips:
    """One clip of one small red object let go ``height`` pixels above the table, in the middle."""
    generator = torch.Generator().manual_seed(0)
    clips = world.sample_stills(1, generator)
    one = torch.tensor([[True, False, False, False]])
    clips = replace(
        clips,
        present=one,
        shape=torch.full_like(clips.shape, world.SHAPES.index(shape)),
        colour=torch.zeros_like(clips.colour),
        size=torch.zeros_like(clips.size),
        kind=torch.tensor([world.KINDS.index("physics")]),
        fps=fps,
    )
    x = torch.full((1, 4), 160.0)
    y = (world.FLOOR - clips.half_height) - height
    vx = torch.full((1, 4), speed)
    return world._simulate(clips, x, y, vx, frames, torch.zeros(1, dtype=torch.int64), generator)


def test_stills_show_each_object_in_its_colour_inside_its_box():
    clips = world.sample_stills(64, torch.Generator().manual_seed(1))
    pictures = world.render(clips)[:, 0].float()
    boxes = world.boxes(clips)[:, 0]
    for n in range(64):
        for k in range(int(clips.count[n])):
            x1, y1, x2, y2 = boxes[n, k].round().int().tolist()
            middle = pictures[n, (y1 + 2 * y2) // 3, (x1 + x2) // 2]
            distances = (middle - torch.tensor(world.RGB, dtype=torch.float32)).abs().sum(1)
            assert int(distances.argmin()) == int(clips.colour[n, k])


def test_boxes_are_tight():
    clips = _drop(60.0, frames=2)
    empty = replace(clips, present=torch.zeros_like(clips.present))
    shown, bare = (world.render(c)[0, 0].int() for c in (clips, empty))
    changed = ((shown - bare).abs().sum(-1) > 60).nonzero()
    top, left = changed.min(0).values.tolist()
    bottom, right = (changed.max(0).values + 1).tolist()
    box = world.boxes(clips)[0, 0, 0].tolist()
    assert [left, top, right, bottom] == pytest.approx(box, abs=2)


def test_objects_stand_apart_and_inside():
    clips = world.sample_stills(256, torch.Generator().manual_seed(2))
    boxes = world.boxes(clips)[:, 0]
    for n in range(256):
        spans = sorted(boxes[n, k, [0, 2]].tolist() for k in range(int(clips.count[n])))
        assert spans[0][0] >= 0
        assert spans[-1][1] <= world.WIDTH
        assert all(left[1] < right[0] for left, right in itertools.pairwise(spans))


def test_a_fall_follows_the_law_and_bounces_to_the_square_of_the_restitution():
    clips = _drop(80.0, frames=33, fps=40.0)
    times = torch.arange(33) / 40.0
    landing = math.sqrt(2 * 80.0 / world.GRAVITY)
    falling = times < landing
    expected = clips.y[0, 0, 0] + 0.5 * world.GRAVITY * times**2
    assert torch.allclose(clips.y[0, falling, 0], expected[falling], atol=1e-2)
    first = clips.impacts
    assert float(first.time[0]) == pytest.approx(landing, abs=1 / 320)
    assert float(first.speed[0]) == pytest.approx(math.sqrt(2 * world.GRAVITY * 80.0), rel=0.02)
    after = clips.y[0, int(landing * 40) + 1 :, 0]
    rise = world.FLOOR - world.RADIUS[0] - float(after.min())
    assert rise == pytest.approx(80.0 * world.BOUNCE[0] ** 2, rel=0.06)


def test_a_collision_conserves_momentum():
    vx = torch.tensor([[100.0, 0.0]])
    radius = torch.tensor([[15.0, 24.0]])
    x, y, zero = torch.tensor([[100.0, 130.0]]), torch.zeros(1, 2), torch.zeros(1, 2)
    _, _, after, _, hit, closing = world._collide(x, y, vx, zero, radius, torch.ones(1, 2, dtype=torch.bool), 0, 1)
    assert bool(hit)
    assert float(closing) == 100.0
    assert float((after * radius**2).sum()) == pytest.approx(float((vx * radius**2).sum()), rel=1e-5)
    assert float(after[0, 1]) > 0


def test_the_same_seed_makes_the_same_world():
    one, other = (world.sample_videos(8, 9, 10, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(world.render(one), world.render(other))
    assert all(torch.equal(getattr(one.impacts, f.name), getattr(other.impacts, f.name)) for f in fields(world.Impacts))


@pytest.mark.parametrize("kind", world.IMPLAUSIBLE)
def test_implausible_clips_break_physics_in_their_way(kind: str):
    clips = world.sample_videos(400, 17, 10, torch.Generator().manual_seed(4), implausible=True)
    mine = clips.kind == world.KINDS.index(kind)
    x, y, seen = clips.x[mine], clips.y[mine], clips.visible[mine]
    there = clips.present[mine]
    floor = world.FLOOR - clips.half_height[mine]
    broken = {
        "hover": ((y[:, 0] < floor - 20) & (y == y[:, :1]).all(1) & there).any(1),
        "teleport": (((x[:, 1:] - x[:, :-1]).abs() > 60) & there[:, None]).any(2).any(1),
        "pass through": ((y[:, -1] > floor + 5) & there).any(1),
        "vanish": (~seen[:, -1] & there).any(1),
    }[kind]
    assert broken.float().mean() > 0.9


def test_sound_starts_at_the_impact_on_its_side_with_its_pitch():
    rate = 16_000
    for left, x in ((True, 40.0), (False, 280.0)):
        clips = _drop(80.0)
        clips = replace(clips, impacts=replace(clips.impacts, x=torch.full_like(clips.impacts.x, x)))
        sound = sounds.render_sound(clips, 1.7, rate)[0]
        loud = (sound.abs().amax(0) > 0.01).nonzero()
        assert float(loud[0]) / rate == pytest.approx(float(clips.impacts.time[0]), abs=0.01)
        energy = sound.square().sum(1)
        assert bool(energy[0] > energy[1]) is left
        start = int(loud[0])
        spectrum = torch.fft.rfft(sound[0 if left else 1, start : start + 4000]).abs()
        assert float(spectrum.argmax()) * rate / 4000 == pytest.approx(sounds.PITCH[0], abs=8)
        assert sound.abs().max() <= 1


def test_camera_actions_integrate_to_its_path():
    clips, actions = world.sample_camera(32, 17, 10, torch.Generator().manual_seed(5))
    assert actions.shape == (32, 16, 9)
    assert torch.allclose(world.camera_of(clips.camera[:, 0], actions), clips.camera, atol=1e-3)
    assert torch.equal(actions[..., 3:], torch.tensor([1.0, 0, 0, 0, 1, 0]).expand(32, 16, 6))


def test_a_camera_that_looks_for_an_object_ends_with_it_in_the_middle():
    clips, _ = world.sample_camera(64, 17, 10, torch.Generator().manual_seed(6))
    looking = (clips.target >= 0).nonzero().flatten()
    assert len(looking) > 10
    boxes = world.boxes(clips)
    for n in looking.tolist():
        x1, _, x2, _ = boxes[n, -1, clips.target[n]].tolist()
        assert (x1 + x2) / 2 == pytest.approx(world.WIDTH / 2, abs=1)


def test_a_pan_to_the_right_moves_the_table_to_the_left():
    clips, _ = world.sample_camera(64, 17, 10, torch.Generator().manual_seed(7))
    pans = (clips.camera[:, -1, 0] - clips.camera[:, 0, 0] > 20).nonzero().flatten()
    shown = world.boxes(clips)
    for n in pans.tolist():
        both = (shown[n, [0, -1], :, 2] > 0).all(0).nonzero().flatten()
        for k in both.tolist():
            assert shown[n, -1, k, 0] <= shown[n, 0, k, 0]
