"""The simulated tabletop against its own truth: pictures, physics, sounds and camera."""

from __future__ import annotations

import itertools
import math
from dataclasses import fields, replace

import pytest
import torch

from cosmos_demo.pico import sounds, world


def _drop(
    height: float, speed: float = 0.0, shape: str = "ball", size: str = "small", frames: int = 17, fps: float = 10.0
) -> world.Clips:
    """One clip of one red object let go ``height`` pixels above the table, in the middle."""
    generator = torch.Generator().manual_seed(0)
    clips = world.sample_stills(1, generator)
    one = torch.tensor([[True, False, False, False]])
    clips = replace(
        clips,
        present=one,
        shape=torch.full_like(clips.shape, world.SHAPES.index(shape)),
        colour=torch.zeros_like(clips.colour),
        size=torch.full_like(clips.size, world.SIZES.index(size)),
        kind=torch.tensor([world.KINDS.index("physics")]),
        fps=fps,
    )
    x = torch.full((1, 4), 160.0)
    y = (world.FLOOR - clips.half_height) - height
    vx = torch.full((1, 4), speed)
    return world._simulate(clips, x, y, vx, frames, torch.zeros(1, dtype=torch.int64), generator)


def _ring(shape: str = "ball", size: str = "small", height: float = 80.0) -> torch.Tensor:
    """Left channel of the first half second after that object's first impact, at 16 kHz."""
    clips = _drop(height, shape=shape, size=size)
    hits = clips.impacts
    first = world.Impacts(*(getattr(hits, field.name)[:1] for field in fields(world.Impacts)))
    start = int(first.time[0] * sounds.SAMPLE_RATE)
    return sounds.render_sound(replace(clips, impacts=first), 2.0)[0, 0, start : start + sounds.SAMPLE_RATE // 2]


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


def test_colours_are_found_inside_the_boxes_and_nowhere_else():
    """Saturated pixels by hue, which no shading changes; white and black have none."""
    clips = world.sample_stills(48, torch.Generator().manual_seed(8))
    pictures = world.render(clips)[:, 0].float() / 255
    boxes = world.boxes(clips)[:, 0]
    palette = torch.tensor(world.RGB[:6]) / 255
    saturated = pictures[:, : int(world.FLOOR)].amax(-1) - pictures[:, : int(world.FLOOR)].amin(-1) > 0.3
    hues = (_hue(pictures[:, : int(world.FLOOR), :, None]) - _hue(palette)).abs()
    nearest = torch.minimum(hues, 1 - hues).argmin(-1)
    for n in range(48):
        explained = torch.zeros_like(saturated[n])
        for k in range(int(clips.count[n])):
            x1, y1, x2, y2 = boxes[n, k].tolist()
            inside = (slice(math.floor(y1), math.ceil(y2)), slice(math.floor(x1), math.ceil(x2)))
            explained[inside] = True
            if int(clips.colour[n, k]) < 6:
                mine = saturated[n][inside] & (nearest[n][inside] == int(clips.colour[n, k]))
                assert mine.float().mean() > 0.35
                assert mine.sum() > 0.9 * saturated[n][inside].sum()
        assert not (saturated[n] & ~explained).any()


def _hue(colours: torch.Tensor) -> torch.Tensor:
    """Angle of colours ``[..., 3]`` on the colour circle in turns, 0 to 1."""
    red, green, blue = colours.unbind(-1)
    return (torch.atan2(3**0.5 * (green - blue), 2 * red - green - blue) / (2 * math.pi)) % 1


@pytest.mark.parametrize("size", world.SIZES)
@pytest.mark.parametrize("shape", world.SHAPES)
def test_boxes_are_tight(shape: str, size: str):
    clips = _drop(60.0, shape=shape, size=size, frames=2)
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


def test_impacts_come_in_order_of_clip_and_time_in_many_clips():
    hits = world.sample_videos(1000, 17, 10, torch.Generator().manual_seed(9)).impacts
    rows = list(zip(hits.clip.tolist(), hits.time.tolist(), strict=True))
    assert len(rows) > 3000
    assert rows == sorted(rows)


def test_both_bodies_of_a_collision_have_their_impact():
    hits = world.sample_videos(200, 17, 10, torch.Generator().manual_seed(10)).impacts
    mine = hits.surface == world.SURFACES.index("object")
    times = list(zip(hits.clip[mine].tolist(), hits.time[mine].tolist(), strict=True))
    assert len(times) > 100
    assert all(times.count(moment) >= 2 for moment in set(times))


def test_what_has_vanished_or_sinks_makes_no_impact():
    clips = world.sample_videos(1000, 17, 10, torch.Generator().manual_seed(11), implausible=True)
    hits = clips.impacts
    frame = (hits.time * clips.fps - 1e-3).ceil().long() - 1  # the last one shown before the impact
    assert clips.visible[hits.clip, frame, hits.object].all()
    sinks = (clips.kind == world.KINDS.index("pass through"))[:, None] & (
        clips.y[:, -1] > world.FLOOR - clips.half_height + 1
    )
    assert sinks.any(1).sum() > 200
    assert not sinks[hits.clip, hits.object].any()


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


def test_a_large_object_rings_lower_and_a_fast_one_louder():
    peaks = {size: float(torch.fft.rfft(_ring(size=size)).abs().argmax()) * 2 for size in world.SIZES}
    assert peaks == pytest.approx({"small": 880, "large": 440}, abs=8)
    assert float(_ring(height=80.0).abs().max()) > 1.5 * float(_ring(height=20.0).abs().max())


def test_each_shape_has_its_own_timbre():
    """Octave and twelfth, in strengths of the pitch: a ball a little octave, a cube the twelfth, a pyramid both."""
    spectra = {shape: torch.fft.rfft(_ring(shape)).abs() for shape in world.SHAPES}
    octave, twelfth = (
        {shape: float(spectrum[bin] / spectrum[440]) for shape, spectrum in spectra.items()} for bin in (880, 1320)
    )
    assert octave["cube"] < 0.1 < octave["ball"] < 0.4 < octave["pyramid"]
    assert twelfth["ball"] < 0.1 < 0.3 < min(twelfth["cube"], twelfth["pyramid"])


def test_nothing_is_heard_where_nothing_hits():
    assert not sounds.render_sound(world.sample_stills(4, torch.Generator().manual_seed(12)), 1.0).any()
    sound = sounds.render_sound(world.sample_videos(100, 17, 10, torch.Generator().manual_seed(13)), 1.7)
    assert 0.3 < float(sound.abs().max()) < 1


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


def test_segmentation_marks_what_the_objects_paint():
    clips = world.sample_videos(6, 9, 10, torch.Generator().manual_seed(12))
    empty = world.render(replace(clips, present=torch.zeros_like(clips.present)))
    masks = world.segmentation(clips)
    painted = (world.render(clips).int() - empty.int()).abs().amax(-1) > 60
    marked = masks.amax(-1) > 128
    assert masks.shape == (6, 9, world.HEIGHT, world.WIDTH, 3)
    assert (marked & painted).sum() > 0.9 * painted.sum()
    for case, index in itertools.product(range(6), range(world.OBJECTS)):
        x1, y1, x2, y2 = world.boxes(clips)[case, 0, index].tolist()
        if x2 - x1 > 20 and not any(_overlap(clips, case, index)):
            centre = masks[case, 0, int((y1 + y2) / 2), int((x1 + x2) / 2)]
            assert tuple(centre.tolist()) == world.MASK_RGB[index]


def _overlap(clips: world.Clips, case: int, index: int) -> list[bool]:
    """Whether each other object's box in the first frame overlaps this one's."""
    boxes = world.boxes(clips)[case, 0]
    x1, y1, x2, y2 = boxes[index].tolist()
    return [
        a < x2 and c > x1 and b < y2 and d > y1 for other, (a, b, c, d) in enumerate(boxes.tolist()) if other != index
    ]
