"""The batched forward against the libraries' own forward of each sample."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from diffusers import Cosmos3OmniPipeline, UniPCMultistepScheduler
from PIL import Image
from transformers import (
    AutoImageProcessor,
    Cosmos3OmniForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)
from transformers.video_utils import VideoMetadata

from cosmos_demo.pico.blueprint import IMAGE_PROCESSOR, SCHEDULER, VIDEO_PROCESSOR, Components, reasoner_config
from cosmos_demo.pico.packing import (
    Group,
    GroupedAttention,
    VisionForward,
    forward,
    patch_rows,
    patchify,
    relative_positions,
    unpatchify,
)
from cosmos_demo.pico.tokenizer import CHAT_TEMPLATE

TOLERANCE = {"rtol": 0, "atol": 1e-4}


@pytest.fixture(scope="module")
def pipeline(parts: Components) -> Cosmos3OmniPipeline:
    return Cosmos3OmniPipeline(
        transformer=parts.transformer,
        text_tokenizer=parts.tokenizer,
        vae=parts.vae,
        scheduler=UniPCMultistepScheduler(**SCHEDULER),
        sound_tokenizer=parts.sound,
        enable_safety_checker=False,
    )


def library_forward(pipeline, input_ids, items, conditions, fps, timestep, sound=None, action=None):
    """One sample through the transformer with the pipeline's own segments, as its denoising loop does.

    ``items`` are vision latents in order (controls first), ``conditions`` their clean frames; ``action`` is a triple of
    actions, clean rows and domain.
    """
    text = pipeline._prepare_text_segment(input_ids, "cpu")
    offset, at = text["vision_start_temporal_offset"], text["und_len"]
    segments = []
    for item, clean in zip(items, conditions, strict=True):
        segments.append(
            pipeline._prepare_vision_segment(
                item, bool(clean), offset, fps, at, "cpu", condition_frame_indexes=list(clean)
            )
        )
        at += segments[-1]["num_vision_tokens"]
    positions = [text["text_mrope_ids"], *(segment["vision_mrope_ids"] for segment in segments)]
    extra = {}
    if sound is not None:
        segment = pipeline._prepare_sound_segment(sound, offset, 25.0, at, "cpu")
        at += segment.pop("sound_len")
        positions.append(segment.pop("sound_mrope_ids"))
        extra |= segment | {"sound_tokens": [sound], "sound_timesteps": torch.full((sound.shape[1],), timestep)}
    if action is not None:
        rows, clean, domain = action
        segment = pipeline._prepare_action_segment(rows, clean, offset, fps, at, "cpu")
        at += segment.pop("action_len")
        positions.append(segment.pop("action_mrope_ids"))
        noisy = segment.pop("num_noisy_action_tokens")
        extra |= segment | {
            "action_tokens": [rows],
            "action_timesteps": torch.full((noisy,), timestep),
            "action_domain_ids": [torch.tensor([domain])],
        }
    with torch.no_grad():
        return pipeline.transformer(
            input_ids=text["input_ids"],
            text_indexes=text["text_indexes"],
            und_len=text["und_len"],
            position_ids=torch.cat(positions, dim=1),
            sequence_length=at,
            vision_tokens=items,
            vision_token_shapes=[shape for segment in segments for shape in segment["vision_token_shapes"]],
            vision_sequence_indexes=torch.cat([segment["vision_sequence_indexes"] for segment in segments]),
            vision_mse_loss_indexes=torch.cat([segment["vision_mse_loss_indexes"] for segment in segments]),
            vision_timesteps=torch.full((sum(s["num_noisy_vision_tokens"] for s in segments),), timestep),
            vision_noisy_frame_indexes=[index for s in segments for index in s["vision_noisy_frame_indexes"]],
            **extra,
        )


def batched_forward(parts: Components, groups):
    """Our forward with our processor, which is taken off again so that the library's own stays in force elsewhere."""
    before = parts.transformer.attn_processors
    parts.transformer.set_attn_processor(GroupedAttention())
    try:
        with torch.no_grad():
            return forward(parts.transformer, {(12, 20): VisionForward(parts.vision, (12, 20))}, groups)
    finally:
        parts.transformer.set_attn_processor(before)


def padded(rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(map(len, rows)) + 3
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    for row, tokens in zip(ids, rows, strict=True):
        row[: len(tokens)] = torch.tensor(tokens)
    return ids, torch.tensor([len(tokens) for tokens in rows])


def prompts(pipeline, texts: list[str], **size) -> list[list[int]]:
    return [pipeline.tokenize_prompt(text, **size)[0] for text in texts]


def test_pictures_and_videos_of_every_mode_in_one_pass(parts, pipeline):
    torch.manual_seed(1)
    image_ids = prompts(pipeline, ["a red ball", "two blue cubes on a table"], num_frames=1, height=192, width=320)
    images = torch.randn(2, 48, 1, 12, 20)
    image_times = torch.tensor([900.0, 130.0])

    video_ids = prompts(pipeline, ["it falls", "a ball rolls", "stop"], num_frames=9, height=192, width=320, fps=10)
    videos, sounds = torch.randn(3, 48, 3, 12, 20), torch.randn(3, 32, 23)
    clean = [(), (0,), (0, 1)]
    with_sound = torch.tensor([True, False, True])
    video_times = torch.tensor([999.0, 500.0, 20.0])

    action_ids = [
        pipeline.tokenize_prompt(
            "pan", num_frames=9, height=192, width=320, fps=10, use_system_prompt=False,
            action_mode="policy", action_view_point="ego_view",
        )[0]
    ] * 2  # fmt: skip
    rollouts, actions = torch.randn(2, 48, 3, 12, 20), torch.randn(2, 8, 64)
    action_times = torch.tensor([700.0, 250.0])

    control_ids = prompts(pipeline, ["transfer"], num_frames=5, height=192, width=320, fps=10)
    control, target = torch.randn(1, 48, 2, 12, 20), torch.randn(1, 48, 2, 12, 20)

    noisy = torch.tensor([[1.0, 1, 1], [0, 1, 1], [0, 0, 1]])
    groups = [
        Group(
            *padded(image_ids),
            vision=images,
            vision_noisy=torch.ones(2, 1),
            vision_positions=relative_positions(1, 6, 10, 24, temporal_factor=4),
            timesteps=image_times,
        ),
        Group(
            *padded(video_ids),
            vision=videos,
            vision_noisy=noisy,
            vision_positions=relative_positions(3, 6, 10, 10, temporal_factor=4),
            sound=sounds.transpose(1, 2),
            sound_present=with_sound,
            sound_positions=relative_positions(23, 1, 1, 25, temporal_factor=1, base_factor=1),
            timesteps=video_times,
        ),
        Group(
            *padded(action_ids),
            vision=rollouts,
            vision_noisy=torch.tensor([[0.0, 1, 1], [0, 0, 0]]),
            vision_positions=relative_positions(3, 6, 10, 10, temporal_factor=4),
            action=actions,
            action_noisy=torch.tensor([0.0, 1.0]),
            action_positions=relative_positions(8, 1, 1, 10, temporal_factor=1, first=1),
            domains=torch.tensor([2, 4]),
            timesteps=action_times,
        ),
        Group(
            *padded(control_ids),
            vision=torch.cat([control, target], dim=2),
            vision_noisy=torch.tensor([[0.0, 0, 1, 1]]),
            vision_positions=relative_positions(2, 6, 10, 10, temporal_factor=4).repeat(1, 2),
            timesteps=torch.tensor([333.0]),
        ),
    ]
    image_out, video_out, action_out, control_out = batched_forward(parts, groups)

    for i in range(2):
        want = library_forward(pipeline, image_ids[i], [images[i : i + 1]], [()], None, float(image_times[i]))
        torch.testing.assert_close(image_out.vision[i], want.sample[0][0], **TOLERANCE)
    for i in range(3):
        sound = sounds[i] if with_sound[i] else None
        want = library_forward(
            pipeline, video_ids[i], [videos[i : i + 1]], [clean[i]], 10, float(video_times[i]), sound=sound
        )
        got = video_out.vision[i] * noisy[i][None, :, None, None]
        torch.testing.assert_close(got, want.sample[0][0], **TOLERANCE)
        if sound is not None:
            torch.testing.assert_close(video_out.sound[i].T, want.sound[0], **TOLERANCE)
    forward_dynamics = library_forward(
        pipeline, action_ids[0], [rollouts[:1]], [(0,)], 10, 700.0, action=(actions[0], list(range(8)), 2)
    )
    torch.testing.assert_close(action_out.vision[0, :, 1:], forward_dynamics.sample[0][0, :, 1:], **TOLERANCE)
    inverse_dynamics = library_forward(
        pipeline, action_ids[1], [rollouts[1:]], [(0, 1, 2)], 10, 250.0, action=(actions[1], [], 4)
    )
    torch.testing.assert_close(action_out.action[1], inverse_dynamics.action[0], **TOLERANCE)
    transfer = library_forward(pipeline, control_ids[0], [control, target], [(0, 1), ()], 10, 333.0)
    torch.testing.assert_close(control_out.vision[0, :, 2:], transfer.sample[1][0], **TOLERANCE)


@pytest.fixture(scope="module")
def reasoner(parts: Components) -> Cosmos3OmniForConditionalGeneration:
    model = Cosmos3OmniForConditionalGeneration(reasoner_config(parts.tokenizer)).float().eval()
    renames = {"to_q": "q_proj", "to_k": "k_proj", "to_v": "v_proj", "to_out": "o_proj", "norm_q": "q_norm"}
    renames |= {"norm_k": "k_norm"}
    weights = {f"model.visual.{name}": value for name, value in parts.vision.state_dict().items()}
    for name, value in parts.transformer.state_dict().items():
        name = ".".join(renames.get(part, part) for part in name.split("."))
        weights[name if name.startswith("lm_head") else f"model.language_model.{name}"] = value
    missing, _ = model.load_state_dict(weights, strict=False)
    assert not missing
    return model


@pytest.fixture(scope="module")
def processor(parts: Components, tmp_path_factory) -> Qwen3VLProcessor:
    folder = tmp_path_factory.mktemp("image-processor")
    (folder / "preprocessor_config.json").write_text(json.dumps(IMAGE_PROCESSOR))
    video = {key: value for key, value in VIDEO_PROCESSOR.items() if not key.endswith(("_type", "_class"))}
    return Qwen3VLProcessor(
        image_processor=AutoImageProcessor.from_pretrained(folder),
        tokenizer=parts.tokenizer,
        video_processor=Qwen3VLVideoProcessor(**video),
        chat_template=CHAT_TEMPLATE,
    )


def chat(processor, media: dict, question: str, **extra):
    messages = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": [media, {"type": "text", "text": question}]},
    ]
    return processor.apply_chat_template(
        messages, tokenize=True, add_generation_prompt=True, return_dict=True, return_tensors="pt", **extra
    )


def question_group(reasoner, encodings, pictures) -> Group:
    """Encodings of one kind as a group; ``pictures`` are the frame pairs ``[B, N, 2, 3, H, W]``."""
    ids, lengths = padded([list(encoding["input_ids"][0]) for encoding in encodings])
    positions = torch.zeros(3, *ids.shape)
    slots = []
    for row, encoding in enumerate(encodings):
        grids = {name: encoding[name] for name in ("image_grid_thw", "video_grid_thw") if name in encoding}
        places, _ = reasoner.model.get_rope_index(
            encoding["input_ids"], mm_token_type_ids=encoding["mm_token_type_ids"], **grids
        )
        positions[:, row, : lengths[row]] = places[:, 0].float()
        slots.append(row * ids.shape[1] + encoding["mm_token_type_ids"][0].nonzero()[:, 0])
    return Group(
        ids,
        lengths,
        text_positions=positions,
        frames=patch_rows(pictures.flatten(0, 1)),
        frame_grid=(12, 20),
        frame_slots=torch.cat(slots),
    )


def test_questions_about_pictures_and_videos_in_one_pass(parts, reasoner, processor):
    random = np.random.default_rng(0)
    stills = [random.integers(0, 256, (192, 320, 3), dtype=np.uint8) for _ in range(2)]
    questions = ["How many balls?", "Where is the red cube? Think first."]
    picture_rows = [
        chat(processor, {"type": "image", "image": Image.fromarray(still)}, question)
        for still, question in zip(stills, questions, strict=True)
    ]
    clip = random.integers(0, 256, (4, 192, 320, 3), dtype=np.uint8)
    metadata = VideoMetadata(total_num_frames=4, fps=10, frames_indices=list(range(4)))
    video_row = chat(
        processor,
        {"type": "video", "video": [Image.fromarray(frame) for frame in clip]},
        "What happens?",
        processor_kwargs={"do_sample_frames": False, "video_metadata": [[metadata]]},
    )

    def pixels(frames):
        return torch.from_numpy(np.stack(frames)).permute(0, 3, 1, 2).float() / 127.5 - 1

    still_pairs = pixels(stills)[:, None, None].expand(-1, 1, 2, -1, -1, -1)
    clip_pairs = pixels(clip).view(1, 2, 2, 3, 192, 320)
    torch.testing.assert_close(
        patch_rows(still_pairs.flatten(0, 1))[0], picture_rows[0]["pixel_values"], rtol=0, atol=1e-6
    )
    torch.testing.assert_close(
        patch_rows(clip_pairs[0]).flatten(0, 1), video_row["pixel_values_videos"], rtol=0, atol=1e-6
    )

    groups = [
        question_group(reasoner, picture_rows, still_pairs),
        question_group(reasoner, [video_row], clip_pairs),
    ]
    got = batched_forward(parts, groups)
    for prediction, rows in zip(got, (picture_rows, [video_row]), strict=True):
        for row, encoding in enumerate(rows):
            with torch.no_grad():
                want = reasoner(**encoding).logits[0]
                logits = parts.transformer.lm_head(prediction.text[row, : want.shape[0]])
            torch.testing.assert_close(logits, want, **TOLERANCE)


def test_patchify_round_trip():
    latents = torch.randn(2, 48, 3, 12, 20)
    assert torch.equal(unpatchify(patchify(latents), 3, 12, 20), latents)
