"""Structured prompts: the JSON captions that Cosmos 3 was trained on, told from plain text and made out of it.

A structured prompt carries its own duration, rate and size, so no templates are appended to it.
"""

from __future__ import annotations

import json
from typing import Any

from cosmos_demo.reasoner.parse import cut_object, items

_SHARED = (
    "background_setting",
    "lighting",
    "aesthetics",
    "cinematography",
    "style_medium",
    "artistic_style",
    "context",
    "text_and_signage_elements",
)
VIDEO_KEYS = (
    "subjects",
    *_SHARED,
    "actions",
    "segments",
    "transitions",
    "temporal_caption",
    "audio_description",
)
IMAGE_KEYS = ("subjects", "subject_details", *_SHARED, "quadrant_scan", "comprehensive_t2i_caption")
SCRATCHPAD = "scene_imagination"
"""First key of an upsampled prompt: the Reasoner's notes to itself, taken out before use."""


def is_structured(prompt: str) -> bool:
    """Whether a prompt is a JSON object rather than plain text."""
    if not prompt.lstrip().startswith("{"):
        return False
    try:
        return isinstance(json.loads(prompt), dict)
    except (ValueError, RecursionError):
        return False


def request(prompt: str, mode: str) -> str:
    """What to ask the Reasoner so that it writes ``prompt`` out as a structured one for ``mode``."""
    picture = mode == "text-to-image"
    caption = "comprehensive_t2i_caption" if picture else "temporal_caption"
    keys = [SCRATCHPAD, caption, *(key for key in (IMAGE_KEYS if picture else VIDEO_KEYS) if key != caption)]
    what = "an image" if picture else "a video"
    start = " The image given is its first frame." if mode == "image-to-video" else ""
    return (
        f"Write out this short prompt as a full description of {what} to be generated.{start} Keep everything it says "
        f"and add only what fits. Return one JSON object with the keys {', '.join(keys)}; under {SCRATCHPAD} note "
        f"first what is to be seen, in under 250 words.\nPrompt: {prompt.strip()}"
    )


def read(answer: str) -> dict[str, Any] | None:
    """The structured prompt in an answer, without its scratchpad; ``None`` when there is no usable one.

    Of a prompt that the token limit cut short, the keys that are complete.
    """
    for item in (*items(answer), cut_object(answer)):
        if isinstance(item, dict):
            kept = {key: value for key, value in item.items() if key != SCRATCHPAD and value not in ("", [], {}, None)}
            if any(isinstance(kept.get(key), str) for key in ("temporal_caption", "comprehensive_t2i_caption")):
                return kept
    return None


def finish(
    structured: dict[str, Any], width: int, height: int, aspect_ratio: str, frames: int = 1, fps: int | None = None
) -> str:
    """The prompt as the Generator takes it: compact ASCII JSON with the true size, duration and rate.

    Args:
        structured: From `read`, or a person's own.
        width, height: Of the result in pixels.
        aspect_ratio: ``16:9`` is written as ``16,9``.
        frames, fps: Of a video; a picture has neither.
    """
    facts: dict[str, Any] = {"resolution": {"H": height, "W": width}, "aspect_ratio": aspect_ratio.replace(":", ",")}
    if fps:
        facts |= {"duration": f"{int(frames / fps)}s", "fps": fps}
    return json.dumps({**structured, **facts}, ensure_ascii=True, separators=(",", ":"))
