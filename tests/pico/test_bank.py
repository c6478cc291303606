"""The bank: token rows are those of the libraries' own processors, worlds are the same at every call."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from diffusers import Cosmos3OmniPipeline, UniPCMultistepScheduler
from PIL import Image
from transformers import AutoProcessor
from transformers.video_utils import VideoMetadata

from cosmos_demo.pico.bank import (
    FPS,
    QUESTION_FRAMES,
    Amounts,
    Writer,
    blurred,
    draw_worlds,
    edges,
    gather_rows,
    sound_of,
    word_chunk,
)
from cosmos_demo.pico.blueprint import SCHEDULER, SOUND_HOP, Components, write_checkpoint


@pytest.fixture(scope="module")
def write(parts: Components) -> Writer:
    scheduler = UniPCMultistepScheduler(**SCHEDULER)
    return Writer(
        Cosmos3OmniPipeline(
            parts.transformer, parts.tokenizer, parts.vae, scheduler, parts.sound, enable_safety_checker=False
        )
    )


@pytest.fixture(scope="module")
def processor(parts: Components, tmp_path_factory):
    return AutoProcessor.from_pretrained(write_checkpoint(tmp_path_factory.mktemp("pico"), parts))


@pytest.mark.parametrize("video", [False, True], ids=["picture", "video"])
def test_question_rows_are_what_the_processor_makes(write, processor, video):
    blank = Image.new("RGB", (320, 192))
    media = {"type": "video", "video": [blank] * QUESTION_FRAMES} if video else {"type": "image", "image": blank}
    metadata = VideoMetadata(total_num_frames=QUESTION_FRAMES, fps=FPS, frames_indices=list(range(QUESTION_FRAMES)))
    extra = {"do_sample_frames": False, "video_metadata": [[metadata]]} if video else {}
    messages = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": [media, {"type": "text", "text": "Where is the red ball?"}]},
    ]
    want = processor.apply_chat_template(
        messages, tokenize=True, add_generation_prompt=True, return_dict=True, processor_kwargs=extra
    )["input_ids"][0]
    ids, start = write.question("Where is the red ball?", "On the left.", video)
    assert ids[:start] == list(want)
    assert write.tokenizer.decode(ids[start:]) == "On the left.<|im_end|>"


def test_rows_of_a_chunk_hold_prompts_and_questions_about_it(write):
    amounts = Amounts(1, 1, 1, 1, 1, 1, prompts_each=2, short_each=3, long_each=1, video_each=1)
    found = word_chunk("still", 5, 0, 4, amounts, write)
    rows = gather_rows("short", [(100, found)], write, torch.device("cpu"))
    assert rows.owners.tolist() == [100, 100, 100, 101, 101, 101, 102, 102, 102, 103, 103, 103]
    for ids, length, start in zip(rows.ids, rows.lengths, rows.starts, strict=True):
        question = write.tokenizer.decode(ids[:start])
        assert question.endswith("<|im_end|>\n<|im_start|>assistant\n")
        assert write.tokenizer.decode(ids[start:length]).endswith("<|im_end|>")
        assert not ids[length:].any()
    assert (rows.ids[:, rows.media_slots] == write.tokenizer.convert_tokens_to_ids("<|image_pad|>")).all()

    prompts = gather_rows("still", [(0, found)], write, torch.device("cpu"))
    empty = write.tokenizer.decode(prompts.empty_ids[: prompts.empty_length])
    assert "\nThis image is not of 192x320 resolution.<|im_end|>" in empty
    assert "This image is of 192x320 resolution." in write.tokenizer.decode(prompts.ids[0])


def test_worlds_are_the_same_at_every_call_and_differ_between_chunks():
    first, again, other = (draw_worlds("clip", 3, chunk, 4)[0] for chunk in (0, 0, 1))
    assert torch.equal(first.x, again.x)
    assert not torch.equal(first.x, other.x)


def test_sound_is_whole_latents_of_the_pipelines_count():
    wave = sound_of(draw_worlds("clip", 3, 0, 2)[0])
    assert wave.shape == (2, 2, 43 * SOUND_HOP)


def test_edges_mark_a_step_once_and_blur_keeps_the_mean():
    clip = torch.zeros(1, 2, 32, 32, 3, dtype=torch.uint8)
    clip[..., 16:, :] = 200
    found = edges(clip)
    assert found.shape == clip.shape
    assert (found[0, 0, 8, :, 0] > 0).sum() == 1
    assert np.flatnonzero(found[0, 0, 8, :, 0].numpy())[0] in (15, 16)
    assert abs(blurred(clip).float().mean() - clip.float().mean()) < 2
