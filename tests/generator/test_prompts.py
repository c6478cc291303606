"""Structured prompts told from plain ones, read from answers, finished with the true facts."""

from __future__ import annotations

import json

from cosmos_demo.generator import prompts


def test_only_json_objects_are_structured():
    assert prompts.is_structured(' {"temporal_caption": "a ball"}')
    assert not any(prompts.is_structured(text) for text in ("a {red} ball", "{not json", "[1]", '"text"', ""))


def test_requests_name_the_schema_of_the_mode():
    picture = prompts.request("a ball", "text-to-image")
    assert "comprehensive_t2i_caption" in picture
    assert not any(key in picture for key in ("camera_motion", "state_changes", "spatial_temporal", "temporal_caption"))
    assert picture.endswith("a ball")
    video = prompts.request("a ball", "image-to-video")
    assert all(
        key in video
        for key in ("temporal_caption", "audio_description", prompts.SCRATCHPAD, "first frame", "camera_motion")
    )


def test_answers_are_read_leniently_without_the_scratchpad():
    answer = (
        'Sure:\n```json\n{"scene_imagination": "hm", "temporal_caption": "A ball falls.", "subjects": []}\n```\nBye'
    )
    assert prompts.read(answer) == {"temporal_caption": "A ball falls."}
    assert prompts.read('{"temporal_caption": "A ball falls.", "subjects": [{"descr') == {
        "temporal_caption": "A ball falls."
    }
    assert prompts.read("A ball falls.") is None
    assert prompts.read('{"subjects": [{"description": "ball"}]}') is None


def test_the_true_facts_win():
    text = prompts.finish({"temporal_caption": "ü", "fps": 1, "duration": "9s"}, 320, 192, "16:9", 17, 10)
    assert text.isascii()
    assert json.loads(text) == {
        "temporal_caption": "ü",
        "resolution": {"H": 192, "W": 320},
        "aspect_ratio": "16,9",
        "duration": "1s",
        "fps": 10,
    }
    assert "fps" not in json.loads(prompts.finish({"comprehensive_t2i_caption": "x"}, 320, 192, "16:9"))
