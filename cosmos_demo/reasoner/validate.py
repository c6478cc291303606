"""Checks a question and fills in what it leaves open, before any accelerator work."""

from __future__ import annotations

import math
import secrets
from dataclasses import replace

from cosmos_demo.engines.base import Capabilities
from cosmos_demo.errors import RequestError
from cosmos_demo.reasoner.tasks import DIRECT, TASKS, THINKING
from cosmos_demo.requests import AnswerRequest

MAX_NEW_TOKENS = 4096
MAX_PROMPT = 20_000
"""Characters; the longest prompt that NVIDIA's own service takes."""
MAX_IMAGES = 8
MIN_FRAMES = 2
"""The vision encoder takes frames in pairs."""
MAX_FRAMES = 768
"""Of the library's own video processors."""
MIN_TEMPERATURE = 0.01
"""Below it only greedy choice is left, and the division overflows."""
MAX_TURNS = 50
MAX_SEED = 2**32 - 1


def resolve(request: AnswerRequest, capabilities: Capabilities) -> AnswerRequest:
    """The request with every open field filled: sampling from the published preset, a seed drawn.

    Raises:
        RequestError: naming the field, its value and what is allowed.
    """
    task = TASKS.get(request.task)
    if task is None:
        raise RequestError("task", f"there is no task {request.task!r}; choose one of {', '.join(TASKS)}.")
    for key in ("reasoner", task.name):
        if key in capabilities.unavailable:
            raise RequestError("task", capabilities.unavailable[key])
    if not isinstance(request.prompt, str):
        raise RequestError("prompt", f"give text, not {type(request.prompt).__name__}.")
    if task.asks_for and not request.prompt.strip():
        raise RequestError("prompt", f"it is empty; {task.title!r} needs {task.asks_for.lower()}.")
    if len(request.prompt) > MAX_PROMPT:
        raise RequestError("prompt", f"it has {len(request.prompt)} characters; up to {MAX_PROMPT} are read.")
    _check_media(request, task.media, task.title)
    if len(request.history) > MAX_TURNS:
        raise RequestError("history", f"{len(request.history)} turns; start anew after {MAX_TURNS}.")
    _whole("max_new_tokens", request.max_new_tokens, 1, MAX_NEW_TOKENS)
    preset = THINKING if request.reasoning else DIRECT
    filled = replace(
        request,
        temperature=preset.temperature if request.temperature is None else request.temperature,
        top_p=preset.top_p if request.top_p is None else request.top_p,
        top_k=preset.top_k if request.top_k is None else request.top_k,
        seed=secrets.randbelow(MAX_SEED + 1) if request.seed is None else request.seed,
    )
    _number("temperature", filled.temperature, 0.0, 2.0)
    if 0 < filled.temperature < MIN_TEMPERATURE:
        raise RequestError(
            "temperature", f"{filled.temperature!r} is too low; 0 is greedy, else {MIN_TEMPERATURE} to 2."
        )
    _number("top_p", filled.top_p, 0.01, 1.0)
    _whole("top_k", filled.top_k, 0, 1000)
    _whole("seed", filled.seed, 0, MAX_SEED)
    return filled


def _check_media(request: AnswerRequest, media: str, title: str) -> None:
    if request.images and request.video is not None:
        raise RequestError("video", "give pictures or a video, not both.")
    if len(request.images) > MAX_IMAGES:
        raise RequestError("image", f"{len(request.images)} pictures; up to {MAX_IMAGES} are read at once.")
    if request.video is not None:
        count = len(request.video.frames)
        if not MIN_FRAMES <= count <= MAX_FRAMES or len(request.video.times) != count:
            raise RequestError("video", f"{count} frames; a clip has {MIN_FRAMES} to {MAX_FRAMES}, each with its time.")
    seen = [request, *request.history]
    if media == "image" and (request.video is not None or not any(turn.images for turn in seen)):
        raise RequestError("image", f"{title!r} needs a picture.")
    if media == "video" and (request.images or all(turn.video is None for turn in seen)):
        raise RequestError("video", f"{title!r} needs a video.")


def _whole(field: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise RequestError(field, f"{value!r} is not a whole number from {low} to {high}.")


def _number(field: str, value: object, low: float, high: float) -> None:
    right = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not right or not low <= value <= high:
        raise RequestError(field, f"{value!r} is not a number from {low:g} to {high:g}.")
