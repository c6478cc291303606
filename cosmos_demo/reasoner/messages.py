"""From a question with its history to the chat messages and media that the processor takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from cosmos_demo.media import Clip
from cosmos_demo.reasoner.tasks import SYSTEM, prompt_for
from cosmos_demo.requests import AnswerRequest

MAX_IMAGE_PIXELS = 1280 * 720
"""Larger pictures are scaled down: about 900 visual tokens instead of up to 16,000."""


@dataclass(frozen=True)
class Conversation:
    """Messages of the chat template, and the media in the order in which they appear.

    Attributes:
        messages: ``role`` and ``content``, media before text.
        images: All pictures.
        clips: All clips.
        prompt: The text of the last turn as sent.
    """

    messages: list[dict[str, Any]]
    images: list[Image.Image]
    clips: list[Clip]
    prompt: str


def conversation(request: AnswerRequest) -> Conversation:
    """The whole conversation, the question last."""
    prompt = prompt_for(request.task, request.prompt, request.reasoning)
    messages: list[dict[str, Any]] = [{"role": "system", "content": [{"type": "text", "text": SYSTEM}]}]
    images: list[Image.Image] = []
    clips: list[Clip] = []
    turns = [(turn.images, turn.video, turn.prompt, turn.answer) for turn in request.history]
    for pictures, clip, text, answer in (*turns, (request.images, request.video, prompt, None)):
        images += [fitted(picture) for picture in pictures]
        clips += [] if clip is None else [clip]
        media = [{"type": "image"} for _ in pictures] + ([] if clip is None else [{"type": "video"}])
        messages.append({"role": "user", "content": [*media, {"type": "text", "text": text}]})
        if answer is not None:
            messages.append({"role": "assistant", "content": [{"type": "text", "text": answer}]})
    return Conversation(messages, images, clips, prompt)


def fitted(picture: Image.Image) -> Image.Image:
    """RGB, scaled down to `MAX_IMAGE_PIXELS` if larger, its aspect ratio kept."""
    picture = picture.convert("RGB")
    scale = (MAX_IMAGE_PIXELS / (picture.width * picture.height)) ** 0.5
    if scale >= 1:
        return picture
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    return picture.resize(size, Image.Resampling.BICUBIC)


CLOCK = 1000
"""Ticks per second of the frame numbers given to the processor, which turns them into the time marks before frames."""


def metadata(clip: Clip) -> dict[str, Any]:
    """What the video processor needs to mark frames with the clip's own times: frame numbers on a millisecond clock."""
    ticks = np.rint(clip.times * CLOCK).astype(int).tolist()
    return {"fps": CLOCK, "frames_indices": ticks, "total_num_frames": ticks[-1] + 1}
