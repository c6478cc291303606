"""The page without a browser: it can be built for every kind of checkpoint, forms restore, paths are not believed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from cosmos_demo import records
from cosmos_demo.engines.base import Capabilities, Status
from cosmos_demo.events import Generated, Span
from cosmos_demo.generator.modes import MODES
from cosmos_demo.requests import GenerateRequest
from cosmos_demo.settings import Settings
from cosmos_demo.ui import forms, page, results, status, timeline
from cosmos_demo.ui.context import Context
from cosmos_demo.ui.generator_tab import GeneratorTab
from cosmos_demo.ui.picture_tab import PictureTab
from cosmos_demo.ui.video_tab import VideoTab

FEW_STEPS = {"steps": 4, "guidance_scale": 1.0, "negative_prompt": ""}


@dataclass
class _Engine:
    """Capabilities alone: what the page asks for while it is built."""

    can: Capabilities
    told: Status = field(default_factory=lambda: Status("Some", "cpu", "float32", "ready"))

    def capabilities(self) -> Capabilities:
        return self.can

    def status(self) -> Status:
        return self.told


def _tab(kind: type[GeneratorTab], **can) -> GeneratorTab:
    import gradio as gr

    context = Context(_Engine(Capabilities("Some", "cosmos3_omni", **can)), Settings())
    with gr.Blocks():
        return kind(context)


@pytest.mark.parametrize(
    "can",
    [
        Capabilities("Nano", "cosmos3_omni", sample_rate=48_000, action_dim=64),
        Capabilities("Edge", "cosmos3_edge", {"sound": "no", "video-to-video": "no"}, resolutions=(256, 480)),
        Capabilities("Image2Video", "cosmos3_omni", {"text-to-video": "no", "policy": "no"}, (480,), fixed=FEW_STEPS),
        Capabilities("Text2Image", "cosmos3_omni", dict.fromkeys(list(MODES)[1:], "no"), resolutions=(768,)),
        Capabilities("Silent", "cosmos3_omni", dict.fromkeys([*MODES, "sound", "reasoner"], "not here")),
    ],
    ids=lambda can: can.checkpoint,
)
def test_the_page_can_be_built_for_every_kind_of_checkpoint(can):
    blocks = page.build(_Engine(can), Settings())
    assert "Cosmos 3" in blocks.title


def test_what_the_checkpoint_lacks_is_said_and_switched_off():
    tab = _tab(VideoTab, unavailable={"text-to-video": "Only <pictures> move.", "sound": "It is deaf."})
    assert tab.form["mode"].value == "image-to-video"
    refused = tab._arranged("text-to-video")
    assert refused[tab._run]["interactive"] is False
    assert "Only &lt;pictures&gt; move." in refused[tab._about]["value"]
    assert tab.form["sound"].interactive is False
    assert tab.form["sound"].info == "It is deaf."


def test_fixed_settings_can_not_be_changed():
    tab = _tab(PictureTab, fixed=FEW_STEPS)
    assert tab.form["steps"].value == 4
    assert tab.form["steps"].interactive is False


def test_a_mode_shows_only_what_it_takes():
    tab = _tab(VideoTab)
    shown = tab._arranged("text-to-video")
    assert shown[tab.form["image"]]["visible"] is False
    assert shown[tab.form["prompt"]]["visible"] is True
    shown = tab._arranged("video-to-video")
    assert shown[tab.form["video"]]["visible"] is True
    assert shown[tab.form["condition_frames"]]["visible"] is True


def test_a_form_takes_back_a_record_but_not_what_it_does_not_offer():
    tab = _tab(PictureTab, resolutions=(256,), defaults={"resolution": 256})
    filled = tab.fill({"prompt": "a ball", "steps": 12, "seed": 7, "resolution": 720, "guidance_scale": 99.0})
    values = {name: filled[tab.form[name]]["value"] for name in ("prompt", "steps", "seed", "resolution")}
    assert values == {"prompt": "a ball", "steps": 12, "seed": 7, "resolution": 256}
    assert filled[tab.form["guidance_scale"]]["value"] == MODES["text-to-image"].defaults["guidance_scale"]
    assert filled[tab.form.seed[1]]["value"] is False
    assert tab.fill({})[tab.form.seed[1]]["value"] is True


def test_an_empty_seed_is_drawn_and_a_kept_one_is_used():
    tab = _tab(PictureTab)
    given = {control: control.value for control in tab.form.controls}
    assert tab.values(given)[1]["seed"] is None
    number, switch = tab.form.seed
    assert tab.values(given | {number: 5, switch: False})[1]["seed"] == 5


def test_a_result_is_found_again_by_the_name_of_its_folder_alone(tmp_path: Path):
    request = GenerateRequest("policy", prompt="x", domain="av", fps=10, seed=3)
    record = records.new_record("generator", request, "Some", 3)
    made = Generated(np.zeros((5, 32, 32, 3), np.uint8), 10, actions=np.ones((4, 9), np.float32), record=record)
    written = forms.write_result(made, tmp_path)
    folder = results._folder(str(tmp_path), written.data.parent.name)
    assert results.read(folder).files == written
    assert results.read(folder).details["actions"] == [[1.0] * 9] * 4


@pytest.mark.parametrize("word", ["", "..", "../../../../../../etc", "/etc", "A" * 22, None, 7, ["x"], "outputs\n"])
def test_a_browsers_word_opens_no_other_folder(word, tmp_path: Path):
    assert results._folder(str(tmp_path), word) is None


def test_a_timeline_places_its_spans_and_escapes_their_captions():
    html = timeline.spans([Span(1.0, 3.0, "<b>roll</b>")], 4.0, "player")
    assert "left:25.00%;width:50.00%" in html
    assert 'data-seek="1.000"' in html
    assert "<b>" not in html


def test_a_plot_has_a_line_for_each_channel_on_the_clips_clock():
    html = timeline.plot(np.array([[0.0, 1.0], [1.0, 0.0]]), [("Motion", [(0, "x"), (1, "y")])], 2.0, "player")
    assert html.count("<polyline") == 2
    assert 'data-duration="1.000"' in html
    assert 'points="25.00,100.00 75.00,0.00"' in html
    assert 'points="25.00,0.00 75.00,100.00"' in html


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (Status("Some", "cpu", "float32", "loading", "transformer", 0.4), ["loading 40%", "transformer"]),
        (Status("Some", "cuda:0", "bfloat16", "ready", head="reasoner", waiting=2), ["Reasoner working", "2 waiting"]),
        (Status("Some", "cpu", "float32", "ready", memory={"weights": 112_000_000}), ["112 MB", "idle"]),
        (Status("Some", "cpu", "float32", "failed", "<no> memory"), ["not loaded", "&lt;no&gt; memory"]),
    ],
)
def test_the_status_line_tells_the_engines_state(told, words):
    html = status.line(told)
    assert all(word in html for word in words)
