"""Structured prompts: the JSON captions that Cosmos 3 was trained on, told from plain text and made out of it.

A structured prompt carries its own duration, rate and size, so no templates are appended to it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cosmos_demo.reasoner.parse import cut_object, items

_SUBJECT = (
    "description, appearance_details, relationship, location, relative_size, orientation, pose, {motion}clothing, "
    "expression, gender, age, skin_tone_and_texture, facial_features (empty unless human), number_of_subjects, "
    "number_of_arms, number_of_legs{more} (whole numbers)"
)
_SHARED = {
    "background_setting": "text",
    "lighting": "{conditions, direction, shadows, illumination_effect}",
    "aesthetics": "{composition, color_scheme, mood_atmosphere, patterns}",
    "cinematography": "{framing, camera_angle, depth_of_field, focus, lens_focal_length}",
    "style_medium": "text",
    "artistic_style": "text",
    "context": "text",
    "text_and_signage_elements": "[{text, category, appearance, spatial, context}], empty without text to be seen",
}
VIDEO_KEYS: Mapping[str, str] = {
    "temporal_caption": "the whole clip in order, as text",
    "audio_description": "text",
    "subjects": f"[{{{_SUBJECT.format(motion='action, state_changes, ', more='')}}}]",
    **_SHARED,
    "cinematography": "{camera_motion, framing, camera_angle, depth_of_field, focus, lens_focal_length}",
    "text_and_signage_elements": "[{text, category, appearance, spatial_temporal, context}], empty without text",
    "actions": '[{time: "0:00-0:02", description}]',
    "segments": '[{segment_index (from 0), time_range: "0:00-0:02", description, key_changes, camera}]',
    "transitions": "[text], empty for one shot",
}
"""Keys of a video's prompt and the form of each; what the person's settings say is added by `finish`."""
IMAGE_KEYS: Mapping[str, str] = {
    "comprehensive_t2i_caption": "the whole picture, as text",
    "subjects": f"[{{{_SUBJECT.format(motion='', more=', number_of_hands, number_of_fingers')}}}]",
    "subject_details": "{free}",
    **_SHARED,
    "quadrant_scan": "{top_left, top_right, bottom_left, bottom_right, absolute_center}",
}
"""Keys of a picture's prompt and the form of each."""
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
    what = "an image" if picture else "a video"
    start = " The image given is its first frame." if mode == "image-to-video" else ""
    forms = "\n".join(f"{key}: {form}" for key, form in (IMAGE_KEYS if picture else VIDEO_KEYS).items())
    return (
        f"Write out this short prompt as a full description of {what} to be generated.{start} Keep everything it says "
        f"and add only what fits. Return one JSON object with these keys in this order:\n"
        f"{SCRATCHPAD}: notes on what is to be seen, led by verbs, under 250 words\n{forms}\nPrompt: {prompt.strip()}"
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
