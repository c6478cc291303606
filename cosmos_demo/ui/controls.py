"""One control for each request field of the Generator, with the catalogue's default and limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gradio as gr
from gradio.components import Component

from cosmos_demo.engines.base import Capabilities
from cosmos_demo.generator import actions, modes
from cosmos_demo.generator.modes import Mode
from cosmos_demo.generator.validate import defaults_for

FIXED = "Fixed by this checkpoint."


def fields(mode: Mode) -> set[str]:
    """All fields that the mode's request may have."""
    return {*mode.needs, *mode.takes, *mode.defaults, "seed", *(("chunk_size", "fps") if mode.acts else ())}


def create(field: str, name: str, mode: Mode, can: Capabilities) -> Component:
    """The control for ``field`` of ``mode`` on the tab ``name``."""
    value = defaults_for(mode, can).get(field)
    options: dict[str, Any] = {"elem_id": f"{name}-{field.replace('_', '-')}"}
    if field in can.fixed:
        options |= {"interactive": False, "info": FIXED}
    return _MAKERS[field](mode, can, value, options)


def _prompt(mode: Mode, can: Capabilities, value: Any, options: Mapping[str, Any]) -> Component:
    return gr.Textbox(label="Prompt", placeholder=mode.example, lines=3, max_lines=9, **options)


def _negative_prompt(mode: Mode, can: Capabilities, value: Any, options: Mapping[str, Any]) -> Component:
    return gr.Textbox(label="Negative prompt", placeholder="What to avoid", lines=2, max_lines=6, **options)


def _image(mode: Mode, can: Capabilities, value: Any, options: Mapping[str, Any]) -> Component:
    return gr.Image(type="filepath", label="First frame", height=230, **options)


def _video(mode: Mode, can: Capabilities, value: Any, options: Mapping[str, Any]) -> Component:
    return gr.Video(label="Source clip", **options)


def _resolution(mode: Mode, can: Capabilities, value: Any, options: Mapping[str, Any]) -> Component:
    tiers = modes.ACTION_RESOLUTIONS if mode.acts else modes.RESOLUTIONS
    known = [tier for tier in tiers if tier in can.resolutions or (tier > 480 and 720 in can.resolutions)]
    served = known or list(can.resolutions)
    chosen = value if value in served else served[-1]
    return gr.Dropdown(
        [(f"{tier}p", tier) for tier in served], value=chosen, label="Resolution", min_width=110, **options
    )


def _aspect_ratio(mode: Mode, can: Capabilities, value: Any, options: Mapping[str, Any]) -> Component:
    return gr.Dropdown(list(modes.ASPECT_RATIOS), value=value, label="Aspect ratio", min_width=110, **options)


def _num_frames(mode: Mode, can: Capabilities, value: Any, options: Mapping[str, Any]) -> Component:
    low, high = modes.FRAMES
    return gr.Slider(low, modes.round_frames(high), value, step=4, label="Frames", min_width=170, **options)


def _fps(mode: Mode, can: Capabilities, value: Any, options: Mapping[str, Any]) -> Component:
    if mode.acts:
        low, high = modes.ACTION_FPS
        return gr.Number(
            value, label="Frames per second", precision=0, minimum=low, maximum=high, min_width=110, **options
        )
    return gr.Dropdown(list(modes.FPS), value=value, label="Frames per second", min_width=110, **options)


def _sound(mode: Mode, can: Capabilities, value: Any, options: Mapping[str, Any]) -> Component:
    reason = can.unavailable.get("sound")
    if reason:
        return gr.Checkbox(False, label="With sound", info=reason, interactive=False, **options)
    return gr.Checkbox(False, label="With sound", info=f"Stereo at {(can.sample_rate or 0) / 1000:g} kHz.", **options)


def _steps(mode: Mode, can: Capabilities, value: Any, options: Mapping[str, Any]) -> Component:
    return gr.Slider(*modes.STEPS, value, step=1, label="Denoising steps", **options)


def _guidance_scale(mode: Mode, can: Capabilities, value: Any, options: Mapping[str, Any]) -> Component:
    return gr.Slider(*modes.GUIDANCE, value, step=0.1, label="Guidance scale", **{"info": "1 turns it off."} | options)


def _flow_shift(mode: Mode, can: Capabilities, value: Any, options: Mapping[str, Any]) -> Component:
    info = (
        f"Empty: the preset, {value:g}, or the shipped schedule up to {modes.FEW_STEPS} steps. 0: the shipped schedule."
    )
    limits = {"minimum": modes.SHIPPED_SCHEDULE, "maximum": modes.FLOW_SHIFT[1], "step": 0.1}
    return gr.Number(None, label="Flow shift", placeholder="preset", **limits, **{"info": info} | options)


def _condition_frames(mode: Mode, can: Capabilities, value: Any, options: Mapping[str, Any]) -> Component:
    return gr.Slider(1, 33, 5, step=4, label="Frames kept", min_width=170, **options)


def _keep(mode: Mode, can: Capabilities, value: Any, options: Mapping[str, Any]) -> Component:
    ends = [("its end", "last"), ("its start", "first")]
    return gr.Dropdown(ends, value="last", label="Go on from", min_width=110, **options)


def _domain(mode: Mode, can: Capabilities, value: Any, options: Mapping[str, Any]) -> Component:
    titles = [(domain.title, domain.name) for domain in actions.DOMAINS.values()]
    return gr.Dropdown(titles, value=value, label="Embodiment", min_width=170, **options)


def _chunk_size(mode: Mode, can: Capabilities, value: Any, options: Mapping[str, Any]) -> Component:
    return gr.Slider(*modes.CHUNK, value, step=4, label="Action steps", min_width=170, **options)


def _view_point(mode: Mode, can: Capabilities, value: Any, options: Mapping[str, Any]) -> Component:
    named = [(point.replace("_", " ").capitalize(), point) for point in modes.VIEW_POINTS]
    return gr.Dropdown([("The embodiment's own", ""), *named], value="", label="View point", **options)


def _actions(mode: Mode, can: Capabilities, value: Any, options: Mapping[str, Any]) -> Component:
    info = "JSON rows of numbers, one row a step."
    return gr.Textbox(
        label="Actions", info=info, placeholder="[[0.1, 0, 0, 1, 0, 0, 0, 1, 0], …]", lines=3, max_lines=6, **options
    )


def _control_guidance(mode: Mode, can: Capabilities, value: Any, options: Mapping[str, Any]) -> Component:
    return gr.Slider(*modes.CONTROL_GUIDANCE, value, step=0.1, label="Control guidance", **options)


_MAKERS: dict[str, Callable[[Mode, Capabilities, Any, Mapping[str, Any]], Component]] = {
    "prompt": _prompt,
    "negative_prompt": _negative_prompt,
    "image": _image,
    "video": _video,
    "resolution": _resolution,
    "aspect_ratio": _aspect_ratio,
    "num_frames": _num_frames,
    "fps": _fps,
    "sound": _sound,
    "steps": _steps,
    "guidance_scale": _guidance_scale,
    "flow_shift": _flow_shift,
    "condition_frames": _condition_frames,
    "keep": _keep,
    "domain": _domain,
    "chunk_size": _chunk_size,
    "view_point": _view_point,
    "actions": _actions,
    "control_guidance": _control_guidance,
}
