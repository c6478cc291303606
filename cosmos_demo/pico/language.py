"""Words for the tabletop: captions, questions and answers, made from the truth alone, in varied everyday wording.

Nothing here needs torch: a `Scene` is a plain view of one clip. Wordings come in two splits, ``train`` and
``heldout``; the second is kept from training so that tests ask in words that were never seen.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cosmos_demo.reasoner.tasks import prompt_for

if TYPE_CHECKING:
    from cosmos_demo.pico.world import Clips

WIDTH, HEIGHT = 320, 192
NUMBERS = ("no", "one", "two", "three", "four")
PLACES = ("left", "middle", "right")
SHAPES = ("ball", "cube", "pyramid")
COLOURS = ("red", "green", "blue", "yellow", "purple", "orange", "white", "black")
MOVED = 24.0
"""Pixels that something must travel to be said to move."""


@dataclass(frozen=True)
class Thing:
    """One object: its words, its box in the first frame in pixels, and where its centre goes."""

    shape: str
    colour: str
    size: str
    box: tuple[float, float, float, float]
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    seen: tuple[bool, ...]

    @property
    def name(self) -> str:
        return f"{self.colour} {self.shape}"

    @property
    def full_name(self) -> str:
        return f"{self.size} {self.colour} {self.shape}"

    @property
    def x(self) -> float:
        return (self.box[0] + self.box[2]) / 2

    @property
    def place(self) -> str:
        """The third of the picture its centre is in."""
        return PLACES[min(2, int(3 * self.x / WIDTH))]

    @property
    def travelled(self) -> float:
        """Pixels to the right over the whole clip."""
        return self.xs[-1] - self.xs[0]


@dataclass(frozen=True)
class Hit:
    """An impact in words: when, who, what was hit."""

    time: float
    thing: Thing
    surface: str


@dataclass(frozen=True)
class Scene:
    """All that can be said about one clip; things from left to right, only those in the first frame."""

    things: tuple[Thing, ...]
    hits: tuple[Hit, ...] = ()
    seconds: float = 0.0
    kind: str = "still"
    target: Thing | None = None
    pan: float = 0.0
    zoom: float = 1.0

    @property
    def plausible(self) -> bool:
        return self.kind in {"still", "physics", "camera"}


def scenes(clips: Clips) -> list[Scene]:
    """Plain views of clips."""
    from cosmos_demo.pico import world

    shape, colour, size, present = (part.tolist() for part in (clips.shape, clips.colour, clips.size, clips.present))
    first = world.boxes(clips)[:, 0].tolist()
    xs, ys, seen = (part.permute(0, 2, 1).tolist() for part in (clips.x, clips.y, clips.visible))
    kind, target, camera = clips.kind.tolist(), clips.target.tolist(), clips.camera[:, [0, -1]].tolist()
    hits: list[list[tuple[float, int, int]]] = [[] for _ in shape]
    columns = (clips.impacts.clip, clips.impacts.time, clips.impacts.object, clips.impacts.surface)
    for clip, time, thing, surface in zip(*(column.tolist() for column in columns), strict=True):
        hits[clip].append((time, thing, surface))
    result = []
    for n in range(len(shape)):
        things = {
            k: Thing(
                world.SHAPES[shape[n][k]],
                world.COLOURS[colour[n][k]],
                world.SIZES[size[n][k]],
                tuple(first[n][k]),
                tuple(xs[n][k]),
                tuple(ys[n][k]),
                tuple(seen[n][k]),
            )
            for k in range(world.OBJECTS)
            if present[n][k] and first[n][k][2] - first[n][k][0] > 6
        }
        (pan0, _, zoom0), (pan1, _, zoom1) = camera[n]
        result.append(
            Scene(
                tuple(sorted(things.values(), key=lambda thing: thing.x)),
                tuple(Hit(time, things[k], world.SURFACES[surface]) for time, k, surface in hits[n] if k in things),
                (clips.frames - 1) / clips.fps,
                world.KINDS[kind[n]],
                things.get(target[n]),
                pan1 - pan0,
                zoom1 / zoom0,
            )
        )
    return result


def plural(word: str) -> str:
    return word + "s"


def a(words: str) -> str:
    """With its article: ``an orange ball``."""
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def joined(parts: Sequence[str]) -> str:
    """``x``, ``x and y``, ``x, y and z``."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def sentence(words: str) -> str:
    words = words[0].upper() + words[1:]
    return words if words.endswith((".", "!", "?")) else words + "."


def _at(place: str, rng: random.Random) -> str:
    if place == "middle":
        return rng.choice(("in the middle", "in the middle", "in the center", "at the center"))
    return rng.choice((f"on the {place}", f"on the {place}", f"on the {place} side", f"to the {place}"))


_SETTINGS = {
    "train": ("", "", "", " on a table", " on the table", " on a wooden table", " on a wooden tabletop"),
    "heldout": (" on top of a table", " on a brown table"),
}
_OPENINGS = {
    "train": (
        "",
        "",
        "",
        "",
        "a picture of ",
        "an image of ",
        "a photo of ",
        "there is ",
        "a table with ",
        "show me ",
        "draw ",
    ),
    "heldout": ("please draw ", "I want to see ", "make a picture of "),
}
_CLIP_OPENINGS = {
    "train": ("", "", "", "a video of a table: ", "on a wooden table, "),
    "heldout": ("a clip of a wooden table: ", "on the table, "),
}
_LOOK_AT = {
    "train": (
        "look at the {}",
        "center the {}",
        "turn the camera to the {}",
        "find the {}",
        "move the camera until the {} is in the middle",
        "show the {}",
    ),
    "heldout": ("point the camera at the {}", "bring the {} to the middle"),
}
_ZOOM = {
    "train": ("the camera zooms {}", "zoom {}", "zoom {} slowly"),
    "heldout": ("zoom the camera {}",),
}
_PAN = {
    "train": ("the camera pans to the {}", "pan {}", "move the camera to the {}", "look {}"),
    "heldout": ("turn the camera to the {}", "pan the camera to the {}"),
}
_HOLD = {
    "train": ("the camera stands still", "keep the camera still", "hold the camera still"),
    "heldout": ("do not move the camera",),
}


def caption_image(scene: Scene, rng: random.Random, split: str = "train") -> str:
    """What a person may type to get this picture, terse or full; always every object with its colour and shape."""
    style = rng.random()
    things = list(scene.things)
    with_size, with_place = style < 0.55, rng.random() < 0.65
    counts = Counter(thing.full_name if with_size else thing.name for thing in things)
    if not with_place and max(counts.values()) > 1:
        parts = [a(name) if number == 1 else f"{NUMBERS[number]} {plural(name)}" for name, number in counts.items()]
    else:
        if not with_place or rng.random() < 0.3:
            rng.shuffle(things)
        names = [thing.full_name if with_size else thing.name for thing in things]
        parts = [
            f"{a(name)} {_at(thing.place, rng)}" if with_place else a(name)
            for name, thing in zip(names, things, strict=True)
        ]
    setting = rng.choice(_SETTINGS[split])
    listed = joined(parts)
    if len(parts) == 2 and not with_place and rng.random() < 0.4:
        listed = f"{parts[0]} {rng.choice(('next to', 'beside', 'and', 'with'))} {parts[1]}"
    opening = rng.choice(_OPENINGS[split])
    if opening == "there is " and not parts[0].startswith(("a ", "an ")):
        opening = "there are "
    if opening == "a table with ":
        setting = ""
    text = opening + listed + setting
    return sentence(text) if rng.random() < 0.7 else text


def _where(thing: Thing) -> str:
    return "in the middle" if thing.place == "middle" else f"on the {thing.place}"


def describe(scene: Scene) -> str:
    """The one full description that the Reasoner gives of a picture."""
    number = len(scene.things)
    head = "There is one object" if number == 1 else f"There are {NUMBERS[number]} objects"
    parts = [f"{a(thing.full_name)} {_where(thing)}" for thing in scene.things]
    return f"{head} on a wooden table: {joined(parts)}."


def motion(thing: Thing, scene: Scene) -> str:
    """What a thing does over the clip, as a verb phrase."""
    hits = [hit for hit in scene.hits if hit.thing is thing]
    floor = [hit for hit in hits if hit.surface == "floor"]
    dropped = min(thing.ys) + 20 < max(thing.ys)
    words = []
    if dropped and floor:
        words.append("falls and bounces" if len(floor) > 1 else "falls onto the table")
    elif dropped:
        words.append("falls")
    if abs(thing.travelled) > MOVED:
        side = "right" if thing.travelled > 0 else "left"
        verb = "moves" if dropped else ("rolls" if thing.shape == "ball" else "slides")
        words.append(f"{verb} to the {side}")
    if any(hit.surface == "wall" for hit in hits):
        words.append("hits the wall")
    return joined(words) if words else "stands still"


def _told(scene: Scene) -> list[str]:
    moving = [thing for thing in scene.things if motion(thing, scene) != "stands still"]
    still = [thing for thing in scene.things if thing not in moving]
    parts = [f"{a(thing.full_name)} {motion(thing, scene)}" for thing in moving]
    if still:
        verb = "stands" if len(still) == 1 else "stand"
        parts.append(f"{joined([a(thing.full_name) for thing in still])} {verb} still")
    return parts


def caption_video(scene: Scene, rng: random.Random, split: str = "train") -> str:
    """What a person may type to get this clip: who does what."""
    told = _told(scene)
    text = rng.choice(_CLIP_OPENINGS[split]) + (
        ". ".join(sentence(part).rstrip(".") for part in told) if rng.random() < 0.3 else joined(told)
    )
    return sentence(text)


def describe_video(scene: Scene) -> str:
    """The one full description that the Reasoner gives of a clip."""
    return " ".join(sentence(part) for part in _told(scene))


def _told_apart(thing: Thing, scene: Scene) -> str | None:
    """The shortest name that only this thing has; ``None`` when there is none."""
    for name in (
        lambda other: other.name,
        lambda other: other.full_name,
        lambda other: f"{other.full_name} {_where(other)}",
    ):
        if sum(name(other) == name(thing) for other in scene.things) == 1:
            return name(thing)
    return None


def caption_camera(scene: Scene, rng: random.Random, split: str = "train") -> str:
    """The instruction or description that goes with a camera's path."""
    if scene.target is not None and (name := _told_apart(scene.target, scene)):
        return sentence(rng.choice(_LOOK_AT[split]).format(name))
    if abs(scene.zoom - 1) > 0.06:
        return sentence(rng.choice(_ZOOM[split]).format("in" if scene.zoom > 1 else "out"))
    if abs(scene.pan) > 16:
        return sentence(rng.choice(_PAN[split]).format("right" if scene.pan > 0 else "left"))
    return sentence(rng.choice(_HOLD[split]))


def _unit(box: Sequence[float]) -> list[int]:
    """A pixel box in thousandths of each axis."""
    return [round(1000 * value / size) for value, size in zip(box, (WIDTH, HEIGHT, WIDTH, HEIGHT), strict=True)]


def fenced(data: object) -> str:
    return f"```json\n{json.dumps(data)}\n```"


def _boxes(things: Sequence[Thing]) -> str:
    return fenced([{"bbox_2d": _unit(thing.box), "label": thing.name} for thing in things])


def _points(things: Sequence[Thing]) -> str:
    rows = []
    for thing in things:
        x1, y1, x2, y2 = _unit(thing.box)
        rows.append({"point_2d": [(x1 + x2) // 2, (y1 + y2) // 2], "label": thing.name})
    return fenced(rows)


_COUNT = {
    "train": (
        "How many objects are there?",
        "How many objects are on the table?",
        "How many things do you see?",
        "Count the objects.",
        "How many things are on the table?",
        "What is the number of objects?",
        "How many objects can you see in the picture?",
        "How many items are there?",
    ),
    "heldout": ("Can you count the objects for me?", "What number of things is on the table?"),
}
_COUNT_OF = {
    "train": (
        "How many {} are there?",
        "How many {} do you see?",
        "Count the {}.",
        "How many {} are on the table?",
        "What is the number of {}?",
        "How many {} can you see?",
    ),
    "heldout": ("Can you count the {} for me?", "What number of {} is on the table?"),
}
_COLOUR = {
    "train": (
        "What color is the {}?",
        "What colour is the {}?",
        "Which color does the {} have?",
        "What is the color of the {}?",
        "Tell me the color of the {}.",
        "Name the color of the {}.",
    ),
    "heldout": ("The {} has which color?", "In what color is the {}?"),
}
_SHAPE = {
    "train": (
        "What shape is the {} object?",
        "What is the {} object?",
        "Which shape does the {} thing have?",
        "What is the shape of the {} object?",
        "What is the {} thing?",
    ),
    "heldout": ("The {} object has which shape?", "Tell me what the {} thing is."),
}
_PLACE = {
    "train": (
        "Where is the {}?",
        "Where is the {} in the picture?",
        "On which side is the {}?",
        "Where do you see the {}?",
        "Where does the {} stand?",
        "In which part of the picture is the {}?",
    ),
    "heldout": ("Where can I find the {}?", "Which part of the table is the {} on?"),
}
_AT = {
    "train": (
        "What is on the {}?",
        "What do you see on the {}?",
        "Which object is on the {}?",
        "What is the {}most object?",
    ),
    "heldout": ("What can I find on the {}?",),
}
_MOST = {
    "train": ("What is the {}most object?",),
    "heldout": ("Which object is furthest to the {}?",),
}
_EXISTS = {
    "train": (
        "Is there {}?",
        "Do you see {}?",
        "Is there {} on the table?",
        "Is there {} in the picture?",
        "Can you see {}?",
        "Does the picture show {}?",
    ),
    "heldout": ("Would you say there is {}?", "Is {} among the objects?"),
}
_SIDE = {
    "train": (
        "Is the {} left or right of the {}?",
        "Is the {} to the left or to the right of the {}?",
        "On which side of the {1} is the {0}?",
    ),
    "heldout": ("Seen from the {1}, is the {0} on the left or on the right?",),
}
_BIGGER = {
    "train": (
        "Which is larger, the {} or the {}?",
        "Which is bigger, the {} or the {}?",
        "What is larger: the {} or the {}?",
    ),
    "heldout": ("Is the {} or the {} the bigger one?",),
}
_DESCRIBE = {
    "train": (
        "What do you see?",
        "Describe the picture.",
        "What is in this picture?",
        "What is on the table?",
        "Describe what you see.",
        "What does the picture show?",
    ),
    "heldout": ("Tell me about this picture.",),
}
_HAPPENS = {
    "train": (
        "What happens?",
        "What happens in this video?",
        "Describe the video.",
        "What do you see?",
        "Describe what happens.",
    ),
    "heldout": ("Tell me what happens in the clip.",),
}


def _counted(number: int, one: str) -> str:
    if number == 1:
        return f"There is one {one}."
    return f"There are {NUMBERS[number]} {plural(one)}."


def _unique(scene: Scene, key: str) -> list[Thing]:
    """Things that nothing else shares this property with."""
    counts = Counter(getattr(thing, key) for thing in scene.things)
    return [thing for thing in scene.things if counts[getattr(thing, key)] == 1]


def question(scene: Scene, rng: random.Random, kind: str, split: str = "train") -> tuple[str, str, str] | None:
    """One question about a picture.

    Args:
        scene: The truth.
        rng: Chance.
        kind: One of `KINDS`.
        split: ``train`` or ``heldout`` wording.

    Returns:
        Task, text for the task, and answer; ``None`` when this picture has no such question.
    """
    match kind:
        case "count":
            return "chat", rng.choice(_COUNT[split]), _counted(len(scene.things), "object")
        case "count of":
            key, word = rng.choice((("shape", rng.choice(SHAPES)), ("colour", rng.choice(COLOURS))))
            if rng.random() < 0.6:
                word = getattr(rng.choice(scene.things), key)
            number = sum(getattr(thing, key) == word for thing in scene.things)
            one = word if key == "shape" else f"{word} object"
            return "chat", rng.choice(_COUNT_OF[split]).format(plural(one)), _counted(number, one)
        case "colour":
            if choices := _unique(scene, "shape"):
                thing = rng.choice(choices)
                answer = sentence(f"the {thing.shape} is {thing.colour}")
                return "chat", rng.choice(_COLOUR[split]).format(thing.shape), answer
        case "shape":
            if choices := _unique(scene, "colour"):
                thing = rng.choice(choices)
                answer = f"The {thing.colour} object is a {thing.shape}."
                return "chat", rng.choice(_SHAPE[split]).format(thing.colour), answer
        case "place":
            if choices := _unique(scene, "name"):
                thing = rng.choice(choices)
                return "chat", rng.choice(_PLACE[split]).format(thing.name), f"The {thing.name} is {_where(thing)}."
        case "at":
            side = rng.choice(("left", "right"))
            thing = scene.things[0 if side == "left" else -1]
            if thing.place == side:
                there = [other for other in scene.things if other.place == side]
                asked = rng.choice(_AT[split])
                if len(there) > 1:
                    (asked,) = _MOST[split]
                return "chat", asked.format(side), sentence(a(thing.full_name))
        case "exists":
            names = {thing.name for thing in scene.things}
            there = rng.random() < 0.5
            if there:
                name = rng.choice(sorted(names))
            else:
                near = rng.choice(scene.things)
                name = rng.choice(
                    [
                        f"{near.colour} {rng.choice(SHAPES)}",
                        f"{rng.choice(COLOURS)} {near.shape}",
                        f"{rng.choice(COLOURS)} {rng.choice(SHAPES)}",
                    ]
                )
            if name in names:
                return "chat", rng.choice(_EXISTS[split]).format(a(name)), f"Yes, there is {a(name)}."
            return "chat", rng.choice(_EXISTS[split]).format(a(name)), f"No, there is no {name}."
        case "side":
            choices = _unique(scene, "name")
            if len(choices) > 1:
                one, other = rng.sample(choices, 2)
                side = "left" if one.x < other.x else "right"
                asked = rng.choice(_SIDE[split]).format(one.name, other.name)
                return "chat", asked, f"The {one.name} is {side} of the {other.name}."
        case "bigger":
            choices = _unique(scene, "name")
            pairs = [(p, q) for p in choices for q in choices if p.size == "large" and q.size == "small"]
            if pairs:
                big, little = rng.choice(pairs)
                pair = [big.name, little.name]
                rng.shuffle(pair)
                return "chat", rng.choice(_BIGGER[split]).format(*pair), f"The {big.name} is larger."
        case "describe":
            if rng.random() < 0.5:
                return "image-caption", "", describe(scene)
            return "chat", rng.choice(_DESCRIBE[split]), describe(scene)
        case "boxes" | "points":
            found, asked = _referred(scene, rng, split)
            task, answer = ("grounding", _boxes) if kind == "boxes" else ("pointing", _points)
            return task, asked, answer(found)
    return None


KINDS = (
    "count",
    "count of",
    "colour",
    "shape",
    "place",
    "at",
    "exists",
    "side",
    "bigger",
    "describe",
    "boxes",
    "points",
)
SHORT_KINDS = KINDS[:9]
LONG_KINDS = KINDS[9:]
VIDEO_KINDS = ("happens", "timeline", "segments", "when", "between", "plausible", "next")


_HELDOUT_ONE = ("that {0}", "the one {0}")
_HELDOUT_SEVERAL = ("each of the {1}", "any {0}")


def _referred(scene: Scene, rng: random.Random, split: str) -> tuple[list[Thing], str]:
    """Things and the words for them: one, all of a shape or colour, or everything."""
    draw = rng.random()
    thing = rng.choice(scene.things)
    if draw < 0.25:
        found, noun = list(scene.things), "object"
        several = one = ("all objects", "every object", "the objects", "each object")
    elif draw < 0.45:
        found, noun = [other for other in scene.things if other.shape == thing.shape], thing.shape
        several, one = (f"every {noun}", f"all {plural(noun)}", f"the {plural(noun)}"), (f"the {noun}", f"every {noun}")
    elif draw < 0.55:
        found, noun = [other for other in scene.things if other.colour == thing.colour], f"{thing.colour} object"
        several = (f"every {noun}", f"all {plural(noun)}")
        one = (f"the {noun}", *several)
    else:
        found, noun = [other for other in scene.things if other.name == thing.name], thing.name
        several, one = (f"every {noun}", f"the {plural(noun)}"), (f"the {noun}", noun, a(noun))
    if split == "heldout":
        return found, rng.choice(_HELDOUT_ONE if len(found) == 1 else _HELDOUT_SEVERAL).format(noun, plural(noun))
    return found, rng.choice(one if len(found) == 1 else several)


def clock(seconds: float) -> str:
    """``mm:ss.ff``."""
    return f"{int(seconds // 60):02d}:{seconds % 60:05.2f}"


def events(scene: Scene) -> list[tuple[float, float, str]]:
    """Impacts on the table and walls as (start, end, caption), in order; those close together count once."""
    result = []
    for thing in scene.things:
        mine = [hit for hit in scene.hits if hit.thing is thing and hit.surface != "object"]
        last = -1.0
        for hit in mine:
            if hit.time - last < 0.12:
                continue
            last = hit.time
            where = "hits the table" if hit.surface == "floor" else "hits the wall"
            result.append((hit.time, min(hit.time + 0.1, scene.seconds), f"the {thing.name} {where}"))
    return sorted(result)


def video_question(scene: Scene, rng: random.Random, kind: str, split: str = "train") -> tuple[str, str, str] | None:
    """One question about a clip; like `question`, for `VIDEO_KINDS`."""
    found = events(scene)
    match kind:
        case "happens":
            if scene.plausible:
                if rng.random() < 0.5:
                    return "video-caption", "", describe_video(scene)
                return "chat", rng.choice(_HAPPENS[split]), describe_video(scene)
        case "timeline":
            rows = [{"start": clock(s), "end": clock(e), "caption": c} for s, e, c in found[:6]]
            return "event-timeline", "", fenced(rows)
        case "segments":
            rows = [{"start": round(s, 1), "end": round(e, 1), "caption": c} for s, e, c in found[:6]]
            return "temporal-localization", "", fenced(rows)
        case "when":
            names = Counter(caption for _, _, caption in found)
            once = [event for event in found if names[event[2]] == 1]
            if once:
                start, end, caption = rng.choice(once)
                return "timestamp-query", caption, fenced({"start": clock(start), "end": clock(end)})
        case "between":
            start = rng.uniform(0, scene.seconds / 2)
            end = start + scene.seconds / 2
            inside = [sentence(caption) for time, _, caption in found if start <= time <= end]
            answer = " ".join(inside) if inside else "Nothing hits anything."
            return "interval-question", f"{clock(start)} and {clock(end)}", answer
        case "plausible":
            return "physical-plausibility", "", "(A) Possible" if scene.plausible else "(B) Impossible"
        case "next":
            if scene.plausible:
                return "situation-understanding", "", describe_video(scene)
    return None


def thought(scene: Scene) -> str:
    """Thinking that lists what is there, in order, before an answer."""
    return f"I see {joined([f'{a(thing.full_name)} {_where(thing)}' for thing in scene.things])}."


TRIES = 100
"""Draws of a question before it is clear that a scene has none of the kinds asked for."""


def asked(
    scene: Scene, rng: random.Random, kinds: Sequence[str], split: str = "train", reasoning: float = 0.0
) -> tuple[str, str]:
    """A random question of one of ``kinds`` as (prompt as sent, answer), sometimes with thinking.

    Raises:
        ValueError: The scene has no question of these kinds.
    """
    for _ in range(TRIES):
        kind = rng.choice(kinds)
        made = (video_question if kind in VIDEO_KINDS else question)(scene, rng, kind, split)
        if made is not None:
            task, text, answer = made
            thinks = rng.random() < reasoning
            prompt = prompt_for(task, text, thinks)
            return prompt, f"<think>{thought(scene)}</think>\n{answer}" if thinks else answer
    raise ValueError(f"This scene has no question of the kinds {', '.join(kinds)}.")
