"""The Generator against the stock pipelines on the same weights, and its manners: events, cancelling, clean-up."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import Cosmos3OmniModularPipeline, Cosmos3OmniPipeline, CosmosActionCondition, UniPCMultistepScheduler
from PIL import Image

from cosmos_demo.events import Event, Generated, Phase, Preview, Step
from cosmos_demo.generator import generating, preview
from cosmos_demo.generator.generating import generate
from cosmos_demo.generator.validate import resolve
from cosmos_demo.media import Clip
from cosmos_demo.omni import OmniModel
from cosmos_demo.requests import GenerateRequest
from cosmos_demo.turns import Cancelled

SMALL = {"steps": 2, "seed": 3, "aspect_ratio": "1:1"}
ACT = {"steps": 2, "seed": 3, "chunk_size": 4, "domain": "camera_pose"}
FRAMES = np.random.default_rng(0).integers(0, 256, (9, 96, 96, 3), dtype=np.uint8)
PICTURE = Image.fromarray(FRAMES[0])
CLIP = Clip(FRAMES, 10.0, np.arange(9) / 10)
ROWS = np.random.default_rng(1).uniform(-0.5, 0.5, (4, 9)).astype(np.float32)

REQUESTS = {
    "text-to-image": GenerateRequest("text-to-image", "a red ball", "blurry", **SMALL),
    "text-to-video": GenerateRequest("text-to-video", "a red ball", num_frames=5, **SMALL),
    "text-to-video-sound": GenerateRequest("text-to-video", "a red ball", num_frames=5, sound=True, **SMALL),
    "image-to-video": GenerateRequest("image-to-video", "it rolls", image=PICTURE, num_frames=5, **SMALL),
    "video-to-video": GenerateRequest("video-to-video", "on", video=CLIP, num_frames=9, **SMALL),
    "video-to-video-first": GenerateRequest(
        "video-to-video", "on", video=CLIP, num_frames=9, keep="first", condition_frames=1, **SMALL
    ),
    "policy": GenerateRequest("policy", "look left", image=PICTURE, **ACT),
    "forward-dynamics": GenerateRequest("forward-dynamics", "pan", image=PICTURE, actions=ROWS, **ACT),
    "inverse-dynamics": GenerateRequest("inverse-dynamics", "pan", video=CLIP, **ACT),
    "transfer": GenerateRequest("transfer", "a ball", controls={"edge": CLIP}, num_frames=5, **SMALL),
}


@pytest.fixture(scope="module")
def stock(pico_path) -> Cosmos3OmniPipeline:
    """The library's pipeline, loaded by itself."""
    pipeline = Cosmos3OmniPipeline.from_pretrained(pico_path, enable_safety_checker=False, dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def _run(model: OmniModel, request: GenerateRequest, emit: Callable[[Event], None] = lambda event: None) -> Generated:
    with model.head("generator"):
        return generate(model, resolve(request, model.capabilities), emit)


def _stock_arguments(request: GenerateRequest) -> dict[str, Any]:
    """The stock call for a resolved request, written out by hand."""
    shared: dict[str, Any] = {
        "prompt": request.prompt,
        "num_inference_steps": 2,
        "guidance_scale": request.guidance_scale,
        "generator": torch.Generator().manual_seed(3),
        "output_type": "np",
    }
    pictures = [Image.fromarray(frame) for frame in FRAMES]
    sized = {"width": 256, "height": 256, "num_frames": request.num_frames, "fps": 10.0}
    action = {"fps": 10.0, "use_system_prompt": False}
    condition = {"chunk_size": 4, "domain_name": "camera_pose", "resolution_tier": 256}
    match request.mode:
        case "text-to-image":
            return shared | {"negative_prompt": "blurry", "width": 256, "height": 256, "num_frames": 1}
        case "text-to-video":
            return shared | sized | {"enable_sound": request.sound}
        case "image-to-video":
            return shared | sized | {"image": PICTURE}
        case "video-to-video":
            first = request.keep == "first"
            kept = {"condition_frame_indexes_vision": [0] if first else [0, 1], "condition_video_keep": request.keep}
            return shared | sized | {"video": pictures} | kept
        case "policy":
            return shared | action | {"action": CosmosActionCondition("policy", image=PICTURE, **condition)}
        case "forward-dynamics":
            rows = torch.from_numpy(ROWS)
            what = CosmosActionCondition("forward_dynamics", image=PICTURE, raw_actions=rows, **condition)
            return shared | action | {"action": what}
        case _:
            return shared | action | {"action": CosmosActionCondition("inverse_dynamics", video=pictures, **condition)}


@pytest.mark.parametrize("name", [name for name in REQUESTS if name != "transfer"])
def test_results_equal_the_stock_pipeline(model: OmniModel, stock: Cosmos3OmniPipeline, name: str):
    request = resolve(REQUESTS[name], model.capabilities)
    ours = _run(model, request)
    theirs = stock(**_stock_arguments(request))
    if request.mode == "inverse-dynamics":
        assert ours.frames is None
    else:
        assert np.array_equal(ours.frames, (theirs.video * 255).round().astype(np.uint8))
    if theirs.sound is not None:
        length = round(5 / 10 * ours.sample_rate)
        assert np.array_equal(ours.sound, theirs.sound.numpy()[:, :length])
    if theirs.action:
        assert np.array_equal(ours.actions, theirs.action[0].numpy())
    assert (ours.actions is not None) == bool(theirs.action)


def test_transfer_equals_the_stock_modular_pipeline(model: OmniModel, stock: Cosmos3OmniPipeline):
    request = resolve(REQUESTS["transfer"], model.capabilities)
    pipeline = Cosmos3OmniModularPipeline()
    names = ("transformer", "vae", "scheduler", "text_tokenizer")
    pipeline.update_components(**{name: getattr(stock, name) for name in names})
    pipeline.disable_safety_checker()
    theirs = pipeline(
        prompt="a ball",
        negative_prompt="",
        control_videos={"edge": [Image.fromarray(frame) for frame in FRAMES]},
        width=256,
        height=256,
        num_frames=5,
        fps=10.0,
        num_inference_steps=2,
        guidance_scale=request.guidance_scale,
        control_guidance=request.control_guidance,
        generator=torch.Generator().manual_seed(3),
        output="videos",
    )
    assert np.array_equal(_run(model, request).frames, np.stack([np.asarray(frame) for frame in theirs]))


def test_the_flow_shift_takes_effect_and_the_shipped_schedule_comes_back(model: OmniModel):
    """Sigmas of `s u / (1 + (s - 1) u)` at the library's own u; hand values for shift 3 at 8 steps."""
    shipped = model.pipeline.scheduler
    with generating._schedule(model, resolve(replace(REQUESTS["text-to-image"], flow_shift=3.0), model.capabilities)):
        own = model.pipeline.scheduler
        assert own is not shipped
        own.set_timesteps(8)
        assert own.sigmas.tolist()[:8] == pytest.approx([1.0, 0.955, 0.90, 0.833, 0.75, 0.643, 0.5, 0.302], abs=0.006)
    assert model.pipeline.scheduler is shipped
    with generating._schedule(model, resolve(REQUESTS["text-to-image"], model.capabilities)):
        assert model.pipeline.scheduler.config.use_karras_sigmas is True
    changed = _run(model, replace(REQUESTS["text-to-image"], flow_shift=3.0)).frames
    assert not np.array_equal(changed, _run(model, REQUESTS["text-to-image"]).frames)


def test_same_seed_same_bytes_other_seed_other_picture(model: OmniModel):
    request = REQUESTS["text-to-image"]
    assert np.array_equal(_run(model, request).frames, _run(model, request).frames)
    assert not np.array_equal(_run(model, request).frames, _run(model, replace(request, seed=4)).frames)


def test_events_come_in_order(model: OmniModel):
    events: list[Event] = []
    _run(model, REQUESTS["text-to-image"], events.append)
    kinds = [event.name if isinstance(event, Phase) else type(event).__name__ for event in events]
    assert [kind for kind in kinds if kind != "Preview"] == ["encoding", "Step", "Step", "decoding"]
    steps = [event for event in events if isinstance(event, Step)]
    assert [(step.index, step.total) for step in steps] == [(1, 2), (2, 2)]
    assert steps[-1].remaining == 0
    first = next(event for event in events if isinstance(event, Preview))
    assert first.step == 1
    assert first.frame.shape == (256, 256, 3)
    assert first.frame.dtype == np.uint8


def test_previews_change_nothing(model: OmniModel, monkeypatch: pytest.MonkeyPatch):
    request = REQUESTS["text-to-video-sound"]
    monkeypatch.setattr(generating, "PREVIEW_EVERY", 0.0)
    seen: list[Event] = []
    with_previews = _run(model, request, seen.append)
    assert sum(isinstance(event, Preview) for event in seen) == 2
    monkeypatch.setattr(generating._Watch, "step", lambda self, index, estimate: None)
    without = _run(model, request)
    assert np.array_equal(with_previews.frames, without.frames)
    assert np.array_equal(with_previews.sound, without.sound)


def test_a_preview_has_the_colours_of_the_picture(model: OmniModel):
    """The preview of a clean latent is close to the block means of what the VAE decodes."""
    vae = model.pipeline.vae
    blocks = torch.rand(1, 3, 1, 8, 8, generator=torch.Generator().manual_seed(5))
    picture = blocks.repeat_interleave(32, 3).repeat_interleave(32, 4)
    with torch.no_grad():
        latents = model.pipeline._encode_video(picture * 2 - 1)
        decoded = vae.decode(vae.encode(picture * 2 - 1).latent_dist.mode()).sample[0, :, 0]
    shown = torch.from_numpy(preview.frame(latents, vae).copy()).permute(2, 0, 1) / 255
    means = [torch.nn.functional.avg_pool2d(x, 32) for x in (shown, (decoded + 1) / 2)]
    assert (means[0] - means[1]).abs().mean() < 0.12


@pytest.mark.parametrize("name", ["text-to-image", "transfer"])
def test_cancelling_ends_within_a_step_and_leaves_the_model_ready(model: OmniModel, name: str):
    request, shipped, steps = REQUESTS[name], model.pipeline.scheduler, []

    def stop_at_first(event: Event) -> None:
        if isinstance(event, Step):
            steps.append(event.index)
            raise Cancelled

    expected = _run(model, request).frames
    with pytest.raises(Cancelled):
        _run(model, request, stop_at_first)
    assert steps == [1]
    assert model.pipeline.scheduler is shipped
    assert model.active_head is None
    assert np.array_equal(_run(model, request).frames, expected)


def test_sound_is_as_long_as_the_frames(model: OmniModel):
    made = _run(model, REQUESTS["text-to-video-sound"])
    assert made.sound.shape == (2, round(len(made.frames) / made.fps * made.sample_rate))


def test_structured_prompts_switch_the_templates_off(model: OmniModel, monkeypatch: pytest.MonkeyPatch):
    seen: list[tuple[bool, bool]] = []
    tokenize = Cosmos3OmniPipeline.tokenize_prompt

    def spy(self: Cosmos3OmniPipeline, *args: Any, **options: Any) -> Any:
        seen.append((options["add_resolution_template"], options["add_duration_template"]))
        return tokenize(self, *args, **options)

    monkeypatch.setattr(Cosmos3OmniPipeline, "tokenize_prompt", spy)
    for prompt in ("a ball", '{"comprehensive_t2i_caption": "a ball"}'):
        _run(model, replace(REQUESTS["text-to-image"], prompt=prompt))
    assert seen == [(True, True), (False, False)]


def test_the_record_says_what_was_used(model: OmniModel):
    record = _run(model, replace(REQUESTS["text-to-video"], num_frames=8)).record
    assert record["kind"] == "generator"
    assert record["seed"] == 3
    settings = record["settings"]
    assert (settings["mode"], settings["num_frames"], settings["steps"]) == ("text-to-video", 5, 2)
    assert record["details"] == {"width": 256, "height": 256, "frames": 5}
    assert record["timings"].keys() == {"denoising", "decoding", "total"}


@pytest.fixture(autouse=True)
def _scheduler_untouched(model: OmniModel) -> Iterator[None]:
    """No test may leave the pipeline's own schedule changed."""
    before = copy.deepcopy(dict(model.pipeline.scheduler.config))
    yield
    assert isinstance(model.pipeline.scheduler, UniPCMultistepScheduler)
    assert dict(model.pipeline.scheduler.config) == before
