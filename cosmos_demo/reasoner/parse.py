"""From the Reasoner's text to typed results. Tolerant: what can be read is read, the rest is shown as it is."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cosmos_demo.events import Box, Point, Span
from cosmos_demo.reasoner.tasks import TASKS, Task

UNIT = 1000
"""Coordinates are thousandths of the width and of the height, each axis by itself."""
LATEST = 1e6
"""Seconds; later times are no times of a clip."""

_DECODER = json.JSONDecoder()
_OPENING = re.compile(r"[\[{]")

_BOX_KEYS = ("bbox_2d", "bbox", "box_2d", "box")
_POINT_KEYS = ("point_2d", "point", "coordinates")
_LABEL_KEYS = ("label", "name", "class", "caption")
_START_KEYS = ("start", "start_time", "begin", "from")
_END_KEYS = ("end", "end_time", "stop", "to")
_CAPTION_KEYS = ("caption", "description", "event", "label")
_CLOCK = re.compile(
    r"(?:(?:(\d{1,3}):)?(\d{1,4}):)?(\d+(?:[.,]\d*)?|[.,]\d+)\s*(?:s|sec|secs|seconds?)?", re.IGNORECASE
)


@dataclass(frozen=True)
class Parsed:
    """What an answer says; fields as in `events.Answered`."""

    boxes: tuple[Box, ...] = ()
    points: tuple[Point, ...] = ()
    spans: tuple[Span, ...] = ()
    trajectory: tuple[Point, ...] = ()
    label: str | None = None
    subjects: tuple[dict[str, str], ...] = ()
    note: str = ""


def split_thinking(text: str) -> tuple[str, str, bool]:
    """Thinking, answer, and whether the thinking is closed.

    The last closing tag counts. Text that opens with thinking and never closes it is all thinking: the answer was cut
    off. ``<answer>`` tags around the answer are taken off.
    """
    head, tag, tail = text.rpartition("</think>")
    if tag:
        thinking, answer, closed = re.sub("</?think>", "", head).strip(), tail, True
    elif "<think>" in text:
        before, _, thinking = text.partition("<think>")
        return thinking.strip(), before.strip(), False
    else:
        thinking, answer, closed = "", text, True
    return thinking, re.sub(r"</?answer>", "", answer).strip(), closed


def read(task: str, answer: str) -> Parsed:
    """Read an answer (without its thinking) in the way of its task; ``note`` says what could not be read."""
    return _READERS[TASKS[task].reads](answer, TASKS[task])


def to_pixels(box: Box, width: int, height: int) -> tuple[int, int, int, int]:
    """The box in pixels of a picture, each axis by itself, within the picture."""
    return (
        min(width - 1, box.x1 * width // UNIT),
        min(height - 1, box.y1 * height // UNIT),
        min(width, -(-box.x2 * width // UNIT)),
        min(height, -(-box.y2 * height // UNIT)),
    )


def items(text: str) -> list[Any]:
    """The complete JSON values in a text, lists taken apart; of a list or object cut short, the complete ones in it."""
    found: list[Any] = []
    place = 0
    while opening := _OPENING.search(text, place):
        place = opening.start()
        try:
            value, place = _DECODER.raw_decode(text, place)
        except (ValueError, RecursionError):
            place += 1
            continue
        found += value if isinstance(value, list) else [value]
    return found


def cut_object(text: str) -> dict[str, Any]:
    """The entries of the first JSON object in a text that are complete, however the text ends; empty without one."""
    start = text.find("{")
    depth, quoted, escaped, best = 0, False, False, 0
    for place, character in enumerate(text[max(0, start) :]):
        if quoted:
            quoted = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            quoted = True
        elif character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
        elif character == "," and depth == 1:
            best = place
        if depth == 0:
            break
    try:
        value = json.loads(text[start : start + best] + "}") if start >= 0 and best else {}
    except (ValueError, RecursionError):
        return {}
    return value


def seconds(value: object) -> float | None:
    """A time in seconds from a number, ``ss``, ``mm:ss.ff`` or ``hh:mm:ss``; ``None`` when it is none of these."""
    found = None if isinstance(value, bool) else _CLOCK.fullmatch(str(value).strip())
    if found is None:
        return None
    hours, minutes, rest = (float((part or "0").replace(",", ".")) for part in found.groups())
    total = 3600 * hours + 60 * minutes + rest
    return total if total <= LATEST else None


def _text(answer: str, task: Task) -> Parsed:
    return Parsed()


def _boxes(answer: str, task: Task) -> Parsed:
    found = []
    for item, corners in _numbers(answer, _BOX_KEYS, 4):
        x1, y1, x2, y2 = (_unit(value) for value in corners)
        found.append(Box(min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2), str(_first(item, _LABEL_KEYS, ""))))
    return Parsed(boxes=tuple(found), note="" if found else _nothing("boxes", answer))


def _points(answer: str, task: Task) -> Parsed:
    found = tuple(
        Point(_unit(x), _unit(y), str(_first(item, _LABEL_KEYS, "")))
        for item, (x, y) in _numbers(answer, _POINT_KEYS, 2)
    )
    return Parsed(points=found, note="" if found else _nothing("points", answer))


def _trajectory(answer: str, task: Task) -> Parsed:
    found = _points(answer, task).points
    return Parsed(trajectory=found, note="" if found else _nothing("trajectory", answer))


def _spans(answer: str, task: Task) -> Parsed:
    found, broken = [], 0
    for item in _entries(answer, (*_START_KEYS, *_END_KEYS)):
        start, end = seconds(_first(item, _START_KEYS)), seconds(_first(item, _END_KEYS))
        if start is None:
            broken += 1
            continue
        end = start if end is None else end
        found.append(Span(min(start, end), max(start, end), str(_first(item, _CAPTION_KEYS, ""))))
    note = f"{broken} of {broken + len(found)} events had no readable time." if broken else ""
    return Parsed(spans=tuple(found), note=note if found else _nothing("events", answer))


def _choice(answer: str, task: Task) -> Parsed:
    """An option's letter or word, or without options the last line of the form ``Category - subcategory``."""
    if not task.choices:
        lines = re.findall(r"^\W*([A-Z][\w /]*?) +[-–—] +(\w[\w /]*?)\W*$", answer, re.MULTILINE)
        return Parsed(label=" - ".join(lines[-1])) if lines else Parsed(note=_nothing("label", answer))
    letters = "".join(task.choices)
    forms = (
        rf"^\W*([{letters}])(?:\W*$|[).:])",
        rf"\(([{letters}])\)",
        rf"\b(?i:answer|option)\W+(?:is\W+)?([{letters}])(?:\W*$|[).:,])",
    )
    found = {task.choices[letter] for form in forms for letter in re.findall(form, answer)}
    if not found:
        # A denied word says the opposite or nothing, so it is left alone.
        said = re.sub(r"(?:\bnot|n['’]t|\bnever)\s+(?:\w+\s+)?\w+", "", answer)
        found = {word for word in task.choices.values() if re.search(rf"\b{word}\b", said, re.IGNORECASE)}
    return Parsed(label=found.pop()) if len(found) == 1 else Parsed(note=_nothing("label", answer))


def _subjects(answer: str, task: Task) -> Parsed:
    keys = ("subject_id", "category", "caption")
    found = tuple({key: str(item.get(key, "")) for key in keys} for item in _entries(answer, ("caption",)))
    return Parsed(subjects=found, note="" if found else _nothing("subjects", answer))


_READERS = {
    "text": _text,
    "prompt": _text,
    "boxes": _boxes,
    "points": _points,
    "trajectory": _trajectory,
    "spans": _spans,
    "choice": _choice,
    "subjects": _subjects,
}


def _entries(answer: str, keys: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """The JSON objects in an answer that have one of ``keys``, also those listed under a key of another object."""
    for item in items(answer):
        if isinstance(item, dict):
            listed = (entry for value in item.values() if isinstance(value, list) for entry in value)
            for entry in [item] if item.keys() & keys else listed:
                if isinstance(entry, dict) and entry.keys() & keys:
                    yield entry


def _numbers(answer: str, keys: tuple[str, ...], count: int) -> Iterator[tuple[dict[str, Any], list[float]]]:
    """Items that hold ``count`` finite numbers under one of ``keys``, with those numbers."""
    for item in _entries(answer, keys):
        value = _first(item, keys)
        parts = re.findall(r"-?\d+(?:\.\d+)?", value) if isinstance(value, str) else value
        if not isinstance(parts, list) or len(parts) != count or any(isinstance(part, bool) for part in parts):
            continue
        try:
            numbers = [float(part) for part in parts]
        except (TypeError, ValueError, OverflowError):
            continue
        if all(math.isfinite(number) for number in numbers):
            yield item, numbers


def _first(item: dict[str, Any], keys: tuple[str, ...], otherwise: Any = None) -> Any:
    """The value of the first of ``keys`` that is there."""
    return next((item[key] for key in keys if key in item), otherwise)


def _unit(value: float) -> int:
    return min(UNIT, max(0, round(value)))


def _nothing(what: str, answer: str) -> str:
    """Why there is no result: the Reasoner said so with an empty list, or nobody can read it."""
    if re.search(r"\[\s*\]", answer):
        return f"The Reasoner found no {what}."
    return f"No {what} could be read from this answer; it is shown as it is."
