"""The page without a browser: it can be built for every kind of checkpoint, forms restore, paths are not believed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import pytest

from cosmos_demo import media, records
from cosmos_demo.engines.base import Capabilities, Score, Status
from cosmos_demo.errors import RequestError
from cosmos_demo.events import Answered, Event, Generated, Span
from cosmos_demo.generator import controls
from cosmos_demo.generator.modes import MODES
from cosmos_demo.reasoner import drawing
from cosmos_demo.requests import AnswerRequest, GenerateRequest
from cosmos_demo.settings import EXAMPLES, Settings
from cosmos_demo.ui import forms, page, results, scorecard, status, timeline
from cosmos_demo.ui.context import Context
from cosmos_demo.ui.generator_tab import GeneratorTab
from cosmos_demo.ui.picture_tab import PictureTab
from cosmos_demo.ui.reasoner_tab import Marks, ReasonerTab
from cosmos_demo.ui.transfer_tab import TransferTab
from cosmos_demo.ui.video_tab import VideoTab

Tab = TypeVar("Tab", bound=GeneratorTab | ReasonerTab)
FEW_STEPS = {"steps": 4, "guidance_scale": 1.0, "negative_prompt": ""}


@dataclass
class _Engine:
    """Capabilities, which are what the page asks for while it is built, and one answer to every question."""

    can: Capabilities
    told: Status = field(default_factory=lambda: Status("Some", "cpu", "float32", "ready"))
    asked: list[AnswerRequest] = field(default_factory=list)

    def capabilities(self) -> Capabilities:
        return self.can

    def status(self) -> Status:
        return self.told

    def answer(self, request: AnswerRequest) -> Iterator[Event]:
        self.asked.append(request)
        yield Answered("Yes.")


def _tab(kind: type[Tab], **can) -> Tab:
    import gradio as gr

    context = Context(_Engine(Capabilities("Some", "cosmos3_omni", **can)), Settings())
    with gr.Blocks():
        return kind(context)


def _ask(tab: ReasonerTab, conversation: list[Any] = (), **values: Any) -> list[Any]:
    """Ask what the form holds with these changes; the conversation afterwards."""
    given = {control: control.value for control in tab.form.controls}
    given |= {tab._look: values.pop("look", "image"), tab._more: None, tab._conversation: list(conversation)}
    given |= {tab.form[field]: value for field, value in values.items()}
    return list(tab._ask(given, SimpleNamespace(session_hash="me")))[-1][tab._conversation]


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


def test_the_reasoner_is_shown_a_clip_at_the_chosen_rate_and_afresh_when_it_changes():
    tab = _tab(ReasonerTab, defaults={"video_fps": 10})
    asked = tab._context.engine.asked
    clip = {"look": "video", "video": str(EXAMPLES / "bounce.mp4"), "prompt": "What happens?"}
    told = _ask(tab, **clip)
    told = _ask(tab, told, **clip)
    assert [request.video and request.video.fps for request in asked] == [10, None]
    assert asked[1].history[0].video.fps == 10
    assert len(_ask(tab, told, video_fps=4, **clip)) == 1
    assert asked[2].video.fps == 4
    assert asked[2].history == ()


def test_the_rate_of_a_clip_is_asked_for_only_with_clips():
    tab = _tab(ReasonerTab)
    shown = {name: tab._arranged(name, "image")[tab.form["video_fps"]]["visible"] for name in ("chat", "video-caption")}
    assert shown == {"chat": False, "video-caption": True}
    assert tab._arranged("chat", "video")[tab.form["video_fps"]]["visible"] is True


def test_clicks_number_a_picture_for_the_task_that_describes_marked_things(tmp_path: Path):
    tab = _tab(ReasonerTab)
    tab.form["images"].GRADIO_CACHE = str(tmp_path / "cache")
    plain = str(media.write_image(tmp_path / "a.png", np.full((192, 320, 3), 120, np.uint8)))

    def click(path: str, marks: Marks, x: int, y: int) -> tuple[str, Marks]:
        return tab._mark("describe-anything", path, marks, SimpleNamespace(index=[x, y]))

    drawn, marks = click(plain, Marks(), 160, 96)
    drawn, marks = click(drawn, marks, 64, 192)  # twice as large as the plain one
    assert [(point.x, point.y) for point in marks.points] == [(500, 500), (100, 500)]
    expected = drawing.mark(media.read_image(plain), marks.points)
    np.testing.assert_array_equal(np.asarray(media.read_image(drawn)), np.asarray(expected))
    assert tab._plain(drawn, marks) == (plain, Marks())
    other = str(media.write_image(tmp_path / "b.png", np.zeros((192, 320, 3), np.uint8)))
    assert len(click(other, marks, 10, 10)[1].points) == 1
    assert tab._plain(other, marks)[0] != plain
    assert "value" not in tab._mark("chat", plain, Marks(), SimpleNamespace(index=[1, 1]))[0]
    assert tab._arranged("describe-anything", "image")[tab._marking]["visible"] is True


def test_transfer_takes_edges_and_blur_from_a_clip_and_other_controls_as_they_are():
    tab = _tab(TransferTab)
    clip = str(EXAMPLES / "bounce.mp4")

    def request(*slots: tuple[str, str | None]) -> GenerateRequest:
        return tab.request("transfer", {"prompt": "x", "num_frames": 5, "controls": list(slots), "strength": "low"})

    plain = request(("depth", clip), ("seg", None)).controls
    taken = request(("take-edge", clip), ("depth", clip)).controls
    assert plain.keys() == {"depth"}
    np.testing.assert_array_equal(taken["edge"].frames, controls.edges(plain["depth"], "low").frames)
    np.testing.assert_array_equal(taken["depth"].frames, plain["depth"].frames)
    with pytest.raises(RequestError, match="same kind"):
        request(("take-edge", clip), ("edge", clip))


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


@pytest.mark.parametrize(("told", "shown"), [("off (no <room>): nothing is screened", "off"), ("They screen", "on")])
def test_the_status_line_says_in_short_whether_guardrails_screen_and_in_full_on_request(told, shown):
    html = status.line(Status("Some", "cpu", "float32", "ready", guardrails=told))
    assert f">guardrails {shown}</li>" in html
    assert f'title="{told.replace("<", "&lt;").replace(">", "&gt;")}"' in html


def test_the_scorecard_shows_shares_units_and_plain_numbers_and_what_misses_its_target():
    html = scorecard.table(
        [
            Score("count", "objects <counted>", 0.975, 0.95, 1.0, 40, 0.95, True, "share"),
            Score("first-frame", "likeness", 31.25, 30.0, 32.0, 12, 35.0, False, "dB"),
            Score("place", "error", 0.0512, 0.04, 0.06, 12, 0.06, True, higher=False),
        ]
    )
    rows = html.split("<tr")[2:]
    assert "2 of 3 targets met." in html
    assert "objects &lt;counted&gt;" in rows[0]
    for row, words in zip(
        rows,
        [
            ("97.5%", "95% to 100%", "40", "at least 95%", ">met<"),
            ("31.2 dB", "30 dB to 32 dB", "12", "at least 35 dB", ">not met<", "unmet"),
            ("0.051", "0.04 to 0.06", "12", "at most 0.06", ">met<"),
        ],
        strict=True,
    ):
        assert all(word in row for word in words)
    assert "unmet" not in rows[0] + rows[2]


@pytest.mark.parametrize("scores", [(), (Score("count", "counted", 1.0, 0.9, 1.0, 40, 0.95, True, "share"),)])
def test_the_scorecard_is_on_the_page_only_when_there_is_one(scores):
    blocks = page.build(_Engine(Capabilities("Some", "cosmos3_omni", scores=scores)), Settings())
    labels = [getattr(block, "label", None) for block in blocks.blocks.values()]
    assert ("What Some can do" in labels) == bool(scores)
