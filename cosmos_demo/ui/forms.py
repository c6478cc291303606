"""From plain values, as a page or an API client gives them, to requests; and from results to plain values and files.

An empty string or ``None`` stands for the default. Only types are checked here; what a mode, task or checkpoint
allows is for ``generator.validate`` and ``reasoner.validate`` to say.
"""

from __future__ import annotations

import json
import math
import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_type_hints

import numpy as np

from cosmos_demo import media, records
from cosmos_demo.engines.base import Capabilities
from cosmos_demo.errors import EngineError, RequestError
from cosmos_demo.events import Answered, Generated
from cosmos_demo.generator import actions, controls, prompts
from cosmos_demo.generator.modes import MODES, size
from cosmos_demo.generator.validate import defaults_for
from cosmos_demo.media import Clip
from cosmos_demo.reasoner.tasks import TASKS
from cosmos_demo.requests import AnswerRequest, GenerateRequest, Turn

MAX_TEXT = 50_000
"""Characters of a text; the longest structured prompt that NVIDIA publishes has 15,000."""
QUESTION_FPS = 4.0
"""Rate at which clips are shown to the Reasoner, as NVIDIA's serving recipes do."""
QUESTION_RATES = (0.1, 30.0)
QUESTION_FRAMES = 128
"""Most frames of such a clip; longer ones are sampled more thinly."""
KEPT_RESULTS = 200
"""Results that stay on disk; the oldest beyond them are deleted."""

_SWITCH = {"true": True, "on": True, "yes": True, "1": True, "false": False, "off": False, "no": False, "0": False}


def answer_request(
    values: Mapping[str, Any], history: Sequence[Turn] = (), capabilities: Capabilities | None = None
) -> AnswerRequest:
    """Make a question from the fields of `AnswerRequest` by name.

    Args:
        values: Media are paths: ``images`` is one or a list of them, ``video`` is one. Beside the fields,
            ``video_fps`` is the rate at which the video is shown to the Reasoner, 0.1 to 30.
        history: Earlier turns, oldest first.
        capabilities: Of the loaded checkpoint, which may prefer another rate than `QUESTION_FPS`.

    Raises:
        RequestError: naming the field whose value is of the wrong type or whose file can't be read.
        TypeError: for a name that is no field.
    """
    given = _given(values)
    pictures = given.pop("images", ())
    pictures = pictures if isinstance(pictures, list | tuple) else [pictures]
    clip = given.pop("video", None)
    preferred = capabilities.defaults.get("video_fps", QUESTION_FPS) if capabilities else QUESTION_FPS
    rate = _number(given.pop("video_fps", preferred), "video_fps")
    if not QUESTION_RATES[0] <= rate <= QUESTION_RATES[1]:
        raise RequestError("video_fps", f"{rate:g} is not from {QUESTION_RATES[0]:g} to {QUESTION_RATES[1]:g}.")
    plain = {"prompt": "", "task": "chat"} | _plain(AnswerRequest, given)
    if plain["task"] in TASKS:
        plain = {"max_new_tokens": TASKS[plain["task"]].max_new_tokens} | plain
    return AnswerRequest(
        **plain,
        images=tuple(media.read_image(_path(picture, "image")) for picture in pictures),
        video=None if clip is None else media.read_clip(_path(clip, "video"), rate, QUESTION_FRAMES, even=True),
        history=tuple(history),
    )


def generate_request(mode: str, values: Mapping[str, Any], capabilities: Capabilities) -> GenerateRequest:
    """Make a request from the fields of `GenerateRequest` by name.

    Args:
        mode: One of `generator.modes.MODES`.
        values: Media are paths; ``controls`` maps a kind of control to its path; ``actions`` is the path of a JSON
            file (a `Path`, not a string), JSON text, or rows of numbers. Beside the fields ``compute`` maps
            ``edge`` or ``blur`` to the strength at which that control is taken from its clip, an ordinary one.
        capabilities: Of the loaded checkpoint; clips are read at the rate that it will run at.

    Raises:
        RequestError: naming the field whose value is of the wrong type or whose file can't be read.
        TypeError: for a name that is no field.
    """
    given = _given(values)
    picture, clip = given.pop("image", None), given.pop("video", None)
    clips, compute = _given(given.pop("controls", {})), _given(given.pop("compute", {}))
    rows = given.pop("actions", None)
    plain = _plain(GenerateRequest, given)
    request = GenerateRequest(mode=mode, **plain)
    planned = defaults_for(MODES[mode], capabilities, request.domain, clips) | plain
    return replace(
        request,
        image=None if picture is None else media.read_image(_path(picture, "image")),
        video=None if clip is None else _source(clip, "video", request, planned),
        controls={kind: _control(kind, path, compute.get(kind), request, planned) for kind, path in clips.items()},
        actions=None if rows is None else _rows(rows),
    )


def upsample_request(prompt: Any, mode: Any, image: Any = None) -> AnswerRequest:
    """Make the question that lets the Reasoner write ``prompt`` out as a structured one for ``mode``.

    Raises:
        RequestError: for an empty prompt, a mode whose prompts stay plain, or a file that can't be read.
    """
    if not isinstance(mode, str) or mode not in MODES or MODES[mode].acts:
        plain = ", ".join(name for name, known in MODES.items() if not known.acts)
        raise RequestError("mode", f"{_shown(mode)} takes no structured prompt; choose one of {plain}.")
    if prompt is None or _is_blank(prompt):
        raise RequestError("prompt", "It is empty; say in a few words what to show.")
    question = prompts.request(_text(prompt, "prompt"), mode)
    return answer_request({"task": "upsample", "prompt": question, "images": image})


def upsampled(answer: Answered, mode: str, values: Mapping[str, Any], capabilities: Capabilities) -> str:
    """The structured prompt that `upsample_request` was answered with, with the size, length and rate of ``values``.

    Args:
        values: Fields of `GenerateRequest` by name, of which only these matter; those left out take their defaults.

    Raises:
        RequestError: naming a field of ``values`` with a value of the wrong type, or of no known size.
        EngineError: when the answer holds no structured prompt.
    """
    given = {name: value for name, value in _given(values).items() if name in _SHAPE}
    plan = defaults_for(MODES[mode], capabilities) | _plain(GenerateRequest, given)
    structured = prompts.read(answer.text)
    if structured is None:
        raise EngineError("The Reasoner's answer holds no structured prompt; try again, or put it differently.")
    try:
        width, height = size(plan["resolution"], plan["aspect_ratio"])
    except KeyError:
        raise RequestError("resolution", f"{plan['resolution']} at {plan['aspect_ratio']} has no known size.") from None
    return prompts.finish(structured, width, height, plan["aspect_ratio"], plan.get("num_frames", 1), plan.get("fps"))


@dataclass(frozen=True)
class Written:
    """The files of one result, all in a folder of their own; ``None`` for what it doesn't have."""

    data: Path
    picture: Path | None = None
    video: Path | None = None
    sound: Path | None = None


def details(result: Answered | Generated) -> dict[str, Any]:
    """What is known of a result beside its text or file, safe for JSON.

    Returns:
        The ``record``, and for an answer ``thinking``, ``note`` and what its task has of ``boxes``, ``points``,
        ``events``, ``trajectory``, ``subjects`` and ``label``; for a generation ``actions``, rows of numbers in the
        model's normalised action space, where the mode has them.
    """
    if isinstance(result, Generated):
        acted = {} if result.actions is None else {"actions": json.loads(actions.to_json(result.actions))}
        return {"record": result.record, **acted}
    found = {
        "boxes": [asdict(box) for box in result.boxes],
        "points": [asdict(point) for point in result.points],
        "events": [asdict(span) for span in result.spans],
        "trajectory": [asdict(point) for point in result.trajectory],
        "subjects": list(result.subjects),
        "label": result.label,
    }
    return {
        "record": result.record,
        "thinking": result.thinking,
        "note": result.note,
        **{name: value for name, value in found.items() if value},
    }


def write_result(result: Generated, outputs: str | Path) -> Written:
    """Write a result's files, each with the record, into a new folder of ``outputs`` whose name nobody can guess.

    The oldest results are deleted, see `delete_old_results`.
    """
    record = result.record
    name = f"{record['settings']['mode']}-{record['seed']}"
    folder = Path(outputs).resolve() / secrets.token_urlsafe(16)
    picture = video = sound = None
    if result.frames is not None and len(result.frames) == 1:
        picture = media.write_image(folder / f"{name}.png", result.frames[0], record)
    elif result.frames is not None:
        video = media.write_video(
            folder / f"{name}.mp4", result.frames, result.fps, result.sound, result.sample_rate, record
        )
    if result.sound is not None and result.sample_rate:
        sound = media.write_sound(folder / f"{name}.wav", result.sound, result.sample_rate, record)
    written = Written(media.write_json(folder / f"{name}.json", details(result)), picture, video, sound)
    delete_old_results(outputs)
    return written


def delete_old_results(outputs: str | Path, kept: int = KEPT_RESULTS) -> None:
    """Delete the oldest results in ``outputs`` beyond the newest ``kept``; folders that aren't ours are left alone."""
    folders = [path for path in Path(outputs).glob("*") if _FOLDER.fullmatch(path.name) and path.is_dir()]
    for folder in sorted(folders, key=_age)[kept:]:
        if _is_result(folder):
            shutil.rmtree(folder, ignore_errors=True)


# What follows serves the functions above.


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that stand for themselves and not for a default."""
    return {name: value for name, value in values.items() if value is not None and not _is_blank(value)}


def _is_blank(value: Any) -> bool:
    return isinstance(value, str) and not value.strip()


@cache
def _kinds(request: type) -> dict[str, type]:
    """The plain type of each field that has one."""
    hints = get_type_hints(request).items()
    choices = {name: get_args(hint) if isinstance(hint, UnionType) else (hint,) for name, hint in hints}
    return {name: kind for name, kinds in choices.items() for kind in kinds if kind in _READERS}


def _plain(request: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the plain fields of ``request``, each of its type."""
    kinds = _kinds(request)
    if unknown := values.keys() - kinds.keys():
        raise TypeError(f"{request.__name__} takes no {', '.join(sorted(unknown))}")
    return {name: _READERS[kinds[name]](value, name) for name, value in values.items()}


def _text(value: Any, field: str) -> str:
    if not isinstance(value, str):
        raise RequestError(field, f"Give text, not {_shown(value)}.")
    if len(value) > MAX_TEXT:
        raise RequestError(field, f"The text has {len(value):,} characters; at most {MAX_TEXT:,} work.")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise RequestError(field, "The text has half of a character pair (a lone surrogate); type it again.")
    return value


def _number(value: Any, field: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, int | float | str) else float(value)
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise RequestError(field, f"{_shown(value)} is not a number.")
    return number


def _whole(value: Any, field: str) -> int:
    number = _number(value, field)
    if not number.is_integer():
        raise RequestError(field, f"{_shown(value)} is not a whole number.")
    return int(number)


def _switch(value: Any, field: str) -> bool:
    found = _SWITCH.get(str(value).strip().lower()) if isinstance(value, bool | int | str) else None
    if found is None:
        raise RequestError(field, f"{_shown(value)} is neither true nor false.")
    return found


def _path(value: Any, field: str) -> Path:
    if not isinstance(value, str | Path):
        raise RequestError(field, f"Give a file, not {_shown(value)}.")
    return Path(value)


def _rows(value: Any) -> np.ndarray:
    """Actions as float32 ``[T, D]`` from the path of a JSON file, JSON text or rows."""
    if isinstance(value, Path):
        value = media.read_comment(value, "actions")
    return actions.read_rows(value) if isinstance(value, str) else actions.as_rows(value)


def _source(path: Any, field: str, request: GenerateRequest, planned: Mapping[str, Any]) -> Clip:
    """Read the part of a clip that the mode uses, at the rate that is ``planned``."""
    frames = {"video-to-video": request.condition_frames, "inverse-dynamics": planned.get("chunk_size", 0) + 1}
    most = _within(frames.get(request.mode, planned.get("num_frames", media.MAX_FRAMES)), 1, media.MAX_FRAMES)
    keep = "last" if request.mode == "video-to-video" and request.keep == "last" else "first"
    return media.read_clip(_path(path, field), _within(planned["fps"], 1, 60), most, keep=keep, field=field)


def _control(kind: str, path: Any, compute: Any, request: GenerateRequest, planned: Mapping[str, Any]) -> Clip:
    """Read a control clip, or take it from an ordinary clip at the strength ``compute``."""
    if compute is None:
        return _source(path, kind, request, planned)
    if kind not in _COMPUTED:
        raise RequestError("compute", f"{_shown(kind)} can't be taken from a clip; {' and '.join(_COMPUTED)} can.")
    make, strengths = _COMPUTED[kind]
    if not isinstance(compute, str) or compute not in strengths:
        raise RequestError("compute", f"{_shown(compute)} is no strength; choose one of {', '.join(strengths)}.")
    return make(_source(path, kind, request, planned), compute)


def _age(folder: Path) -> float:
    """Sorts newest first; a folder that another run has just deleted counts as the oldest."""
    try:
        return -folder.stat().st_mtime
    except FileNotFoundError:
        return math.inf


def _is_result(folder: Path) -> bool:
    """Whether `write_result` filled the folder: the one JSON file there holds a record of ours."""
    if folder.is_symlink():
        return False
    try:
        (data,) = folder.glob("*.json")
        records.read_record(data)
    except (ValueError, RequestError):
        return False
    return True


def _within(value: float, low: int, high: int) -> int:
    """The value, or the nearest one that can be read; ``generator.validate`` refuses what was changed here."""
    return int(min(max(value, low), high))


def _shown(value: Any) -> str:
    """A short form of a stranger's value for a message."""
    text = json.dumps(value) if isinstance(value, str | bool | int | float) else type(value).__name__
    return text if len(text) <= 40 else f"{text[:36]} ..."


_FOLDER = re.compile(r"[\w-]{22}", re.ASCII)
"""Name of a result's folder: `secrets.token_urlsafe` of 16 bytes."""
_SHAPE = ("resolution", "aspect_ratio", "num_frames", "fps")
_COMPUTED = {
    "edge": (controls.edges, controls.EDGE_THRESHOLDS),
    "blur": (controls.blur, controls.BLUR_FACTORS),
}
"""Kind of control to what takes it from a clip, and at which strengths."""
_READERS = {str: _text, float: _number, int: _whole, bool: _switch}
