"""Values from strangers become requests or clear errors; results become plain values and files."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosmos_demo import media, records
from cosmos_demo.engines.base import Capabilities
from cosmos_demo.errors import EngineError, RequestError
from cosmos_demo.events import Answered, Box, Generated, Point, Span
from cosmos_demo.generator import controls
from cosmos_demo.requests import AnswerRequest, GenerateRequest
from cosmos_demo.ui import forms

CAN = Capabilities("Cosmos3-Pico", "cosmos3_omni", defaults={"fps": 10})


def generate(mode: str = "text-to-image", **values: Any) -> GenerateRequest:
    return forms.generate_request(mode, values, CAN)


def refused(field: str, call: Any, **values: Any) -> str:
    with pytest.raises(RequestError) as caught:
        call(**values)
    assert caught.value.field == field
    return caught.value.message


def ask(**values: Any) -> AnswerRequest:
    return forms.answer_request(values)


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(media.write_image(tmp_path_factory.mktemp("media") / "a.png", np.full((48, 64, 3), 200, np.uint8)))


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Forty frames at 20 fps, each brighter than the one before."""
    frames = np.arange(0, 240, 6, dtype=np.uint8)[:, None, None, None].repeat(48, 1).repeat(64, 2).repeat(3, 3)
    return str(media.write_video(tmp_path_factory.mktemp("media") / "a.mp4", frames, 20))


@pytest.mark.parametrize("blank", [None, "", "  \n"])
def test_blank_values_stand_for_defaults(blank: Any) -> None:
    names = GenerateRequest.__dataclass_fields__.keys() - {"mode"}
    assert generate(**dict.fromkeys(names, blank)) == GenerateRequest(mode="text-to-image")
    assert ask(prompt=blank, images=blank, video=blank, seed=blank, reasoning=blank) == AnswerRequest(prompt="")


def test_values_take_the_types_of_their_fields() -> None:
    request = generate(prompt=" a cup ", steps="20", guidance_scale="3.5", seed=7.0, sound="on", num_frames=17)
    assert request == GenerateRequest(
        mode="text-to-image", prompt=" a cup ", steps=20, guidance_scale=3.5, seed=7, sound=True, num_frames=17
    )
    assert [type(value) for value in (request.steps, request.seed, request.guidance_scale)] == [int, int, float]
    assert ask(prompt="why?", top_k="20", temperature=1, reasoning=0).top_k == 20


WHOLE = ("steps", "seed", "num_frames", "fps", "resolution", "chunk_size", "condition_frames")
NUMBERS = ("guidance_scale", "flow_shift", "control_guidance")
TEXTS = ("prompt", "negative_prompt", "aspect_ratio", "keep", "domain", "view_point")
NOT_NUMBERS = [
    "abc",
    "12 px",
    math.nan,
    math.inf,
    "nan",
    "-inf",
    True,
    False,
    [],
    {},
    [3],
    b"3",
    10**400,
    "0x10",
    "1,5",
]


@pytest.mark.parametrize("field", [*WHOLE, *NUMBERS])
@pytest.mark.parametrize("value", NOT_NUMBERS, ids=lambda value: repr(value)[:12])
def test_not_a_number(field: str, value: Any) -> None:
    assert "is not a number" in refused(field, generate, **{field: value})


@pytest.mark.parametrize("field", WHOLE)
@pytest.mark.parametrize("value", [2.5, "2.5", 1e-9])
def test_not_a_whole_number(field: str, value: Any) -> None:
    assert "is not a whole number" in refused(field, generate, **{field: value})


@pytest.mark.parametrize("field", TEXTS)
@pytest.mark.parametrize("value", [3, 1.5, True, ["a"], {"a": 1}])
def test_not_a_text(field: str, value: Any) -> None:
    assert "Give text" in refused(field, generate, **{field: value})


def test_texts_without_end_and_broken_characters() -> None:
    assert "50,000" in refused("prompt", generate, prompt="a" * 50_001)
    assert "surrogate" in refused("prompt", ask, prompt="a\ud800b")
    assert generate(prompt="a" * 50_000).prompt
    assert ask(prompt="日本語 🙂 \u0000").prompt == "日本語 🙂 \u0000"


@pytest.mark.parametrize("value", ["maybe", 2, 0.5, [], "truee"])
def test_neither_true_nor_false(value: Any) -> None:
    assert "neither true nor false" in refused("sound", generate, sound=value)
    assert "neither true nor false" in refused("reasoning", ask, reasoning=value)


def test_messages_show_a_stranger_s_value_in_short() -> None:
    assert len(refused("seed", generate, seed="x" * 10_000)) < 80


def test_a_name_that_is_no_field_is_a_defect() -> None:
    with pytest.raises(TypeError, match="sede"):
        generate(sede=1)


@pytest.mark.parametrize("value", [3, True, {"path": "a.png"}, ["a.png"], [[]]])
def test_not_a_file(value: Any) -> None:
    assert "Give a file" in refused("image", generate, mode="image-to-video", image=value)
    assert "Give a file" in refused("video", ask, video=value)


def test_files_that_do_not_exist_or_are_of_another_kind(tmp_path: Path, picture: str) -> None:
    text = tmp_path / "a.txt"
    text.write_text("no picture")
    assert "no such file" in refused("image", ask, images="nowhere.png")
    assert "no such file" in refused("image", ask, images=[picture, "nowhere.png"])
    assert "picture" in refused("image", generate, image=str(text))
    refused("video", generate, mode="video-to-video", video=str(text))
    refused("edge", generate, mode="transfer", controls={"edge": str(text)})


def test_pictures_of_a_question(picture: str) -> None:
    assert [image.size for image in ask(prompt="?", images=picture).images] == [(64, 48)]
    assert len(ask(prompt="?", images=[picture, Path(picture)]).images) == 2


def test_the_clip_of_a_question_is_sampled_in_pairs(clip: str) -> None:
    video = ask(prompt="?", video=clip).video
    assert video is not None
    assert video.fps == forms.QUESTION_FPS
    assert len(video.frames) == 8  # 2 s at 4 fps


def test_the_rate_of_a_questions_clip_is_chosen_by_person_then_checkpoint(clip: str) -> None:
    fast = replace(CAN, defaults={"video_fps": 10})
    assert forms.answer_request({"prompt": "?", "video": clip}, capabilities=fast).video.fps == 10
    assert forms.answer_request({"prompt": "?", "video": clip, "video_fps": "2"}, capabilities=fast).video.fps == 2
    for rate in (0, 31, "x"):
        with pytest.raises(RequestError) as caught:
            forms.answer_request({"prompt": "?", "video": clip, "video_fps": rate})
        assert caught.value.field == "video_fps"


@pytest.mark.parametrize(("keep", "brightness"), [("first", [0, 12, 24, 36, 48]), ("last", [186, 198, 210, 222, 234])])
def test_the_source_of_a_continuation_is_read_at_the_rate_it_continues(
    clip: str, keep: str, brightness: list[int]
) -> None:
    video = generate("video-to-video", video=clip, keep=keep, condition_frames=5, fps=10).video
    assert video is not None
    np.testing.assert_allclose(video.frames.mean((1, 2, 3)), brightness, atol=3)


def test_other_clips_are_read_from_their_start_as_far_as_needed(clip: str) -> None:
    video = generate("inverse-dynamics", video=clip, chunk_size=4).video
    control = generate("transfer", controls={"depth": clip, "seg": None}, num_frames=9).controls
    assert video is not None
    np.testing.assert_allclose(video.frames.mean((1, 2, 3)), [0, 12, 24, 36, 48], atol=3)
    assert {kind: len(found.frames) for kind, found in control.items()} == {"depth": 9}


@pytest.mark.parametrize("numbers", [{"fps": 0}, {"fps": -5}, {"fps": 10**9}, {"condition_frames": -3}])
def test_numbers_that_no_clip_can_be_read_with_are_left_to_validation(clip: str, numbers: dict[str, int]) -> None:
    request = generate("video-to-video", video=clip, **numbers)
    assert request.video is not None
    assert numbers.items() <= vars(request).items()


def test_actions_come_as_rows_text_or_file(tmp_path: Path) -> None:
    rows = [[0.5, -1, 0.1], [0, 1, 2]]
    file = tmp_path / "actions.json"
    file.write_text(json.dumps({"actions": rows, "record": {}}))
    for given in (rows, json.dumps(rows), file):
        actions = generate("forward-dynamics", actions=given).actions
        assert actions is not None
        assert actions.dtype == np.float32
        np.testing.assert_array_equal(actions, np.asarray(rows, np.float32))


@pytest.mark.parametrize(
    "value",
    [
        *([], [[]], [1, 2], [[1, 2], [3]], [["a"]], [[[1]]], [[math.nan]], [[1e39]], [[None]]),
        *("[[1, 2", "nonsense", "3", "{}", '{"actions": 3}', "[" * 100_000, 3, True, {"rows": [[1]]}),
    ],
    ids=lambda value: repr(value)[:16],
)
def test_not_actions(value: Any) -> None:
    assert refused("actions", generate, mode="forward-dynamics", actions=value)


def test_edges_and_blur_are_computed_from_an_ordinary_clip(clip: str) -> None:
    clips = {"edge": clip, "blur": clip, "depth": clip}
    given, computed = (
        generate("transfer", controls=clips, num_frames=5, compute=compute).controls
        for compute in ({}, {"edge": "low", "blur": "high"})
    )
    np.testing.assert_array_equal(given["edge"].frames, given["depth"].frames)
    np.testing.assert_array_equal(computed["edge"].frames, controls.edges(given["edge"], "low").frames)
    np.testing.assert_array_equal(computed["blur"].frames, controls.blur(given["blur"], "high").frames)
    np.testing.assert_array_equal(computed["depth"].frames, given["depth"].frames)
    for compute in ({"depth": "low"}, {"edge": "brutal"}, {"blur": 3}, {"edge": True}):
        assert refused("compute", generate, mode="transfer", controls=clips, compute=compute)


def test_a_prompt_is_written_out_with_the_size_and_length_of_the_run() -> None:
    request = forms.upsample_request("a ball falls", "text-to-video")
    assert request.task == "upsample"
    assert "a ball falls" in request.prompt
    answer = Answered('Here: {"scene_imagination": "hm", "temporal_caption": "Ein Ball fällt."}')
    values = {"num_frames": "49", "fps": 24, "resolution": 480, "prompt": "a ball falls", "video": "ignored.mp4"}
    text = forms.upsampled(answer, "text-to-video", values, CAN)
    assert text.isascii()
    assert json.loads(text) == {
        "temporal_caption": "Ein Ball fällt.",
        "resolution": {"H": 480, "W": 832},
        "aspect_ratio": "16,9",
        "duration": "2s",
        "fps": 24,
    }


@pytest.mark.parametrize("mode", ["policy", "text-to-smell", None, 3, []])
def test_prompts_that_stay_plain(mode: Any) -> None:
    assert "text-to-image" in refused("mode", forms.upsample_request, prompt="a ball", mode=mode)


def test_prompts_that_can_not_be_written_out() -> None:
    assert refused("prompt", forms.upsample_request, prompt="  ", mode="text-to-image")
    assert refused("prompt", forms.upsample_request, prompt=3, mode="text-to-image")
    with pytest.raises(EngineError, match="no structured prompt"):
        forms.upsampled(Answered("a ball"), "text-to-image", {}, CAN)


def test_details_of_an_answer_are_json() -> None:
    details = forms.details(
        Answered(
            text="there",
            thinking="hm",
            boxes=(Box(1, 2, 3, 4, "cup"),),
            points=(Point(5, 6, "tip"),),
            spans=(Span(0.5, 1.5, "falls"),),
            label="(A)",
            record={"seed": 3},
        )
    )
    assert json.loads(json.dumps(details)) == {
        "record": {"seed": 3},
        "thinking": "hm",
        "note": "",
        "boxes": [{"x1": 1, "y1": 2, "x2": 3, "y2": 4, "label": "cup"}],
        "points": [{"x": 5, "y": 6, "label": "tip"}],
        "events": [{"start": 0.5, "end": 1.5, "caption": "falls"}],
        "label": "(A)",
    }


def result(mode: str, frames: int, **extra: Any) -> Generated:
    record = records.new_record("generator", {"mode": mode}, "Cosmos3-Pico", seed=11)
    shown = np.zeros((frames, 32, 48, 3), np.uint8) if frames else None
    return Generated(shown, fps=10, record=record, **extra)


def test_a_picture_is_written_with_its_record(tmp_path: Path) -> None:
    written = forms.write_result(result("text-to-image", 1), tmp_path)
    assert written.picture is not None
    assert written.picture.name == "text-to-image-11.png"
    assert (written.video, written.sound) == (None, None)
    assert records.read_record(written.picture)["seed"] == 11


def test_a_video_with_sound_and_actions_is_written_with_its_record(tmp_path: Path) -> None:
    actions = np.array([[0.1, -0.2], [0.3, 1]], np.float32)
    sound = np.zeros((2, 8000), np.float32)
    made = result("policy", 5, sound=sound, sample_rate=16_000, actions=actions)
    written = forms.write_result(made, tmp_path)
    assert written.video is not None
    assert written.sound is not None
    assert media.probe(written.video).frames == 5
    assert [records.read_record(path)["seed"] for path in (written.video, written.sound, written.data)] == [11] * 3
    assert json.loads(written.data.read_text())["actions"] == [[0.1, -0.2], [0.3, 1.0]]
    np.testing.assert_array_equal(generate("forward-dynamics", actions=written.data).actions, actions)


def test_only_the_newest_results_are_kept_and_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    others = [tmp_path / name for name in ("holiday", "a-folder-of-twenty-two", "another-with-json-file")]
    for folder in others:
        folder.mkdir()
    (others[2] / "settings.json").write_text('{"mine": true}')
    for folder in others:
        os.utime(folder, (0, 0))
    made = []
    for time in range(1, 5):
        made.append(forms.write_result(result("text-to-image", 1), tmp_path).data.parent)
        os.utime(made[-1], (time, time))
    forms.delete_old_results(tmp_path, kept=3)
    assert [folder.exists() for folder in made] == [False, True, True, True]
    forms.delete_old_results(tmp_path, kept=2)
    assert [folder.exists() for folder in made] == [False, False, True, True]
    assert all(folder.exists() for folder in others)


def test_each_result_makes_room_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(forms, "delete_old_results", calls.append)
    written = forms.write_result(result("text-to-image", 1), tmp_path)
    assert calls == [tmp_path]
    assert written.data.exists()


def test_every_result_has_a_folder_of_its_own_that_nobody_can_guess(tmp_path: Path) -> None:
    folders = [forms.write_result(result("inverse-dynamics", 0), tmp_path).data.parent for _ in range(3)]
    assert len(set(folders)) == 3
    assert all(folder.parent == tmp_path.resolve() and len(folder.name) >= 20 for folder in folders)
