"""Questions checked, and turned into messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cosmos_demo.engines.base import Capabilities
from cosmos_demo.errors import RequestError
from cosmos_demo.media import Clip
from cosmos_demo.reasoner.messages import MAX_IMAGE_PIXELS, conversation, fitted, metadata
from cosmos_demo.reasoner.tasks import DIRECT, MEDIA, SYSTEM, TASKS, THINKING, prompt_for
from cosmos_demo.reasoner.validate import resolve
from cosmos_demo.requests import AnswerRequest, Turn

CAN = Capabilities("Cosmos3-Nano", "cosmos3_omni")
PICTURE = Image.new("RGB", (64, 48))
CLIP = Clip(np.zeros((4, 32, 32, 3), np.uint8), 2.0, np.array([0.0, 0.5, 1.0, 1.5]))
ASK = AnswerRequest("How many?", images=(PICTURE,))


def _for(task: str) -> AnswerRequest:
    media = TASKS[task].media
    images = (PICTURE,) if media == "image" else ()
    return AnswerRequest("the ball", images=images, video=CLIP if media == "video" else None, task=task)


@pytest.mark.parametrize("task", TASKS)
def test_every_task_resolves_and_stays_resolved(task: str):
    resolved = resolve(_for(task), CAN)
    assert resolve(resolved, CAN) == resolved
    assert TASKS[task].media in MEDIA


def test_presets_follow_reasoning():
    direct, thinking = resolve(ASK, CAN), resolve(replace(ASK, reasoning=True), CAN)
    assert (direct.temperature, direct.top_p, direct.top_k) == (0.7, 0.8, 20)
    assert (thinking.temperature, thinking.top_p, thinking.top_k) == (0.6, 0.95, 20)
    assert (DIRECT.presence_penalty, THINKING.presence_penalty) == (1.5, 0.0)
    assert resolve(replace(ASK, temperature=0.0), CAN).temperature == 0


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("task", {"task": "divination"}, "chat"),
    ("prompt", {"prompt": " "}, "empty"),
    ("prompt", {"prompt": "x" * 20_001}, "20000"),
    ("image", {"images": (PICTURE,) * 9}, "up to 8"),
    ("prompt", {"prompt": None}, "give text"),
    ("image", {"task": "grounding", "images": ()}, "needs a picture"),
    ("image", {"task": "grounding", "images": (), "video": CLIP}, "needs a picture"),
    ("video", {"task": "event-timeline"}, "needs a video"),
    ("video", {"images": (), "video": Clip(CLIP.frames[:1], 2.0, CLIP.times[:1])}, "1 frames; a clip has 2"),
    ("video", {"images": (), "video": Clip(CLIP.frames[:0], 2.0, CLIP.times[:0])}, "0 frames"),
    ("video", {"images": (), "video": Clip(CLIP.frames, 2.0, CLIP.times[:2])}, "each with its time"),
    ("video", {"task": "event-timeline", "images": (), "history": (Turn("a", "b", images=(PICTURE,)),)}, "a video"),
    ("video", {"task": "event-timeline", "images": ()}, "needs a video"),
    ("video", {"video": CLIP}, "not both"),
    ("history", {"history": (Turn("a", "b"),) * 51}, "50"),
    ("max_new_tokens", {"max_new_tokens": 0}, "1 to 4096"),
    ("max_new_tokens", {"max_new_tokens": 5000}, "1 to 4096"),
    ("max_new_tokens", {"max_new_tokens": True}, "whole"),
    ("temperature", {"temperature": -0.1}, "0 to 2"),
    ("temperature", {"temperature": 1e-30}, "0 is greedy"),
    ("temperature", {"temperature": float("nan")}, "0 to 2"),
    ("top_p", {"top_p": 0.0}, "0.01 to 1"),
    ("top_p", {"top_p": 1.1}, "0.01 to 1"),
    ("top_k", {"top_k": -1}, "0 to 1000"),
    ("top_k", {"top_k": 1.5}, "whole"),
    ("seed", {"seed": -1}, "0 to 4294967295"),
    ("seed", {"seed": "cat"}, "whole"),
]


@pytest.mark.parametrize(("field", "change", "says"), BAD)
def test_bad_questions_name_the_field_and_what_works(field: str, change: dict[str, Any], says: str):
    with pytest.raises(RequestError, match=says) as caught:
        resolve(replace(ASK, **change), CAN)
    assert caught.value.field == field


def test_a_checkpoint_without_reasoner_says_why():
    with pytest.raises(RequestError, match="no vision encoder"):
        resolve(ASK, replace(CAN, unavailable={"reasoner": "It has no vision encoder."}))


def test_media_of_an_earlier_turn_will_do():
    before = Turn("What is it?", "A ball.", images=(PICTURE,))
    assert resolve(replace(ASK, task="grounding", images=(), history=(before,)), CAN)


@pytest.mark.parametrize(
    ("task", "keys"),
    [
        ("grounding", ("the ball", "bbox_2d", "label", "JSON")),
        ("pointing", ("the ball", "point_2d", "label", "JSON")),
        ("temporal-localization", ('"start"', '"end"', '"caption"', "seconds")),
        ("event-timeline", ('"start"', '"end"', '"caption"', "mm:ss.ff")),
        ("timestamp-query", ('"the ball"', '"start"', '"end"', "mm:ss.ff")),
        ("trajectory", ("the ball", "point_2d", "gripper trajectory")),
        ("describe-anything", ("subject_id", "category", "caption")),
        ("physical-plausibility", ("object permanence", "(A) Possible", "(B) Impossible")),
        ("driving-next-action", ("You are an autonomous vehicle planning system.",)),
    ],
)
def test_prompts_hold_what_the_model_was_trained_on(task: str, keys: tuple[str, ...]):
    prompt = prompt_for(task, "the ball")
    assert all(key in prompt for key in keys)
    assert "{{" not in prompt


def test_braces_in_what_people_type_stay():
    assert prompt_for("chat", "a {set} of {0}") == "a {set} of {0}"


def test_reasoning_is_asked_for_at_the_end():
    assert prompt_for("chat", "Why?", reasoning=True).startswith("Why?\n")
    assert "<think>" in prompt_for("chat", "Why?", reasoning=True)
    assert "<think>" not in prompt_for("chat", "Why?")


def test_messages_put_media_before_text_and_keep_the_order():
    before = Turn("First?", "One.", images=(PICTURE, PICTURE))
    asked = conversation(AnswerRequest("Second?", video=CLIP, history=(before,)))
    assert [message["role"] for message in asked.messages] == ["system", "user", "assistant", "user"]
    assert asked.messages[0]["content"] == [{"type": "text", "text": SYSTEM}]
    assert [part["type"] for part in asked.messages[1]["content"]] == ["image", "image", "text"]
    assert [part["type"] for part in asked.messages[3]["content"]] == ["video", "text"]
    assert (len(asked.images), len(asked.clips), asked.prompt) == (2, 1, "Second?")


def test_large_pictures_are_scaled_down_and_small_ones_are_not():
    large = fitted(Image.new("L", (4000, 2000)))
    assert large.mode == "RGB"
    assert large.width * large.height <= MAX_IMAGE_PIXELS * 1.01
    assert large.width / large.height == pytest.approx(2, rel=0.01)
    assert fitted(PICTURE).size == (64, 48)


def test_frame_numbers_carry_the_clips_own_times():
    late = Clip(CLIP.frames, 2.0, CLIP.times + 3.25)
    facts = metadata(late)
    assert [index / facts["fps"] for index in facts["frames_indices"]] == [3.25, 3.75, 4.25, 4.75]
