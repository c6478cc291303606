"""A record survives every format; what strangers write into one does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from cosmos_demo import media, records
from cosmos_demo.errors import RequestError
from cosmos_demo.media import Clip
from cosmos_demo.requests import AnswerRequest, GenerateRequest, Turn

FRAMES = np.zeros((5, 32, 48, 3), np.uint8)
CLIP = Clip(FRAMES, 10.0, np.arange(5) / 10)
ACTIONS = np.random.default_rng(0).normal(size=(16, 9)).astype(np.float32)

WRITERS: dict[str, Callable[[Path, dict[str, Any]], Path]] = {
    "png": lambda path, record: media.write_image(path, FRAMES[0], record),
    "jpg": lambda path, record: media.write_image(path, FRAMES[0], record),
    "mp4": lambda path, record: media.write_video(path, FRAMES, 10, np.zeros((2, 8000)), 16000, record),
    "wav": lambda path, record: media.write_sound(path, np.zeros((1, 1600)), 16000, record),
    "json": lambda path, record: media.write_json(path, {"actions": [[0.5]]}, record),
}


def generated(**changes: Any) -> dict[str, Any]:
    fields = {"mode": "text-to-video", "prompt": 'Ein Würfel "rot" 猫\n<b>', "steps": 8, "fps": 10, "sound": True}
    request = GenerateRequest(**{**fields, **changes})
    return records.new_record("generator", request, "Cosmos3-Pico", 7, {"denoising": 1.23456}, {"width": 320})


@pytest.mark.parametrize("kind", WRITERS)
def test_a_record_survives_every_format(tmp_path: Path, kind: str) -> None:
    record = generated(mode="forward-dynamics", actions=ACTIONS, controls={"edge": CLIP}, guidance_scale=6.0)
    path = WRITERS[kind](tmp_path / f"result.{kind}", record)
    assert records.read_record(path) == record
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", [kind for kind in WRITERS if kind != "jpg"])
def test_long_records_survive_too(tmp_path: Path, kind: str) -> None:
    record = generated(prompt="long " * 8000, actions=np.linspace(-1, 1, 8192, dtype=np.float32).reshape(128, 64))
    assert len(json.dumps(record)) > 100_000
    assert records.read_record(WRITERS[kind](tmp_path / f"result.{kind}", record)) == record


def test_a_record_too_long_for_a_jpeg_fails_aloud_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="65533"):
        WRITERS["jpg"](tmp_path / "result.jpg", generated(prompt="long " * 14_000))
    assert list(tmp_path.iterdir()) == []


def test_a_record_says_what_ran() -> None:
    record = generated()
    assert record["seed"] == record["settings"]["seed"] == 7
    assert record["timings"] == {"denoising": 1.235}
    assert record["details"] == {"width": 320}
    assert record["versions"]["av"].count(".") == 2
    assert datetime.fromisoformat(record["date"]).utcoffset().total_seconds() == 0
    json.dumps(record, allow_nan=False)


def test_media_are_described_and_paths_dropped() -> None:
    request = AnswerRequest(
        "What is there?",
        images=(Image.new("RGB", (64, 48)),),
        history=(Turn("Before?", "Nothing.", video=CLIP),),
        temperature=0.7,
    )
    record = records.new_record("reasoner", request, "/home/someone/models/cosmos3-pico", None)
    assert record["inputs"] == {"images": "picture of 64x48", "history": "1 earlier turns"}
    assert record["checkpoint"] == "cosmos3-pico"
    assert "someone" not in json.dumps(record)
    assert generated(controls={"edge": CLIP})["inputs"] == {"controls.edge": "5 frames of 48x32 at 10 fps"}
    large = generated(actions=np.zeros((300, 64), np.float32))
    assert large["inputs"] == {"actions": "array of 300x64"}
    assert "actions" not in large["settings"]


def test_actions_come_back_to_the_last_bit(tmp_path: Path) -> None:
    path = WRITERS["mp4"](tmp_path / "result.mp4", generated(mode="forward-dynamics", actions=ACTIONS))
    _, _, settings = records.restore(records.read_record(path))
    np.testing.assert_array_equal(np.array(settings["actions"], np.float32), ACTIONS)


def test_restore_tells_head_mode_and_settings() -> None:
    head, mode, settings = records.restore(generated())
    assert (head, mode) == ("generator", "text-to-video")
    assert settings["steps"] == 8
    assert settings["sound"] is True
    assert settings["seed"] == 7
    assert "mode" not in settings
    request = AnswerRequest("Where?", task="grounding", reasoning=True)
    head, task, settings = records.restore(records.new_record("reasoner", request, "Cosmos3-Pico", 3))
    assert (head, task) == ("reasoner", "grounding")
    assert settings == {"prompt": "Where?", "reasoning": True, "max_new_tokens": 512, "seed": 3}


def test_restore_refuses_a_record_that_names_no_mode() -> None:
    record = generated()
    del record["settings"]["mode"]
    with pytest.raises(RequestError, match="names no mode"):
        records.restore(records.parse(json.dumps(record)))


# Files of strangers


@pytest.mark.parametrize("kind", ["png", "jpg", "mp4", "wav"])
def test_files_without_a_record_say_so(tmp_path: Path, kind: str) -> None:
    path = WRITERS[kind](tmp_path / f"result.{kind}", {})
    with pytest.raises(RequestError, match="carries no record of this app") as error:
        records.read_record(path, field="settings file")
    assert error.value.field == "settings file"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        '"text"',
        "{}",
        '{"app": "other", "version": 1, "kind": "generator", "settings": {}}',
        '{"app": "cosmos_demo", "version": 1, "kind": "painter", "settings": {}}',
        '{"app": "cosmos_demo", "version": 1, "kind": ["generator"], "settings": {}}',
        '{"app": "cosmos_demo", "version": "1", "kind": "generator", "settings": {}}',
        '{"app": "cosmos_demo", "version": true, "kind": "generator", "settings": {}}',
        '{"app": "cosmos_demo", "version": 1, "kind": "generator", "settings": []}',
        '{"app": "cosmos_demo", "version": 1, "kind": "generator", "settings": {"steps": NaN}}',
        "[" * 100_000,
        '{"record": ' * 50_000,
        '{"app": ' + "9" * 10_000 + "}",
    ],
)
def test_other_text_is_no_record(text: str) -> None:
    with pytest.raises(RequestError, match="carries no record of this app"):
        records.parse(text)


def test_a_newer_record_asks_for_an_update() -> None:
    with pytest.raises(RequestError, match="newer version"):
        records.parse(json.dumps({**generated(), "version": records.VERSION + 1}))


def test_giant_records_are_refused(tmp_path: Path) -> None:
    record = {**generated(), "filler": "x" * records.MAX_BYTES}
    for kind in ("png", "mp4", "json"):
        with pytest.raises(RequestError, match="longer than 256 KB"):
            records.read_record(WRITERS[kind](tmp_path / f"result.{kind}", record))
    media.write_json(tmp_path / "giant.json", {"filler": "x" * (media.MAX_JSON_BYTES + 1)})
    with pytest.raises(RequestError, match="MB work"):
        records.read_record(tmp_path / "giant.json")


def test_a_text_chunk_that_inflates_without_end_is_refused(tmp_path: Path) -> None:
    chunks = PngImagePlugin.PngInfo()
    chunks.add_itxt(media.RECORD_KEY, "x" * 50_000_000, zip=True)
    Image.new("RGB", (32, 32)).save(tmp_path / "bomb.png", pnginfo=chunks)
    assert (tmp_path / "bomb.png").stat().st_size < 200_000
    with pytest.raises(RequestError) as error:
        records.read_record(tmp_path / "bomb.png")
    assert error.value.field == "file"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", "many"),
        ("steps", 2.5),
        ("steps", True),
        ("steps", 10**20),
        ("sound", 1),
        ("guidance_scale", "6"),
        ("guidance_scale", [6]),
        ("prompt", ["a"]),
        ("prompt", "x" * (records.MAX_TEXT + 1)),
        ("mode", "<script>alert(1)</script>"),
        ("domain", "../../etc/passwd"),
        ("aspect_ratio", "16:9" * 100),
        ("actions", [[1.0], [1.0, 2.0]]),
        ("actions", [["1"]]),
        ("actions", []),
        ("actions", [[0.0] * 64] * 200),
    ],
)
def test_a_setting_of_the_wrong_type_is_refused_by_name(name: str, value: Any) -> None:
    record = generated()
    record["settings"][name] = value
    with pytest.raises(RequestError, match=f"damaged: {name}"):
        records.parse(json.dumps(record))


def test_unknown_keys_and_unsafe_words_are_dropped() -> None:
    record = generated()
    record["settings"] |= {"image": "/etc/passwd", "video": "http://example.com/a.mp4", "controls": {"edge": "/x"}}
    record["settings"] |= {"unknown": 1, "prompt": "tab\tnull\x00bell\x07 <b>"}
    record |= {"extra": "x", "checkpoint": "../../weights", "date": "<i>", "app_version": 3, "seed": "7"}
    record["versions"] = {"torch": "<b>1</b>", "av": "18.1.0"}
    record["details"] = {"<b>": 1, "width": 320, "path": "/tmp/x", "rows": [[1]]}
    record["timings"] = {"denoising": "long", "decoding": 1.5}
    record["inputs"] = ["x"]
    clean = records.parse(json.dumps(record))
    expected = {name: value for name, value in generated()["settings"].items() if name != "prompt"}
    assert clean["settings"] == {**expected, "prompt": "tab\tnullbell <b>"}
    assert "extra" not in clean
    assert (clean["checkpoint"], clean["date"], clean["app_version"], clean["seed"]) == ("", "", "", None)
    assert clean["versions"] == {"av": "18.1.0"}
    assert clean["details"] == {"width": 320}
    assert clean["timings"] == {"decoding": 1.5}
    assert clean["inputs"] == {}


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "result.mp4"
    for content in (b"plain text\n" * 50, bytes(3000), b"\x89PNG\r\n\x1a\n" + bytes(50), b"\xff\xd8\xff", b"{\xff\xfe"):
        path.write_bytes(content)
        with pytest.raises(RequestError) as error:
            records.read_record(path)
        assert error.value.field == "file"
