"""The app as clients see it: every endpoint over ``gradio_client``, one over plain HTTP, and what goes wrong."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError
from PIL import Image

from cosmos_demo import media, records
from cosmos_demo.engines.local import LocalEngine
from cosmos_demo.events import Answered, Event, Token
from cosmos_demo.requests import AnswerRequest
from cosmos_demo.settings import Settings
from cosmos_demo.ui import page

MAX_UPLOAD_MB = 2
WIDTH, HEIGHT = 320, 192
SHORT = {"num_frames": 5, "steps": 1}
ACTED = {"chunk_size": 4, "steps": 1}
STILL = [[0, 0, 0, 1, 0, 0, 0, 1, 0]] * 4
"""Camera poses of four frames without movement."""


@pytest.fixture(scope="module")
def url(engine: LocalEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the running app."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    app = page.build(engine, Settings(outputs=str(tmp_path_factory.mktemp("outputs"))))
    app.launch(server_port=port, prevent_thread_lock=True, quiet=True, max_file_size=MAX_UPLOAD_MB * 2**20)
    yield f"http://127.0.0.1:{port}/"
    app.close()


@pytest.fixture(scope="module")
def client(url: str, tmp_path_factory: pytest.TempPathFactory) -> Client:
    return Client(url, verbose=False, download_files=tmp_path_factory.mktemp("downloads"))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures and clips by name: good ones, and bad ones of every kind."""
    folder = tmp_path_factory.mktemp("inputs")
    frames = np.zeros((17, HEIGHT, WIDTH, 3), np.uint8)
    for index, frame in enumerate(frames):
        frame[:] = (120, 100, 80)
        frame[80:120, 40 + 10 * index : 80 + 10 * index] = (200, 30, 30)
    media.write_image(folder / "good.png", frames[0])
    media.write_video(folder / "good.mp4", frames, 10)
    media.write_sound(folder / "silent.wav", np.zeros((2, 1600), np.float32), 16_000)
    Image.new("L", (1, 1)).save(folder / "tiny.png")
    Image.new("1", (10_000, 10_000)).save(folder / "vast.png")
    (folder / "text.png").write_text("no picture")
    (folder / "empty.png").touch()
    (folder / "cut.png").write_bytes((folder / "good.png").read_bytes()[:200])
    (folder / "cut.mp4").write_bytes((folder / "good.mp4").read_bytes()[:1000])
    (folder / "huge.png").write_bytes((folder / "good.png").read_bytes() + bytes(MAX_UPLOAD_MB * 2**20))
    (folder / "rows.json").write_text(json.dumps(STILL))
    return folder


CALLS: dict[str, dict[str, Any]] = {
    "text_to_image": {"prompt": "A red ball.", "steps": 1},
    "text_to_video": {"prompt": "A red ball.", "sound": True, **SHORT},
    "image_to_video": {"image": "good.png", "prompt": "A red ball.", **SHORT},
    "video_to_video": {"video": "good.mp4", "prompt": "A red ball.", "num_frames": 9, "steps": 1, "keep": "first"},
    "policy": {"image": "good.png", "prompt": "Look at the red ball.", "domain": "camera_pose", **ACTED},
    "forward_dynamics": {"image": "good.png", "actions": "rows.json", "domain": "camera_pose", **ACTED},
    "inverse_dynamics": {"video": "good.mp4", "domain": "camera_pose", **ACTED},
    "transfer": {"control": "good.mp4", "prompt": "A red ball.", "compute": "low", **SHORT},
}
FRAMES = {"text_to_image": 1, "video_to_video": 9}


def call(client: Client, name: str, files: Path, **values: Any) -> Any:
    """Call an endpoint; names of files in ``files`` are uploaded."""
    known = {path.name for path in files.iterdir()}
    given = {
        key: handle_file(files / value) if isinstance(value, str) and value in known else value
        for key, value in values.items()
    }
    return client.predict(api_name=f"/{name}", **given)


def pixels(path: str) -> np.ndarray:
    if path.endswith(".png"):
        return np.asarray(media.read_image(path))[None]
    return media.read_clip(path).frames


@pytest.mark.parametrize("name", CALLS)
def test_every_generator_endpoint(client: Client, files: Path, name: str) -> None:
    result = call(client, name, files, seed=3, **CALLS[name])
    path, details = result if name != "inverse_dynamics" else (None, result)
    mode = name.replace("_", "-")
    record = details["record"]
    assert (record["settings"]["mode"], record["seed"], record["kind"]) == (mode, 3, "generator")
    assert record["checkpoint"] == "Cosmos3-Pico"
    if path is not None:
        assert pixels(path).shape == (FRAMES.get(name, 5), HEIGHT, WIDTH, 3)
        assert records.read_record(path)["settings"]["mode"] == mode
    if name in ("policy", "inverse_dynamics"):
        assert np.asarray(details["actions"]).shape == (4, 9)
    if name == "text_to_video":
        assert media.probe(path).has_sound


def test_every_input_of_every_endpoint_is_known_by_its_name(client: Client) -> None:
    endpoints = client.view_api(return_format="dict", print_info=False)["named_endpoints"]
    names = {*(f"/{name}" for name in CALLS), "/answer", "/upsample_prompt", "/status"}
    assert names <= endpoints.keys()
    for name in names - {"/status"}:
        first, *others = endpoints[name]["parameters"]
        assert not first["parameter_has_default"], name
        assert all(parameter["parameter_has_default"] for parameter in others), name
        assert endpoints[name]["description"]


def test_the_seed_decides_the_picture(client: Client, files: Path) -> None:
    first, again, other = (
        pixels(call(client, "text_to_image", files, prompt="A red ball.", steps=2, seed=seed)[0]) for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_a_drawn_seed_is_told_and_gives_the_same_video_again(client: Client, files: Path) -> None:
    path, details = call(client, "text_to_video", files, prompt="A red ball.", **SHORT)
    again, _ = call(client, "text_to_video", files, prompt="A red ball.", seed=details["record"]["seed"], **SHORT)
    assert Path(path).read_bytes() != b""
    np.testing.assert_array_equal(pixels(path), pixels(again))


def test_progress_comes_before_the_result(client: Client) -> None:
    job = client.submit(prompt="A red ball.", steps=3, api_name="/text_to_image")
    job.result()
    *before, last = job.outputs()
    assert "Step 3 of 3" in [details["progress"]["words"] for _, details in before]
    assert all(path is None for path, _ in before)
    assert Path(last[0]).suffix == ".png"
    assert "record" in last[1]


@pytest.mark.parametrize("media_of", [{}, {"image": "good.png"}, {"video": "good.mp4"}], ids=["text", "image", "video"])
def test_answers_stream_and_end_in_their_record(client: Client, files: Path, media_of: dict[str, str]) -> None:
    given = {key: handle_file(files / name) for key, name in media_of.items()}
    job = client.submit(prompt="How many objects?", max_new_tokens=4, seed=1, api_name="/answer", **given)
    text, details = job.result()
    assert isinstance(text, str)
    assert (details["record"]["seed"], details["record"]["kind"], details["thinking"]) == (1, "reasoner", "")
    assert details["record"]["settings"]["task"] == "chat"
    assert len(job.outputs()) > 1


def test_a_prompt_is_written_out_by_the_reasoner(
    client: Client, engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[AnswerRequest] = []

    def answer(request: AnswerRequest) -> Iterator[Event]:
        asked.append(request)
        yield Token("{", thinking=False)
        text = '{"scene_imagination": "a ball", "comprehensive_t2i_caption": "A red ball lies there."}'
        yield Answered(text, record={"kind": "reasoner"})

    monkeypatch.setattr(engine, "answer", answer)
    job = client.submit(prompt="a ball", mode="text-to-image", api_name="/upsample_prompt")
    text, details = job.result()
    assert json.loads(text) == {
        "comprehensive_t2i_caption": "A red ball lies there.",
        "resolution": {"H": HEIGHT, "W": WIDTH},
        "aspect_ratio": "16,9",
    }
    assert details["record"] == {"kind": "reasoner"}
    assert job.outputs()[0][0] == "{"
    assert asked[0].task == "upsample"


def test_pico_says_that_it_cannot_write_prompts_out(client: Client) -> None:
    with pytest.raises(AppError, match="not trained to write prompts out"):
        client.predict(prompt="a ball", mode="text-to-image", api_name="/upsample_prompt")


def test_an_unforeseen_error_is_told_without_its_words(
    client: Client, files: Path, engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(engine, "generate", lambda request: 1 / 0)
        with pytest.raises(AppError, match=r"^Something went wrong inside the app"):
            call(client, "text_to_image", files, **CALLS["text_to_image"])
    call(client, "text_to_image", files, **CALLS["text_to_image"])


def test_status_tells_what_is_loaded(client: Client) -> None:
    status = client.predict(api_name="/status")
    assert (status["checkpoint"], status["state"], status["head"]) == ("Cosmos3-Pico", "ready", None)
    assert status["capabilities"]["resolutions"] == [256]
    assert status["memory"]["weights"] > 0
    assert status["waiting"] == 0


BAD = {
    "empty prompt": ("text_to_image", {"prompt": " "}, "prompt"),
    "empty question": ("answer", {"prompt": ""}, "prompt"),
    "steps 0": ("text_to_image", {"prompt": "A ball.", "steps": 0}, "steps"),
    "steps of text": ("text_to_video", {"prompt": "A ball.", "steps": "many"}, "steps"),
    "seed of text": ("text_to_image", {"prompt": "A ball.", "seed": "lucky"}, "seed"),
    "negative seed": ("answer", {"prompt": "Why?", "seed": -1}, "seed"),
    "prompt of numbers": ("text_to_image", {"prompt": [1, 2]}, "prompt"),
    "no frames": ("text_to_video", {"prompt": "A ball.", "num_frames": 0}, "num_frames"),
    "too many frames": ("text_to_video", {"prompt": "A ball.", "num_frames": 5000}, "num_frames"),
    "unknown tier": ("text_to_image", {"prompt": "A ball.", "resolution": 1080}, "resolution"),
    "unknown aspect ratio": ("text_to_image", {"prompt": "A ball.", "aspect_ratio": "2:1"}, "aspect_ratio"),
    "guidance below 1": ("text_to_image", {"prompt": "A ball.", "guidance_scale": 0.5}, "guidance_scale"),
    "unknown task": ("answer", {"prompt": "Why?", "task": "juggling"}, "task"),
    "task without its picture": ("answer", {"prompt": "the ball", "task": "grounding"}, "image"),
    "picture and video": ("answer", {"prompt": "Why?", "image": "good.png", "video": "good.mp4"}, "video"),
    "picture of 1x1": ("image_to_video", {"image": "tiny.png", "prompt": "A ball."}, "image"),
    "picture of 10000x10000": ("answer", {"prompt": "Why?", "image": "vast.png"}, "image"),
    "picture of text": ("answer", {"prompt": "Why?", "image": "text.png"}, "image"),
    "empty picture": ("policy", {"image": "empty.png", "prompt": "Look."}, "image"),
    "picture cut short": ("image_to_video", {"image": "cut.png", "prompt": "A ball."}, "image"),
    "video cut short": ("answer", {"prompt": "Why?", "video": "cut.mp4"}, "video"),
    "video without frames": ("inverse_dynamics", {"video": "silent.wav"}, "video"),
    "video of text": ("video_to_video", {"video": "text.png", "prompt": "A ball."}, "video"),
    "control of text": ("transfer", {"control": "text.png", "kind": "depth", "prompt": "A ball."}, "depth"),
    "unknown control": ("transfer", {"control": "good.mp4", "kind": "smell", "prompt": "A ball."}, "controls"),
    "depth from a clip": (
        "transfer",
        {"control": "good.mp4", "kind": "depth", "compute": "low", "prompt": "A"},
        "compute",
    ),
    "unknown strength": ("transfer", {"control": "good.mp4", "compute": "brutal", "prompt": "A ball."}, "compute"),
    "more of no kind": (
        "transfer",
        {"control": "good.mp4", "more_controls": [1], "prompt": "A ball."},
        "more_controls",
    ),
    "no picture": ("image_to_video", {"image": None, "prompt": "A ball."}, "image"),
    "picture on the server": ("image_to_video", {"image": "/etc/hostname", "prompt": "A ball."}, "image"),
    "no actions": ("forward_dynamics", {"image": "good.png", "domain": "camera_pose"}, "actions"),
    "actions of the wrong width": (
        "forward_dynamics",
        {"image": "good.png", "actions": [[0, 0]] * 4, "domain": "camera_pose"},
        "actions",
    ),
    "actions that are a picture": ("forward_dynamics", {"image": "good.png", "actions": "good.png"}, "actions"),
    "unknown domain": ("policy", {"image": "good.png", "prompt": "Look.", "domain": "submarine"}, "domain"),
    "chunk of 5": ("policy", {"image": "good.png", "prompt": "Look.", "domain": "av", "chunk_size": 5}, "chunk_size"),
    "unknown mode": ("upsample_prompt", {"prompt": "A ball.", "mode": "text-to-smell"}, "mode"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gives_a_clear_message_and_the_next_request_works(client: Client, files: Path, case: str) -> None:
    name, values, field = BAD[case]
    with pytest.raises(AppError, match=f"^{field}: .{{10,}}"):
        call(client, name, files, **values)
    assert client.predict(api_name="/status")["state"] == "ready"


def test_a_picture_is_made_after_all_that(client: Client, files: Path) -> None:
    path, _ = call(client, "text_to_image", files, **CALLS["text_to_image"])
    assert pixels(path).shape == (1, HEIGHT, WIDTH, 3)


def test_a_file_over_the_limit_is_refused(client: Client, url: str, files: Path) -> None:
    with pytest.raises(ValueError, match="exceeds the maximum file size"):
        call(client, "image_to_video", files, image="huge.png", prompt="A ball.")
    with (files / "huge.png").open("rb") as file:
        assert httpx.post(f"{url}gradio_api/upload", files={"files": file}).status_code == 413


def test_frames_are_rounded_to_what_the_model_makes(client: Client, files: Path) -> None:
    path, details = call(client, "text_to_video", files, prompt="A red ball.", num_frames=7, steps=1)
    assert len(pixels(path)) == details["record"]["settings"]["num_frames"] == 5
    assert details["note"] == "num_frames: 7 was changed to 5, which fits the model."


def test_messages_escape_what_strangers_typed(client: Client) -> None:
    with pytest.raises(AppError, match="&lt;img src=x&gt;"):
        client.predict(prompt="Why?", task="<img src=x>", api_name="/answer")


def test_a_cancelled_call_frees_the_model(client: Client) -> None:
    job = client.submit(prompt="A red ball.", steps=100, num_frames=17, api_name="/text_to_video")
    while not any("Step" in details["progress"]["words"] for _, details in job.outputs()):
        assert not job.done()
        time.sleep(0.05)
    assert client.predict(api_name="/status")["head"] == "generator"
    job.cancel()
    until = time.monotonic() + 30
    while client.predict(api_name="/status")["head"]:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert all("record" not in details for _, details in job.outputs())


def test_plain_http_takes_inputs_by_name(url: str) -> None:
    begun = httpx.post(f"{url}gradio_api/call/v2/text_to_image", json={"prompt": "A red ball.", "steps": 1, "seed": 4})
    stream = httpx.get(f"{url}gradio_api/call/text_to_image/{begun.json()['event_id']}", timeout=60).text
    event, data = stream.strip().split("\n\n")[-1].split("\n")
    assert event == "event: complete"
    file, details = json.loads(data.removeprefix("data: "))
    assert details["record"]["seed"] == 4
    assert httpx.get(file["url"]).content.startswith(b"\x89PNG")
