"""The tab that makes a video follow control clips: given ones, or edges and blur taken from an ordinary clip."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gradio as gr

from cosmos_demo.errors import RequestError
from cosmos_demo.generator.controls import BLUR_FACTORS
from cosmos_demo.requests import GenerateRequest
from cosmos_demo.ui.generator_tab import SAMPLING, GeneratorTab
from cosmos_demo.ui.results import Send

TAKEN = {"take-edge": "edge", "take-blur": "blur"}
"""What can be taken from an ordinary clip, and the kind of control it becomes."""

KINDS = [
    ("An ordinary clip: take its edges", "take-edge"),
    ("An ordinary clip: blur it", "take-blur"),
    ("Edges", "edge"),
    ("A blurred clip", "blur"),
    ("Depth", "depth"),
    ("Segments", "seg"),
    ("A world scenario map", "wsm"),
]


class TransferTab(GeneratorTab):
    """One or two control clips and a prompt."""

    name = "transfer"
    modes = ("transfer",)
    main = ("controls", "prompt", ("resolution", "aspect_ratio"), ("num_frames", "fps"))
    advanced = ("strength", "control_guidance", *SAMPLING)
    button = "Make the video"
    sends = (Send("Ask about it", "video", "reasoner", "video"),)
    hint = "Give a clip whose edges or shapes the video shall follow, and say what it should show."

    def values(self, given: Mapping[Any, Any]) -> tuple[str, dict[str, Any]]:
        mode, values = super().values(given)
        slots = [(given[self.form[kind]], given[self.form[clip]]) for clip, kind in self._slots]
        return mode, values | {"controls": slots, "strength": given[self.form["strength"]]}

    def request(self, mode: str, values: dict[str, Any]) -> GenerateRequest:
        chosen = [(kind, clip) for kind, clip in values.pop("controls") if clip]
        strength = values.pop("strength")
        clips = {TAKEN.get(kind, kind): clip for kind, clip in chosen}
        if len(clips) < len(chosen):
            raise RequestError("controls", "Both clips are of the same kind; choose two different ones.")
        compute = {TAKEN[kind]: strength for kind, _ in chosen if kind in TAKEN}
        return super().request(mode, values | {"controls": clips, "compute": compute})

    @property
    def _slots(self) -> tuple[tuple[str, str], ...]:
        return ("control", "kind"), ("second_control", "second_kind")

    def _add(self, field: str) -> None:
        if field == "controls":
            self._add_slot("control", "kind", "take-edge", "Control clip")
            with gr.Accordion("A second control", open=False):
                self._add_slot("second_control", "second_kind", "depth", "Second control clip")
        elif field == "strength":
            choices = [(name.capitalize(), name) for name in BLUR_FACTORS]
            control = gr.Dropdown(choices, value="medium", label="Strength of edges or blur taken from a clip")
            self.form.add("strength", control)
        else:
            super()._add(field)

    def _add_slot(self, clip: str, kind: str, value: str, label: str) -> None:
        self.form.add(clip, gr.Video(label=label, elem_id=f"transfer-{clip.replace('_', '-')}"))
        self.form.add(kind, gr.Dropdown(KINDS, value=value, label="It shows"))
