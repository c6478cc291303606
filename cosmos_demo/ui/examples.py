"""Example cards: a row that fills the form and runs it at a click."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr
from PIL import Image

from cosmos_demo import media
from cosmos_demo.settings import EXAMPLES

_HERE = str(EXAMPLES)
_THUMB = (148, 88)
_CHOOSE = """
element.addEventListener('click', (event) => {
  const card = event.target.closest('[data-index]');
  if (card) trigger('click', { index: Number(card.dataset.index) });
});
"""


@dataclass(frozen=True)
class Example:
    """One card.

    Attributes:
        title: What it shows, a few words.
        values: Name of a control to the value it takes; controls not named go back to their defaults.
    """

    title: str
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def files(self) -> list[Path]:
        """Its media; the card shows the first of them."""
        return [Path(value) for value in self.values.values() if isinstance(value, str) and value.startswith(_HERE)]


def cards(examples: Sequence[Example], name: str) -> gr.HTML:
    """The row of cards; its ``click`` event carries ``index``."""
    inside = "".join(_card(index, example) for index, example in enumerate(examples))
    row = f'<div class="cards" role="group" aria-label="Examples">{inside}</div>'
    return gr.HTML(row, js_on_load=_CHOOSE, elem_id=f"{name}-examples", visible=bool(examples))


def chosen(examples: Sequence[Example], fill: Callable[[dict[str, Any]], Any]) -> Callable[[gr.EventData], Any]:
    """The listener of the cards' click: ``fill`` turns the chosen example's values into updates."""

    def choose(event: gr.EventData) -> Any:
        return fill(examples[event.index].values)

    return choose


def _card(index: int, example: Example) -> str:
    title = escape(example.title)
    pictures = [path for path in example.files if path.suffix != ".json"]
    if not pictures:
        return f'<button type="button" class="bare" data-index="{index}">{title}</button>'
    return f'<button type="button" data-index="{index}"><img src="{_thumb(pictures[0])}" alt="">{title}</button>'


def _thumb(path: Path) -> str:
    if path.suffix == ".mp4":
        frames = media.read_clip(path, fps=4, max_frames=8).frames
        picture = Image.fromarray(frames[len(frames) // 2])
    else:
        picture = media.read_image(path)
    picture.thumbnail(_THUMB)
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=82)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()


def of(tab: str) -> list[Example]:
    """The examples of a tab whose files are there."""
    return [example for example in _ALL[tab] if all(path.exists() for path in example.files)]


def _file(name: str) -> str:
    return str(EXAMPLES / name)


_ALL: dict[str, list[Example]] = {
    "reasoner": [
        Example("How many objects?", {"prompt": "How many objects are there?", "images": _file("three_objects.png")}),
        Example(
            "Find every object",
            {"task": "grounding", "prompt": "every object", "images": _file("four_objects.png")},
        ),
        Example(
            "Point to the pyramid",
            {"task": "pointing", "prompt": "the blue pyramid", "images": _file("three_objects.png")},
        ),
        Example(
            "Think, then count",
            {"prompt": "How many objects are there?", "images": _file("four_objects.png"), "reasoning": True},
        ),
        Example("Describe this clip", {"task": "video-caption", "video": _file("roll.mp4")}),
        Example("When does what happen?", {"task": "event-timeline", "video": _file("bounce.mp4")}),
        Example("Is this possible?", {"task": "physical-plausibility", "video": _file("impossible.mp4")}),
    ],
    "picture": [
        Example(
            "A red ball, a blue cube",
            {"prompt": "A large red ball on the left and a small blue cube on the right.", "seed": 4},
        ),
        Example(
            "Three colours",
            {
                "prompt": "A large red cube on the left, a small blue ball in the middle and a small yellow pyramid "
                "on the right.",
                "seed": 4,
            },
        ),
        Example("A green pyramid", {"prompt": "A large green pyramid in the middle.", "seed": 4}),
    ],
    "video": [
        Example(
            "A ball falls, with sound",
            {"prompt": "A large blue ball falls and bounces.", "sound": True, "seed": 1},
        ),
        Example(
            "Let the ball roll",
            {
                "mode": "image-to-video",
                "prompt": "A large red ball rolls to the right and a small black cube stands still.",
                "image": _file("two_objects.png"),
                "seed": 4,
            },
        ),
        Example(
            "Continue a clip",
            {
                "mode": "video-to-video",
                "prompt": "A small orange ball rolls to the right and a small blue cube stands still.",
                "video": _file("roll.mp4"),
                "keep": "first",
                "condition_frames": 9,
                "seed": 2,
            },
        ),
    ],
    "action": [
        Example(
            "Find the cube",
            {
                "mode": "policy",
                "prompt": "Look at the black cube.",
                "image": _file("pan_start.png"),
                "seed": 1,
            },
        ),
        Example(
            "Drive the camera",
            {
                "mode": "forward-dynamics",
                "prompt": "The camera pans to the right.",
                "image": _file("pan_start.png"),
                "actions": _file("pan_actions.json"),
            },
        ),
        Example(
            "Read the camera's motion",
            {"mode": "inverse-dynamics", "prompt": "The camera pans to the right.", "video": _file("pan.mp4")},
        ),
    ],
    "transfer": [
        Example(
            "Follow the edges",
            {"prompt": "A small red ball falls and bounces.", "control": _file("bounce.mp4"), "kind": "take-edge"},
        ),
        Example(
            "Sharpen a blur",
            {"prompt": "A small red ball falls and bounces.", "control": _file("bounce.mp4"), "kind": "take-blur"},
        ),
    ],
}
