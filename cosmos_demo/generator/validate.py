"""Checks a generation and fills in what it leaves open, before any accelerator work."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from cosmos_demo.engines.base import Capabilities
from cosmos_demo.errors import RequestError
from cosmos_demo.generator import modes
from cosmos_demo.generator.actions import DOMAINS, UNSUPPORTED, as_rows
from cosmos_demo.generator.modes import MODES, Mode
from cosmos_demo.requests import GenerateRequest

_MEDIA = ("image", "video", "controls", "actions")
_GIVES = {
    "image": "a picture",
    "video": "a video",
    "controls": "a control clip (edge, blur, depth, seg or wsm)",
    "actions": "actions, a list of rows of numbers",
    "prompt": "a prompt",
}


def defaults_for(
    mode: Mode, capabilities: Capabilities, domain: str | None = None, kinds: Iterable[str] = ()
) -> dict[str, Any]:
    """What the open fields of a request become.

    Args:
        mode: What is made.
        capabilities: Of the checkpoint, whose own preferences win over the published defaults.
        domain: In action modes the embodiment; ``None`` takes the preferred one. Its rate, chunk and view point are
            the defaults unless the checkpoint prefers others for this very domain.
        kinds: In transfer the kinds of control given.
    """
    values = {**mode.defaults, **modes.family_defaults(capabilities.family, mode)}
    if mode.name == "transfer":
        values |= modes.transfer_defaults(tuple(kinds))
    own = {**capabilities.defaults, **capabilities.defaults.get(mode.name, {})}
    preferred = {name: value for name, value in own.items() if name in values}
    if mode.acts:
        values["domain"] = domain or preferred.get("domain") or values["domain"]
        if known := DOMAINS.get(values["domain"]):
            values |= {
                "chunk_size": known.chunk_size,
                "fps": known.fps,
                "view_point": known.view_point,
                "resolution": known.resolution,
            }
        preferred.pop("domain", None)
        if capabilities.defaults.get("domain") == values["domain"]:
            preferred |= {
                name: capabilities.defaults[name] for name in ("chunk_size", "fps") if name in capabilities.defaults
            }
    return {**values, **preferred, **capabilities.fixed}


def resolve(request: GenerateRequest, capabilities: Capabilities) -> GenerateRequest:
    """The request with every open field filled: published defaults, frames rounded to 4k+1, a seed drawn.

    Raises:
        RequestError: naming the field, its value and what is allowed.
    """
    mode = MODES.get(request.mode)
    if mode is None:
        raise RequestError("mode", f"there is no mode {request.mode!r}; choose one of {', '.join(MODES)}.")
    if mode.name in capabilities.unavailable:
        raise RequestError("mode", capabilities.unavailable[mode.name])
    _check_given(request, mode, capabilities)
    _check_domain(request, mode)
    values = defaults_for(mode, capabilities, request.domain, request.controls)
    given = {name: getattr(request, name) for name in values if getattr(request, name, None) is not None}
    for name, only in capabilities.fixed.items():
        if given.get(name, only) != only:
            allowed = f"works with {only!r} alone" if only else "takes none"
            raise RequestError(name, f"{given[name]!r} can't be chosen; this checkpoint {allowed}.")
    filled = replace(request, **{**values, **given})
    if filled.seed is None:
        filled = replace(filled, seed=secrets.randbelow(modes.MAX_SEED + 1))
    _check_settings(filled, mode, capabilities)
    if filled.flow_shift is None or request.flow_shift is None:
        few = filled.steps <= modes.FEW_STEPS
        filled = replace(filled, flow_shift=modes.SHIPPED_SCHEDULE if few else values["flow_shift"])
    _number("flow_shift", filled.flow_shift, *modes.FLOW_SHIFT, also=modes.SHIPPED_SCHEDULE)
    if mode.acts:
        return _with_chunk(filled, request)
    if mode.name != "text-to-image":
        filled = _with_frames(filled)
    return filled


def _check_given(request: GenerateRequest, mode: Mode, capabilities: Capabilities) -> None:
    """Everything needed is there, and nothing that the mode can't use."""
    for field in mode.needs:
        if not _is_given(getattr(request, field)):
            raise RequestError(field, f"{mode.title} needs {_GIVES[field]}.")
    for field in _MEDIA:
        if field not in mode.needs and _is_given(getattr(request, field)):
            raise RequestError(field, f"{mode.title} takes no {field}; leave it out or choose another mode.")
    for field in ("prompt", "negative_prompt"):
        text = getattr(request, field)
        if not isinstance(text, str):
            raise RequestError(field, f"{text!r} is not text.")
        if len(text) > modes.MAX_PROMPT:
            raise RequestError(field, f"it has {len(text)} characters; up to {modes.MAX_PROMPT} fit.")
    if request.sound:
        if "sound" not in mode.takes:
            raise RequestError("sound", f"{mode.title} makes no sound.")
        if "sound" in capabilities.unavailable:
            raise RequestError("sound", capabilities.unavailable["sound"])
    if mode.acts and request.num_frames is not None:
        raise RequestError("num_frames", "action modes take their length from chunk_size; leave it out.")
    if not mode.acts:
        for field in ("domain", "chunk_size", "view_point"):
            if getattr(request, field) is not None:
                raise RequestError(field, f"{mode.title} has no {field}; it belongs to the action modes.")
    unknown = [kind for kind in request.controls if kind not in modes.CONTROLS]
    if unknown:
        raise RequestError("controls", f"there is no control {unknown[0]!r}; choose of {', '.join(modes.CONTROLS)}.")


def _is_given(value: object) -> bool:
    """Whether a field holds something: text that is not blank, a medium, at least one control, actions."""
    if isinstance(value, str):
        return bool(value.strip())
    return value is not None and not (isinstance(value, Mapping) and not value)


def _check_domain(request: GenerateRequest, mode: Mode) -> None:
    if not mode.acts or request.domain is None or request.domain in DOMAINS:
        return
    reason = UNSUPPORTED.get(request.domain)
    known = f"choose one of {', '.join(DOMAINS)}."
    raise RequestError(
        "domain",
        f"{request.domain!r} can't be used ({reason}); {known}"
        if reason
        else f"there is no {request.domain!r}; {known}",
    )


def _check_settings(request: GenerateRequest, mode: Mode, capabilities: Capabilities) -> None:
    tiers = modes.ACTION_RESOLUTIONS if mode.acts else modes.RESOLUTIONS
    # The 704 tier of actions and the 768 tier of pictures are variants of 720.
    served = [
        tier for tier in tiers if tier in capabilities.resolutions or (tier > 480 and 720 in capabilities.resolutions)
    ]
    _one_of("resolution", request.resolution, served)
    if not mode.acts:
        _one_of("aspect_ratio", request.aspect_ratio, modes.ASPECT_RATIOS)
    _whole("steps", request.steps, *modes.STEPS)
    _number("guidance_scale", request.guidance_scale, *modes.GUIDANCE)
    _whole("seed", request.seed, 0, modes.MAX_SEED)
    if mode.name == "video-to-video":
        _one_of("keep", request.keep, modes.KEEP)
    if mode.name == "transfer":
        _number("control_guidance", request.control_guidance, *modes.CONTROL_GUIDANCE)
    if mode.acts:
        _whole("fps", request.fps, *modes.ACTION_FPS)
        _one_of("view_point", request.view_point, modes.VIEW_POINTS)
    elif mode.name != "text-to-image":
        _one_of("fps", request.fps, modes.FPS)
        _whole("num_frames", request.num_frames, *modes.FRAMES)


def _with_frames(request: GenerateRequest) -> GenerateRequest:
    """Frames of the form 4k+1, and enough source frames for what is kept or followed."""
    frames = modes.round_frames(request.num_frames)
    if request.mode == "video-to-video":
        kept = request.condition_frames
        if isinstance(kept, bool) or not isinstance(kept, int) or kept < 1 or kept % 4 != 1 or kept >= frames:
            raise RequestError(
                "condition_frames",
                f"{kept!r} is not of the form 4k+1 and less than the {frames} frames made (1, 5, 9, ...).",
            )
        if len(request.video.frames) < kept:
            raise RequestError(
                "video",
                f"it has {len(request.video.frames)} frames; {kept} are to be kept. Keep fewer, or give a longer clip.",
            )
    if request.mode == "transfer":
        lengths = {kind: len(clip.frames) for kind, clip in request.controls.items()}
        if min(lengths.values()) < modes.FRAMES[0]:
            raise RequestError("controls", f"every control needs at least {modes.FRAMES[0]} frames; got {lengths}.")
        frames = min(frames, modes.round_frames(min(lengths.values())))
    return replace(request, num_frames=frames)


def _with_chunk(request: GenerateRequest, asked: GenerateRequest) -> GenerateRequest:
    """A chunk of actions that fits what was given, actions of the domain's width."""
    chunk = request.chunk_size
    if request.mode == "forward-dynamics":
        rows, width = as_rows(request.actions).shape
        domain = DOMAINS[request.domain]
        if width != domain.width:
            raise RequestError(
                "actions",
                f"their rows have {width} numbers; {domain.name} takes rows of {domain.width}: "
                f"{', '.join(domain.channels[:12])}{', ...' if domain.width > 12 else ''}.",
            )
        if asked.chunk_size is None:
            chunk = rows
        elif rows < chunk:
            raise RequestError("actions", f"there are {rows} rows; chunk_size {chunk} needs as many.")
    if request.mode == "inverse-dynamics":
        room = len(request.video.frames) - 1
        if asked.chunk_size is None:
            chunk = min(chunk, room // 4 * 4)
        if chunk > room or chunk < 4:
            raise RequestError(
                "video", f"it has {room + 1} frames; {max(chunk, 4)} actions lie between {max(chunk, 4) + 1} frames."
            )
    _whole("chunk_size", chunk, *modes.CHUNK)
    if chunk % 4:
        raise RequestError(
            "chunk_size", f"{chunk} actions; the model works in multiples of 4, such as {chunk // 4 * 4 or 4}."
        )
    return replace(request, chunk_size=chunk)


def _one_of(field: str, value: object, allowed: Iterable[object]) -> None:
    allowed = tuple(allowed)
    if isinstance(value, bool) or value not in allowed:
        raise RequestError(field, f"{value!r} is not served; choose of {', '.join(map(str, allowed))}.")


def _whole(field: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise RequestError(field, f"{value!r} is not a whole number from {low} to {high}.")


def _number(field: str, value: object, low: float, high: float, also: float | None = None) -> None:
    right = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not right or not (low <= value <= high or value == also):
        other = "" if also is None else f", or {also:g}"
        raise RequestError(field, f"{value!r} is not a number from {low:g} to {high:g}{other}.")
