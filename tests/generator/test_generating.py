"""The Generator against the stock pipelines on the same weights, and its manners: events, cancelling, clean-up."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import (
    Cosmos3DistilledModularPipeline,
    Cosmos3OmniModularPipeline,
    Cosmos3OmniPipeline,
    CosmosActionCondition,
    FlowMatchEulerDiscreteScheduler,
    UniPCMultistepScheduler,
)
from PIL import Image

from cosmos_demo.checkpoints import find
from cosmos_demo.errors import EngineError
from cosmos_demo.events import Event, Generated, Phase, Preview, Step
from cosmos_demo.generator import generating, modes, preview
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


SIDE = 96


@pytest.fixture(scope="module", autouse=True)
def _small_pictures() -> Iterator[None]:
    """Square pictures of the lowest tier are small here, which saves most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(modes.SIZES[256], "1:1", (SIDE, SIDE))
        yield


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
    sized = {"width": SIDE, "height": SIDE, "num_frames": request.num_frames, "fps": 10.0}
    action = {"fps": 10.0, "use_system_prompt": False}
    condition = {"chunk_size": 4, "domain_name": "camera_pose", "resolution_tier": 256}
    match request.mode:
        case "text-to-image":
            return shared | {"negative_prompt": "blurry", "width": SIDE, "height": SIDE, "num_frames": 1}
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
        width=SIDE,
        height=SIDE,
        num_frames=5,
        fps=10.0,
        num_inference_steps=2,
        guidance_scale=request.guidance_scale,
        control_guidance=request.control_guidance,
        generator=torch.Generator().manual_seed(3),
        output="videos",
    )
    assert np.array_equal(_run(model, request).frames, np.stack([np.asarray(frame) for frame in theirs]))


@pytest.fixture(scope="module")
def distilled_path(pico_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pico's weights under the schedule and index of a few-step checkpoint."""
    folder = tmp_path_factory.mktemp("checkpoints") / "distilled"
    folder.mkdir()
    for part in pico_path.iterdir():
        if part.name not in ("scheduler", "model_index.json"):
            (folder / part.name).symlink_to(part)
    FlowMatchEulerDiscreteScheduler(stochastic_sampling=True).save_pretrained(folder / "scheduler")
    types = {
        "transformer": ["diffusers", "Cosmos3OmniTransformer"],
        "vae": ["diffusers", "AutoencoderKLWan"],
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "text_tokenizer": ["transformers", "AutoTokenizer"],
    }
    index: dict[str, Any] = {
        name: [*kind, {"pretrained_model_name_or_path": str(folder), "subfolder": name, "type_hint": kind}]
        for name, kind in types.items()
    }
    index |= {"_class_name": "Cosmos3DistilledModularPipeline", "_blocks_class_name": "Cosmos3DistilledBlocks"}
    index |= {"is_distilled": True, "distilled_sigmas": [1.0, 0.9375, 0.8333, 0.625]}
    (folder / "modular_model_index.json").write_text(json.dumps(index))
    return folder


@pytest.mark.parametrize("mode", ["text-to-image", "text-to-video", "image-to-video"])
def test_few_step_checkpoints_equal_their_own_pipeline(distilled_path: Path, mode: str):
    model = OmniModel.load(find(distilled_path), device="cpu")
    shape = {} if mode == "text-to-image" else {"num_frames": 5, "fps": 10}
    picture = PICTURE if mode == "image-to-video" else None
    events: list[Event] = []
    request = GenerateRequest(mode, "a red ball", image=picture, resolution=256, aspect_ratio="1:1", seed=3, **shape)
    ours = _run(model, request, events.append)
    stock = Cosmos3DistilledModularPipeline.from_pretrained(str(distilled_path))
    stock.load_components(dtype=torch.float32)
    stock.disable_safety_checker()
    theirs = stock(
        prompt="a red ball",
        generator=torch.Generator().manual_seed(3),
        width=SIDE,
        height=SIDE,
        num_frames=shape.get("num_frames", 1),
        output="videos",
        **({"fps": 10.0} if shape else {}),
        **({"image": PICTURE} if picture else {}),
    )
    assert np.array_equal(ours.frames, np.stack([np.asarray(frame) for frame in theirs]))
    assert [event.index for event in events if isinstance(event, Step)] == [1, 2, 3, 4]
    assert any(isinstance(event, Preview) for event in events)


@pytest.mark.parametrize(
    ("shift", "steps", "places", "sigmas"),
    [
        (10.0, 35, (0, 1, 8, 17, 26, 34), (1.0, 0.997, 0.971, 0.914, 0.777, 0.233)),
        (3.0, 8, (0, 1, 2, 4, 6, 7), (1.0, 0.955, 0.900, 0.750, 0.501, 0.302)),
        (1.0, 35, (0, 1, 8, 17, 26, 34), (1.0, 0.971, 0.772, 0.515, 0.258, 0.030)),
        (0.0, 35, (0, 1, 8, 17, 26, 34), (0.995, 0.994, 0.984, 0.930, 0.636, 0.128)),
        (0.0, 8, (0, 1, 2, 4, 6, 7), (0.995, 0.990, 0.980, 0.890, 0.422, 0.128)),
    ],
)
def test_the_flow_shift_takes_effect(
    model: OmniModel, shift: float, steps: int, places: tuple[int, ...], sigmas: tuple[float, ...]
):
    """Noise levels ``s u / (1 + (s - 1) u)`` with u from 1 down in even steps of 0.999 / n; 0 is the shipped ones."""
    shipped = model.pipeline.scheduler
    request = replace(REQUESTS["text-to-image"], flow_shift=shift, steps=steps)
    with generating._scheduled(model.pipeline, resolve(request, model.capabilities)) as scheduler:
        assert model.pipeline.scheduler is scheduler is not shipped
        scheduler.set_timesteps(steps)
        assert [float(scheduler.sigmas[place]) for place in places] == pytest.approx(sigmas, abs=6e-4)
        if shift:
            even = [1 - 0.999 * place / steps for place in places]
            exact = [shift * u / (1 + (shift - 1) * u) for u in even]
            assert [float(scheduler.sigmas[place]) for place in places] == pytest.approx(exact, abs=1e-4)
    assert model.pipeline.scheduler is shipped


@pytest.mark.parametrize("name", ["text-to-image", "transfer"])
def test_the_flow_shift_changes_the_picture(model: OmniModel, name: str):
    changed = _run(model, replace(REQUESTS[name], flow_shift=3.0)).frames
    assert not np.array_equal(changed, _run(model, REQUESTS[name]).frames)


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
    assert first.frame.shape == (SIDE, SIDE, 3)
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
    """Boxes on a ground, as in no calibration picture: each cell's colour is close to its mean, and none is swapped."""
    picture = torch.full((3, 128, 128), 0.7)
    colours = torch.tensor([[0.8, 0.1, 0.1], [0.1, 0.2, 0.8], [0.1, 0.6, 0.2]])
    for index, colour in enumerate(colours):
        picture[:, 48:96, index * 40 : index * 40 + 32] = colour[:, None, None]
    with torch.no_grad():
        latents = model.pipeline._encode_video((picture * 2 - 1)[None, :, None])
    shown = torch.from_numpy(preview.frame(latents, model.pipeline.vae).copy()).permute(2, 0, 1) / 255
    means = [torch.nn.functional.avg_pool2d(image, 16) for image in (shown, picture)]
    assert (means[0] - means[1]).abs().mean() < 0.1
    middles = [shown[:, 56:88, index * 40 + 8 : index * 40 + 24].mean((1, 2)) for index in range(3)]
    assert [int(middle.argmax()) for middle in middles] == [0, 2, 1]


def test_a_preview_is_the_middle_frame_and_measures_each_vae_once(model: OmniModel, monkeypatch: pytest.MonkeyPatch):
    vae = model.pipeline.vae
    latents = torch.randn(1, 48, 5, 4, 6, generator=torch.Generator().manual_seed(0))
    first = preview.frame(latents, vae)
    assert first.shape == (64, 96, 3)
    monkeypatch.setattr(vae, "encode", None)
    assert np.array_equal(preview.frame(latents[0, :, 2:3], vae), first)


@pytest.mark.parametrize("name", ["text-to-image", "transfer"])
def test_the_last_preview_is_of_what_is_decoded(model: OmniModel, monkeypatch: pytest.MonkeyPatch, name: str):
    """The last clean estimate is the result, so its preview is that of the final latents."""
    estimates: list[torch.Tensor] = []
    decoded: list[torch.Tensor] = []
    vae = model.pipeline.vae
    decode, show = vae.decode, preview.frame
    monkeypatch.setattr(generating, "PREVIEW_EVERY", 0.0)
    monkeypatch.setattr(preview, "frame", lambda latents, vae: estimates.append(latents) or show(latents, vae))
    monkeypatch.setattr(vae, "decode", lambda latents, *a, **k: decoded.append(latents) or decode(latents, *a, **k))
    _run(model, REQUESTS[name])
    mean, std = (torch.tensor(values).view(-1, 1, 1, 1) for values in (vae.config.latents_mean, vae.config.latents_std))
    shape = decoded[-1].shape[1:]
    assert estimates[-1].reshape(shape) * std + mean == pytest.approx(decoded[-1][0].numpy(), abs=1e-3)


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
    assert model.pipeline.scheduler is model.transfer_pipeline.scheduler is shipped
    assert "step" not in vars(shipped)
    assert model.active_head is None
    assert np.array_equal(_run(model, request).frames, expected)


def test_a_result_without_numbers_is_an_error(model: OmniModel, monkeypatch: pytest.MonkeyPatch):
    request = REQUESTS["text-to-image"]
    with monkeypatch.context() as patch:
        broken = lambda self, output, *args, **options: output * float("nan")  # noqa: E731
        patch.setattr(UniPCMultistepScheduler, "convert_model_output", broken)
        with pytest.raises(EngineError, match="NaN"):
            _run(model, request)
    assert _run(model, request).frames.std() > 0


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
    assert record["details"] == {"width": SIDE, "height": SIDE, "frames": 5}
    assert record["timings"].keys() == {"denoising", "decoding", "total"}


@pytest.fixture(autouse=True)
def _scheduler_untouched(model: OmniModel) -> Iterator[None]:
    """No test may leave the pipeline's own schedule changed."""
    before = copy.deepcopy(dict(model.pipeline.scheduler.config))
    yield
    assert isinstance(model.pipeline.scheduler, UniPCMultistepScheduler)
    assert dict(model.pipeline.scheduler.config) == before
