"""The written checkpoint: loads in both libraries, keeps to the size limits, and its tokenizer spells anything."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from diffusers import Cosmos3OmniPipeline
from PIL import Image
from safetensors import safe_open
from transformers import AutoProcessor, Cosmos3OmniForConditionalGeneration

from cosmos_demo.pico.blueprint import Components, write_checkpoint


@pytest.fixture(scope="module")
def folder(parts: Components, tmp_path_factory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("pico"), parts)


def test_files_fit_a_space_without_lfs(folder):
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    assert max(sizes) < 10_000_000
    assert sum(sizes) < 62_500_000


def test_both_libraries_read_the_same_understanding_tensors(folder, parts):
    pipeline = Cosmos3OmniPipeline.from_pretrained(folder, dtype=torch.bfloat16)
    reasoner, report = Cosmos3OmniForConditionalGeneration.from_pretrained(
        folder, dtype=torch.bfloat16, output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    generator = pipeline.transformer
    assert torch.equal(reasoner.lm_head.weight, generator.lm_head.weight)
    for ours, theirs in zip(reasoner.model.language_model.layers, generator.layers, strict=True):
        assert torch.equal(ours.self_attn.q_proj.weight, theirs.self_attn.to_q.weight)
        assert torch.equal(ours.mlp.down_proj.weight, theirs.mlp.down_proj.weight)
    kept = parts.transformer.layers[3].self_attn.to_q.weight.to(torch.bfloat16)
    assert torch.equal(generator.layers[3].self_attn.to_q.weight, kept)
    merger = parts.vision.merger.linear_fc1.weight.to(torch.bfloat16)
    assert torch.equal(reasoner.model.visual.merger.linear_fc1.weight, merger)
    assert generator.time_embedder.linear_1.weight.dtype == torch.float32


def test_writing_leaves_the_training_weights_untouched(folder, parts):
    assert parts.transformer.layers[0].mlp.up_proj.weight.dtype == torch.float32
    rounded = parts.transformer.layers[0].mlp.up_proj.weight.bfloat16().float()
    assert not torch.equal(parts.transformer.layers[0].mlp.up_proj.weight, rounded)


def test_only_the_time_embedder_is_stored_in_float32(folder):
    for path in folder.rglob("*.safetensors"):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118
                expected = "F32" if name.startswith("time_embedder") else "BF16"
                assert file.get_slice(name).get_dtype() == expected, name


def test_a_native_picture_becomes_sixty_visual_tokens(folder):
    processor = AutoProcessor.from_pretrained(folder)
    for size, tokens in (((320, 192), 60), ((1280, 768), 60)):
        content = [{"type": "image", "image": Image.new("RGB", size)}, {"type": "text", "text": "What?"}]
        row = processor.apply_chat_template(
            [{"role": "user", "content": content}], tokenize=True, return_dict=True, return_tensors="pt"
        )
        assert int(row["mm_token_type_ids"].sum()) == tokens, size


def test_any_text_survives_and_digits_stand_alone(parts):
    tokenizer = parts.tokenizer
    for text in ("[214, 141]", "日本 ∂ 🎲\n\tÄ", '{"a": "b"}', "<think>\nso\n</think>\n\nyes", " \x00\x7f"):
        assert tokenizer.decode(tokenizer(text).input_ids) == text
    assert tokenizer.tokenize("2.14") == ["2", ".", "1", "4"]


def test_chat_template(parts):
    media = [{"type": "image"}, {"type": "image"}, {"type": "video"}, {"type": "text", "text": "Why?"}]
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": media},
        {"role": "assistant", "content": "So."},
    ]
    plain = parts.tokenizer.apply_chat_template(messages, tokenize=False)
    picture, video = "<|vision_start|><|image_pad|><|vision_end|>", "<|vision_start|><|video_pad|><|vision_end|>"
    assert plain == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        f"<|im_start|>user\n{picture}{picture}{video}Why?<|im_end|>\n"
        "<|im_start|>assistant\nSo.<|im_end|>\n"
    )
    counted = parts.tokenizer.apply_chat_template(
        messages[1:2], tokenize=False, add_vision_id=True, add_generation_prompt=True
    )
    assert counted == (
        f"<|im_start|>user\nPicture 1: {picture}Picture 2: {picture}Video 1: {video}Why?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
