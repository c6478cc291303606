"""The Generator at work: from a checked request through diffusers' Cosmos 3 pipelines to frames, sound and actions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from diffusers import (
    Cosmos3DistilledModularPipeline,
    Cosmos3OmniModularPipeline,
    Cosmos3OmniPipeline,
    CosmosActionCondition,
    SchedulerMixin,
    UniPCMultistepScheduler,
)
from PIL import Image
from torch import Tensor

from cosmos_demo.errors import EngineError, RequestError
from cosmos_demo.events import Generated, Phase, Preview, Step
from cosmos_demo.generator import modes, preview
from cosmos_demo.generator.modes import MODES
from cosmos_demo.generator.prompts import is_structured
from cosmos_demo.media import Clip, fit_sound
from cosmos_demo.omni import OmniModel
from cosmos_demo.records import new_record
from cosmos_demo.requests import GenerateRequest
from cosmos_demo.turns import Emit

PREVIEW_EVERY = 0.2
"""Least seconds between two previews; the first step always has one."""
_NO_NUMBERS = "The result holds no numbers (NaN); try another seed, fewer steps or less guidance."


def generate(model: OmniModel, request: GenerateRequest, emit: Emit) -> Generated:
    """Run a resolved request.

    Args:
        model: Its head must be ``generator`` now (`OmniModel.head`).
        request: From `validate.resolve`.
        emit: Told `Phase`, and after each denoising step `Step` and at times `Preview`. When it raises, the run ends
            within one step and the exception passes through; the model is ready for the next run.

    Raises:
        RequestError: when NVIDIA's guardrails refuse the prompt or the result.
        EngineError: when the result holds no numbers.
    """
    emit(Phase("encoding"))
    watch = _Watch(model, request, emit)
    run, pipeline = _classic, model.pipeline
    if request.mode == "transfer":
        run, pipeline = _transfer, model.transfer_pipeline
    elif model.checkpoint.distilled:
        run, pipeline = _distilled, model.distilled_pipeline
    try:
        with _scheduled(pipeline, request):
            output = run(pipeline, request, watch)
    except ValueError as error:
        if "Guardrail" in str(error):
            raise RequestError("prompt", "NVIDIA's guardrails refused it; put it differently.") from None
        raise
    return _finished(model, request, output, watch)


_Pipeline = Cosmos3OmniPipeline | Cosmos3OmniModularPipeline | Cosmos3DistilledModularPipeline


class _Output:
    """What a pipeline made: frames as PIL images or ``None``, sound ``[channels, samples]``, actions ``[T, D]``."""

    def __init__(
        self, frames: list[Image.Image] | None, sound: Tensor | None = None, actions: Tensor | None = None
    ) -> None:
        self.frames = frames
        self.sound = sound
        self.actions = actions


class _Watch:
    """Counts denoising steps, tells of them, and shows the picture so far."""

    def __init__(self, model: OmniModel, request: GenerateRequest, emit: Emit) -> None:
        self.began = time.perf_counter()
        self.denoised = self.began
        self._model = model
        self._emit = emit
        self._total = request.steps
        self._shows = MODES[request.mode].makes_picture
        self._first = 0.0
        self._drawn = 0.0

    def step(self, index: int, estimate: Tensor) -> None:
        """Step ``index`` (from 0) is done; ``estimate`` are the clean latents ``[..., C, T, h, w]`` as guessed now."""
        now = self.denoised = time.perf_counter()
        if index == 0:
            self._first = now
        # The first step also reads the prompt and warms up, so the others set the pace.
        pace = (now - self._first) / index if index else now - self.began
        done = index + 1
        self._emit(Step(done, self._total, now - self.began, pace * (self._total - done)))
        if self._shows and (index == 0 or now - self._drawn >= PREVIEW_EVERY):
            self._drawn = now
            self._emit(Preview(done, preview.frame(estimate, self._model.pipeline.vae)))
        if done == self._total:
            if not estimate.isfinite().all():
                raise EngineError(_NO_NUMBERS)
            self._emit(Phase("decoding"))


@contextmanager
def _scheduled(pipeline: _Pipeline, request: GenerateRequest) -> Iterator[SchedulerMixin]:
    """Have a pipeline use the noise schedule of this request, and its own again afterwards.

    The shipped schedule has Karras sigmas, which make the library ignore ``flow_shift``; so both are set together.
    """
    shipped = pipeline.scheduler
    changes: dict[str, Any] = {}
    if request.flow_shift != modes.SHIPPED_SCHEDULE and isinstance(shipped, UniPCMultistepScheduler):
        changes = {"flow_shift": request.flow_shift, "use_karras_sigmas": False}
    pipeline.scheduler = type(shipped).from_config(shipped.config, **changes)
    try:
        yield pipeline.scheduler
    finally:
        pipeline.scheduler = shipped


def _common(request: GenerateRequest) -> dict[str, Any]:
    """Arguments that all pipelines share."""
    return {
        "prompt": request.prompt,
        "num_inference_steps": request.steps,
        "generator": torch.Generator("cpu").manual_seed(request.seed),
    }


def _sized(request: GenerateRequest) -> dict[str, Any]:
    """Size and length of everything but action runs; a structured prompt already says them to the model."""
    width, height = modes.size(request.resolution, request.aspect_ratio)
    plain = not is_structured(request.prompt)
    values = {
        "width": width,
        "height": height,
        "num_frames": request.num_frames or 1,
        "add_resolution_template": plain,
        "add_duration_template": plain,
    }
    return values | ({"fps": float(request.fps)} if request.fps else {})


def _classic(pipeline: Cosmos3OmniPipeline, request: GenerateRequest, watch: _Watch) -> _Output:
    """All modes but transfer, with `Cosmos3OmniPipeline`."""

    def step(pipeline: Any, index: int, timestep: Tensor, values: dict[str, Any]) -> dict[str, Any]:
        watch.step(index, pipeline.scheduler.model_outputs[-1])
        return values

    arguments = _common(request) | {"guidance_scale": request.guidance_scale, "callback_on_step_end": step}
    if request.negative_prompt:
        arguments["negative_prompt"] = request.negative_prompt
    if MODES[request.mode].acts:
        arguments |= {"action": _action(request), "fps": float(request.fps), "use_system_prompt": False}
        # The video of inverse dynamics would only be the given one again.
        arguments["output_type"] = "latent" if request.mode == "inverse-dynamics" else "pil"
    else:
        arguments |= _sized(request) | {"enable_sound": request.sound} | _source(request)
    output = pipeline(**arguments)
    actions = output.action[0] if output.action else None
    return _Output(None if request.mode == "inverse-dynamics" else output.video, output.sound, actions)


def _source(request: GenerateRequest) -> dict[str, Any]:
    if request.mode == "image-to-video":
        return {"image": request.image}
    if request.mode == "video-to-video":
        latent_frames = (request.condition_frames - 1) // 4 + 1
        return {
            "video": _pictures(request.video),
            "condition_frame_indexes_vision": tuple(range(latent_frames)),
            "condition_video_keep": request.keep,
        }
    return {}


def _action(request: GenerateRequest) -> CosmosActionCondition:
    given = {"video": _pictures(request.video)} if request.video is not None else {"image": request.image}
    return CosmosActionCondition(
        mode=request.mode.replace("-", "_"),
        chunk_size=request.chunk_size,
        domain_name=request.domain,
        resolution_tier=request.resolution,
        raw_actions=None if request.actions is None else torch.from_numpy(np.asarray(request.actions, np.float32)),
        view_point=request.view_point,
        **given,
    )


def _transfer(pipeline: Cosmos3OmniModularPipeline, request: GenerateRequest, watch: _Watch) -> _Output:
    """Transfer, with the modular pipeline."""
    width, height = modes.size(request.resolution, request.aspect_ratio)
    with _watched(pipeline.scheduler, watch):
        frames = pipeline(
            **_common(request),
            negative_prompt=request.negative_prompt,
            control_videos={kind: _pictures(clip) for kind, clip in request.controls.items()},
            width=width,
            height=height,
            num_frames=request.num_frames,
            fps=float(request.fps),
            guidance_scale=request.guidance_scale,
            control_guidance=request.control_guidance,
            output="videos",
        )
    return _Output(frames)


def _distilled(pipeline: Cosmos3DistilledModularPipeline, request: GenerateRequest, watch: _Watch) -> _Output:
    """Few-step checkpoints, with their own modular pipeline, which fixes the steps and needs no guidance."""
    with _watched(pipeline.scheduler, watch):
        return _Output(pipeline(**_common(request), **_sized(request), **_source(request), output="videos"))


@contextmanager
def _watched(scheduler: SchedulerMixin, watch: _Watch) -> Iterator[None]:
    """Have ``watch`` told of each step of a run's scheduler: the modular pipelines have no callback of their own."""
    advance = scheduler.step

    def step(velocity: Tensor, timestep: Tensor, latents: Tensor, **options: Any) -> Any:
        result = advance(velocity, timestep, latents, **options)
        index = scheduler.step_index - 1
        # Flow matching: at noise level sigma the latents are sigma times the velocity away from the clean ones.
        watch.step(index, latents - scheduler.sigmas[index].to(latents) * velocity)
        return result

    scheduler.step = step
    try:
        yield
    finally:
        del scheduler.step


def _finished(model: OmniModel, request: GenerateRequest, output: _Output, watch: _Watch) -> Generated:
    frames = sound = rate = actions = None
    if output.frames is not None:
        frames = np.stack([np.asarray(picture) for picture in output.frames])
    if output.sound is not None:
        rate = int(model.pipeline.sound_tokenizer.config.sampling_rate)
        length = round(len(frames) / request.fps * rate)
        sound = fit_sound(output.sound.float().cpu().numpy(), length)
    if output.actions is not None:
        actions = output.actions.float().numpy()
    for made in (sound, actions):
        if made is not None and not np.isfinite(made).all():
            raise EngineError(_NO_NUMBERS)
    ended = time.perf_counter()
    size = {} if frames is None else {"width": frames.shape[2], "height": frames.shape[1], "frames": len(frames)}
    record = new_record(
        "generator",
        request,
        model.checkpoint.name,
        request.seed,
        {"denoising": watch.denoised - watch.began, "decoding": ended - watch.denoised, "total": ended - watch.began},
        size,
    )
    return Generated(frames, request.fps or 1, sound, rate, actions, record)


def _pictures(clip: Clip) -> list[Image.Image]:
    return [Image.fromarray(frame) for frame in clip.frames]
