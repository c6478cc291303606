"""From the Reasoner's text to typed results. Tolerant: what can be read is read, the rest is shown as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cosmos_demo.events import Box, Point, Span
from cosmos_demo.reasoner.tasks import TASKS, Task

UNIT = 1000
"""Coordinates are thousandths of the width and of the height, each axis by itself."""

_BOX_KEYS = ("bbox_2d", "bbox", "box_2d", "box")
_POINT_KEYS = ("point_2d", "point", "coordinates")
_LABEL_KEYS = ("label", "name", "class", "caption")


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
    """The JSON values in a text: those of its list or its single object; of a list cut short, the complete ones."""
    found = re.search(r"[\[{]", text)
    if not found:
        return []
    decoder, place, values = json.JSONDecoder(), found.start(), []
    with suppress(ValueError, RecursionError):
        whole, _ = decoder.raw_decode(text, place)
        return whole if isinstance(whole, list) else [whole]
    while (place := text.find("{", place)) >= 0:
        try:
            value, place = decoder.raw_decode(text, place)
            values.append(value)
        except (ValueError, RecursionError):
            place += 1
    return values


def seconds(value: object) -> float | None:
    """A time in seconds from a number, ``ss``, ``mm:ss.ff`` or ``hh:mm:ss``; ``None`` when it is none of these."""
    if isinstance(value, bool):
        return None
    parts = str(value).strip().removesuffix("s").strip().split(":")
    if len(parts) > 3:
        return None
    total = 0.0
    for part in parts:
        try:
            total = total * 60 + float(part)
        except ValueError:
            return None
    return total if 0 <= total < 1e6 else None


def _text(answer: str, task: Task) -> Parsed:
    return Parsed()


def _boxes(answer: str, task: Task) -> Parsed:
    found = []
    for item, corners in _numbers(answer, _BOX_KEYS, 4):
        x1, y1, x2, y2 = (_unit(value) for value in corners)
        found.append(Box(min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2), _label(item)))
    return Parsed(boxes=tuple(found), note="" if found else _unread("boxes"))


def _points(answer: str, task: Task) -> Parsed:
    found = tuple(
        Point(_unit(place[0]), _unit(place[1]), _label(item)) for item, place in _numbers(answer, _POINT_KEYS, 2)
    )
    return Parsed(points=found, note="" if found else _unread("points"))


def _trajectory(answer: str, task: Task) -> Parsed:
    found = _points(answer, task).points
    return Parsed(trajectory=found, note="" if found else _unread("trajectory"))


def _spans(answer: str, task: Task) -> Parsed:
    found, broken = [], 0
    entries = items(answer)
    for item in entries:
        if not isinstance(item, dict):
            broken += 1
            continue
        start, end = seconds(item.get("start")), seconds(item.get("end"))
        if start is None:
            broken += 1
            continue
        end = start if end is None else end
        found.append(Span(min(start, end), max(start, end), str(item.get("caption", ""))))
    if not found and re.search(r"\[\s*\]", answer):
        return Parsed(note="The Reasoner found no events.")
    note = _unread("times") if not found else f"{broken} entries had no readable time." if broken else ""
    return Parsed(spans=tuple(found), note=note)


def _choice(answer: str, task: Task) -> Parsed:
    """An option letter, its word, or ``Category - subcategory``."""
    for letter, word in task.choices.items():
        if re.match(rf"\W*{letter}\b", answer) or re.search(rf"\({letter}\)", answer):
            return Parsed(label=word)
    words = [word for word in task.choices.values() if re.search(rf"\b{word}\b", answer, re.IGNORECASE)]
    if len(words) == 1:
        return Parsed(label=words[0])
    if not task.choices and (found := re.search(r"([A-Z][\w /]*?) - ([\w /]+)", answer)):
        return Parsed(label=f"{found[1].strip()} - {found[2].strip()}")
    return Parsed(note=_unread("label"))


def _subjects(answer: str, task: Task) -> Parsed:
    keys = ("subject_id", "category", "caption")
    found = tuple(
        {key: str(item.get(key, "")) for key in keys}
        for item in items(answer)
        if isinstance(item, dict) and "caption" in item
    )
    return Parsed(subjects=found, note="" if found else _unread("subjects"))


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


def _numbers(answer: str, keys: tuple[str, ...], count: int) -> Iterator[tuple[dict[str, Any], list[float]]]:
    """Items that hold ``count`` finite numbers under one of ``keys``, with those numbers."""
    for item in items(answer):
        if not isinstance(item, dict):
            continue
        value = next((item[key] for key in keys if key in item), None)
        if isinstance(value, str):
            value = re.findall(r"-?\d+(?:\.\d+)?", value)
        if not isinstance(value, list) or len(value) != count:
            continue
        try:
            numbers = [float(part) for part in value if not isinstance(part, bool)]
        except (TypeError, ValueError):
            continue
        if len(numbers) == count and all(abs(number) < 1e9 for number in numbers):
            yield item, numbers


def _unit(value: float) -> int:
    return min(UNIT, max(0, round(value)))


def _label(item: dict[str, Any]) -> str:
    return str(next((item[key] for key in _LABEL_KEYS if key in item), ""))


def _unread(what: str) -> str:
    return f"No {what} could be read from this answer; it is shown as it is."
