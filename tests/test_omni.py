"""The proofs of one model with two heads: equal to the libraries' own two models, sharing storage whatever moves."""

from __future__ import annotations

import json
import os
import shutil
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import (
    Cosmos3DistilledModularPipeline,
    Cosmos3OmniBlocks,
    Cosmos3OmniModularPipeline,
    Cosmos3OmniPipeline,
    Cosmos3OmniTransformer,
    CosmosActionCondition,
    FlowMatchEulerDiscreteScheduler,
)
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from transformers import (
    AutoTokenizer,
    Cosmos3EdgeConfig,
    Cosmos3EdgeForConditionalGeneration,
    Cosmos3EdgeImageProcessor,
    Cosmos3EdgeProcessor,
    Cosmos3EdgeVideoProcessor,
    Cosmos3OmniForConditionalGeneration,
)

from cosmos_demo.checkpoints import find
from cosmos_demo.errors import CheckpointError, OutOfMemoryError
from cosmos_demo.omni import OmniModel
from cosmos_demo.placement import Offload, tensors

CPU = torch.device("cpu")
QUESTION = "How many red shapes are on the table?"


@pytest.fixture(scope="module")
def stock(pico_path: Path) -> Cosmos3OmniPipeline:
    """The Generator as diffusers loads it."""
    pipeline = Cosmos3OmniPipeline.from_pretrained(pico_path, dtype=torch.float32, enable_safety_checker=False)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


@pytest.fixture(scope="module")
def stock_reasoner(pico_path: Path) -> Cosmos3OmniForConditionalGeneration:
    """The Reasoner as transformers loads it."""
    return Cosmos3OmniForConditionalGeneration.from_pretrained(pico_path, dtype=torch.float32).eval()


@pytest.fixture
def spare(pico_path: Path) -> OmniModel:
    """A second instance that a test may move and cast."""
    model = OmniModel.load(find(pico_path), device="cpu", offload="never")
    model.pipeline.transformer.to(torch.float32)
    return model


@pytest.fixture(scope="module")
def picture() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 96, 3), np.uint8))


@pytest.fixture(scope="module")
def clip() -> list[Image.Image]:
    frames = np.random.default_rng(1).integers(0, 256, (5, 64, 96, 3), np.uint8)
    return [Image.fromarray(frame) for frame in frames]


# The Reasoner


def question(model: OmniModel, image: Image.Image | None = None, video: list[Image.Image] | None = None) -> Any:
    """What the Reasoner gets for a question with or without a picture or a clip of five frames a second."""
    media = [{"type": "image"}] if image else [{"type": "video"}] if video else []
    messages = [{"role": "user", "content": [*media, {"type": "text", "text": QUESTION}]}]
    text = model.processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    extra: dict[str, Any] = {}
    if video:
        extra = {
            "videos": [np.stack([np.asarray(frame) for frame in video[:4]])],
            "video_metadata": [{"fps": 5.0, "total_num_frames": 4, "frames_indices": list(range(4))}],
            "do_sample_frames": False,
            "return_metadata": True,
        }
    # Qwen3-VL's processor gives token types and times unasked, Edge's only on demand.
    extra["return_mm_token_type_ids"] = True
    inputs = model.processor(text=[text], images=[image] if image else None, return_tensors="pt", **extra)
    inputs.pop("video_metadata", None)
    return inputs


@pytest.mark.parametrize("kind", ["text", "image", "video"])
def test_reasoner_equals_the_one_loaded_alone(
    model: OmniModel,
    stock_reasoner: Cosmos3OmniForConditionalGeneration,
    picture: Image.Image,
    clip: list[Image.Image],
    kind: str,
) -> None:
    inputs = question(model, picture if kind == "image" else None, clip if kind == "video" else None)
    assert ("pixel_values" in inputs) == (kind == "image")
    assert ("pixel_values_videos" in inputs) == (kind == "video")
    with model.head("reasoner"), torch.no_grad():
        ours = model.reasoner(**inputs).logits
        words = model.reasoner.generate(**inputs, max_new_tokens=6, do_sample=False)
    with torch.no_grad():
        stock_reasoner.model.rope_deltas = None
        theirs = stock_reasoner(**inputs).logits
        stock_reasoner.model.rope_deltas = None
        same_words = stock_reasoner.generate(**inputs, max_new_tokens=6, do_sample=False)
    assert torch.equal(ours, theirs)
    assert torch.equal(words, same_words)


def test_the_picture_matters(model: OmniModel, picture: Image.Image) -> None:
    """Guards the test above: logits that ignored the picture would be equal too."""
    other = Image.new("RGB", picture.size, "red")
    with model.head("reasoner"), torch.no_grad():
        first, second = (model.reasoner(**question(model, image)).logits for image in (picture, other))
    assert not torch.equal(first, second)


def test_generation_settings_are_the_checkpoints_own(
    model: OmniModel, stock_reasoner: Cosmos3OmniForConditionalGeneration
) -> None:
    assert model.reasoner.generation_config.to_dict() == stock_reasoner.generation_config.to_dict()


def test_rotary_frequencies_are_rebuilt(model: OmniModel, stock_reasoner: Cosmos3OmniForConditionalGeneration) -> None:
    ours, theirs = dict(model.reasoner.named_buffers()), dict(stock_reasoner.named_buffers())
    assert len(ours) == 4
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


# The Generator


def run(pipeline: Cosmos3OmniPipeline, **inputs: Any) -> list[torch.Tensor]:
    """Latents, and sound and actions where there are any."""
    if "latents" in inputs:
        raise ValueError("latents are the outcome here")
    result = pipeline(
        prompt="a red cube falls",
        negative_prompt="blur",
        num_inference_steps=2,
        generator=torch.Generator().manual_seed(7),
        output_type="latent",
        **inputs,
    )
    return [result.video, *([result.sound] if result.sound is not None else []), *(result.action or [])]


def action(mode: str, **inputs: Any) -> dict[str, Any]:
    condition = CosmosActionCondition(mode=mode, chunk_size=4, domain_name="camera_pose", resolution_tier=256, **inputs)
    return {"action": condition, "fps": 10.0, "guidance_scale": 1.0, "use_system_prompt": False}


SMALL = {"height": 64, "width": 96, "fps": 10.0, "guidance_scale": 3.0}
GENERATOR_MODES: dict[str, Callable[[Image.Image, list[Image.Image]], dict[str, Any]]] = {
    "text-to-image": lambda picture, clip: {**SMALL, "num_frames": 1},
    "text-to-video": lambda picture, clip: {**SMALL, "num_frames": 5},
    "text-to-video with sound": lambda picture, clip: {**SMALL, "num_frames": 5, "enable_sound": True},
    "image-to-video": lambda picture, clip: {**SMALL, "num_frames": 5, "image": picture},
    "image-to-video with sound": lambda picture, clip: {
        **SMALL, "num_frames": 5, "image": picture, "enable_sound": True,
    },
    "video-to-video": lambda picture, clip: {**SMALL, "num_frames": 9, "video": clip},
    "video-to-video with sound": lambda picture, clip: {
        **SMALL, "num_frames": 9, "video": clip, "enable_sound": True, "condition_video_keep": "last",
    },
    "policy": lambda picture, clip: action("policy", image=picture),
    "forward-dynamics": lambda picture, clip: action(
        "forward_dynamics", image=picture, raw_actions=torch.linspace(-1, 1, 36).reshape(4, 9)
    ),
    "inverse-dynamics": lambda picture, clip: action("inverse_dynamics", video=clip),
}  # fmt: skip


@pytest.mark.parametrize("mode", GENERATOR_MODES)
def test_generator_equals_the_stock_pipeline(
    model: OmniModel, stock: Cosmos3OmniPipeline, picture: Image.Image, clip: list[Image.Image], mode: str
) -> None:
    inputs = GENERATOR_MODES[mode](picture, clip)
    with model.head("generator"):
        ours = run(model.pipeline, **inputs)
    theirs = run(stock, **inputs)
    extras = ("sound" in mode) + (mode in ("policy", "inverse-dynamics"))
    assert len(ours) == len(theirs) == 1 + extras
    for mine, reference in zip(ours, theirs, strict=True):
        assert mine.isfinite().all()
        assert torch.equal(mine, reference)


def test_transfer_equals_the_stock_modular_pipeline(model: OmniModel, pico_path: Path, clip: list[Image.Image]) -> None:
    reference = Cosmos3OmniModularPipeline(Cosmos3OmniBlocks(), pretrained_model_name_or_path=str(pico_path))
    reference.load_components(dtype=torch.float32)
    reference.disable_safety_checker()
    reference.set_progress_bar_config(disable=True)

    def transfer(pipeline: Cosmos3OmniModularPipeline) -> Any:
        return pipeline(
            prompt="a red cube falls",
            control_videos={"edge": clip},
            height=64,
            width=96,
            num_inference_steps=2,
            guidance_scale=2.0,
            control_guidance=1.5,
            generator=torch.Generator().manual_seed(7),
            output_type="np",
            output="videos",
        )

    with model.head("generator"):
        ours = transfer(model.transfer_pipeline)
    theirs = transfer(reference)
    assert np.array_equal(np.asarray(ours), np.asarray(theirs))
    assert np.isfinite(np.asarray(ours)).all()


def test_the_modular_pipeline_works_on_the_very_same_components(model: OmniModel) -> None:
    for name in ("transformer", "vae", "sound_tokenizer", "text_tokenizer", "scheduler"):
        assert getattr(model.transfer_pipeline, name) is getattr(model.pipeline, name)


def test_precision_is_the_libraries_own(pico_path: Path) -> None:
    """In bfloat16 too: every tensor has the type and value that `from_pretrained` gives, the time embedder float32."""
    ours = OmniModel.load(find(pico_path), device="cpu", dtype="bfloat16").pipeline
    theirs = Cosmos3OmniPipeline.from_pretrained(pico_path, dtype=torch.bfloat16, enable_safety_checker=False)
    for name in ("transformer", "vae", "sound_tokenizer"):
        mine, reference = getattr(ours, name).state_dict(), getattr(theirs, name).state_dict()
        assert mine.keys() == reference.keys()
        assert {key for key in mine if mine[key].dtype != reference[key].dtype} == set()
        assert all(torch.equal(mine[key], reference[key]) for key in mine)
    assert ours.transformer.time_embedder.linear_1.weight.dtype == torch.float32
    assert ours.transformer.lm_head.weight.dtype == torch.bfloat16


# Sharing


def shared_pairs(model: OmniModel) -> list[tuple[nn.Parameter, nn.Parameter]]:
    """Each language Parameter of the Reasoner with the Generator's of the same meaning, found by hand."""
    language = model.reasoner.model.language_model
    transformer = model.pipeline.transformer
    pairs = [
        (language.embed_tokens.weight, transformer.embed_tokens.weight),
        (language.norm.weight, transformer.norm.weight),
        (model.reasoner.lm_head.weight, transformer.lm_head.weight),
    ]
    for mine, theirs in zip(language.layers, transformer.layers, strict=True):
        attention = {"q_proj": "to_q", "k_proj": "to_k", "v_proj": "to_v", "o_proj": "to_out"}
        if hasattr(mine.self_attn, "q_norm"):
            attention |= {"q_norm": "norm_q", "k_norm": "norm_k"}
        feed = {"fc1": "up_proj", "fc2": "down_proj"} if hasattr(mine.mlp, "fc1") else {}
        feed = feed or {name: name for name in ("gate_proj", "up_proj", "down_proj")}
        pairs += [
            (getattr(mine.self_attn, a).weight, getattr(theirs.self_attn, b).weight) for a, b in attention.items()
        ]
        pairs += [(getattr(mine.mlp, a).weight, getattr(theirs.mlp, b).weight) for a, b in feed.items()]
        pairs += [
            (getattr(mine, name).weight, getattr(theirs, name).weight)
            for name in ("input_layernorm", "post_attention_layernorm")
        ]
    return pairs


def assert_shared(model: OmniModel) -> None:
    pairs = shared_pairs(model)
    vision = [name for name, _ in model.reasoner.named_parameters() if ".visual." in name or ".projector." in name]
    assert len(pairs) + len(vision) == len(list(model.reasoner.parameters())), "every language Parameter is paired"
    for mine, theirs in pairs:
        assert mine is theirs
        assert mine.data_ptr() == theirs.data_ptr()


def test_the_heads_hold_the_same_parameters_whatever_moves(spare: OmniModel) -> None:
    assert_shared(spare)
    spare.reasoner.to(torch.bfloat16)
    assert spare.pipeline.transformer.embed_tokens.weight.dtype == torch.bfloat16
    assert_shared(spare)
    spare.pipeline.transformer.to(torch.float32)
    assert spare.reasoner.lm_head.weight.dtype == torch.float32
    assert_shared(spare)
    spare.pipeline.to("cpu", torch.float64)
    assert spare.reasoner.lm_head.weight.dtype == torch.float64
    assert_shared(spare)


def test_memory_is_one_models(
    model: OmniModel, stock: Cosmos3OmniPipeline, stock_reasoner: Cosmos3OmniForConditionalGeneration
) -> None:
    """One transformer, VAE and sound tokenizer, and of the Reasoner only the vision encoder and rotary frequencies."""
    generator = [stock.transformer, stock.vae, stock.sound_tokenizer]
    parts = [*generator, stock_reasoner.model.visual, stock_reasoner.model.language_model.rotary_emb]
    expected = sum(tensor.numel() * tensor.element_size() for tensor in tensors(parts))
    assert model.memory()["weights"] == expected
    both = expected + sum(p.numel() * p.element_size() for p in stock_reasoner.model.language_model.parameters())
    assert both > expected * 1.2, "a second language model would show"


def test_nothing_is_left_for_training(model: OmniModel) -> None:
    assert not any(parameter.requires_grad for network in model.networks() for parameter in network.parameters())
    assert not any(module.training for network in model.networks() for module in network.modules())


def test_loading_again_gives_the_same_instance(model: OmniModel, pico_path: Path) -> None:
    told = []
    again = OmniModel.load(find(pico_path), device="cpu", dtype="float32", progress=lambda *step: told.append(step))
    assert again is model
    assert told == [(1.0, "ready")]


def test_loading_reports_progress(pico_path: Path) -> None:
    told: list[tuple[float, str]] = []
    OmniModel.load(find(pico_path), device="cpu", guardrails=False, progress=lambda *step: told.append(step))
    fractions = [fraction for fraction, _ in told]
    assert fractions == sorted(fractions)
    assert fractions[0] == 0.0
    assert 0.9 < fractions[-2] < 1.0
    files = list(dict.fromkeys(what for _, what in told))
    assert files[-1] == "ready"
    assert len(files) == 1 + len(list(pico_path.glob("*/*.safetensors")))


# Heads


def test_a_head_leaves_nothing_behind_also_when_it_fails(model: OmniModel, picture: Image.Image) -> None:
    def fail() -> None:
        assert model.active_head == "reasoner"
        model.reasoner.generate(**question(model, picture), max_new_tokens=1, do_sample=False)
        assert model.reasoner.model.rope_deltas is not None
        raise KeyError

    with pytest.raises(KeyError), model.head("reasoner"):
        fail()
    assert model.active_head is None
    assert model.reasoner.model.rope_deltas is None


def test_an_unknown_head_is_refused(model: OmniModel) -> None:
    with pytest.raises(ValueError, match="reasoner, generator"), model.head("planner"):
        pass


def test_running_out_of_memory_says_sizes_and_a_way_out_and_frees_what_the_run_held(model: OmniModel) -> None:
    held = []

    def fill_up() -> None:
        activation = torch.zeros(8)
        held.append(weakref.ref(activation))
        raise torch.OutOfMemoryError

    with pytest.raises(OutOfMemoryError, match=r"generator .* GB.*lower resolution"), model.head("generator"):
        fill_up()
    assert model.active_head is None
    assert held[0]() is None


def test_guardrails_say_what_is_active(model: OmniModel, pico_path: Path) -> None:
    assert model.pipeline.safety_checker is None
    assert "not installed" in model.guardrails
    assert "switched off" in OmniModel.load(find(pico_path), device="cpu", guardrails=False).guardrails


# Offloading, with the host standing in for the device: a weight that visits is a copy there, so its address tells


@pytest.fixture
def homes(spare: OmniModel) -> Iterator[dict[torch.Tensor, int]]:
    """Where each weight is at home."""
    yield {tensor: tensor.data_ptr() for tensor in tensors(spare.networks())}
    spare._offload = None


def away(homes: dict[torch.Tensor, int]) -> list[torch.Tensor]:
    return [tensor for tensor, home in homes.items() if tensor.data_ptr() != home]


def size(some: list[torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in some)


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("megabytes", [70, 90, 500])
def test_offloading_changes_no_result_keeps_to_its_budget_and_keeps_sharing(
    spare: OmniModel, homes: dict[torch.Tensor, int], megabytes: int, keep: bool
) -> None:
    def draw() -> torch.Tensor:
        return run(spare.pipeline, **SMALL, num_frames=1)[0]

    def answer() -> torch.Tensor:
        with torch.no_grad():
            return spare.reasoner(**question(spare)).logits

    picture, logits = draw(), answer()
    budget = megabytes * 1_000_000
    spare._offload = Offload(CPU, budget, keep)
    largest = []

    def watch(layer: nn.Module, *_: object) -> None:
        present = away(homes)
        assert all(any(tensor is parameter for tensor in present) for parameter in layer.parameters())
        largest.append(size(present))

    for head, layers, work, expected in (
        ("generator", spare.pipeline.transformer.layers, draw, picture),
        ("reasoner", spare.reasoner.model.language_model.layers, answer, logits),
    ):
        with spare.head(head):
            assert_shared(spare)
            watches = [layer.register_forward_pre_hook(watch) for layer in layers]
            assert torch.equal(work(), expected)
            for hook in watches:
                hook.remove()
        assert bool(away(homes)) == keep
        assert_shared(spare)
        assert max(largest) <= budget
        if megabytes == 500:
            assert min(largest) == max(largest), "what fits as a whole arrives at once"
        largest.clear()

    spare._offload._leave(away(homes))
    assert not away(homes), "leaving brings every weight home, to the address it came from"
    assert torch.equal(draw(), picture)


def test_streamed_weights_go_home_when_a_run_fails(spare: OmniModel, homes: dict[torch.Tensor, int]) -> None:
    spare._offload = Offload(CPU, 70_000_000, keep=False)
    layers = spare.pipeline.transformer.layers
    stop = layers[4].register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError), spare.head("generator"):
        run(spare.pipeline, **SMALL, num_frames=1)
    stop.remove()
    assert not away(homes)
    assert not any(layer._forward_pre_hooks for layer in layers)


def test_a_device_too_small_for_two_layers_is_refused(spare: OmniModel, homes: dict[torch.Tensor, int]) -> None:
    spare._offload = Offload(CPU, 1_000_000, keep=False)
    with pytest.raises(OutOfMemoryError, match=r"needs 0\.\d GB"), spare.head("generator"):
        pass
    assert not away(homes)


# Other checkpoints


def link(source: Path, target: Path) -> Path:
    """A folder like ``source`` whose weights are links; its other files may be changed."""
    return shutil.copytree(
        source,
        target,
        copy_function=lambda one, other: (
            os.symlink(os.path.realpath(one), other) if one.endswith(".safetensors") else shutil.copy(one, other)
        ),
    )


def test_weights_that_do_not_fit_the_config_are_refused(pico_path: Path, tmp_path: Path) -> None:
    names = {"scheduler": "scheduler_config.json", "text_tokenizer": "tokenizer.json"}
    for part, key, value, said in (
        ("transformer", "num_hidden_layers", 9, "lacks .* for example layers.8"),
        ("transformer", "intermediate_size", 640, "doesn't fit its config"),
        ("scheduler", "_class_name", "NoScheduler", "no scheduler"),
        ("text_tokenizer", "added_tokens", 5, "missing or damaged"),
    ):
        folder = link(pico_path, tmp_path / key)
        file = folder / part / names.get(part, "config.json")
        file.write_text(json.dumps(json.loads(file.read_text()) | {key: value}))
        with pytest.raises(CheckpointError, match=said):
            OmniModel.load(find(folder), device="cpu")


def test_memory_that_vanishes_while_loading_is_told(pico_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr("cosmos_demo.omni._load", fail)
    with pytest.raises(OutOfMemoryError, match="Cosmos3-Pico was loaded"):
        OmniModel.load(find(pico_path), device="cpu", offload="always")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_offloading_on_a_gpu_changes_no_result_and_leaves_nothing_there(pico_path: Path) -> None:
    resident = OmniModel.load(find(pico_path), device="cuda", offload="never")
    visiting = OmniModel.load(find(pico_path), device="cuda", offload="always")
    visiting._offload = Offload(visiting.device, 40_000_000, keep=False)
    inputs = question(resident).to("cuda")
    results = []
    for model in (resident, visiting):
        with model.head("generator"):
            latents = run(model.pipeline, **SMALL, num_frames=5)[0]
        with model.head("reasoner"), torch.no_grad():
            results.append((latents, model.reasoner(**inputs).logits))
    for mine, reference in zip(*results, strict=True):
        assert torch.equal(mine, reference)
    assert {tensor.device.type for tensor in tensors(visiting.networks())} == {"cpu"}
    assert_shared(visiting)
    assert visiting.pipeline.transformer.layers[-1].self_attn.to_q.weight.is_pinned()


def test_a_checkpoint_without_vision_generates_only(pico_path: Path, tmp_path: Path) -> None:
    folder = link(pico_path, tmp_path / "generator")
    shutil.rmtree(folder / "vision_encoder")
    model = OmniModel.load(find(folder), device="cpu")
    assert model.reasoner is None
    assert model.processor is None
    with model.head("generator"):
        assert run(model.pipeline, **SMALL, num_frames=1)[0].isfinite().all()


def test_a_distilled_checkpoint_runs_on_its_own_schedule(pico_path: Path, tmp_path: Path) -> None:
    folder = link(pico_path, tmp_path / "distilled")
    FlowMatchEulerDiscreteScheduler(stochastic_sampling=True).save_pretrained(folder / "scheduler")
    types = {
        "transformer": ["diffusers", "Cosmos3OmniTransformer"],
        "vae": ["diffusers", "AutoencoderKLWan"],
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "text_tokenizer": ["transformers", "AutoTokenizer"],
    }
    index = {
        name: [*kind, {"pretrained_model_name_or_path": str(folder), "subfolder": name, "type_hint": kind}]
        for name, kind in types.items()
    }
    index |= {"_class_name": "Cosmos3DistilledModularPipeline", "_blocks_class_name": "Cosmos3DistilledBlocks"}
    index |= {"is_distilled": True, "distilled_sigmas": [1.0, 0.9375, 0.8333, 0.625]}
    (folder / "modular_model_index.json").write_text(json.dumps(index))
    reference = Cosmos3DistilledModularPipeline.from_pretrained(str(folder))
    reference.load_components(dtype=torch.float32)
    reference.disable_safety_checker()
    model = OmniModel.load(find(folder), device="cpu")

    def draw(pipeline: Cosmos3DistilledModularPipeline) -> np.ndarray:
        pipeline.set_progress_bar_config(disable=True)
        return np.asarray(
            pipeline(
                prompt="a red cube",
                num_frames=1,
                height=64,
                width=96,
                generator=torch.Generator().manual_seed(7),
                output_type="np",
                output="videos",
            )
        )

    with model.head("generator"):
        ours = draw(model.distilled_pipeline)
    assert np.array_equal(ours, draw(reference))
    assert model.distilled_pipeline.scheduler.sigmas.tolist()[:4] == pytest.approx([1.0, 0.9375, 0.8333, 0.625])
    assert_shared(model)


@pytest.fixture(scope="module")
def edge_path(pico_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny untrained checkpoint of the Edge family, around Pico's VAE and text tokenizer."""
    folder = tmp_path_factory.mktemp("edge")
    for part in ("vae", "scheduler", "text_tokenizer"):
        shutil.copytree(pico_path / part, folder / part)
    tokenizer = AutoTokenizer.from_pretrained(pico_path)
    vocabulary = json.loads((pico_path / "transformer/config.json").read_text())["vocab_size"]
    text = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "vocab_size": vocabulary,
        "hidden_act": "relu2",
        "rms_norm_eps": 1e-5,
    }
    sections = [6, 5, 5]
    torch.manual_seed(3)
    transformer = Cosmos3OmniTransformer(
        **text,
        rope_theta=1e8,
        rope_axes_dim=sections,
        qk_norm_for_text=False,
        use_und_k_norm_for_gen=True,
        action_gen=True,
        action_dim=16,
    )
    transformer.save_pretrained(folder / "transformer", max_shard_size=200_000)
    config = Cosmos3EdgeConfig(
        text_config={
            **text, "rope_parameters": {"rope_type": "default", "rope_theta": 1e8, "mrope_section": sections},
        },
        vision_config={
            "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2,
            "num_patches": 16,
        },
        projector_hidden_size=48,
        image_token_id=tokenizer.convert_tokens_to_ids("<|image_pad|>"),
        video_token_id=tokenizer.convert_tokens_to_ids("<|video_pad|>"),
        vision_start_token_id=tokenizer.convert_tokens_to_ids("<|vision_start|>"),
        vision_end_token_id=tokenizer.convert_tokens_to_ids("<|vision_end|>"),
        architectures=["Cosmos3EdgeForConditionalGeneration"],
    )  # fmt: skip
    config.save_pretrained(folder)
    own = {
        name: value.contiguous()
        for name, value in Cosmos3EdgeForConditionalGeneration(config).state_dict().items()
        if ".visual." in name or ".projector." in name
    }
    (folder / "vision_encoder").mkdir()
    save_file(own, folder / "vision_encoder/model.safetensors", metadata={"format": "pt"})
    placed = json.loads((folder / "transformer/diffusion_pytorch_model.safetensors.index.json").read_text())
    weight_map = {name: f"transformer/{file}" for name, file in placed["weight_map"].items()}
    weight_map |= dict.fromkeys(own, "vision_encoder/model.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    pipeline = json.loads((pico_path / "model_index.json").read_text())
    pipeline["sound_tokenizer"] = [None, None]
    pipeline["use_native_flow_schedule"] = True
    (folder / "model_index.json").write_text(json.dumps(pipeline))
    Cosmos3EdgeProcessor(Cosmos3EdgeImageProcessor(), tokenizer, Cosmos3EdgeVideoProcessor()).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def edge(edge_path: Path) -> OmniModel:
    return OmniModel.load(find(edge_path), device="cpu")


def test_edge_has_its_own_classes_flags_and_shared_parameters(edge: OmniModel) -> None:
    assert edge.checkpoint.family == "cosmos3_edge"
    assert isinstance(edge.reasoner, Cosmos3EdgeForConditionalGeneration)
    assert edge.pipeline.sound_tokenizer is None
    assert edge.pipeline.config.use_native_flow_schedule is True
    assert_shared(edge)


@pytest.mark.parametrize("kind", ["text", "image", "video"])
def test_edge_reasoner_equals_the_one_loaded_alone(
    edge_path: Path, edge: OmniModel, picture: Image.Image, clip: list[Image.Image], kind: str
) -> None:
    alone = Cosmos3EdgeForConditionalGeneration.from_pretrained(edge_path, dtype=torch.float32).eval()
    inputs = question(edge, picture if kind == "image" else None, clip if kind == "video" else None)
    with edge.head("reasoner"), torch.no_grad():
        ours = edge.reasoner(**inputs).logits
    with torch.no_grad():
        assert torch.equal(ours, alone(**inputs).logits)


def test_edge_generator_equals_the_stock_pipeline(edge_path: Path, edge: OmniModel, picture: Image.Image) -> None:
    reference = Cosmos3OmniPipeline.from_pretrained(edge_path, dtype=torch.float32, enable_safety_checker=False)
    reference.set_progress_bar_config(disable=True)
    inputs = {**SMALL, "num_frames": 5, "image": picture}
    with edge.head("generator"):
        ours = run(edge.pipeline, **inputs)
    assert torch.equal(ours[0], run(reference, **inputs)[0])
