"""Words for the tabletop: captions, questions and answers, made from the truth alone, in varied everyday wording.

Nothing here needs torch: a `Scene` is a plain view of one clip. Wordings come in two splits, ``train`` and
``heldout``; the second is kept from training so that tests ask in words that were never seen.
"""

from __future__ import annotations

import json
import math
import random
import re
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
    "train": ("[|||| on [a|the] [|wooden|brown ][table|tabletop|desk]]",),
    "heldout": (" on top of a table", " standing on a table made of wood"),
}
_OPENINGS = {
    "train": (
        "",
        "",
        "[a|one] [picture|photo|image|drawing|view|scene] [of|with|showing] ",
        "[there is|we see|you see|I see|here is] ",
        "[a table with|a wooden table and on it|on a table, ] ",
        "[|please ][show|draw|paint|create|give] me ",
        "[|please ][show|draw|paint|create|generate|render] ",
        "[I would like|I need|can you draw|could you show me] ",
    ),
    "heldout": ("please make a photograph of ", "I want to see ", "make a picture that has "),
}
_CLIP_OPENINGS = {
    "train": (
        "",
        "",
        "",
        "[a|one] [video|clip|film|movie] of [a table|objects on a table]: ",
        "on [a|the] [|wooden ]table, ",
        "[|please ][show|make|create] [a video|a film]: ",
    ),
    "heldout": ("a recording of a wooden table: ", "what I want to see on the table: "),
}
_LOOK_AT = {
    "train": (
        "[look|turn|go|point the lens] [at|to|towards] the {}",
        "[center|find|show|focus on|aim at|frame] the {}",
        "[turn|move|pan|swing] the camera [to|towards] the {}",
        "move [the camera|] until the {} is [in the middle|in the center|centered]",
        "[get|keep|put] the {} [into|in] [the middle|the center][| of the picture]",
        "the camera [turns|moves|pans] to the {}",
    ),
    "heldout": ("point the camera at the {}", "bring the {} to the middle"),
}
_ZOOM = {
    "train": ("[the camera zooms|zoom|the view zooms|please zoom|the lens zooms] {}[|| slowly| a bit| steadily]",),
    "heldout": ("zoom the camera {}",),
}
_PAN = {
    "train": (
        "[the camera|the view] [pans|moves|goes|travels|slides] [to the {}|{}]",
        "[|please ][pan|move|look|go|slide] [to the {}|{}]",
        "[|please ][move|swing|slide] the [camera|view] [to the {}|{}]",
    ),
    "heldout": ("turn the camera to the {}", "pan the camera over to the {}"),
}
_HOLD = {
    "train": (
        "the [camera|view] [stands|stays|is|keeps] still",
        "[keep|hold|leave] the [camera|view] [still|steady|where it is|fixed]",
        "a [still|fixed|steady] camera",
    ),
    "heldout": ("do not move the camera",),
}

SYNONYMS = {
    "ball": ("sphere", "round ball"),
    "cube": ("box", "block"),
    "large": ("big",),
    "small": ("little", "tiny"),
    "picture": ("image", "photo"),
    "video": ("clip",),
    "color": ("colour",),
}
"""Other words for the same, put into prompts and questions now and then; answers keep to the first."""


def forms(template: str) -> list[str]:
    """All texts of a template, in which ``[a|b|c]`` stands for one of ``a``, ``b`` and ``c``; they nest."""
    match = _CHOICE.search(template)
    if match is None:
        return [template]
    before, after = template[: match.start()], template[match.end() :]
    return [text for option in match[1].split("|") for text in forms(before + option + after)]


def say(template: str, rng: random.Random) -> str:
    """One text of a template, drawn at random; see `forms`."""
    while match := _CHOICE.search(template):
        template = template[: match.start()] + rng.choice(match[1].split("|")) + template[match.end() :]
    return template


_CHOICE = re.compile(r"\[([^\[\]]*)\]")


def reworded(text: str, rng: random.Random, share: float = 0.25) -> str:
    """``text`` with some of its words exchanged for `SYNONYMS`; most texts stay as they are."""
    if rng.random() >= share:
        return text
    word = rng.choice([word for word in SYNONYMS if word in text] or ["ball"])
    other = rng.choice(SYNONYMS[word])
    several = other + ("es" if other.endswith("x") else "s")
    return re.sub(rf"\b{word}(s?)\b", lambda found: several if found[1] else other, text)


_SMALL_WORDS = frozenset(
    {
        "the", "a", "an", "is", "are", "do", "does", "you", "can", "could", "please", "of", "in", "on", "it", "this",
        "there", "me", "to", "see", "table",
    }
)  # fmt: skip
_ASIDES = {
    "before": (
        "please", "hello,", "look:", "now", "so,", "tell me,", "would you say:", "I wonder,", "quick question:",
        "look closely.", "just one thing:", "what do you think,", "from what you see,", "hey,", "for me,", "and",
    ),
    "after": ("please", "then", "for me", "do you think", "would you say", "thanks", "in your view", "at all", "now"),
}  # fmt: skip


def loosened(text: str, rng: random.Random, share: float = 0.35) -> str:
    """``text`` as people type in haste: asides around it, small words left out, no capital, no question mark."""
    if rng.random() >= share:
        return text
    words = [word for word in text.split(" ") if word.lower() not in _SMALL_WORDS or rng.random() > 0.15]
    end = words[-1][-1] if words[-1][-1] in ".?!" else ""
    body = " ".join(words).removesuffix(end)
    if rng.random() < 0.5:
        body = f"{rng.choice(_ASIDES['before'])} {body[0].lower()}{body[1:]}"
    if rng.random() < 0.3:
        body = f"{body} {rng.choice(_ASIDES['after'])}"
    if rng.random() < 0.7:
        body = body[0].upper() + body[1:]
    return body + (end if rng.random() < 0.7 else "")


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
    setting = say(rng.choice(_SETTINGS[split]), rng)
    listed = joined(parts)
    if len(parts) == 2 and not with_place and rng.random() < 0.4:
        listed = f"{parts[0]} {rng.choice(('next to', 'beside', 'and', 'with'))} {parts[1]}"
    opening = say(rng.choice(_OPENINGS[split]), rng)
    if opening in {"there is ", "here is "} and not parts[0].startswith(("a ", "an ")):
        opening = opening.replace("is", "are")
    if "table" in opening:
        setting = ""
    text = reworded(opening + listed + setting, rng)
    return sentence(text) if rng.random() < 0.7 else text


def _where(thing: Thing) -> str:
    return "in the middle" if thing.place == "middle" else f"on the {thing.place}"


def describe(scene: Scene) -> str:
    """The one full description that the Reasoner gives of a picture."""
    number = len(scene.things)
    head = "There is one object" if number == 1 else f"There are {NUMBERS[number]} objects"
    parts = [f"{a(thing.full_name)} {_where(thing)}" for thing in scene.things]
    return f"{head} on a wooden table: {joined(parts)}."


PACES = ((100.0, "slowly"), (150.0, "steadily"), (math.inf, "quickly"))
"""Words for how fast something goes sideways, each up to a speed in pixels per second."""


def pace(thing: Thing, scene: Scene) -> str:
    """The word for its greatest sideways speed."""
    fastest = max(abs(later - earlier) for earlier, later in zip(thing.xs, thing.xs[1:], strict=False))
    speed = fastest * (len(thing.xs) - 1) / scene.seconds
    return next(word for limit, word in PACES if speed <= limit)


def motion(thing: Thing, scene: Scene, paced: bool = False) -> str:
    """What a thing does over the clip, as a verb phrase; ``paced`` says how fast it goes sideways."""
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
        words.append(f"{verb} {pace(thing, scene)} to the {side}" if paced else f"{verb} to the {side}")
    if any(hit.surface == "wall" for hit in hits):
        words.append("hits the wall")
    return joined(words) if words else "stands still"


def _told(scene: Scene, paced: bool = False, placed: bool = False) -> list[str]:
    def called(thing: Thing) -> str:
        return f"{a(thing.full_name)} {_where(thing)}" if placed else a(thing.full_name)

    moving = [thing for thing in scene.things if motion(thing, scene) != "stands still"]
    still = [thing for thing in scene.things if thing not in moving]
    parts = [f"{called(thing)} {motion(thing, scene, paced)}" for thing in moving]
    if still:
        verb = "stands" if len(still) == 1 else "stand"
        parts.append(f"{joined([called(thing) for thing in still])} {verb} still")
    return parts


def caption_video(scene: Scene, rng: random.Random, split: str = "train") -> str:
    """What a person may type to get this clip: who does what, mostly also how fast and where."""
    told = _told(scene, paced=rng.random() < 0.8, placed=rng.random() < 0.4)
    text = say(rng.choice(_CLIP_OPENINGS[split]), rng) + (
        ". ".join(sentence(part).rstrip(".") for part in told) if rng.random() < 0.3 else joined(told)
    )
    return sentence(reworded(text, rng))


def describe_video(scene: Scene) -> str:
    """The one full description that the Reasoner gives of a clip."""
    return " ".join(sentence(part) for part in _told(scene))


def structured(scene: Scene) -> dict[str, object]:
    """The JSON caption of a picture or clip, with those of the published keys that this world can fill."""
    clip = scene.kind != "still"
    subjects = []
    for thing in scene.things:
        subject = {"description": a(thing.full_name), "location": _where(thing)}
        subjects.append(subject | {"action": motion(thing, scene, paced=True)} if clip else subject)
    told = " ".join(sentence(part) for part in _told(scene, paced=True)) if clip else describe(scene)
    key = "temporal_caption" if clip else "comprehensive_t2i_caption"
    return {key: told, "subjects": subjects, "background_setting": "a wooden table in front of a grey wall"}


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
        return sentence(reworded(say(rng.choice(_LOOK_AT[split]), rng).format(name), rng))
    if abs(scene.zoom - 1) > 0.06:
        return sentence(say(rng.choice(_ZOOM[split]), rng).format("in" if scene.zoom > 1 else "out"))
    if abs(scene.pan) > 16:
        return sentence(say(rng.choice(_PAN[split]), rng).format("right" if scene.pan > 0 else "left"))
    return sentence(say(rng.choice(_HOLD[split]), rng))


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
        "How many [objects|things|items] [are there|do you see|can you see|are shown|are in the picture|are on the "
        "table|stand on the table|does the picture show|are visible|do we have here]?",
        "[|Please ][Count|count] [the|all|all the] [objects|things|items][| on the table| in the picture| you see].",
        "[What is|Tell me|Give me|Say] the [total |][number|count] of [objects|things|items][| on the table].",
        "[Tell me|I want to know|Please say|Can you say|Do you know] how many [objects|things|items] "
        "[there are|you see].",
        "How many [objects|things|items] [altogether|in total|in all|here]?",
        "[Objects|Things]: how many?",
    ),
    "heldout": ("Can you count the objects for me?", "What number of things is on the table?", "How many are there?"),
}
_COUNT_OF = {
    "train": (
        "How many {} [are there|do you see|can you see|are shown|are in the picture|are on the table|stand on the "
        "table|does the picture show|are visible|do we have here]?",
        "[|Please ][Count|count] [the|all|all the] {}[| on the table| in the picture| you see].",
        "[What is|Tell me|Give me|Say] the [total |][number|count] of {}[| on the table].",
        "[Tell me|I want to know|Please say|Can you say|Do you know] how many {} [there are|you see].",
        "How many {} [altogether|in total|in all|here]?",
    ),
    "heldout": ("Can you count the {} for me?", "What number of {} is on the table?"),
}
_COLOUR = {
    "train": (
        "[What|Which] color [is|does] the {}[| have| on the table]?",
        "[What is|Tell me|Name|Say|Give me|Do you know] the color of the {}.",
        "[Tell me|Please say|Can you tell|Can you say] [what|which] color the {} [is|has].",
        "The {} is [what|which] color?",
        "Color of the {}?",
        "[How is|With what color is] the {} [colored|painted]?",
    ),
    "heldout": ("The {} has which color?", "In what color is the {}?", "What is the {}'s color?"),
}
_SHAPE = {
    "train": (
        "[What|Which] shape [is|does] the {} [object|thing|item][| have]?",
        "What [is|kind of thing is|sort of object is] the {} [object|thing|item|one]?",
        "[What is|Tell me|Name|Say|Give me] the shape of the {} [object|thing|item].",
        "[Tell me|Please say|Can you tell|Can you say] [what|which] shape the {} [object|thing|one] [is|has].",
        "Is the {} [object|thing|one] a ball, a cube or a pyramid?",
        "The {} [thing|one] is what?",
    ),
    "heldout": (
        "The {} object has which shape?",
        "Tell me what the {} thing is.",
        "What shape would you call the {} object?",
    ),
}
_PLACE = {
    "train": (
        "[Where|In which place|At which place] [is|stands|do you see|can you see|is now] the {}"
        "[|| in the picture| on the table]?",
        "[On|To] which side is the {}?",
        "[In|On] [which|what] part of the [picture|scene] is the {}?",
        "Where does the {} [stand|sit|lie|rest]?",
        "[Tell me|Please say|Can you tell|Can you say|Show me|I want to know] where the {} is.",
        "[Tell me|What is|Name|Give me] the [place|position|location] of the {}.",
        "[Find|Locate] the {}: left, middle or right?",
        "Is the {} on the left, in the middle or on the right?",
    ),
    "heldout": ("Where can I find the {}?", "Which part of the table is the {} on?", "Where should I look for the {}?"),
}
_AT = {
    "train": (
        "What [is|stands|do you see|can you see|lies] on the {}[|| of the picture| of the table| side]?",
        "[Which|What] [object|thing] is [on|at] the {}[|| side]?",
        "[What|Which] is the {}most [object|thing]?",
        "[Name|Tell me|Describe] the [object|thing] on the {}.",
    ),
    "heldout": ("What can I find on the {}?", "Who stands over on the {}?"),
}
_MOST = {
    "train": (
        "[What|Which] is the {}most [object|thing]?",
        "[Name|Tell me] the {}most [object|thing].",
        "What is [farthest|most] to the {}?",
    ),
    "heldout": ("Which object is furthest to the {}?",),
}
_EXISTS = {
    "train": (
        "[Is there|Do you see|Can you see|Do we see|Have you found] {}"
        "[|| on the table| in the picture| here| anywhere]?",
        "[Does|Would] the [picture|scene|table] [show|have|contain|hold] {}?",
        "Is {} [there|shown|visible|present|to be seen|on the table|in the scene|part of the picture]?",
        "[Tell me|Please say|Check|Can you tell|I want to know] [if|whether] there is {}.",
        "[True or false|Yes or no|Right or wrong]: there is {}.",
        "There is {}, [right|correct|is there not|true]?",
        "Are you seeing {}?",
    ),
    "heldout": ("Would you say there is {}?", "Is {} among the objects?", "Does one of the things look like {}?"),
}
_SIDE = {
    "train": (
        "Is the {} [left or right|on the left or on the right|to the left or to the right|right or left] of the {}?",
        "On [which|what] side of the {1} [is|stands|do you see] the {0}?",
        "[Is the {}|The {} is] left of the {} or right of it?",
        "[Where is|Where do you see|Where stands] the {}[,| when] [seen|looking|compared] from the {}?",
        "Looking from the {1}, where is the {0}?",
        "From the {1}, is the {0} left or right?",
        "[To|On] which side of the {1} would you look for the {0}?",
        "[Tell me|Please say|Can you tell] [if|whether] the {} is left or right of the {}.",
        "Does the {} [stand|lie|sit] [left or right|on the left or the right] of the {}?",
        "Compared with the {1}, is the {0} further left or further right?",
    ),
    "heldout": ("Seen from the {1}, is the {0} on the left or on the right?", "Which side of the {1} has the {0}?"),
}
_BIGGER = {
    "train": (
        "[Which|What|Which one|Which object] is [larger|bigger][,|:] the {} or the {}?",
        "Is the {} [larger|bigger] [or|or is] the {}?",
        "[Tell me|Name|Point out] the [larger|bigger] [one|object|thing]: the {} or the {}.",
        "Between the {} and the {}, [which|which one] is [larger|bigger]?",
        "Of the {} and the {}, which is the [larger|bigger] one?",
    ),
    "heldout": ("Is the {} or the {} the bigger one?", "The {} and the {}: which has the greater size?"),
}
_DESCRIBE = {
    "train": (
        "[What|What all] [do you see|can you see|is there|is shown]?",
        "[|Please ][Describe|describe|explain] [the|this] [picture|scene][|| in detail| to me| in full].",
        "What is [in|on] [this|the] [picture|scene|table]?",
        "[Describe|Tell me|Say|List] what [you see|is there|is on the table].",
        "What does the [picture|scene] show?",
        "[List|Name] [all|all the] [objects|things][| you see].",
    ),
    "heldout": ("Tell me about this picture.", "Give me a full description."),
}
_HAPPENS = {
    "train": (
        "What [happens|is happening|goes on|is going on|do you see][| in this video| in the video| here]?",
        "[|Please ][Describe|describe] [the|this] video[|| in detail| to me].",
        "[Describe|Tell me|Say|Explain] what [happens|goes on|you see].",
        "What [do the objects|do the things|does each object] do?",
        "How do [the objects|the things] move?",
    ),
    "heldout": ("Tell me what happens in the clip.", "Give me a report of what takes place."),
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
            return "chat", say(rng.choice(_COUNT[split]), rng), _counted(len(scene.things), "object")
        case "count of":
            key, word = rng.choice((("shape", rng.choice(SHAPES)), ("colour", rng.choice(COLOURS))))
            if rng.random() < 0.6:
                word = getattr(rng.choice(scene.things), key)
            number = sum(getattr(thing, key) == word for thing in scene.things)
            one = word if key == "shape" else f"{word} object"
            return "chat", say(rng.choice(_COUNT_OF[split]), rng).format(plural(one)), _counted(number, one)
        case "colour":
            if choices := _unique(scene, "shape"):
                thing = rng.choice(choices)
                answer = sentence(f"the {thing.shape} is {thing.colour}")
                return "chat", say(rng.choice(_COLOUR[split]), rng).format(thing.shape), answer
        case "shape":
            if choices := _unique(scene, "colour"):
                thing = rng.choice(choices)
                answer = f"The {thing.colour} object is a {thing.shape}."
                return "chat", say(rng.choice(_SHAPE[split]), rng).format(thing.colour), answer
        case "place":
            if choices := _unique(scene, "name"):
                thing = rng.choice(choices)
                return (
                    "chat",
                    say(rng.choice(_PLACE[split]), rng).format(thing.name),
                    f"The {thing.name} is {_where(thing)}.",
                )
        case "at":
            side = rng.choice(("left", "right"))
            thing = scene.things[0 if side == "left" else -1]
            if thing.place == side:
                there = [other for other in scene.things if other.place == side]
                asked = say(rng.choice(_AT[split]), rng)
                if len(there) > 1:
                    asked = say(rng.choice(_MOST[split]), rng)
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
                return "chat", say(rng.choice(_EXISTS[split]), rng).format(a(name)), f"Yes, there is {a(name)}."
            return "chat", say(rng.choice(_EXISTS[split]), rng).format(a(name)), f"No, there is no {name}."
        case "side":
            choices = _unique(scene, "name")
            if len(choices) > 1:
                one, other = rng.sample(choices, 2)
                side = "left" if one.x < other.x else "right"
                asked = say(rng.choice(_SIDE[split]), rng).format(one.name, other.name)
                return "chat", asked, f"The {one.name} is {side} of the {other.name}."
        case "bigger":
            choices = _unique(scene, "name")
            pairs = [(p, q) for p in choices for q in choices if p.size == "large" and q.size == "small"]
            if pairs:
                big, little = rng.choice(pairs)
                pair = [big.name, little.name]
                rng.shuffle(pair)
                return "chat", say(rng.choice(_BIGGER[split]), rng).format(*pair), f"The {big.name} is larger."
        case "describe":
            if rng.random() < 0.5:
                return "image-caption", "", describe(scene)
            return "chat", say(rng.choice(_DESCRIBE[split]), rng), describe(scene)
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
LOOKS = ("count", "count of", "colour", "shape", "exists")
"""Questions about a picture that are also asked about a clip."""
VIDEO_KINDS = ("looks", "happens", "timeline", "segments", "when", "between", "plausible", "next")


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
        case "looks":
            return question(scene, rng, rng.choice(LOOKS), split)
        case "happens":
            if scene.plausible:
                if rng.random() < 0.5:
                    return "video-caption", "", describe_video(scene)
                return "chat", say(rng.choice(_HAPPENS[split]), rng), describe_video(scene)
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
            if task == "chat" and split == "train":
                text = loosened(reworded(text, rng), rng)
            thinks = rng.random() < reasoning
            prompt = prompt_for(task, text, thinks)
            return prompt, f"<think>{thought(scene)}</think>\n{answer}" if thinks else answer
    raise ValueError(f"This scene has no question of the kinds {', '.join(kinds)}.")
