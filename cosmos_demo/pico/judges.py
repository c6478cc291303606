"""Judges of pictures, clips, sounds and answers. They know how the tabletop looks and sounds, and nothing of a model.

Pictures are numpy uint8 ``[192, 320, 3]``, boxes are (x1, y1, x2, y2) in their pixels, times are seconds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from cosmos_demo.pico import world
from cosmos_demo.pico.language import NUMBERS, PLACES, SYNONYMS, WIDTH
from cosmos_demo.pico.sounds import PITCH

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Seen:
    """An object as seen, or as it truly is: its words, and its box in pixels."""

    shape: str
    colour: str
    size: str
    box: Box

    @property
    def name(self) -> str:
        return f"{self.colour} {self.shape}"

    @property
    def centre(self) -> tuple[float, float]:
        return (self.box[0] + self.box[2]) / 2, (self.box[1] + self.box[3]) / 2


# --- objects ----------------------------------------------------------------------------------------------------------

LEAST_SIDE = 12
"""Pixels; what is thinner or lower is a speck."""
LEAST_AREA = 120
_BITS = 2
"""Colours are told apart in steps of 4 levels."""
_NOTHING = len(world.COLOURS)


def objects_seen(frame: np.ndarray) -> list[Seen]:
    """The objects in a picture, from left to right."""
    found = []
    for colour, (x1, y1, x2, y2), mask in _blobs(frame):
        shape = max(world.SHAPES, key=lambda name: mask_iou(mask, _template(name, *mask.shape)))
        size = world.SIZES[int(x2 - x1 > sum(world.RADIUS))]
        found.append(Seen(shape, world.COLOURS[colour], size, (x1, y1, x2, y2)))
    return sorted(found, key=lambda seen: seen.centre)


def foreground(frame: np.ndarray) -> np.ndarray:
    """bool ``[H, W]``: where the objects of a picture are."""
    result = np.zeros(frame.shape[:2], bool)
    for _, (x1, y1, x2, y2), mask in _blobs(frame):
        result[y1:y2, x1:x2] |= mask
    return result


def true_objects(clips: world.Clips, clip: int = 0, frame: int = 0) -> list[Seen]:
    """What is truly to be seen in a frame of a clip, from left to right."""
    boxes = world.boxes(clips)[clip, frame].tolist()
    looks = (clips.shape[clip].tolist(), clips.colour[clip].tolist(), clips.size[clip].tolist())
    found = [
        Seen(world.SHAPES[shape], world.COLOURS[colour], world.SIZES[size], tuple(box))
        for shape, colour, size, box in zip(*looks, boxes, strict=True)
        if box[2] > box[0]
    ]
    return sorted(found, key=lambda seen: seen.centre)


def _blobs(frame: np.ndarray) -> list[tuple[int, tuple[int, int, int, int], np.ndarray]]:
    """Colour, box and filled mask (of the box) of each patch of one colour that is large enough for an object."""
    found = []
    for colour, rows in _patches(_smoothed(_classes()[tuple(np.moveaxis(frame >> _BITS, -1, 0))])):
        top, left = min(row for row, _, _ in rows), min(start for _, start, _ in rows)
        bottom, right = max(row for row, _, _ in rows) + 1, max(end for _, _, end in rows)
        mask = np.zeros((bottom - top, right - left), bool)
        for row, start, end in rows:
            mask[row - top, start - left : end - left] = True
        if min(mask.shape) >= LEAST_SIDE and mask.sum() >= LEAST_AREA:
            found.append((colour, (left, top, right, bottom), _filled(mask)))
    # The shine of a black ball is a grey patch within it.
    return [one for one in found if not any(_within(one[1], other[1]) for other in found if other is not one)]


@cache
def _classes() -> np.ndarray:
    """uint8 ``[64, 64, 64]``: the paint that each colour looks like, in whatever light, or `_NOTHING` for the backdrop.

    A colour belongs to the nearest of all shades of the paints, of the wall and of the table, also in shadow.
    Differences in hue weigh more than those in brightness.
    """
    shades, owners = [], []
    for index, paint in enumerate(np.array(world.RGB, float)):
        # Neutral paints get no lighter or darker than the wall allows; what shines more is enclosed and gets filled.
        lightest = 0.25 if world.COLOURS[index] in ("black", "white") else 0.4
        for light in np.arange(-0.3, lightest + 1e-9, 0.05):
            shades.append(paint * (1 + light) if light < 0 else paint + (255 - paint) * light)
            owners.append(index)
    for far, near, darkest in ((world.WALL_TOP, world.WALL_BOTTOM, 0.55), (world.TABLE_FAR, world.TABLE_NEAR, 0.4)):
        for share in np.linspace(0, 1, 5):
            for light in np.arange(darkest, 1.05, 0.05):
                shades.append((np.array(far) * (1 - share) + np.array(near) * share) * light)
                owners.append(_NOTHING)
    steps = np.arange(0, 256, 1 << _BITS) + (1 << _BITS) / 2
    colours = np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), -1).reshape(-1, 3)
    spaced, anchors = _opponent(colours), _opponent(np.array(shades))
    nearest = np.empty(len(spaced), np.int64)
    for part in np.array_split(np.arange(len(spaced)), 64):
        nearest[part] = ((spaced[part, None] - anchors) ** 2).sum(-1).argmin(1)
    return np.array(owners, np.uint8)[nearest].reshape(len(steps), len(steps), len(steps))


def _opponent(colours: np.ndarray) -> np.ndarray:
    """Brightness (little weight), red against green, yellow against blue ``[..., 3]``."""
    red, green, blue = np.moveaxis(colours, -1, 0)
    return np.stack([0.5 * (red + green + blue) / 3, red - green, (red + green) / 2 - blue], -1)


def _smoothed(classes: np.ndarray) -> np.ndarray:
    """Each pixel's class by vote of the 3x3 pixels around it; without a majority it is nothing."""
    result = np.full_like(classes, _NOTHING)
    for colour in np.unique(classes):
        around = np.pad(classes == colour, 1).astype(np.uint8)
        rows = around[:-2] + around[1:-1] + around[2:]
        result[rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:] >= 5] = colour
    return result


def _patches(classes: np.ndarray) -> list[tuple[int, list[tuple[int, int, int]]]]:
    """Connected patches of one paint as its index and runs (row, start, end)."""
    parent: list[int] = []
    runs: list[tuple[int, int, int]] = []
    before: list[int] = []

    def root(run: int) -> int:
        while parent[run] != run:
            parent[run] = run = parent[parent[run]]
        return run

    for row, line in enumerate(classes):
        cuts = [0, *(np.flatnonzero(np.diff(line)) + 1).tolist(), len(line)]
        here = []
        for start, end in pairwise(cuts):
            if line[start] == _NOTHING:
                continue
            here.append(len(runs))
            parent.append(len(runs))
            runs.append((row, start, end))
            for above in before:
                touches = runs[above][1] < end and start < runs[above][2]
                if touches and classes[row - 1, runs[above][1]] == line[start]:
                    parent[root(above)] = root(here[-1])
        before = here
    patches: dict[int, list[tuple[int, int, int]]] = {}
    for index, run in enumerate(runs):
        patches.setdefault(root(index), []).append(run)
    return [(int(classes[rows[0][0], rows[0][1]]), rows) for rows in patches.values()]


def _filled(mask: np.ndarray) -> np.ndarray:
    """A mask without holes: what lies between its ends both in its row and in its column."""
    between = np.ones_like(mask)
    for axis in (0, 1):
        forth = np.logical_or.accumulate(mask, axis)
        between &= forth & np.flip(np.logical_or.accumulate(np.flip(mask, axis), axis), axis)
    return between


def _within(box: Box, other: Box) -> bool:
    """Whether most of a box is inside a larger one."""
    return _area(other) > _area(box) and _area(_common(box, other)) > 0.8 * _area(box)


@cache
def _template(shape: str, height: int, width: int) -> np.ndarray:
    """bool ``[height, width]``: what a shape covers of its box."""
    across = (np.arange(width) + 0.5) / width * 2 - 1
    down = ((np.arange(height) + 0.5) / height * 2 - 1)[:, None]
    match shape:
        case "ball":
            return across**2 + down**2 <= 1
        case "cube":
            return np.ones((height, width), bool)
    return np.abs(across) <= (down + 1) / 2


# --- places -----------------------------------------------------------------------------------------------------------


def _area(box: Box) -> float:
    return max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1])


def _common(one: Box, other: Box) -> Box:
    return max(one[0], other[0]), max(one[1], other[1]), min(one[2], other[2]), min(one[3], other[3])


def box_iou(one: Box, other: Box) -> float:
    """Overlap of two boxes over what they cover together, 0 to 1."""
    common = _area(_common(one, other))
    union = _area(one) + _area(other) - common
    return common / union if union else 0.0


def mask_iou(one: np.ndarray, other: np.ndarray) -> float:
    """Overlap of two masks over what they cover together; 1 when both are empty."""
    union = (one | other).sum()
    return float((one & other).sum() / union) if union else 1.0


def distance(one: Seen, other: Seen) -> float:
    """Pixels between two centres."""
    return float(np.hypot(*np.subtract(one.centre, other.centre)))


def matched(seen: Sequence[Seen], true: Sequence[Seen], shapes: bool = True) -> list[tuple[Seen, Seen]]:
    """Pairs of a seen and a true object of the same colour (and shape, with ``shapes``), nearest first, each once."""
    pairs = sorted(
        (distance(one, other), i, j)
        for i, one in enumerate(seen)
        for j, other in enumerate(true)
        if one.colour == other.colour and (one.shape == other.shape or not shapes)
    )
    found: dict[int, int] = {}
    for _, i, j in pairs:
        if i not in found and j not in found.values():
            found[i] = j
    return [(seen[i], true[j]) for i, j in found.items()]


def track(frames: np.ndarray, start: Seen) -> np.ndarray:
    """Where an object goes: its centres ``[T, 2]`` in frames ``[T, 192, 320, 3]``, NaN where it isn't seen.

    In each frame it is what has its colour and is nearest to its last place; in motion shapes get blurred.
    """
    last, path = start, []
    for frame in frames:
        near = [seen for seen in objects_seen(frame) if seen.colour == start.colour]
        if near:
            last = min(near, key=lambda seen: distance(seen, last))
        path.append(last.centre if near else (np.nan, np.nan))
    return np.array(path)


def bounce_seen(path: np.ndarray, start: Seen, fps: float) -> float | None:
    """When a tracked object ``[T, 2]`` first turns from falling to rising or resting; ``None`` when it never fell.

    Between frames the moment follows from its place and speed just before and the height at which it rests.
    """
    y = path[:, 1]
    if np.isnan(y).any():
        y = np.interp(np.arange(len(y)), np.flatnonzero(~np.isnan(y)), y[~np.isnan(y)])
    fallen = np.flatnonzero((y[1:-1] - y[0] > 20) & (y[2:] <= y[1:-1] + 1))
    if not len(fallen):
        return None
    low = int(fallen[0]) + 1
    half = world.RADIUS[world.SIZES.index(start.size)] * world.HALF_HEIGHT[world.SHAPES.index(start.shape)]
    # The last frame that surely is before the bounce.
    before = low - 1
    left = max(0.0, world.FLOOR - half - float(y[before]))
    speed = float(y[before] - y[before - 1]) * fps + world.GRAVITY / (2 * fps) if before else 0.0
    speed = max(speed, 0.0)
    falls = (np.sqrt(speed**2 + 2 * world.GRAVITY * left) - speed) / world.GRAVITY
    return float(before / fps + min(falls, 2 / fps))


def shift(frame: np.ndarray, later: np.ndarray, reach: int = 24) -> float:
    """Pixels by which a picture moved to the right from one frame to the next, up to ``reach``.

    The move after which the two differ least, to a part of a pixel.
    """
    one, other = frame.astype(np.float32), later.astype(np.float32)
    width = one.shape[1]
    costs = []
    for move in range(-reach, reach + 1):
        kept = one[:, max(0, -move) : width - max(0, move)] - other[:, max(0, move) : width - max(0, -move)]
        # A sharp cost: what is uncovered or changes shape shall not outweigh all that fits.
        costs.append(float(np.minimum(np.abs(kept), 40).mean()))
    best = int(np.argmin(costs))
    if 0 < best < 2 * reach:
        before, here, after = costs[best - 1 : best + 2]
        # Costs of absolute differences rise in straight lines from the best move.
        slope = max(before, after) - here
        return best - reach + ((before - after) / (2 * slope) if slope > 0 else 0.0)
    return float(best - reach)


def psnr(one: np.ndarray, other: np.ndarray) -> float:
    """Decibels of likeness of two pictures; 99 when they are equal."""
    error = float(((one.astype(np.float64) - other.astype(np.float64)) ** 2).mean())
    return 99.0 if error == 0 else min(99.0, float(10 * np.log10(255**2 / error)))


# --- sound ------------------------------------------------------------------------------------------------------------

HOP = 0.005
"""Seconds of a step in which loudness is measured."""
RISE = 2.5
"""How much louder than the quietest just before a ring's beginning is."""
LISTEN = 0.08
"""Seconds of a ring in which its pitch and its side are heard."""
FAINT = 0.08
"""Rings weaker than this share of the loudest are not heard."""


@dataclass(frozen=True)
class Onset:
    """The beginning of a ring: when, its strongest frequency in Hz, and its side from -1 (left) to 1 (right)."""

    time: float
    pitch: float
    side: float

    @property
    def size(self) -> str:
        """Of what rings, by the nearest pitch: small objects ring higher."""
        return world.SIZES[int(np.argmin([abs(np.log(self.pitch / pitch)) for pitch in PITCH]))]


def onsets(wave: np.ndarray, rate: int) -> list[Onset]:
    """The rings in stereo sound ``[2, samples]``, in order."""
    hop = round(HOP * rate)
    steps = wave.shape[1] // hop
    loud = np.sqrt((wave[:, : steps * hop].reshape(2, steps, hop) ** 2).mean((0, 2)))
    if not steps or loud.max() < 1e-3:
        return []
    found: list[Onset] = []
    last = -1.0
    for step in range(steps):
        quiet = loud[max(0, step - 3) : step].min(initial=loud[step] if step else 0.0)
        rises = loud[step] > RISE * quiet and loud[step] > FAINT * loud.max()
        if rises and step * HOP - last > 0.06:
            last = step * HOP
            found.append(_heard(wave[:, step * hop : step * hop + round(LISTEN * rate)], rate, last))
    return found


def _heard(ring: np.ndarray, rate: int, time: float) -> Onset:
    power = (np.abs(np.fft.rfft(ring * np.hanning(ring.shape[1]), n=8192)) ** 2).sum(0)
    frequency = np.fft.rfftfreq(8192, 1 / rate)
    heard = (frequency > 200) & (frequency < 4000)
    left, right = (ring.astype(np.float64) ** 2).sum(1)
    pitch = float(frequency[heard][power[heard].argmax()])
    return Onset(time, pitch, float((right - left) / max(right + left, 1e-12)))


# --- words ------------------------------------------------------------------------------------------------------------

_MEANS = {other: word for word, others in SYNONYMS.items() for other in others} | {
    "center": "middle",
    "centre": "middle",
}
_COLOURS = "|".join(world.COLOURS)
_SHAPES = "|".join((*world.SHAPES, *SYNONYMS["ball"], *SYNONYMS["cube"]))
_OBJECT = re.compile(rf"\b(?:(small|large|big|little|tiny) )?({_COLOURS}) ({_SHAPES})s?\b", re.IGNORECASE)
_DIGITS = {str(number): number for number in range(10)} | {word: number for number, word in enumerate(NUMBERS)}


@dataclass(frozen=True)
class Named:
    """An object that a text names, with its place where the text gives one."""

    colour: str
    shape: str
    place: str | None = None


def named(text: str) -> list[Named]:
    """The objects that a text names with colour and shape, in order, each with the place said after it."""
    found = list(_OBJECT.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    result = []
    for match, end in zip(found, ends, strict=True):
        places = said(text[match.end() : end], PLACES)
        colour, shape = match[2].lower(), match[3].lower()
        result.append(Named(colour, _MEANS.get(shape, shape), places[0] if places else None))
    return result


def said(text: str, words: Sequence[str]) -> list[str]:
    """Which of some words a text says, in order, also as plurals or synonyms."""
    found = (word.removesuffix("s") if word.endswith("s") else word for word in re.findall(r"[a-z]+", text.lower()))
    return [word for word in (_MEANS.get(word, word) for word in found) if word in words]


def number(text: str) -> int | None:
    """The one number that a text gives as a word or digit; ``None`` without one, or with several."""
    found = {_DIGITS[word] for word in re.findall(r"\w+", text.lower()) if word in _DIGITS}
    return found.pop() if len(found) == 1 else None


def affirmed(text: str) -> bool | None:
    """Whether a text answers yes or no; ``None`` when it does neither."""
    match = re.match(r"\W*(yes|no)\b", text.lower())
    return match[1] == "yes" if match else None


def surface(text: str) -> str | None:
    """What the text says is hit: ``floor`` or ``wall``."""
    found = re.findall(r"\b(table|floor|wall)\b", text.lower())
    return None if not found else "wall" if found[-1] == "wall" else "floor"


Happening = tuple[float, str]
"""When, and a caption such as ``the red ball hits the table``."""


def timeline_f1(found: Sequence[Happening], true: Sequence[Happening], within: float = 0.15) -> float:
    """Agreement of two timelines, 0 to 1: events match when object and surface agree and times nearly do."""
    if not found and not true:
        return 1.0
    pairs = sorted(
        (abs(time - when), i, j)
        for i, (time, caption) in enumerate(found)
        for j, (when, truth) in enumerate(true)
        if abs(time - when) <= within + 1e-6 and named(caption)[:1] == named(truth)[:1] and named(truth)
        if surface(caption) == surface(truth)
    )
    used: dict[int, int] = {}
    for _, i, j in pairs:
        if i not in used and j not in used.values():
            used[i] = j
    return 2 * len(used) / (len(found) + len(true))


def place_of(x: float) -> str:
    """The third of the picture that a pixel column is in."""
    return PLACES[min(2, int(3 * x / WIDTH))]


def is_at(x: float, place: str, slack: float = 8.0) -> bool:
    """Whether a pixel column is in a third of the picture, or within ``slack`` pixels of it."""
    first = PLACES.index(place) * WIDTH / 3
    return first - slack <= x <= first + WIDTH / 3 + slack
