"""The simulated tabletop: objects that stand, fall, bounce, roll and collide, seen from the side, with its truth.

Everything is vectorised over clips and runs wherever its tensors are. Lengths are pixels of the 320x192 picture, times
are seconds, x grows to the right and y downwards, as in the picture.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

WIDTH, HEIGHT = 320, 192
FLOOR = 156.0
"""Height of the tabletop's edge, where objects stand."""
OBJECTS = 4
"""Most objects in a clip."""

SHAPES = ("ball", "cube", "pyramid")
SIZES = ("small", "large")
COLOURS = ("red", "green", "blue", "yellow", "purple", "orange", "white", "black")
KINDS = ("still", "physics", "hover", "teleport", "pass through", "vanish", "camera")
IMPLAUSIBLE = ("hover", "teleport", "pass through", "vanish")
SURFACES = ("floor", "wall", "object")

RADIUS = (15.0, 24.0)
"""Half width of a small and of a large object."""
HALF_HEIGHT = (1.0, 0.9, 0.95)
"""Half height of each shape in half widths."""
GRAVITY = 700.0
"""Pixels per second squared: a fall from the top of the picture takes about half a second."""
BOUNCE = (0.72, 0.38, 0.3)
"""Speed kept after hitting the table, by shape."""
FRICTION = (25.0, 160.0, 200.0)
"""Slowing down on the table in pixels per second squared, by shape; balls roll, the others slide."""
WALL_BOUNCE = 0.8
QUIET = 30.0
"""Slower impacts than this, in pixels per second, make no sound and count as rest."""
SUBSTEPS = 8

RGB = (
    (214, 40, 44),
    (38, 156, 62),
    (32, 92, 214),
    (246, 200, 28),
    (136, 58, 190),
    (246, 126, 24),
    (248, 248, 246),
    (34, 34, 40),
)
MASK_RGB = ((230, 60, 60), (60, 200, 90), (70, 110, 240), (240, 210, 60))
"""Colours of the first to the fourth object in a `segmentation`, whatever the object's own colour."""
WALL_TOP, WALL_BOTTOM = (176, 190, 200), (206, 214, 218)
TABLE_NEAR, TABLE_FAR = (150, 108, 72), (190, 146, 104)


@dataclass(frozen=True)
class Impacts:
    """Every audible impact, one row each: clip and object index, time, closing speed, place, and what was hit.

    Rows are in order of clip, then of time. A collision of two objects has a row for each of them.
    """

    clip: Tensor
    object: Tensor
    time: Tensor
    speed: Tensor
    x: Tensor
    surface: Tensor


@dataclass(frozen=True)
class Clips:
    """``n`` clips of ``F`` frames and all that is true of them.

    Attributes:
        shape, colour, size: int64 ``[n, 4]``, indexes into `SHAPES`, `COLOURS`, `SIZES`.
        present: bool ``[n, 4]``; the first ``count`` objects are there.
        x, y: ``[n, F, 4]`` object centres in world pixels.
        visible: bool ``[n, F, 4]``; false while an object has vanished.
        camera: ``[n, F, 3]``: shift right, shift down (pixels), zoom (1 = none).
        kind: int64 ``[n]``, index into `KINDS`.
        target: int64 ``[n]``, the object a camera looks for, -1 without one.
        impacts: All impacts.
        fps: Frames per second.
    """

    shape: Tensor
    colour: Tensor
    size: Tensor
    present: Tensor
    x: Tensor
    y: Tensor
    visible: Tensor
    camera: Tensor
    kind: Tensor
    target: Tensor
    impacts: Impacts
    fps: float

    def __len__(self) -> int:
        return self.shape.shape[0]

    @property
    def frames(self) -> int:
        return self.x.shape[1]

    @property
    def count(self) -> Tensor:
        return self.present.sum(1)

    @property
    def radius(self) -> Tensor:
        """Half widths ``[n, 4]``."""
        return torch.tensor(RADIUS, device=self.size.device)[self.size]

    @property
    def half_height(self) -> Tensor:
        """Half heights ``[n, 4]``."""
        return self.radius * torch.tensor(HALF_HEIGHT, device=self.shape.device)[self.shape]


def sample_stills(n: int, generator: torch.Generator, device: torch.device | str = "cpu") -> Clips:
    """``n`` pictures (F = 1) of objects that stand on the table without touching."""
    looks = _looks(n, generator, device)
    x = _places(looks["size"], looks["present"], generator, 0.0, WIDTH)
    return _at_rest(looks, x[:, None], KINDS.index("still"), 10.0)


def sample_videos(
    n: int,
    frames: int,
    fps: float,
    generator: torch.Generator,
    device: torch.device | str = "cpu",
    implausible: bool = False,
) -> Clips:
    """``n`` clips in which objects are dropped, thrown, pushed or stand.

    Args:
        n: Clips.
        frames: Frames of each.
        fps: Frames per second.
        generator: Source of all chance, on ``device``.
        device: Where tensors live.
        implausible: In each clip one object breaks physics: it hovers, jumps elsewhere, falls through the table or
            vanishes.
    """
    looks = _looks(n, generator, device)
    clips = _at_rest(looks, _places(looks["size"], looks["present"], generator, 0.0, WIDTH)[:, None], 1, fps)
    x, rest = clips.x[:, 0], clips.y[:, 0]
    chance = _uniform(generator, device, n, OBJECTS)
    first = torch.arange(OBJECTS, device=device) == 0
    dropped = (chance < 0.4) | (first & (chance < 0.55))
    pushed = ~dropped & (chance < 0.8)
    height = 40 + _uniform(generator, device, n, OBJECTS) * 60
    y = torch.where(dropped, rest - height, rest)
    toward = torch.where(x < WIDTH / 2, 1.0, -1.0) * torch.where(_uniform(generator, device, n, OBJECTS) < 0.75, 1, -1)
    speed = 60 + 140 * _uniform(generator, device, n, OBJECTS)
    thrown = dropped & (_uniform(generator, device, n, OBJECTS) < 0.4)
    vx = torch.where(pushed | thrown, toward * speed, 0.0)
    kind = torch.full((n,), KINDS.index("physics"), device=device)
    culprit = torch.zeros(n, dtype=torch.int64, device=device)
    if implausible:
        kind = KINDS.index("hover") + _integers(generator, device, len(IMPLAUSIBLE), n)
        culprit = (_uniform(generator, device, n) * looks["present"].sum(1)).long()
        chosen = torch.nn.functional.one_hot(culprit, OBJECTS).bool()
        lifted = chosen & ((kind == KINDS.index("hover")) | (kind == KINDS.index("pass through")))[:, None]
        y = torch.where(lifted, rest - height, y)
        vx = torch.where(lifted, 0.0, vx)
    return _simulate(replace(clips, kind=kind), x, y, vx, frames, culprit, generator)


def sample_camera(
    n: int,
    frames: int,
    fps: float,
    generator: torch.Generator,
    device: torch.device | str = "cpu",
) -> tuple[Clips, Tensor]:
    """``n`` clips of a camera that pans or zooms over a wider table with objects at rest.

    In half of them the camera looks for an object (``target``) and ends with it in the middle.

    Returns:
        The clips, and actions ``[n, F-1, 9]``: the camera's pose in frame i+1 seen from frame i, translation (right,
        down, forward) then the first two columns of its rotation, which never turns: 1, 0, 0, 0, 1, 0. One unit of
        translation to the right or down is `PAN_UNIT` pixels; one unit forward multiplies the zoom by `ZOOM_UNIT`.
    """
    looks = _looks(n, generator, device)
    x = _places(looks["size"], looks["present"], generator, -WIDTH / 2, 1.5 * WIDTH)
    clips = _at_rest(looks, x[:, None].expand(-1, frames, -1), KINDS.index("camera"), fps)
    looking = _uniform(generator, device, n) < 0.5
    target = (_uniform(generator, device, n) * looks["present"].sum(1)).long()
    aim = x.gather(1, target[:, None]).squeeze(1) - WIDTH / 2
    # The object looked for, or at least one, is in the first picture.
    start = aim + (_uniform(generator, device, n) - 0.5) * 0.8 * WIDTH
    end = torch.where(looking, aim, (start + (_uniform(generator, device, n) - 0.5) * WIDTH))
    zooms = (_uniform(generator, device, n) < 0.35) & ~looking
    end = torch.where(zooms, start, end)
    grown = torch.exp(torch.where(zooms, (_uniform(generator, device, n) - 0.5) * 0.9, 0.0))
    steps = torch.arange(frames, device=device) / max(frames - 1, 1)
    eased = steps * steps * (3 - 2 * steps)
    pan = start[:, None] + (end - start)[:, None] * eased
    zoom = grown[:, None] ** eased
    camera = torch.stack([pan, torch.zeros_like(pan), zoom], -1)
    clips = replace(clips, camera=camera, target=torch.where(looking, target, -1))
    return clips, actions_of(camera)


PAN_UNIT = 8.0
"""Pixels of camera travel of one action unit."""
ZOOM_UNIT = 1.05
"""Zoom factor of one action unit forward."""


def actions_of(camera: Tensor) -> Tensor:
    """Camera paths ``[n, F, 3]`` as relative poses ``[n, F-1, 9]``; see `sample_camera` for the units."""
    moves = camera[:, 1:, :2] - camera[:, :-1, :2]
    forward = torch.log(camera[:, 1:, 2] / camera[:, :-1, 2]) / torch.log(torch.tensor(ZOOM_UNIT))
    turn = torch.tensor([1.0, 0, 0, 0, 1, 0], device=camera.device).expand(*moves.shape[:2], 6)
    return torch.cat([moves / PAN_UNIT, forward[..., None], turn], -1)


def camera_of(start: Tensor, actions: Tensor) -> Tensor:
    """Path ``[n, T+1, 3]`` of a camera that starts at ``[n, 3]`` and makes actions ``[n, T, 9]``."""
    pan = start[:, None, :2] + torch.cumsum(actions[..., :2], 1) * PAN_UNIT
    zoom = start[:, None, 2] * ZOOM_UNIT ** torch.cumsum(actions[..., 2], 1)
    return torch.cat([start[:, None], torch.cat([pan, zoom[..., None]], -1)], 1)


def boxes(clips: Clips) -> Tensor:
    """Boxes ``[n, F, 4, 4]`` (x1, y1, x2, y2) in picture pixels of the visible part; all zero when nothing is seen."""
    cx, cy, zoom = _on_picture(clips)
    half_w, half_h = clips.radius[:, None] * zoom, clips.half_height[:, None] * zoom
    limit = torch.tensor([WIDTH, HEIGHT, WIDTH, HEIGHT], device=cx.device, dtype=cx.dtype)
    box = torch.stack([cx - half_w, cy - half_h, cx + half_w, cy + half_h], -1).clamp(min=0).minimum(limit)
    seen = (box[..., 2] > box[..., 0]) & (box[..., 3] > box[..., 1]) & clips.visible & clips.present[:, None]
    return torch.where(seen[..., None], box, 0.0)


def render(clips: Clips, device: torch.device | str = "cpu", chunk: int = 128) -> Tensor:
    """Draw the clips: uint8 ``[n, F, 192, 320, 3]`` on ``device``; ``chunk`` frames at a time."""
    return _drawn(_draw, clips, device, chunk)


def segmentation(clips: Clips, device: torch.device | str = "cpu", chunk: int = 128) -> Tensor:
    """Flat masks of the objects on black, uint8 ``[n, F, 192, 320, 3]``; colours (`MASK_RGB`) number the objects."""
    return _drawn(_draw_masks, clips, device, chunk)


def _drawn(draw: Callable[..., Tensor], clips: Clips, device: torch.device | str, chunk: int) -> Tensor:
    n, frames = len(clips), clips.frames
    cx, cy, zoom = (part.reshape(n * frames, -1).to(device) for part in _on_picture(clips))
    pan = clips.camera[..., 0].reshape(-1, 1).to(device)
    ground = ((FLOOR - HEIGHT / 2 - clips.camera[..., 1]) * clips.camera[..., 2] + HEIGHT / 2).reshape(-1, 1).to(device)
    seen = (clips.visible & clips.present[:, None]).reshape(n * frames, -1).to(device)
    look = [
        part[:, None].expand(-1, frames, -1).reshape(n * frames, -1).to(device)
        for part in (clips.shape, clips.colour, clips.radius)
    ]
    pictures = [
        draw(*(part[at : at + chunk] for part in (cx, cy, zoom, pan, ground, seen, *look)))
        for at in range(0, n * frames, chunk)
    ]
    return torch.cat(pictures).view(n, frames, HEIGHT, WIDTH, 3)


def _draw(
    cx: Tensor,
    cy: Tensor,
    zoom: Tensor,
    pan: Tensor,
    ground: Tensor,
    seen: Tensor,
    shape: Tensor,
    colour: Tensor,
    radius: Tensor,
) -> Tensor:
    """A batch of frames ``[B, H, W, 3]``; per-object inputs are ``[B, 4]``, the rest ``[B, 1]``."""
    device = cx.device
    px = torch.arange(WIDTH, device=device) + 0.5
    py = torch.arange(HEIGHT, device=device) + 0.5
    picture = _backdrop(px, py, zoom[:, :1], pan, ground)
    palette = torch.tensor(RGB, device=device, dtype=torch.float32)
    for index in range(OBJECTS):
        there = seen[:, index].float().view(-1, 1, 1)
        r = (radius[:, index] * zoom[:, 0]).view(-1, 1, 1)
        dx = px.view(1, 1, -1) - cx[:, index].view(-1, 1, 1)
        below = ground.view(-1, 1, 1)
        above = below - cy[:, index].view(-1, 1, 1)
        height = (above / r - 1).clamp(0, 4)
        there = there * (above > 0)
        flat = (dx / (1.15 * r)) ** 2 + ((py.view(1, -1, 1) - below - 0.10 * r) / (0.22 * r)) ** 2
        dark = 0.45 * torch.exp(-flat * 1.2) * torch.exp(-0.9 * height) * there
        picture = picture * (1 - dark[..., None])
    for index in range(OBJECTS):
        alpha, light = _covered(index, px, py, cx, cy, zoom, seen, shape, radius)
        paint = palette[colour[:, index]].view(-1, 1, 1, 3)
        shaded = torch.where(
            light[..., None] < 0, paint * (1 + light[..., None]), paint + (255 - paint) * light[..., None]
        )
        picture = picture * (1 - alpha) + shaded * alpha
    return picture.round().clamp(0, 255).to(torch.uint8)


def _draw_masks(
    cx: Tensor,
    cy: Tensor,
    zoom: Tensor,
    pan: Tensor,
    ground: Tensor,
    seen: Tensor,
    shape: Tensor,
    colour: Tensor,
    radius: Tensor,
) -> Tensor:
    """As `_draw`, but each object in the flat colour of its number."""
    px = torch.arange(WIDTH, device=cx.device) + 0.5
    py = torch.arange(HEIGHT, device=cx.device) + 0.5
    picture = torch.zeros(len(cx), HEIGHT, WIDTH, 3, device=cx.device)
    for index, paint in enumerate(MASK_RGB):
        alpha, _ = _covered(index, px, py, cx, cy, zoom, seen, shape, radius)
        picture = picture * (1 - alpha) + torch.tensor(paint, device=cx.device) * alpha
    return picture.round().clamp(0, 255).to(torch.uint8)


def _covered(
    index: int,
    px: Tensor,
    py: Tensor,
    cx: Tensor,
    cy: Tensor,
    zoom: Tensor,
    seen: Tensor,
    shape: Tensor,
    radius: Tensor,
) -> tuple[Tensor, Tensor]:
    """Coverage ``[B, H, W, 1]`` (0-1) and light ``[B, H, W]`` of one object."""
    there = seen[:, index].float().view(-1, 1, 1)
    r = (radius[:, index] * zoom[:, 0]).view(-1, 1, 1)
    dx = (px.view(1, 1, -1) - cx[:, index].view(-1, 1, 1)) / r
    dy = (py.view(1, -1, 1) - cy[:, index].view(-1, 1, 1)) / r
    inside, light = _solid(dx, dy, r, shape[:, index].view(-1, 1, 1))
    return (inside * there)[..., None], light


def _backdrop(px: Tensor, py: Tensor, zoom: Tensor, pan: Tensor, ground: Tensor) -> Tensor:
    """Wall and table ``[B, H, W, 3]``; faint panels and planks move with the camera."""
    device = px.device
    colours = [
        torch.tensor(c, device=device, dtype=torch.float32) for c in (WALL_TOP, WALL_BOTTOM, TABLE_FAR, TABLE_NEAR)
    ]
    world_x = (px - WIDTH / 2) / zoom + WIDTH / 2 + pan
    depth = py[None] - ground
    up = (1 + depth / FLOOR).clamp(0, 1)[:, :, None, None]
    down = (depth / (HEIGHT - FLOOR)).clamp(0, 1)[:, :, None, None]
    wall = colours[0] * (1 - up) + colours[1] * up
    table = colours[2] * (1 - down) + colours[3] * down
    panel = torch.exp(-((((world_x + 40) % 80 - 40) / 1.6) ** 2))[:, None, :, None]
    plank = torch.exp(-(((world_x % 64 - 32) / 1.4) ** 2))[:, None, :, None]
    edge = torch.exp(-(((depth - 1) / 1.5) ** 2))[:, :, None, None]
    on_table = (depth + 0.5).clamp(0, 1)[:, :, None, None]
    return (wall * (1 - 0.05 * panel)) * (1 - on_table) + table * (1 - 0.10 * plank) * (1 - 0.25 * edge) * on_table


def _solid(dx: Tensor, dy: Tensor, r: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
    """Coverage (0-1) and light (-1 black to 1 white) of a shape at offsets in half widths."""
    ball = 1 - torch.sqrt(dx * dx + dy * dy)
    shine = torch.exp(-(((dx + 0.35) / 0.28) ** 2 + ((dy + 0.4) / 0.28) ** 2))
    ball_light = 0.55 * shine - 0.28 * (dx * 0.4 + dy * 0.6 + 0.3).clamp(0, 1)
    half = HALF_HEIGHT[1]
    cube = torch.minimum(1 - dx.abs(), half - dy.abs())
    cube_light = torch.where(dy < -half + 0.34, 0.28, 0.0) - torch.where(dx > 0.62, 0.22, 0.0)
    tall = HALF_HEIGHT[2]
    slope = 2 * tall / (1 + 4 * tall * tall) ** 0.5
    pyramid = torch.minimum(((dy + tall) / (2 * tall) - dx.abs()) * slope, tall - dy)
    pyramid_light = torch.where(dx > 0.12 * (dy + tall), -0.26, 0.10)
    distance = torch.where(shape == 0, ball, torch.where(shape == 1, cube, pyramid))
    light = torch.where(shape == 0, ball_light, torch.where(shape == 1, cube_light, pyramid_light))
    return (distance * r + 0.5).clamp(0, 1), light


def _on_picture(clips: Clips) -> tuple[Tensor, Tensor, Tensor]:
    """Object centres in picture pixels ``[n, F, 4]`` and the zoom ``[n, F, 1]``."""
    pan, tilt, zoom = clips.camera.unbind(-1)
    cx = (clips.x - WIDTH / 2 - pan[..., None]) * zoom[..., None] + WIDTH / 2
    cy = (clips.y - HEIGHT / 2 - tilt[..., None]) * zoom[..., None] + HEIGHT / 2
    return cx, cy, zoom[..., None]


def _uniform(generator: torch.Generator, device: torch.device | str, *shape: int) -> Tensor:
    return torch.rand(shape, generator=generator, device=device)


def _integers(generator: torch.Generator, device: torch.device | str, below: int, *shape: int) -> Tensor:
    return torch.randint(below, shape, generator=generator, device=device)


def _looks(n: int, generator: torch.Generator, device: torch.device | str) -> dict[str, Tensor]:
    count = 1 + _integers(generator, device, OBJECTS, n)
    return {
        "shape": _integers(generator, device, len(SHAPES), n, OBJECTS),
        "colour": _integers(generator, device, len(COLOURS), n, OBJECTS),
        "size": _integers(generator, device, len(SIZES), n, OBJECTS),
        "present": torch.arange(OBJECTS, device=device) < count[:, None],
    }


def _places(size: Tensor, present: Tensor, generator: torch.Generator, left: float, right: float) -> Tensor:
    """Centres ``[n, 4]`` of objects side by side in random order, with random gaps of at least 4 pixels."""
    n, device = size.shape[0], size.device
    width = (2 * torch.tensor(RADIUS, device=device)[size] + 4) * present
    gaps = -torch.log(_uniform(generator, device, n, OBJECTS + 1).clamp(min=1e-6))
    gaps[:, 1:] = gaps[:, 1:] * torch.cat([present[:, 1:], torch.ones_like(present[:, :1])], 1)
    gaps = gaps / gaps.sum(1, keepdim=True) * (right - left - width.sum(1, keepdim=True))
    order = torch.argsort(_uniform(generator, device, n, OBJECTS) + (~present) * 2.0, 1)
    sorted_width = width.gather(1, order)
    ends = left + torch.cumsum(sorted_width, 1) + torch.cumsum(gaps[:, :OBJECTS], 1)
    return torch.zeros_like(ends).scatter(1, order, ends - sorted_width / 2)


def _at_rest(looks: dict[str, Tensor], x: Tensor, kind: int, fps: float) -> Clips:
    n, device = looks["shape"].shape[0], x.device
    half = torch.tensor(RADIUS, device=device)[looks["size"]] * torch.tensor(HALF_HEIGHT, device=device)[looks["shape"]]
    camera = torch.tensor([0.0, 0.0, 1.0], device=device).expand(n, x.shape[1], 3)
    none = torch.zeros(0, device=device)
    return Clips(
        **looks,
        x=x,
        y=(FLOOR - half)[:, None].expand(-1, x.shape[1], -1),
        visible=torch.ones_like(x, dtype=torch.bool),
        camera=camera,
        kind=torch.full((n,), kind, device=device),
        target=torch.full((n,), -1, device=device),
        impacts=Impacts(none.long(), none.long(), none, none, none, none.long()),
        fps=fps,
    )


def _simulate(
    clips: Clips, x: Tensor, y: Tensor, vx: Tensor, frames: int, culprit: Tensor, generator: torch.Generator
) -> Clips:
    """Let physics run from a first frame; ``culprit`` breaks it in the way that the clip's kind says."""
    device, dt = x.device, 1.0 / (clips.fps * SUBSTEPS)
    radius, half = clips.radius, clips.half_height
    bounce = torch.tensor(BOUNCE, device=device)[clips.shape]
    friction = torch.tensor(FRICTION, device=device)[clips.shape]
    floor = FLOOR - half
    chosen = torch.nn.functional.one_hot(culprit, OBJECTS).bool()
    hovers = chosen & (clips.kind == KINDS.index("hover"))[:, None]
    sinks = chosen & (clips.kind == KINDS.index("pass through"))[:, None]
    jumps = chosen & (clips.kind == KINDS.index("teleport"))[:, None]
    fades = chosen & (clips.kind == KINDS.index("vanish"))[:, None]
    moment = 0.25 + 0.5 * _uniform(generator, device, len(clips), 1)
    vy = torch.zeros_like(vx)
    xs, ys, seen, found = [x], [y], [torch.ones_like(clips.present)], []
    solid = clips.present & ~sinks

    def note(step: int, mask: Tensor, speed: Tensor, surface: int) -> None:
        mask = mask & solid & (speed > QUIET)
        clip, thing = mask.nonzero(as_tuple=True)
        time = torch.full_like(speed[mask], (step + 1) * dt)
        found.append((clip, thing, time, speed[mask], x[mask], torch.full_like(clip, surface)))

    for step in range((frames - 1) * SUBSTEPS):
        flying = (y < floor - 1e-3) | (vy < 0) | sinks
        pull = torch.where(flying & ~hovers, GRAVITY, 0.0)
        y = y + vy * dt + 0.5 * pull * dt * dt
        vy = vy + pull * dt
        slowed = (vx.abs() - friction * dt).clamp(min=0) * vx.sign()
        vx = torch.where(flying, vx, slowed)
        x = x + vx * dt

        landed = (y >= floor) & (vy > 0) & ~sinks
        note(step, landed, vy, 0)
        back = torch.where(vy * bounce > QUIET, -vy * bounce, 0.0)
        vy = torch.where(landed, back, vy)
        y = torch.where(landed, floor, y)

        beyond = ((x < radius) & (vx < 0)) | ((x > WIDTH - radius) & (vx > 0))
        note(step, beyond, vx.abs(), 1)
        vx = torch.where(beyond, -vx * WALL_BOUNCE, vx)
        x = torch.minimum(torch.maximum(x, radius), WIDTH - radius)

        for a in range(OBJECTS):
            for b in range(a + 1, OBJECTS):
                x, y, vx, vy, hit, closing = _collide(x, y, vx, vy, radius, solid, a, b)
                both = torch.zeros_like(solid)
                both[:, a] = both[:, b] = hit
                note(step, both, closing[:, None].expand(-1, OBJECTS), 2)

        if (step + 1) % SUBSTEPS == 0:
            frame = (step + 1) // SUBSTEPS
            now = (frame / frames >= moment) & ((frame - 1) / frames < moment)
            elsewhere = torch.where(x < WIDTH / 2, x + WIDTH * 0.45, x - WIDTH * 0.45)
            x = torch.where(jumps & now, elsewhere.clamp(30, WIDTH - 30), x)
            xs.append(x)
            ys.append(y)
            seen.append(~(fades & (frame / frames >= moment)))
            solid = clips.present & ~sinks & seen[-1]
    columns = [torch.cat(column) for column in zip(*found, strict=True)]
    # Found in order of time, so a stable sort by clip keeps that order within each.
    order = torch.argsort(columns[0], stable=True)
    return replace(
        clips,
        x=torch.stack(xs, 1),
        y=torch.stack(ys, 1),
        visible=torch.stack(seen, 1),
        camera=clips.camera[:, :1].expand(-1, frames, -1),
        impacts=Impacts(*(column[order] for column in columns)),
    )


def _collide(
    x: Tensor, y: Tensor, vx: Tensor, vy: Tensor, radius: Tensor, solid: Tensor, a: int, b: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Two solid objects as discs of mass r^2: push them apart and exchange momentum along the line of centres."""
    dx, dy = x[:, b] - x[:, a], y[:, b] - y[:, a]
    gap = torch.sqrt(dx * dx + dy * dy).clamp(min=1e-3)
    nx, ny = dx / gap, dy / gap
    closing = -((vx[:, b] - vx[:, a]) * nx + (vy[:, b] - vy[:, a]) * ny)
    hit = (gap < radius[:, a] + radius[:, b]) & (closing > 0) & solid[:, a] & solid[:, b]
    mass_a, mass_b = radius[:, a] ** 2, radius[:, b] ** 2
    impulse = torch.where(hit, 1.7 * closing * mass_a * mass_b / (mass_a + mass_b), 0.0)
    vx, vy, x = vx.clone(), vy.clone(), x.clone()
    vx[:, a] -= impulse * nx / mass_a
    vy[:, a] -= impulse * ny / mass_a
    vx[:, b] += impulse * nx / mass_b
    vy[:, b] += impulse * ny / mass_b
    overlap = torch.where(hit, (radius[:, a] + radius[:, b] - gap).clamp(min=0), 0.0)
    side = torch.where(nx >= 0, 1.0, -1.0)
    x[:, a] -= side * overlap * 0.5
    x[:, b] += side * overlap * 0.5
    return x, y, vx, vy, hit, closing
