"""The shape of Cosmos3-Pico: every component's configuration, and the hub layout of the checkpoint.

Pico has the layout and the classes of ``nvidia/Cosmos3-Nano``, only smaller. ``build`` writes it with random weights;
``write_checkpoint`` writes given weights, which is what training ends with.
"""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from diffusers import (
    AutoencoderKLWan,
    Cosmos3AVAEAudioTokenizer,
    Cosmos3OmniPipeline,
    Cosmos3OmniTransformer,
    ModelMixin,
    UniPCMultistepScheduler,
)
from safetensors.torch import save_file
from transformers import (
    Cosmos3OmniConfig,
    GenerationConfig,
    Qwen2Tokenizer,
    Qwen3VLVisionConfig,
    Qwen3VLVisionModel,
)

from cosmos_demo.pico import language, world
from cosmos_demo.pico.tokenizer import VOCAB_SIZE, save_tokenizer, train_tokenizer

SHARD_BYTES = 9_000_000
"""Largest weight file; a Space takes files below 10 MB without LFS."""

HIDDEN_SIZE = 384
MROPE_SECTION = [12, 10, 10]
ROPE_THETA = 5_000_000.0
SOUND_DIM = 32
SOUND_HOP = 640
SOUND_RATE = 16_000

TRANSFORMER = {
    "hidden_size": HIDDEN_SIZE,
    "intermediate_size": 704,
    "num_hidden_layers": 8,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": VOCAB_SIZE,
    "rms_norm_eps": 1e-6,
    "rope_theta": ROPE_THETA,
    "rope_scaling": {"mrope_interleaved": True, "mrope_section": MROPE_SECTION, "rope_type": "default"},
    "latent_channel": 48,
    "latent_patch_size": 2,
    "patch_latent_dim": 192,
    "base_fps": 24,
    "enable_fps_modulation": True,
    "unified_3d_mrope_reset_spatial_ids": True,
    "unified_3d_mrope_temporal_modality_margin": 15000,
    "timestep_scale": 0.001,
    "action_gen": True,
    "action_dim": 64,
    "num_embodiment_domains": 32,
    "sound_gen": True,
    "sound_dim": SOUND_DIM,
    "sound_latent_fps": SOUND_RATE / SOUND_HOP,
}

VAE = {
    "base_dim": 16,
    "decoder_base_dim": 24,
    "z_dim": 48,
    "dim_mult": [1, 2, 4, 4],
    "num_res_blocks": 1,
    "temperal_downsample": [False, True, True],
    "is_residual": True,
    "in_channels": 12,
    "out_channels": 12,
    "patch_size": 2,
    "scale_factor_temporal": 4,
    "scale_factor_spatial": 16,
    "latents_mean": [0.0] * 48,
    "latents_std": [1.0] * 48,
}

SOUND_TOKENIZER = {
    "sampling_rate": SOUND_RATE,
    "hop_size": SOUND_HOP,
    "stereo": True,
    # Loudness tells how hard an impact was, so it must survive encoding.
    "normalize_volume": False,
    "vocoder_input_dim": SOUND_DIM,
    "dec_dim": 24,
    "dec_c_mults": [1, 2, 4, 8],
    "dec_strides": [4, 4, 5, 8],
    "dec_out_channels": 2,
    "enc_dim": 32,
    "enc_num_blocks": 1,
    "enc_n_fft": 64,
    "enc_hop_length": 16,
    "enc_latent_dim": 2 * SOUND_DIM,
    "enc_c_mults": [1, 2, 4],
    "enc_strides": [2, 4, 5],
}

SCHEDULER = {
    "num_train_timesteps": 1000,
    "prediction_type": "flow_prediction",
    "use_flow_sigmas": True,
    "use_karras_sigmas": True,
    "sigma_max": 200.0,
    "sigma_min": 0.147,
    "flow_shift": 1.0,
    "solver_order": 2,
    "solver_type": "bh2",
    "final_sigmas_type": "zero",
}

VISION = {
    "depth": 4,
    "hidden_size": 128,
    "intermediate_size": 448,
    "num_heads": 4,
    "patch_size": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "out_hidden_size": HIDDEN_SIZE,
    "num_position_embeddings": 400,
    "deepstack_visual_indexes": [1],
}

IMAGE_PROCESSOR = {
    "image_processor_type": "Qwen2VLImageProcessorFast",
    "processor_class": "Qwen3VLProcessor",
    "patch_size": 16,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    # Pixel areas: a 320x192 picture stays as it is, a larger one is scaled down to about 256x256.
    "size": {"shortest_edge": 16_384, "longest_edge": 65_536},
}

VIDEO_PROCESSOR = {
    "video_processor_type": "Qwen3VLVideoProcessor",
    "processor_class": "Qwen3VLProcessor",
    "patch_size": 16,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "fps": 10,
    "min_frames": 4,
    "max_frames": 32,
    # Pixels over all sampled frames: 32 frames of 320x192.
    "size": {"shortest_edge": 16_384, "longest_edge": 32 * 61_440},
    "cap_pixels_per_frame": False,
}


@dataclass
class Components:
    """The networks and the tokenizer that make up one checkpoint."""

    transformer: Cosmos3OmniTransformer
    vision: Qwen3VLVisionModel
    vae: AutoencoderKLWan
    sound: Cosmos3AVAEAudioTokenizer
    tokenizer: Qwen2Tokenizer


def new_components(seed: int, tokenizer: Qwen2Tokenizer | None = None) -> Components:
    """Make all networks with random float32 weights; the same seed gives the same weights.

    Args:
        seed: Seed of torch's global generator, which is used and advanced.
        tokenizer: The tokenizer to go with them; by default one trained on the world's sentences.
    """
    torch.manual_seed(seed)
    transformer = Cosmos3OmniTransformer(**TRANSFORMER)
    _initialise(transformer)
    vision = Qwen3VLVisionModel._from_config(Qwen3VLVisionConfig(**VISION))
    return Components(
        transformer=transformer,
        vision=vision,
        vae=AutoencoderKLWan(**VAE),
        sound=Cosmos3AVAEAudioTokenizer(**SOUND_TOKENIZER),
        tokenizer=tokenizer if tokenizer is not None else train_tokenizer(_world_sentences()),
    )


def read_components(folder: Path) -> Components:
    """Read all networks of a checkpoint that `write_checkpoint` wrote, as float32, and its tokenizer."""
    float32 = {"torch_dtype": torch.float32}
    return Components(
        transformer=Cosmos3OmniTransformer.from_pretrained(folder / "transformer", **float32),
        vision=Qwen3VLVisionModel.from_pretrained(folder / "vision_encoder", dtype=torch.float32),
        vae=AutoencoderKLWan.from_pretrained(folder / "vae", **float32),
        sound=Cosmos3AVAEAudioTokenizer.from_pretrained(folder / "sound_tokenizer", **float32),
        tokenizer=Qwen2Tokenizer.from_pretrained(folder / "text_tokenizer"),
    )


def build(folder: str | Path, seed: int = 0) -> Path:
    """Write an untrained checkpoint.

    Args:
        folder: Where to write; made if missing, weights of an earlier checkpoint there are replaced.
        seed: Seed of the random weights.

    Returns:
        The folder.
    """
    return write_checkpoint(Path(folder), new_components(seed))


def write_checkpoint(folder: Path, parts: Components) -> Path:
    """Write a checkpoint in the hub layout that both diffusers and transformers load.

    Weights are stored as bfloat16 in files of at most :data:`SHARD_BYTES`, except the time embedder, which the library
    keeps in float32.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("transformer", "vae", "sound_tokenizer", "scheduler", "text_tokenizer", "vision_encoder"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for stale in folder.glob("*.safetensors*"):
        stale.unlink()

    pipeline = Cosmos3OmniPipeline(
        transformer=parts.transformer,
        text_tokenizer=parts.tokenizer,
        vae=parts.vae,
        scheduler=UniPCMultistepScheduler(**SCHEDULER),
        sound_tokenizer=parts.sound,
        enable_safety_checker=False,
    )
    for name in ("transformer", "vae", "sound_tokenizer"):
        save_diffusers(pipeline.components[name], folder / name)
    pipeline.scheduler.save_pretrained(folder / "scheduler")
    save_tokenizer(parts.tokenizer, folder / "text_tokenizer")
    save_tokenizer(parts.tokenizer, folder)
    pipeline.save_config(folder)

    vision_folder = folder / "vision_encoder"
    vision_folder.mkdir()
    parts.vision.config.architectures = ["Qwen3VLVisionModel"]
    parts.vision.config.save_pretrained(vision_folder)
    vision_weights = {name: value.to(torch.bfloat16).contiguous() for name, value in parts.vision.state_dict().items()}
    save_file(vision_weights, vision_folder / "model.safetensors", metadata={"format": "pt"})

    config = reasoner_config(parts.tokenizer)
    config.save_pretrained(folder)
    GenerationConfig(
        bos_token_id=parts.tokenizer.pad_token_id,
        pad_token_id=parts.tokenizer.pad_token_id,
        eos_token_id=[parts.tokenizer.eos_token_id, parts.tokenizer.pad_token_id],
        do_sample=True,
        temperature=0.7,
        top_p=0.8,
        top_k=20,
    ).save_pretrained(folder)
    _write_json(folder / "preprocessor_config.json", IMAGE_PROCESSOR)
    _write_json(folder / "video_preprocessor_config.json", VIDEO_PROCESSOR)
    _write_root_index(folder, vision_weights)
    return folder


def reasoner_config(tokenizer: Qwen2Tokenizer) -> Cosmos3OmniConfig:
    """The Reasoner's configuration over the same understanding tensors."""
    text = {
        key: TRANSFORMER[key]
        for key in (
            "hidden_size",
            "intermediate_size",
            "num_hidden_layers",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "vocab_size",
            "rms_norm_eps",
        )
    }
    return Cosmos3OmniConfig(
        architectures=["Cosmos3OmniForConditionalGeneration"],
        text_config={
            "model_type": "qwen3_vl_text",
            **text,
            "hidden_act": "silu",
            "attention_bias": False,
            "max_position_embeddings": 32_768,
            "rope_parameters": {**TRANSFORMER["rope_scaling"], "rope_theta": ROPE_THETA},
        },
        vision_config={"model_type": "qwen3_vl_vision", **VISION},
        image_token_id=tokenizer.convert_tokens_to_ids("<|image_pad|>"),
        video_token_id=tokenizer.convert_tokens_to_ids("<|video_pad|>"),
        vision_start_token_id=tokenizer.convert_tokens_to_ids("<|vision_start|>"),
        vision_end_token_id=tokenizer.convert_tokens_to_ids("<|vision_end|>"),
        tie_word_embeddings=False,
        dtype="bfloat16",
    )


def _initialise(transformer: Cosmos3OmniTransformer) -> None:
    """Small normal weights, smaller still where a layer writes into the residual stream."""
    depth = transformer.config.num_hidden_layers
    for name, parameter in transformer.named_parameters():
        if name.endswith("bias.weight"):
            torch.nn.init.zeros_(parameter)
        elif parameter.ndim >= 2:
            into_stream = name.endswith(("to_out.weight", "to_add_out.weight", "down_proj.weight"))
            torch.nn.init.normal_(parameter, std=0.02 / (2 * depth) ** 0.5 if into_stream else 0.02)


def save_diffusers(model: ModelMixin, folder: Path) -> None:
    """Write one component, rounded; the model itself may be in the middle of training and is left alone."""
    fp32 = tuple(model._keep_in_fp32_modules or ())
    with torch.device("meta"):
        twin = type(model).from_config(model.config)
    stored = {
        name: value.float() if name.split(".")[0] in fp32 else value.to(torch.bfloat16)
        for name, value in model.state_dict().items()
    }
    twin.load_state_dict(stored, assign=True)
    twin.save_pretrained(folder, max_shard_size=SHARD_BYTES)


def _write_root_index(folder: Path, vision_weights: dict[str, torch.Tensor]) -> None:
    part = json.loads((folder / "transformer" / "diffusion_pytorch_model.safetensors.index.json").read_text())
    weight_map = {name: f"transformer/{file}" for name, file in part["weight_map"].items()}
    weight_map |= dict.fromkeys(vision_weights, "vision_encoder/model.safetensors")
    vision_bytes = sum(value.numel() * value.element_size() for value in vision_weights.values())
    metadata = {"total_size": part["metadata"]["total_size"] + vision_bytes}
    _write_json(folder / "model.safetensors.index.json", {"metadata": metadata, "weight_map": weight_map})


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


def _world_sentences() -> list[str]:
    """Captions, questions and answers about some worlds, for the tokenizer to learn words from."""
    generator, rng = torch.Generator().manual_seed(0), random.Random(0)
    stills = language.scenes(world.sample_stills(1500, generator))
    videos = language.scenes(world.sample_videos(500, 17, 10.0, generator))
    cameras = language.scenes(world.sample_camera(300, 17, 10.0, generator)[0])
    said = [language.caption_image(scene, rng) for scene in stills]
    said += [language.caption_video(scene, rng) for scene in videos]
    said += [language.caption_camera(scene, rng) for scene in cameras]
    for scene in stills:
        said += [*language.asked(scene, rng, language.KINDS, reasoning=0.2)]
    for scene in videos:
        said += [*language.asked(scene, rng, language.VIDEO_KINDS)]
    return said
