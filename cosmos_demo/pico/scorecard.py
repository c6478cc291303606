"""How well a checkpoint knows its worlds, measured through the app's own engine with the app's own settings.

    python -m cosmos_demo.pico.scorecard [CHECKPOINT] [--quick] [--out FILE.json] [--only ROW ...] [--cases N]

Worlds come from seeds far from those of training, questions and prompts from wording kept out of it. Answers are judged
by what they mean, pictures, clips and sound by `judges`, which know the simulator and no model. ``--quick`` measures a
few cases of some rows and ends with status 1 when a figure is so low that something must be broken.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import cosmos_demo
from cosmos_demo import media
from cosmos_demo.engines.base import Engine
from cosmos_demo.events import Answered, Generated
from cosmos_demo.generator import controls
from cosmos_demo.media import Clip
from cosmos_demo.pico import judges, language, pusht, world
from cosmos_demo.pico.language import Scene
from cosmos_demo.reasoner import parse
from cosmos_demo.reasoner.tasks import TASKS
from cosmos_demo.requests import AnswerRequest, GenerateRequest
from cosmos_demo.settings import PICO, Settings

SEED = 5_000_000_000
"""Base of all seeds; those of training and of the example media are below a few million."""
FRAMES, FPS = 17, 10
SHOWN = 16
"""Frames of a clip that questions are asked about."""
SECOND = FPS
"""The frame one second after the first."""
LOST = 0.5
"""Place error, in widths, of an object that isn't to be seen."""
TRIES = 1000
DRAWS = 32

Score = float | tuple[float, ...] | tuple[np.ndarray, np.ndarray]
"""What a case gives: one number for each measure of its row, or what was asked and what came, number by number."""


# --- what is measured, and how ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measure:
    """One line of the table.

    Attributes:
        name: Its id.
        what: In words.
        target: What it should reach, from below, or from above with ``at_most``.
        floor: What even a few cases must reach in a quick run; ``None`` asks for nothing.
        kind: ``share`` of what is right (Wilson's interval), ``mean``, ``correlation`` or ``r2`` (bootstrap).
        at_most: Whether smaller is better.
        wrong: Score of a case that failed.
        unit: ``share`` of 1, a unit such as ``dB``, or empty for plain numbers; a share's own is ``share``.
    """

    name: str
    what: str
    target: float
    floor: float | None = None
    kind: str = "share"
    at_most: bool = False
    wrong: float = 0.0
    unit: str = ""

    def figure(self, scores: Sequence[Score | None]) -> float:
        """One number for all cases; ``None`` is a case that failed."""
        if self.kind in ("share", "mean"):
            return float(np.mean([self.wrong if score is None else score for score in scores]))
        pairs = [score for score in scores if score is not None]
        if not pairs:
            return 0.0
        asked, came = (np.concatenate([np.ravel(pair[side]) for pair in pairs]).astype(float) for side in (0, 1))
        value = correlation(asked, came) if self.kind == "correlation" else r2(asked, came)
        # Failed cases have no numbers, so they count as knowing nothing.
        return min(value, value * len(pairs) / len(scores))

    def interval(self, scores: Sequence[Score | None]) -> tuple[float, float]:
        """Where the true figure lies with 95 % confidence."""
        if self.kind == "share":
            return wilson(self.figure(scores) * len(scores), len(scores))
        rng = np.random.default_rng(0)
        drawn = [self.figure([scores[n] for n in rng.integers(len(scores), size=len(scores))]) for _ in range(1000)]
        low, high = np.quantile(drawn, (0.025, 0.975))
        return float(low), float(high)

    def reached(self, value: float, least: float) -> bool:
        """Whether a value is as good as ``least``."""
        return value <= least if self.at_most else value >= least


def wilson(right: float, n: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of ``right`` in ``n``; parts of a case may be right."""
    share = right / n
    middle = share + z * z / (2 * n)
    spread = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, (middle - spread) / (1 + z * z / n)), min(1.0, (middle + spread) / (1 + z * z / n))


def correlation(asked: np.ndarray, came: np.ndarray) -> float:
    """Pearson's; 0 where one of them never changes."""
    spread = asked.std() * came.std()
    return float(((asked - asked.mean()) * (came - came.mean())).mean() / spread) if spread > 1e-9 else 0.0


def r2(asked: np.ndarray, came: np.ndarray) -> float:
    """Share of the variance of what was asked that is in what came; 0 where there is no variance."""
    spread = float(((asked - asked.mean()) ** 2).sum())
    return 1 - float(((asked - came) ** 2).sum()) / spread if spread > 1e-9 else 0.0


# --- worlds and requests ----------------------------------------------------------------------------------------------


@dataclass
class Lab:
    """Draws the world of one case after another and puts requests to the engine.

    Attributes:
        engine: Of the app.
        seed: Of the whole run, added to `SEED`.
    """

    engine: Engine | None
    seed: int = 0
    case: int = 0
    rng: random.Random = field(default_factory=random.Random)
    generator: torch.Generator = field(default_factory=torch.Generator)

    def begin(self, row: str, case: int) -> None:
        """Seed all chance for a case, the same whatever ran before."""
        self.rng.seed(f"{SEED + self.seed} {row} {case}")
        self.generator.manual_seed(SEED + self.rng.randrange(2**32))
        self.case = case

    def still(self, wanted: Callable[[Scene], bool] = lambda scene: True) -> tuple[Scene, np.ndarray]:
        """A picture: its truth and uint8 ``[192, 320, 3]``."""
        clips, scene = self._drawn(lambda: world.sample_stills(DRAWS, self.generator), wanted)
        return scene, world.render(clips)[0, 0].numpy()

    def clip(
        self, wanted: Callable[[Scene], bool] = lambda scene: True, implausible: bool = False
    ) -> tuple[world.Clips, Scene, np.ndarray]:
        """A clip: the simulator's, its truth and uint8 ``[17, 192, 320, 3]``."""
        clips, scene = self._drawn(
            lambda: world.sample_videos(DRAWS, FRAMES, FPS, self.generator, implausible=implausible), wanted
        )
        return clips, scene, world.render(clips)[0].numpy()

    def camera(self, wanted: Callable[[Scene], bool]) -> tuple[world.Clips, Scene, np.ndarray]:
        """A clip of a moving camera, like `clip`."""
        clips, scene = self._drawn(lambda: world.sample_camera(DRAWS, FRAMES, FPS, self.generator)[0], wanted)
        return clips, scene, world.render(clips)[0].numpy()

    def question(
        self, kinds: Sequence[str], wanted: Callable[[Scene], bool] = lambda scene: True
    ) -> tuple[Scene, np.ndarray, str, str, str, str]:
        """A picture that has a question of one of ``kinds``: truth, picture, kind, task, text for it, true answer."""
        for _ in range(TRIES):
            scene, frame = self.still(wanted)
            kind = kinds[self.case % len(kinds)]
            if made := language.question(scene, self.rng, kind, "heldout"):
                return scene, frame, kind, *made
        raise ValueError(f"no picture with a question of the kinds {', '.join(kinds)}")

    def ask(self, shown: np.ndarray, prompt: str = "", task: str = "chat", reasoning: bool = False) -> Answered:
        """The greedy answer to a question about a picture ``[H, W, 3]`` or a clip ``[T, H, W, 3]``."""
        given = {"video": sampled(shown)} if shown.ndim == 4 else {"images": (Image.fromarray(shown),)}
        tokens = TASKS[task].max_new_tokens
        *_, last = self.engine.answer(
            AnswerRequest(
                prompt, task=task, reasoning=reasoning, temperature=0.0, max_new_tokens=tokens, seed=0, **given
            )
        )
        return last

    def make(self, mode: str, prompt: str, **given: object) -> Generated:
        """A generation with the app's defaults for all that isn't given."""
        *_, last = self.engine.generate(GenerateRequest(mode, prompt, seed=self.rng.randrange(2**32), **given))
        return last

    def _drawn(self, draw: Callable[[], world.Clips], wanted: Callable[[Scene], bool]) -> tuple[world.Clips, Scene]:
        for _ in range(TRIES):
            clips = draw()
            for index, scene in enumerate(language.scenes(clips)):
                if scene.things and wanted(scene):
                    return one_of(clips, index), scene
        raise ValueError("no such world was drawn")


def one_of(clips: world.Clips, index: int) -> world.Clips:
    """One of several clips, alone."""
    mine = clips.impacts.clip == index
    hits = {name: getattr(clips.impacts, name)[mine] for name in ("object", "time", "speed", "x", "surface")}
    parts = ("shape", "colour", "size", "present", "x", "y", "visible", "camera", "kind", "target")
    return world.Clips(
        **{name: getattr(clips, name)[index : index + 1] for name in parts},
        impacts=world.Impacts(clip=torch.zeros_like(hits["object"]), **hits),
        fps=clips.fps,
    )


def clip_of(frames: np.ndarray) -> Clip:
    return Clip(frames, float(FPS), np.arange(len(frames)) / FPS)


def sampled(frames: np.ndarray) -> Clip:
    """What the app shows the Reasoner of a clip's first `SHOWN` frames."""
    return media.sample_clip(clip_of(frames[:SHOWN]), FPS, even=True)


def all_differ(scene: Scene) -> bool:
    """Whether every object has a colour of its own, so that it can be told apart and followed."""
    return len({thing.colour for thing in scene.things}) == len(scene.things)


# --- questions about pictures -----------------------------------------------------------------------------------------


def count(lab: Lab) -> float:
    _, frame, _, _, text, truth = lab.question(("count", "count of"))
    return float(judges.number(lab.ask(frame, text).text) == judges.number(truth))


def _word(lab: Lab, kind: str, words: Sequence[str]) -> float:
    """Whether the answer says the same one of ``words`` as the truth."""
    _, frame, _, _, text, truth = lab.question((kind,))
    return float(set(judges.said(lab.ask(frame, text).text, words)) == set(judges.said(truth, words)))


def colour(lab: Lab) -> float:
    return _word(lab, "colour", world.COLOURS)


def shape(lab: Lab) -> float:
    return _word(lab, "shape", world.SHAPES)


def place(lab: Lab) -> float:
    return _word(lab, "place", language.PLACES)


def exists(lab: Lab) -> float:
    _, frame, _, _, text, truth = lab.question(("exists",))
    return float(judges.affirmed(lab.ask(frame, text).text) == judges.affirmed(truth))


def grounding(lab: Lab) -> tuple[float, float]:
    """Mean overlap of the boxes with the true ones, and the share of boxes that overlap by half."""
    _, frame, _, task, text, truth = lab.question(("boxes",))
    true = [(box.x1, box.y1, box.x2, box.y2) for box in parse.read(task, truth).boxes]
    found = [(box.x1, box.y1, box.x2, box.y2) for box in lab.ask(frame, text, task).boxes]
    pairs = sorted(((judges.box_iou(one, other), i, j) for i, one in enumerate(found) for j, other in enumerate(true)))
    ious: dict[int, tuple[int, float]] = {}
    for iou, i, j in reversed(pairs):
        if i not in ious and all(j != taken for taken, _ in ious.values()):
            ious[i] = (j, iou)
    wanted = max(len(found), len(true))
    return sum(iou for _, iou in ious.values()) / wanted, sum(iou > 0.5 for _, iou in ious.values()) / wanted


def pointing(lab: Lab) -> float:
    scene, frame, _, task, text, truth = lab.question(("points",))
    left = [_thing_at(scene, (point.x, point.y)) for point in parse.read(task, truth).points]
    wanted, right = len(left), 0
    found = lab.ask(frame, text, task).points
    for point in found:
        x, y = point.x / parse.UNIT * world.WIDTH, point.y / parse.UNIT * world.HEIGHT
        hit = next(
            (thing for thing in left if thing.box[0] <= x <= thing.box[2] and thing.box[1] <= y <= thing.box[3]), None
        )
        if hit is not None:
            left.remove(hit)
            right += 1
    return right / max(wanted, len(found))


def _thing_at(scene: Scene, point: tuple[float, float]) -> language.Thing:
    """The thing whose middle is nearest to a point in thousandths."""
    return min(scene.things, key=lambda thing: abs(thing.x - point[0] / parse.UNIT * world.WIDTH))


def caption(lab: Lab) -> float:
    """Whether a description names all objects and nothing else, each with its colour, shape and place."""
    scene, frame, _, task, text, _ = lab.question(("describe",))
    true = [judges.Named(thing.colour, thing.shape, thing.place) for thing in scene.things]
    return float(sorted(map(str, judges.named(lab.ask(frame, text, task).text))) == sorted(map(str, true)))


def thinking(lab: Lab) -> float:
    """Whether the final answer follows from the objects that the thinking lists, be they there or not."""
    _, frame, kind, task, text, truth = lab.question(("count", "colour", "place"), all_differ)
    answer = lab.ask(frame, text, task, reasoning=True)
    listed = judges.named(answer.thinking)
    if kind == "count":
        return float(bool(listed) and judges.number(answer.text) == len(listed))
    if kind == "colour":
        asked = judges.said(truth, world.SHAPES)
        meant = {one.colour for one in listed if one.shape in asked}
        return float(bool(meant) and set(judges.said(answer.text, world.COLOURS)) == meant)
    asked = judges.named(truth)[0]
    meant = {one.place for one in listed if (one.colour, one.shape) == (asked.colour, asked.shape)}
    return float(bool(meant) and set(judges.said(answer.text, language.PLACES)) == meant)


# --- questions about clips --------------------------------------------------------------------------------------------


def timeline(lab: Lab) -> float:
    """F1 of the events listed; in some clips nothing happens. All of them happen while the clip is shown."""
    last = (SHOWN - 1) / FPS
    _, scene, frames = lab.clip(lambda scene: all(start < last for start, _, _ in language.events(scene)))
    found = [(span.start, span.caption) for span in lab.ask(frames, task="event-timeline").spans]
    return judges.timeline_f1(found, [(start, caption) for start, _, caption in language.events(scene)[:6]])


def plausibility(lab: Lab) -> float:
    broken = lab.case % 2 == 1
    _, _, frames = lab.clip(implausible=broken)
    return float(lab.ask(frames, task="physical-plausibility").label == ("Impossible" if broken else "Possible"))


# --- pictures and clips -----------------------------------------------------------------------------------------------


def text_to_image(lab: Lab) -> float:
    """Share of objects with the colour, shape and third of the picture asked for; objects too many count as wrong."""
    scene, _ = lab.still()
    prompt = _until(
        lambda: language.caption_image(scene, lab.rng, "heldout"),
        lambda text: len(judges.said(text, language.PLACES)) == len(scene.things),
    )
    seen = judges.objects_seen(lab.make("text-to-image", prompt).frames[0])
    left, right = list(seen), 0
    for thing in scene.things:
        fits = [one for one in left if one.name == thing.name and judges.is_at(one.centre[0], thing.place)]
        if fits:
            right += 1
            left.remove(fits[0])
    return right / max(len(scene.things), len(seen))


def text_to_video(lab: Lab) -> float:
    """Share of objects that are there from the start and go where they are told to; objects too many count as wrong."""
    _, scene, _ = lab.clip(lambda scene: all_differ(scene) and any(abs(t.travelled) > 40 for t in scene.things))
    frames = lab.make("text-to-video", language.caption_video(scene, lab.rng, "heldout")).frames
    seen = judges.objects_seen(frames[0])
    right = 0
    for thing in scene.things:
        start = next((one for one in seen if one.name == thing.name), None)
        right += start is not None and _goes_as(judges.track(frames, start), thing)
    return right / max(len(scene.things), len(seen))


def _goes_as(path: np.ndarray, thing: language.Thing) -> bool:
    """Whether a path ``[T, 2]`` leads to the side that a thing goes to, or nowhere, and down where it falls."""
    path = path[~np.isnan(path[:, 0])]
    if len(path) < 2:
        return False
    travelled, fallen = path[-1, 0] - path[0, 0], path[:, 1].max() - path[0, 1]
    falls = max(thing.ys) - min(thing.ys) > 20
    if abs(thing.travelled) > language.MOVED:
        sideways = travelled * math.copysign(1, thing.travelled) > language.MOVED / 2
    else:
        sideways = abs(travelled) < 1.5 * language.MOVED
    return bool(sideways and (fallen > 12 if falls else fallen < 20))


def image_to_video(lab: Lab) -> tuple[float, float]:
    """Place error after a second in widths, and likeness of the first frame to the given picture in decibels."""
    clips, scene, frames = lab.clip(all_differ)
    made = lab.make("image-to-video", _paced(lab, scene), image=Image.fromarray(frames[0])).frames
    return _place_error(made, clips), judges.psnr(made[0], frames[0])


def video_to_video(lab: Lab) -> float:
    """Place error a second after the first frame, in widths, from the first five frames."""
    clips, scene, frames = lab.clip(all_differ)
    made = lab.make("video-to-video", _paced(lab, scene), video=clip_of(frames[:5]), condition_frames=5, keep="first")
    return _place_error(made.frames, clips)


def _paced(lab: Lab, scene: Scene) -> str:
    """A prompt that says how fast things go sideways, for else nobody could know."""
    moves = any(abs(thing.travelled) > language.MOVED for thing in scene.things)
    return _until(
        lambda: language.caption_video(scene, lab.rng, "heldout"),
        lambda text: not moves or any(word in text for _, word in language.PACES),
    )


def _place_error(made: np.ndarray, clips: world.Clips) -> float:
    """Mean distance of objects from where the simulator has them after a second, in widths."""
    true = judges.true_objects(clips, 0, SECOND)
    pairs = judges.matched(judges.objects_seen(made[SECOND]), true, shapes=False)
    errors = [judges.distance(one, other) / world.WIDTH for one, other in pairs]
    return (sum(errors) + LOST * (len(true) - len(pairs))) / max(1, len(true))


def _until(draw: Callable[[], str], fits: Callable[[str], bool]) -> str:
    """The first text drawn that fits."""
    return next(text for text in (draw() for _ in range(TRIES)) if fits(text))


def sound(lab: Lab) -> float:
    """Of one dropped object: share of first ring at the bounce that is seen (80 ms), pitch of its size, right side."""
    _, scene, frames = lab.clip(_drops)
    thing = scene.things[0]
    made = lab.make("image-to-video", _paced(lab, scene), image=Image.fromarray(frames[0]), sound=True)
    rings = judges.onsets(made.sound, made.sample_rate)
    if not rings:
        return 0.0
    start = judges.Seen(thing.shape, thing.colour, thing.size, thing.box)
    path = judges.track(made.frames, start)
    bounce = judges.bounce_seen(path, start, made.fps)
    at = path[min(len(path) - 1, round(rings[0].time * made.fps)), 0]
    at = thing.x if np.isnan(at) else at
    on_time = bounce is not None and abs(rings[0].time - bounce) <= 0.08
    return (on_time + (rings[0].size == thing.size) + (rings[0].side * (at - world.WIDTH / 2) > 0)) / 3


def _drops(scene: Scene) -> bool:
    """One object alone that falls on the table first of all, clearly to the left or right."""
    first = scene.hits[0] if scene.hits else None
    return (
        len(scene.things) == 1
        and first is not None
        and first.surface == "floor"
        and first.time < 1
        and abs(scene.things[0].x - world.WIDTH / 2) > 50
    )


def camera(lab: Lab) -> tuple[np.ndarray, np.ndarray]:
    """Pixels that the camera is asked to travel, left and right in turn, and that the picture moves the other way."""
    side = 1 if lab.case % 2 else -1
    clips, scene, frames = lab.camera(lambda scene: scene.pan * side > 16)
    made = lab.make(
        "forward-dynamics",
        language.caption_camera(scene, lab.rng, "heldout"),
        image=Image.fromarray(frames[0]),
        actions=world.actions_of(clips.camera)[0].numpy(),
        domain="camera_pose",
        chunk_size=FRAMES - 1,
        fps=FPS,
    ).frames
    moved = -sum(judges.shift(frame, later) for frame, later in pairwise(made))
    return np.array([scene.pan]), np.array([moved])


def edge_control(lab: Lab) -> float:
    _, scene, frames = lab.clip()
    return _transfer(lab, scene, frames, "edge", controls.edges(clip_of(frames)))


def seg_control(lab: Lab) -> float:
    clips, scene, frames = lab.clip()
    return _transfer(lab, scene, frames, "seg", clip_of(world.segmentation(clips)[0].numpy()))


def _transfer(lab: Lab, scene: Scene, frames: np.ndarray, kind: str, control: Clip) -> float:
    """Overlap of the objects made with the true ones, mean over some frames."""
    prompt = language.caption_video(scene, lab.rng, "heldout")
    made = lab.make("transfer", prompt, controls={kind: control}).frames
    return float(
        np.mean(
            [judges.mask_iou(judges.foreground(made[at]), judges.foreground(frames[at])) for at in range(0, FRAMES, 4)]
        )
    )


# --- PushT ------------------------------------------------------------------------------------------------------------

_PUSHT = {"domain": "pusht", "chunk_size": pusht.CHUNK, "fps": pusht.FPS, "resolution": 256}


def _episode(lab: Lab) -> tuple[torch.Tensor, np.ndarray, np.ndarray, str]:
    """States ``[17, 5]``, actions ``[16, 2]``, frames ``[17, 256, 256, 3]`` and words of an episode."""
    # One of two is an expert's, the other a random pusher's, in random order.
    episodes = pusht.sample_episodes(2, SEED + lab.rng.randrange(2**32))
    states = episodes.states[0]
    words = pusht.caption(states, lab.rng, "heldout")
    return states, episodes.actions[0].numpy(), pusht.render(states[None])[0].numpy(), words


def pusht_inverse(lab: Lab) -> tuple[np.ndarray, np.ndarray]:
    """Actions taken and actions read from the clip."""
    _, actions, frames, words = _episode(lab)
    return actions, lab.make("inverse-dynamics", words, video=clip_of(frames), **_PUSHT).actions


def pusht_forward(lab: Lab) -> float:
    """Distance of the pusher at the end from where its actions lead to, in widths."""
    states, actions, frames, words = _episode(lab)
    made = lab.make("forward-dynamics", words, image=Image.fromarray(frames[0]), actions=actions, **_PUSHT).frames
    found = pusht.positions_seen(torch.from_numpy(made[-1:].copy()))[0]
    return LOST if found is None else math.dist(found, states[-1, :2].tolist()) / pusht.BOARD


def pusht_policy(lab: Lab) -> float:
    """Whether a task is done in the real environment, with a new look after every chunk."""

    def policy(frame: torch.Tensor, instruction: str) -> torch.Tensor:
        made = lab.make("policy", instruction, image=Image.fromarray(frame.numpy()), **_PUSHT)
        return torch.from_numpy(made.actions)

    task = pusht.TASKS[lab.case % len(pusht.TASKS)]
    done, _ = pusht.rollout(task, policy, SEED + lab.rng.randrange(2**32), split="heldout")
    return float(done)


# --- the rows ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A kind of case and what is measured on it.

    Attributes:
        score: Draws and scores one case, one number for each measure.
        cases: How many by default; quick: how many in a quick run, 0 to leave it out.
    """

    score: Callable[[Lab], Score]
    cases: int
    quick: int
    measures: tuple[Measure, ...]


_ERROR = {"kind": "mean", "at_most": True, "wrong": 1.0, "unit": "share"}

_ALL = (
    Row(count, 60, 6, (Measure("count", "how many objects, or of a kind, answered right", 0.95, 0.5),)),
    Row(colour, 60, 4, (Measure("colour", "colour answered right", 0.95, 0.5),)),
    Row(shape, 60, 4, (Measure("shape", "shape answered right", 0.95, 0.5),)),
    Row(place, 60, 4, (Measure("place", "left, middle or right answered right", 0.95, 0.5),)),
    Row(exists, 60, 6, (Measure("exists", "whether there is such an object answered right", 0.95, 0.5),)),
    Row(
        grounding,
        30,
        4,
        (
            Measure("grounding", "mean overlap of boxes (IoU)", 0.80, 0.4, "mean"),
            Measure("grounding-hits", "boxes that overlap by more than half", 0.95, 0.4),
        ),
    ),
    Row(pointing, 30, 4, (Measure("pointing", "points inside their object", 0.95, 0.4),)),
    Row(caption, 24, 3, (Measure("captions", "descriptions with all objects, colours and places right", 0.90, 0.3),)),
    Row(thinking, 24, 3, (Measure("thinking", "answers that agree with their thinking", 0.95, 0.5),)),
    Row(timeline, 20, 0, (Measure("timeline", "events of a clip within 0.15 s (F1)", 0.85, None, "mean"),)),
    Row(plausibility, 24, 0, (Measure("plausibility", "possible or impossible told right", 0.90),)),
    Row(text_to_image, 40, 4, (Measure("text-to-image", "objects with colour, shape and place as asked", 0.90, 0.5),)),
    Row(text_to_video, 12, 0, (Measure("text-to-video", "objects that are there and move as asked", 0.85),)),
    Row(
        image_to_video,
        12,
        1,
        (
            Measure("image-to-video", "place error of objects after 1 s, of the width", 0.06, 0.3, **_ERROR),
            Measure("first-frame", "likeness of the first frame (PSNR)", 35.0, 25.0, "mean", unit="dB"),
        ),
    ),
    Row(
        video_to_video,
        10,
        0,
        (Measure("video-to-video", "place error of objects after 1 s, of the width", 0.05, **_ERROR),),
    ),
    Row(sound, 12, 0, (Measure("sound", "moment, pitch and side of a bounce right", 0.90),)),
    Row(camera, 12, 2, (Measure("camera", "travel asked and travel seen (correlation)", 0.95, 0.5, "correlation"),)),
    Row(pusht_inverse, 12, 0, (Measure("pusht-inverse", "actions read from a clip (R2)", 0.95, None, "r2"),)),
    Row(
        pusht_forward,
        12,
        0,
        (Measure("pusht-forward", "place error of the pusher at the end, of the width", 0.03, **_ERROR),),
    ),
    Row(pusht_policy, 22, 0, (Measure("pusht-policy", "tasks done in the real environment", 0.80),)),
    Row(edge_control, 6, 0, (Measure("edge-control", "objects where edges put them (IoU)", 0.60, None, "mean"),)),
    Row(seg_control, 6, 0, (Measure("seg-control", "objects where segments put them (IoU)", 0.60, None, "mean"),)),
)

ROWS: Mapping[str, Row] = {row.measures[0].name: row for row in _ALL}
"""By the name of their first measure, in the order in which they run."""


@dataclass(frozen=True)
class Result:
    """One line of the table: the figure, its 95 % interval, from how many cases, and whether it meets its target."""

    name: str
    what: str
    value: float
    low: float
    high: float
    n: int
    target: float
    met: bool
    seconds: float
    broken: bool = False
    """Whether it is worse than even a few cases of a sound checkpoint can be."""
    at_most: bool = False
    unit: str = ""
    failures: tuple[str, ...] = ()
    """Messages of cases that ended in an error; they count as wrong."""


def measure(name: str, lab: Lab, cases: int) -> list[Result]:
    """Run a row's cases; one result for each of its measures. A case that raises counts as wrong."""
    row = ROWS[name]
    began = time.perf_counter()
    scores: list[Score | None] = []
    failures: list[str] = []
    for case in range(cases):
        lab.begin(name, case)
        try:
            scores.append(row.score(lab))
        except Exception as error:  # one bad case shall not end a run of half an hour
            scores.append(None)
            failures.append(f"case {case}: {type(error).__name__}: {error}")
    seconds = round(time.perf_counter() - began, 2)
    results = []
    for index, one in enumerate(row.measures):
        mine = [score if score is None or len(row.measures) == 1 else score[index] for score in scores]
        value = one.figure(mine)
        results.append(
            Result(
                one.name,
                one.what,
                value,
                *one.interval(mine),
                cases,
                one.target,
                one.reached(value, one.target),
                seconds,
                one.floor is not None and not one.reached(value, one.floor),
                one.at_most,
                one.unit or ("share" if one.kind == "share" else ""),
                tuple(failures),
            )
        )
    return results


def line(result: Result) -> str:
    """A line of the table."""
    aim = f"{'<=' if result.at_most else '>='} {result.target:g}"
    interval = f"{result.low:.3f} to {result.high:.3f}"
    verdict = "met" if result.met else "not met"
    return f"{result.name:<16} {result.what:<56} {result.value:8.3f} {result.n:4}  {interval:<18} {aim:<9} {verdict}"


HEAD = f"{'row':<16} {'what':<56} {'value':>8} {'n':>4}  {'95 % interval':<18} {'target':<9}"


def write(path: Path, checkpoint: str, results: Sequence[Result]) -> None:
    """Write what there is so far, so that a run cut short loses no row."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps({"checkpoint": checkpoint, "rows": [asdict(row) for row in results]}, indent=1) + "\n")
    part.replace(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, measure, print and write; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m cosmos_demo.pico.scorecard", description=__doc__.split("\n\n")[0])
    parser.add_argument("checkpoint", nargs="?", default=str(PICO), help="folder of the checkpoint (default: Pico's)")
    parser.add_argument("--quick", action="store_true", help="few cases of some rows; status 1 when one is broken")
    parser.add_argument("--out", type=Path, help="JSON file to write, after every row")
    parser.add_argument("--only", nargs="+", choices=tuple(ROWS), metavar="ROW", help=f"of {', '.join(ROWS)}")
    parser.add_argument("--cases", type=int, help="cases of each row, instead of its own number")
    parser.add_argument("--seed", type=int, default=0, help="draws other worlds and words (default: 0)")
    chosen = parser.parse_args(arguments)
    if chosen.cases is not None and chosen.cases < 1:
        parser.error("--cases must be at least 1")

    numbers = {name: row.quick if chosen.quick else row.cases for name, row in ROWS.items()}
    names = chosen.only or [name for name, number in numbers.items() if number]
    results: list[Result] = []
    with closing(cosmos_demo.open_engine(Settings(checkpoint=chosen.checkpoint, device="cpu"))) as engine:
        checkpoint = engine.capabilities().checkpoint
        lab = Lab(engine, chosen.seed)
        print(f"{checkpoint} ({chosen.checkpoint})\n{HEAD}")
        for name in names:
            made = measure(name, lab, chosen.cases or numbers[name] or ROWS[name].cases)
            results += made
            print("\n".join([*map(line, made), *(f"  {text}" for text in made[0].failures)]), flush=True)
            if chosen.out:
                write(chosen.out, checkpoint, results)
    print(f"{sum(result.met for result in results)} of {len(results)} targets met")
    return int(chosen.quick and any(result.broken for result in results))


if __name__ == "__main__":
    sys.exit(main())
