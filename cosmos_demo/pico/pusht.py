"""The public PushT environment: a blue circle pushes a grey T about a board, with words, scripted pushers and truth.

The environment (`gym_pusht`) moves things; we draw them ourselves, for any number of episodes at once. World units
are the board's 0..512, x grows to the right and y downwards, and a state is (pusher x, pusher y, block x, block y,
block angle) as the environment reports it: the block's place is the middle of the outer edge of its bar, and angles
in radians turn clockwise in the picture. Actions are the pusher's next target, in model space -1..1.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import random
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from cosmos_demo.pico.language import say, sentence

FPS, CHUNK, FRAMES, SIZE = 10, 16, 17, 256
"""Actions per second, actions of an episode, its frames, and the picture's width and height."""
BOARD = 512.0
RADIUS = 15.0
"""Of the pusher."""
BAR = ((0.0, 15.0), (60.0, 15.0))
STEM = ((0.0, 75.0), (15.0, 45.0))
"""Centre and half size of the T's two rectangles, from the block's own place at angle 0."""
CENTRE = (0.0, 45.0)
"""The T's centre of gravity, about which it turns; everything that is said of its place means this point."""
GOAL = (256.0, 256.0, math.pi / 4)
"""Place and angle of the green T."""

SIDES = {"left": (-1.0, 0.0), "right": (1.0, 0.0), "up": (0.0, -1.0), "down": (0.0, 1.0)}
TASKS = (
    "touch",
    *(f"push {side}" for side in SIDES),
    "go to the goal",
    *(f"move {side}" for side in SIDES),
    "stand still",
)
SHARES = dict(zip(TASKS, (3, *(2,) * 4, 3, *(1.25,) * 4, 1), strict=True))
"""How often each task is among the training episodes."""

STEP = 48.0
"""How far ahead of itself an expert aims: the pusher trails its target by 0.2 s, so it travels half of it a step."""
PUSHED = 30.0
"""The block must travel this far to count as pushed."""
MOVED = 60.0
"""The pusher must travel this far to count as moved."""
REACHED = 40.0
"""The pusher is at the goal when its centre is this close to the goal's."""
STILL = 10.0
"""A pusher that stands still may stray this far."""
TOUCHED = 2.0
"""Largest gap between pusher and T that still counts as contact."""

PLACE_UNIT, ANGLE_UNIT, ACTION_UNIT = 1 / 32, 1 / 4096, 1 / 8192
"""What episodes are rounded to, so that they fit int16."""


@dataclass(frozen=True)
class Episodes:
    """``n`` episodes and all that is true of them.

    Attributes:
        states: float32 ``[n, 17, 5]`` in world units and radians.
        actions: float32 ``[n, 16, 2]`` in model space; action i leads from frame i to frame i+1.
        tasks: One of `TASKS` for an expert, empty for a random pusher.
    """

    states: Tensor
    actions: Tensor
    tasks: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.tasks)


def to_model(targets: Tensor) -> Tensor:
    """Targets in world units as actions."""
    return targets / (BOARD / 2) - 1


def to_world(actions: Tensor) -> Tensor:
    """Actions as targets in world units, inside the board."""
    return ((actions + 1) * (BOARD / 2)).clamp(0, BOARD)


# --- geometry ---------------------------------------------------------------------------------------------------------


def centre_of(states: Tensor) -> Tensor:
    """The T's centre ``[..., 2]`` in states ``[..., 5]``."""
    x, y, angle = states[..., 2], states[..., 3], states[..., 4]
    return torch.stack([x - CENTRE[1] * angle.sin(), y + CENTRE[1] * angle.cos()], -1)


GOAL_CENTRE = tuple(centre_of(torch.tensor([0.0, 0.0, *GOAL])).tolist())


def gap(states: Tensor) -> Tensor:
    """Distance ``[...]`` from the pusher's rim to the T in states ``[..., 5]``; negative where they overlap."""
    bar, stem = _distances(states[..., 0], states[..., 1], states[..., 2], states[..., 3], states[..., 4])
    return torch.minimum(bar, stem) - RADIUS


def _distances(px: Tensor, py: Tensor, x: Tensor, y: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
    """Signed distances of points to the bar and to the stem of Ts, negative inside."""
    dx, dy, cos, sin = px - x, py - y, angle.cos(), angle.sin()
    across, along = (cos * dx + sin * dy).abs(), cos * dy - sin * dx
    found = []
    for (_, middle), (half_width, half_height) in (BAR, STEM):
        right, below = across - half_width, (along - middle).abs() - half_height
        outside = torch.sqrt(right.clamp(min=0) ** 2 + below.clamp(min=0) ** 2)
        found.append(outside + torch.maximum(right, below).clamp(max=0))
    return found[0], found[1]


# --- pictures ---------------------------------------------------------------------------------------------------------

WHITE, WALL, GREEN = (255.0, 255.0, 255.0), (211.0, 211.0, 211.0), (144.0, 238.0, 144.0)
GREY_EDGE, GREY = (119.0, 136.0, 153.0), (143.0, 163.0, 184.0)
BLUE_EDGE, BLUE = (65.0, 105.0, 225.0), (78.0, 126.0, 255.0)
_PAD = 44
"""Pixels around the picture that things may stick out into; they are cut off at the end."""


def render(states: Tensor, device: torch.device | str = "cpu", chunk: int = 128) -> Tensor:
    """Pictures as the environment draws them, with smoother edges.

    Args:
        states: ``[n, F, 5]``.
        device: Where to draw, and where the pictures stay.
        chunk: Frames drawn at once.

    Returns:
        uint8 ``[n, F, 256, 256, 3]``.
    """
    flat = states.to(device=device, dtype=torch.float32).reshape(-1, 5)
    ground = F.pad(_ground(flat.device).movedim(-1, 0), (_PAD,) * 4, value=255.0).movedim(0, -1).to(torch.uint8)
    out = torch.empty(len(flat), SIZE, SIZE, 3, dtype=torch.uint8, device=device)
    for start in range(0, len(flat), chunk):
        part = flat[start : start + chunk]
        canvas = ground.expand(len(part), -1, -1, -1).clone()
        _draw(canvas, centre_of(part), 41, lambda px, py, s=part: _block_layers(px, py, s))
        _draw(canvas, part[:, :2], 10, lambda px, py, s=part: _pusher_layers(px, py, s))
        out[start : start + chunk] = canvas[:, _PAD:-_PAD, _PAD:-_PAD]
    return out.unflatten(0, states.shape[:2])


Layers = list[tuple[Tensor, tuple[float, float, float]]]
"""Coverage 0..1 and colour, from the lowest to the topmost."""


def _draw(canvas: Tensor, middle: Tensor, reach: int, layers: Callable[[Tensor, Tensor], Layers]) -> None:
    """Paint onto canvases ``[B, H, W, 3]``, only within ``reach`` pixels of ``middle`` ``[B, 2]`` (world units)."""
    device, side = canvas.device, 2 * reach + 1
    corner = (middle / 2).floor().long() - reach + _PAD
    corner = corner.clamp(0, canvas.shape[1] - side)
    steps = torch.arange(side, device=device)
    columns, rows = corner[:, :1] + steps, corner[:, 1:] + steps
    spots = (torch.arange(len(canvas), device=device)[:, None, None], rows[:, :, None], columns[:, None, :])
    patch = canvas[spots].float()
    # A pixel averages world pixels 2i and 2i+1, so its middle is at 2i + 0.5.
    px, py = ((spot - _PAD) * 2 + 0.5 for spot in (columns[:, None, :], rows[:, :, None]))
    for cover, colour in layers(px.float(), py.float()):
        patch = torch.lerp(patch, torch.tensor(colour, device=device), cover[..., None])
    canvas[spots] = patch.round().to(torch.uint8)


def _cover(distance: Tensor) -> Tensor:
    """How much of a pixel, two world units wide, is on the inside of an edge at this signed distance."""
    return (0.5 - distance / 2).clamp(0, 1)


def _block_layers(px: Tensor, py: Tensor, states: Tensor) -> Layers:
    x, y, angle = (states[:, column, None, None] for column in (2, 3, 4))
    bar, stem = _distances(px, py, x, y, angle)
    # Both rectangles have a dark rim of two units to either side of their outline.
    return [
        (_cover(torch.minimum(bar, stem) - 2.5), GREY_EDGE),
        (_cover(bar + 2.5), GREY),
        (_cover(stem + 2.5), GREY),
    ]


def _pusher_layers(px: Tensor, py: Tensor, states: Tensor) -> Layers:
    # The environment's circles lie half a unit to the upper left of their centre.
    distance = torch.hypot(px + 0.5 - states[:, 0, None, None], py + 0.5 - states[:, 1, None, None])
    return [(_cover(distance - RADIUS), BLUE_EDGE), (_cover(distance - RADIUS + 4), BLUE)]


def _ground(device: torch.device) -> Tensor:
    """The empty board ``[256, 256, 3]``: white, grey walls, the green goal."""
    line = torch.arange(SIZE, device=device) * 2 + 0.5
    px, py = line[None, :], line[:, None]
    wall = torch.maximum((px - BOARD / 2 + 0.5).abs(), (py - BOARD / 2 + 0.5).abs()) - BOARD / 2
    bar, stem = (_cover(distance - 0.5) for distance in _distances(px, py, *torch.tensor(GOAL, device=device)))
    picture = torch.tensor(WHITE, device=device).expand(SIZE, SIZE, 3)
    layers = (((bar + stem).clamp(max=1), GREEN), (_cover((wall + 5.5).abs() - 2.5), WALL))
    for cover, colour in layers:
        picture = torch.lerp(picture, torch.tensor(colour, device=device), cover[..., None])
    return picture.round()


def positions_seen(frames: Tensor) -> list[tuple[float, float] | None]:
    """Where the pusher is in each of uint8 frames ``[F, 256, 256, 3]``, in world units; ``None`` where there is none.

    It is the middle of what is blue, near the bluest place, so a few stray pixels elsewhere do no harm.
    """
    red, _, blue = frames.float().unbind(-1)
    # Grey and its rim differ by 41 at most, the pusher by 160 and more.
    mask = ((blue - red - 60) / 60).clamp(0, 1)
    window, least = 17, 40.0
    near = F.avg_pool2d(mask[:, None], window, 1, window // 2)[:, 0] * window**2
    line = torch.arange(SIZE, device=frames.device)
    found: list[tuple[float, float] | None] = []
    for one, sums in zip(mask, near, strict=True):
        row, column = divmod(int(sums.argmax()), SIZE)
        inside = ((line - row).abs() <= 12)[:, None] & ((line - column).abs() <= 12)
        weight = one * inside
        total = float(weight.sum())
        if total < least:
            found.append(None)
            continue
        # Back from pixels to world units, and to the centre that the circle is drawn around.
        x, y = (float((weight.sum(dim) * line).sum()) / total * 2 + 1 for dim in (0, 1))
        found.append((x, y))
    return found


# --- words ------------------------------------------------------------------------------------------------------------

_BLOCKS = ("T", "T", "T-shaped block", "grey block", "gray block", "grey T", "gray T", "block")
_PUSHERS = ("pusher", "blue circle", "blue dot", "blue circle", "blue pusher")
_WHERE = {
    "left": "[to the left|left|to the left|to the left side|toward the left|towards the left side]",
    "right": "[to the right|right|to the right|to the right side|toward the right|towards the right side]",
    "up": "[up|upwards|up|to the top|toward the top|upward]",
    "down": "[down|downwards|down|to the bottom|toward the bottom|downward]",
}
_EDGES = {"left": "left side", "right": "right side", "up": "top", "down": "bottom"}
_INSTRUCTIONS = {
    "touch": {
        "train": (
            "[|please ][touch|tap|reach] the {block}",
            "[|please ][touch|tap] the {block} with the {pusher}",
            "[go|move|come] to the {block}",
            "[move|bring|take|send] the {pusher} to the {block}",
            "the {pusher} [touches|goes to|reaches|moves to] the {block}",
            "make the {pusher} [touch|reach|tap] the {block}",
            "make contact with the {block}",
            "[drive|go] straight to the {block}[| and touch it]",
        ),
        "heldout": (
            "let the {pusher} touch the {block}",
            "get in contact with the {block}",
            "go and touch the {block}",
        ),
    },
    "push": {
        "train": (
            "[|please ][push|move|slide|shove] the {block} {where}",
            "push the {block} {where} with the {pusher}",
            "the {pusher} [pushes|moves|slides] the {block} {where}",
            "[make|let] the {pusher} push the {block} {where}",
            "[use the {pusher} to|with the {pusher},] [push|move] the {block} {where}",
            "[bring|take|get] the {block} to the {edge}",
            "the {block} should [go|move] {where}",
            "push the {block} [to|towards] the {edge} of the board",
        ),
        "heldout": (
            "I want the {block} to be pushed {where}",
            "can you push the {block} {where}",
            "push {where} against the {block}",
        ),
    },
    "go to the goal": {
        "train": (
            "[|please ][go|move|drive] to the [goal|green goal|green T|green area]",
            "[move|bring|take|send] the {pusher} to the [goal|green goal|green T|green area]",
            "the {pusher} [goes|moves] [to|onto] the [goal|green goal|green T|green area]",
            "[put|place] the {pusher} on the [goal|green T|green area]",
            "make the {pusher} [go|move] [to|onto] the [green T|green goal|goal]",
            "[reach|get to] the [goal|green goal|green T|green area]",
            "stand on the [green T|goal|green goal]",
        ),
        "heldout": (
            "let the {pusher} go to the green goal",
            "get the {pusher} onto the green T",
            "the green T is where the {pusher} should go",
        ),
    },
    "move": {
        "train": (
            "[|please ][move|drive|go] {where}",
            "[move|bring|take|send] the {pusher} {where}",
            "the {pusher} [moves|goes] {where}",
            "make the {pusher} [go|move] {where}",
            "[move|go|drive] to the {edge}[| of the board]",
            "[move|bring|send] the {pusher} to the {edge}[| of the board]",
        ),
        "heldout": ("let the {pusher} go {where}", "the {pusher} should move {where}"),
    },
    "stand still": {
        "train": (
            "[|please ][stand|keep|stay] still",
            "[do not|don't] move",
            "[stay|wait] [there|here|where you are]",
            "the {pusher} [stands still|does not move|stays where it is|waits]",
            "[keep|hold] the {pusher} [still|in place|where it is]",
            "do nothing",
        ),
        "heldout": ("let the {pusher} stand still", "the {pusher} should not move"),
    },
}


def instruction(task: str, rng: random.Random, split: str = "train") -> str:
    """What a person may type to have a task done; ``split`` is ``train`` or ``heldout`` wording."""
    kind, _, side = task.partition(" ")
    template = rng.choice(_INSTRUCTIONS[kind if side in SIDES else task][split])
    return _worded(template, side, rng)


def _worded(template: str, side: str, rng: random.Random) -> str:
    words = {"block": rng.choice(_BLOCKS), "pusher": rng.choice(_PUSHERS)}
    if side in SIDES:
        words |= {"where": say(_WHERE[side], rng), "edge": _EDGES[side]}
    return sentence(say(template, rng).format(**words))


_CAPTIONS = {
    "pushes": {
        "train": (
            "the {pusher} [pushes|moves|shoves] the {block} {where}",
            "the {block} [is pushed|is moved|moves|slides] {where}",
            "the {pusher} [hits|runs into|meets] the {block} and [pushes|moves] it {where}",
        ),
        "heldout": ("the {block} gets pushed {where} by the {pusher}", "the {pusher} makes the {block} move {where}"),
    },
    "turns": {
        "train": (
            "the {pusher} [turns|rotates] the {block} {way}",
            "the {block} [turns|is turned|rotates] {way}",
            "the {pusher} [hits|touches|meets] the {block} and turns it {way}",
        ),
        "heldout": ("the {block} gets turned {way} by the {pusher}", "the {pusher} makes the {block} turn {way}"),
    },
    "touches": {
        "train": (
            "the {pusher} [touches|taps|meets] the {block}",
            "the {pusher} [touches|reaches] the {block} but [hardly|barely] moves it",
        ),
        "heldout": ("the {block} gets touched by the {pusher}",),
    },
    "moves": {
        "train": (
            "the {pusher} [moves|goes|drives] {where}[| without touching the {block}| and does not touch the {block}]",
            "the {pusher} [moves|goes] {where}, the {block} [stays|stands still|does not move]",
        ),
        "heldout": ("only the {pusher} moves, it goes {where}",),
    },
    "wanders": {
        "train": (
            "the {pusher} [moves|drives|goes] [around|about][| without touching the {block}]",
            "the {pusher} [moves|goes] around, the {block} [stays|stands still|does not move]",
        ),
        "heldout": ("only the {pusher} moves, it goes around",),
    },
    "stands": {
        "train": ("the {pusher} [stands still|does not move|waits]", "nothing [moves|happens]"),
        "heldout": ("the {pusher} and the {block} stand still",),
    },
}


def caption(states: Tensor, rng: random.Random, split: str = "train") -> str:
    """What happens in an episode ``[F, 5]``, in words."""
    centre = centre_of(states)
    block, pusher = (path[-1] - path[0] for path in (centre, states[:, :2]))
    turn = float(torch.remainder(states[-1, 4] - states[0, 4] + math.pi, 2 * math.pi) - math.pi)
    side = ""
    if float(block.norm()) > 15:
        kind, side = "pushes", _side(block)
    elif abs(turn) > 0.3:
        kind = "turns"
    elif bool((gap(states) < TOUCHED).any()):
        kind = "touches"
    elif float(pusher.norm()) > 40:
        kind, side = "moves", _side(pusher)
    elif float((states[:, :2] - states[0, :2]).norm(dim=1).max()) > 15:
        kind = "wanders"
    else:
        kind = "stands"
    template = rng.choice(_CAPTIONS[kind][split])
    return _worded(template.replace("{way}", "clockwise" if turn > 0 else "counterclockwise"), side, rng)


def _side(move: Tensor) -> str:
    """The side that a displacement ``[2]`` leads to."""
    x, y = move.tolist()
    if abs(x) >= abs(y):
        return "left" if x < 0 else "right"
    return "up" if y < 0 else "down"


# --- scripted pushers -------------------------------------------------------------------------------------------------

Point = np.ndarray
"""float64 ``[2]``."""

_OUTLINE = np.array([(-60, 0), (60, 0), (60, 30), (15, 30), (15, 120), (-15, 120), (-15, 30), (-60, 30)], dtype=float)
_HULL = _OUTLINE[[0, 1, 2, 4, 5, 7]]
_MARGIN = RADIUS + 18
"""Distance from the T's hull at which the pusher's centre goes around it."""


def _widened(polygon: np.ndarray, margin: float) -> np.ndarray:
    """A convex polygon ``[k, 2]`` with every edge moved outwards."""
    edges = np.roll(polygon, -1, 0) - polygon
    normals = np.stack([edges[:, 1], -edges[:, 0]], 1) / np.linalg.norm(edges, axis=1, keepdims=True)
    before = np.roll(normals, 1, 0)
    return polygon + margin * (normals + before) / (1 + (normals * before).sum(1, keepdims=True))


_KEEP_OUT = _widened(_HULL, _MARGIN)
_SHRUNK = _widened(_HULL, _MARGIN - 1)
_LEAST, _MOST = 15.0, BOARD - 15.0
"""Where experts keep the pusher's centre."""


def expert(task: str, state: np.ndarray) -> Point:
    """Where the scripted pusher of a task aims next, in world units, given nothing but the state ``[5]``."""
    pusher = np.asarray(state[:2], dtype=float)
    kind, _, side = task.partition(" ")
    if task == "touch":
        aim = _touching(pusher, state)
    elif task == "go to the goal":
        aim = _toward(pusher, np.array(GOAL_CENTRE))
    elif kind == "move":
        # It stops a little before the wall, and never turns back when it is already there.
        ahead = np.array(SIDES[side])
        room = (BOARD / 2 - 40) - float(ahead @ (pusher - BOARD / 2))
        aim = pusher + ahead * min(max(room, 0.0), STEP)
    elif kind == "push":
        aim = _pushing(pusher, state, np.array(SIDES[side]))
    else:
        aim = pusher
    return aim.clip(_LEAST, _MOST)


def _toward(start: Point, end: Point, step: float = STEP) -> Point:
    way = end - start
    length = float(np.linalg.norm(way))
    return end if length <= step else start + way * (step / length)


def _turned(points: np.ndarray, angle: float) -> np.ndarray:
    cos, sin = math.cos(angle), math.sin(angle)
    return points @ np.array([[cos, sin], [-sin, cos]])


def _touching(pusher: Point, state: np.ndarray) -> Point:
    """Straight to the nearest point of the T, and rest there."""
    here = _turned(pusher - state[2:4], -state[4])
    nearest = _nearest(here, _OUTLINE)
    way = nearest - here
    distance = float(np.linalg.norm(way))
    if distance <= RADIUS + 1:
        return pusher
    # It aims slightly into the T: the pusher would never quite arrive at its rim.
    step = min(STEP, distance - RADIUS + 4)
    return pusher + _turned(way * (step / distance), state[4])


def _nearest(point: Point, polygon: np.ndarray) -> Point:
    edges = np.roll(polygon, -1, 0) - polygon
    share = (((point - polygon) * edges).sum(1) / (edges * edges).sum(1)).clip(0, 1)
    feet = polygon + share[:, None] * edges
    return feet[((feet - point) ** 2).sum(1).argmin()]


def _pushing(pusher: Point, state: np.ndarray, ahead: Point) -> Point:
    """Around the T to the far side from where it shall go, without touching it, and then straight through its middle.

    All of it in the block's own frame, where the T never moves.
    """
    place, angle = state[2:4], float(state[4])
    lead = float(((_turned(_HULL, angle) + place) @ ahead).max())
    if lead > _limit(ahead):
        return pusher
    here, way, middle = _turned(pusher - place, -angle), _turned(ahead, -angle), np.array(CENTRE)
    beside = np.array([-way[1], way[0]])
    off, along = float((here - middle) @ beside), float((here - middle) @ way)
    edge = _inside(here)
    # It sets out only when well in line, but then keeps on while the T slips a little.
    if along < 0 and abs(off) < (8 if edge is None else 18):
        return place + _turned(here + way * STEP - beside * (1.5 * off), angle)
    if edge is not None:
        # Too close to go around: step back first.
        return place + _turned(here + edge * STEP, angle)
    behind = middle - way * (_exit(middle, -way) + 3)
    path = _around(here, behind, place, angle)
    return place + _turned(_ahead([*path, middle], STEP), angle)


def _limit(ahead: Point) -> float:
    """How far along a direction the T may be pushed before its foremost point is at the wall."""
    return -30.0 if ahead.sum() < 0 else BOARD - 30.0


def _edges() -> tuple[np.ndarray, np.ndarray]:
    """Outward normals ``[k, 2]`` of the polygon to keep out of, and their distances from the origin ``[k]``."""
    edges = np.roll(_KEEP_OUT, -1, 0) - _KEEP_OUT
    normals = np.stack([edges[:, 1], -edges[:, 0]], 1) / np.linalg.norm(edges, axis=1, keepdims=True)
    return normals, (normals * _KEEP_OUT).sum(1)


_NORMALS, _OFFSETS = _edges()


def _inside(point: Point) -> Point | None:
    """The way out of the polygon to keep out of, by its nearest edge; ``None`` on the outside."""
    depth = _OFFSETS - _NORMALS @ point
    return _NORMALS[depth.argmin()] if depth.min() > 0.5 else None


def _exit(start: Point, way: Point) -> float:
    """How far it is from a point inside that polygon to its edge."""
    speed = _NORMALS @ way
    away = speed > 1e-9
    return float(((_OFFSETS - _NORMALS @ start)[away] / speed[away]).min())


def _crosses(start: Point, end: Point) -> bool:
    """Whether a segment cuts through that polygon."""
    way = end - start
    speed, room = _NORMALS @ way, _OFFSETS - _NORMALS @ start - 1
    first, last = 0.0, 1.0
    for fast, far in zip(speed.tolist(), room.tolist(), strict=True):
        if abs(fast) < 1e-9:
            if far < 0:
                return False
        elif fast > 0:
            last = min(last, far / fast)
        else:
            first = max(first, far / fast)
    return first < last


def _around(start: Point, end: Point, place: Point, angle: float) -> list[Point]:
    """The shorter way around that polygon that stays on the board."""
    if not _crosses(start, end):
        return [start, end]
    # What `_crosses` goes by, so that both ends are corners of the ring.
    ring = _convex([start, end, *_SHRUNK])
    first = next(n for n, point in enumerate(ring) if point is start)
    ring = ring[first:] + ring[:first]
    last = next(n for n, point in enumerate(ring) if point is end)
    ways = ring[: last + 1], [start, *reversed(ring[last:])]

    def cost(way: list[Point]) -> float:
        corners = _turned(np.array(way), angle) + place
        beyond = np.abs(corners[1:-1] - BOARD / 2).max(initial=0.0) > BOARD / 2 - RADIUS
        return float(np.linalg.norm(np.diff(corners, axis=0), axis=1).sum()) + 1000 * beyond

    return min(ways, key=cost)


def _convex(points: list[Point]) -> list[Point]:
    """Those of some points that span all of them, in order around."""

    def half(some: list[Point]) -> list[Point]:
        kept: list[Point] = []
        for point in some:
            while len(kept) > 1:
                (ax, ay), (bx, by) = kept[-1] - kept[-2], point - kept[-2]
                if ax * by - ay * bx > 0:
                    break
                kept.pop()
            kept.append(point)
        return kept[:-1]

    points = sorted(points, key=lambda point: (point[0], point[1]))
    return half(points) + half(points[::-1])


def _ahead(path: list[Point], distance: float) -> Point:
    """The point this far along a path."""
    for start, end in itertools.pairwise(path):
        length = float(np.linalg.norm(end - start))
        if length >= distance:
            return start + (end - start) * (distance / length)
        distance -= length
    return path[-1]


def wander(state: np.ndarray, steps: int, rng: np.random.Generator) -> np.ndarray:
    """Targets ``[steps, 2]`` of a random pusher: smooth curves, half of them through the T, now and then a rest."""
    here, heading = np.array(state[:2], dtype=float), rng.uniform(0, 2 * math.pi)
    aimed, speed, bend = rng.random() < 0.5, rng.uniform(8, 45), rng.uniform(0.05, 0.5)
    block = np.asarray(state[2:4]) + _turned(np.array(CENTRE), float(state[4]))
    aim, through = block + rng.normal(0, 25, 2), True
    if aimed:
        heading = math.atan2(aim[1] - here[1], aim[0] - here[0]) + rng.normal(0, 0.3)
        speed = max(speed, 20.0)
    rests = int(rng.integers(1, steps)) if rng.random() < 0.15 else steps
    targets = []
    for step in range(steps):
        if step >= rests:
            targets.append(here.copy())
            continue
        heading += rng.normal(0, bend)
        speed = float(np.clip(speed + rng.normal(0, 3), 5, 55))
        if aimed:
            if np.linalg.norm(aim - here) < 30:
                through = not through
                aim = block + rng.normal(0, 30, 2) if through else rng.uniform(40, BOARD - 40, 2)
            want = math.atan2(aim[1] - here[1], aim[0] - here[0])
            heading += 0.5 * math.remainder(want - heading, 2 * math.pi)
        here = here + speed * np.array([math.cos(heading), math.sin(heading)])
        if (here < 20).any() or (here > BOARD - 20).any():
            here = here.clip(20, BOARD - 20)
            back = BOARD / 2 - here + rng.normal(0, 80, 2)
            heading = math.atan2(back[1], back[0])
        targets.append(here.copy())
    return np.array(targets)


# --- the environment --------------------------------------------------------------------------------------------------


class Simulator:
    """The real environment, put into any state and stepped.

    Args:
        pictures: Also draw every step, into `picture`.
    """

    def __init__(self, pictures: bool = False) -> None:
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import gym_pusht  # noqa: F401
            import gymnasium

            self._env = gymnasium.make(
                "gym_pusht/PushT-v0",
                obs_type="pixels" if pictures else "state",
                render_mode="rgb_array",
                observation_width=SIZE,
                observation_height=SIZE,
            ).unwrapped
        self._pictures = pictures
        self.picture: np.ndarray | None = None

    def reset(self, state: np.ndarray) -> np.ndarray:
        """Everything at rest in a state; returns it as the environment has it, things that overlapped pushed apart."""
        x, y, angle = (float(value) for value in state[2:])
        # The environment places the block at angle 0 and then turns it about its centre, which shifts its place.
        shift = _turned(np.array(CENTRE), angle) - np.array(CENTRE)
        start = [*np.asarray(state[:2], dtype=float), x + shift[0], y + shift[1], angle]
        return self._read(self._env.reset(options={"reset_to_state": start})[0])

    def step(self, target: np.ndarray) -> np.ndarray:
        """The state a tenth of a second later, with the pusher drawn to a target in world units."""
        return self._read(self._env.step(np.asarray(target, dtype=float))[0])

    def _read(self, seen: np.ndarray) -> np.ndarray:
        if self._pictures:
            self.picture = seen
        pusher, block = self._env.agent, self._env.block
        return np.array([*pusher.position, *block.position, block.angle % (2 * math.pi)])


def sample_start(task: str, rng: np.random.Generator) -> np.ndarray:
    """A random state ``[5]`` in which a task (or none) can be done and isn't done yet."""
    kind, _, side = task.partition(" ")
    ahead = np.array(SIDES[side]) if side in SIDES else None
    while True:
        angle = rng.uniform(0, 2 * math.pi)
        place = rng.uniform(100, BOARD - 100, 2) - _turned(np.array(CENTRE), angle)
        corners = _turned(_HULL, angle) + place
        if np.abs(corners - BOARD / 2).max() > BOARD / 2 - 14:
            continue
        pusher = rng.uniform(25, BOARD - 25, 2)
        if rng.random() < 0.3:
            corner = corners[rng.integers(len(corners))]
            pusher = corner + rng.normal(0, 40, 2)
        if np.abs(pusher - BOARD / 2).max() > BOARD / 2 - 25:
            continue
        state = np.array([*pusher, *place, angle])
        if float(gap(torch.from_numpy(state))) < (15 if task == "touch" else 3):
            continue
        if kind == "push":
            middle = place + _turned(np.array(CENTRE), angle)
            reach = _exit(np.array(CENTRE), _turned(-ahead, -angle))
            if _limit(ahead) - (corners @ ahead).max() < 60:
                continue
            if np.abs(middle - ahead * reach - BOARD / 2).max() > BOARD / 2 - RADIUS:
                continue
        if kind == "move" and ahead @ (pusher - BOARD / 2) > BOARD / 2 - 40 - 2 * MOVED:
            continue
        if task == "go to the goal" and np.linalg.norm(pusher - GOAL_CENTRE) < 2 * REACHED:
            continue
        return state


def _rounded(states: np.ndarray) -> np.ndarray:
    unit = np.array([PLACE_UNIT] * 4 + [ANGLE_UNIT])
    return (np.round(states / unit) * unit).astype(np.float32)


def _rounded_target(target: np.ndarray) -> np.ndarray:
    """A target that its stored action leads back to."""
    unit = ACTION_UNIT * BOARD / 2
    return np.round(target.clip(0, BOARD) / unit) * unit


_CHUNKS = {"touch": 2, "push": 3, "go to the goal": 2, "move": 2, "stand still": 1}
"""Most episodes that are cut from one run of an expert: about as long as the task takes."""


def _run_expert(simulator: Simulator, task: str, rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    """States and targets of successive episodes; many begin halfway, in motion, or after some random moves."""
    state = simulator.reset(sample_start(task, rng))
    if rng.random() < 0.3:
        for target in wander(state, int(rng.integers(2, 9)), rng):
            state = simulator.step(target)
    for _ in range(int(rng.integers(1, CHUNK)) if rng.random() < 0.4 else 0):
        state = simulator.step(expert(task, state))
    most = _CHUNKS.get(task) or _CHUNKS[task.partition(" ")[0]]
    found = []
    for _ in range(most if most > 2 else int(rng.integers(1, most + 1))):
        states, targets = _run_chunk(simulator, state, lambda _, now: expert(task, now))
        found.append((states, targets))
        state = states[-1]
    return found


def _run_chunk(
    simulator: Simulator, state: np.ndarray, aim: Callable[[int, np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    states, targets = [state], []
    for step in range(CHUNK):
        targets.append(_rounded_target(aim(step, states[-1])))
        states.append(simulator.step(targets[-1]))
    return np.array(states), np.array(targets)


_PART = 250
"""Episodes drawn from one seed, so that the number of processes makes no difference."""


def _sample_part(order: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray, list[str]]:
    n, seed, part = order
    rng = np.random.default_rng((seed, part))
    simulator = Simulator()
    made: list[tuple[np.ndarray, np.ndarray, str]] = []
    weights = np.array(list(SHARES.values()))
    while len(made) < n // 2:
        task = TASKS[rng.choice(len(TASKS), p=weights / weights.sum())]
        made.extend((*chunk, task) for chunk in _run_expert(simulator, task, rng))
    made = made[: n // 2]
    while len(made) < n:
        state = simulator.reset(sample_start("", rng))
        targets = wander(state, CHUNK, rng)
        made.append((*_run_chunk(simulator, state, lambda step, _, path=targets: path[step]), ""))
    made = [made[k] for k in rng.permutation(n)]
    return np.stack([row[0] for row in made]), np.stack([row[1] for row in made]), [row[2] for row in made]


def sample_episodes(n: int, seed: int, processes: int = 1) -> Episodes:
    """``n`` episodes, half by experts and half by random pushers, the same for any number of processes."""
    orders = [(min(_PART, n - first), seed, part) for part, first in enumerate(range(0, n, _PART))]
    if processes > 1:
        with torch.multiprocessing.get_context("fork").Pool(processes) as pool:
            parts = pool.map(_sample_part, orders, chunksize=1)
    else:
        parts = [_sample_part(order) for order in orders]
    states = torch.from_numpy(_rounded(np.concatenate([part[0] for part in parts])))
    targets = torch.from_numpy(np.concatenate([part[1] for part in parts]))
    return Episodes(states, to_model(targets).float(), tuple(task for part in parts for task in part[2]))


def save_episodes(path: str | Path, episodes: Episodes) -> None:
    """Write a compressed npz of int16 steps from frame to frame."""
    unit = np.array([PLACE_UNIT] * 4 + [ANGLE_UNIT])
    states = np.round(episodes.states.numpy() / unit).astype(np.int16)
    actions = np.round(episodes.actions.numpy() / ACTION_UNIT).astype(np.int16)
    names = ("", *TASKS)
    np.savez_compressed(
        path,
        # Differences are small and compress well; they wrap around like the integers they come from.
        states=np.diff(states, axis=1, prepend=np.int16(0)),
        actions=np.diff(actions, axis=1, prepend=np.int16(0)),
        tasks=np.array([names.index(task) for task in episodes.tasks], dtype=np.uint8),
        names=np.array(names),
    )


def load_episodes(path: str | Path) -> Episodes:
    """Read what `save_episodes` wrote."""
    with np.load(path) as file:
        states, actions = (np.cumsum(file[name], axis=1, dtype=np.int16) for name in ("states", "actions"))
        names = file["names"].tolist()
        tasks = tuple(names[task] for task in file["tasks"].tolist())
    unit = np.array([PLACE_UNIT] * 4 + [ANGLE_UNIT], dtype=np.float32)
    return Episodes(torch.from_numpy(states * unit), torch.from_numpy(actions * np.float32(ACTION_UNIT)), tasks)


# --- judging ----------------------------------------------------------------------------------------------------------


def done(task: str, states: Tensor) -> bool:
    """Whether a task was fulfilled in states ``[F, 5]``, at their end (or, for a touch, anywhere)."""
    kind, _, side = task.partition(" ")
    block, pusher = (path[-1] - path[0] for path in (centre_of(states), states[:, :2]))
    if task == "touch":
        return bool((gap(states) <= TOUCHED).any() or (centre_of(states) - centre_of(states)[0]).abs().max() > 1)
    if task == "go to the goal":
        return bool((states[-1, :2] - states.new_tensor(GOAL_CENTRE)).norm() < REACHED)
    if task == "stand still":
        return len(states) >= FRAMES and bool((states[:, :2] - states[0, :2]).norm(dim=1).max() < STILL)
    move, least = (block, PUSHED) if kind == "push" else (pusher, MOVED)
    ahead = float(move @ move.new_tensor(SIDES[side]))
    # What of the displacement isn't along the side wanted is sideways.
    return ahead >= least and ahead > math.sqrt(max(float(move @ move) - ahead**2, 0.0))


Policy = Callable[[Tensor, str], Tensor]
"""From a uint8 frame ``[256, 256, 3]`` and an instruction to actions ``[16, 2]``."""


class ExpertPolicy:
    """A scripted pusher as a policy. It doesn't look at the frame: `rollout` tells it the state by `see`."""

    def __init__(self, task: str) -> None:
        self.task = task
        self._state = np.zeros(5)
        self._simulator = Simulator()

    def see(self, state: np.ndarray) -> None:
        """The truth ``[5]`` of the frame to come."""
        self._state = state

    def __call__(self, frame: Tensor, instruction: str) -> Tensor:
        """Actions ``[16, 2]`` that the expert would take, starting from rest."""
        start = self._simulator.reset(self._state)
        _, targets = _run_chunk(self._simulator, start, lambda _, now: expert(self.task, now))
        return to_model(torch.from_numpy(targets)).float()


def rollout(task: str, policy: Policy, seed: int, chunks: int = 4, split: str = "train") -> tuple[bool, Tensor]:
    """Let a policy act in the real environment, asked again after every 16 actions.

    Args:
        task: One of `TASKS`.
        policy: Gets the environment's own picture. One with a method ``see`` is told the state before.
        seed: Of the start and the wording.
        chunks: How often it is asked at most.
        split: Of the wording.

    Returns:
        Whether the task was done, and all states ``[F, 5]`` up to then.
    """
    rng = np.random.default_rng((seed, TASKS.index(task)))
    simulator = Simulator(pictures=True)
    states = [simulator.reset(sample_start(task, rng))]
    text = instruction(task, random.Random(seed), split)
    for _ in range(chunks):
        if hasattr(policy, "see"):
            policy.see(states[-1])
        actions = policy(torch.from_numpy(simulator.picture.copy()), text)
        for target in to_world(actions.detach().double().cpu()).numpy():
            states.append(simulator.step(target))
            seen = torch.from_numpy(np.array(states)).float()
            if done(task, seen):
                return True, seen
    return False, torch.from_numpy(np.array(states)).float()


def main() -> None:
    """Write a file of episodes."""
    parser = argparse.ArgumentParser(prog="python -m cosmos_demo.pico.pusht", description=main.__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--episodes", type=int, default=16_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    start = time.perf_counter()
    episodes = sample_episodes(options.episodes, options.seed, options.processes)
    seconds = time.perf_counter() - start
    save_episodes(options.file, episodes)
    moved = (centre_of(episodes.states)[:, -1] - centre_of(episodes.states)[:, 0]).norm(dim=1) > 2
    print(
        f"{len(episodes)} episodes in {seconds:.0f} s ({len(episodes) / seconds:.0f}/s), the T moves in "
        f"{moved.float().mean():.0%}, {options.file.stat().st_size / 1e6:.2f} MB in {options.file}"
    )


if __name__ == "__main__":
    main()
