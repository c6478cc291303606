"""Cosmos3-Pico's tokenizer: byte-level BPE of the Qwen kind, trained on Pico's own sentences.

Every byte has a token, so any text can be encoded; digits are always single tokens, so coordinates and times are
spelled digit by digit. Special tokens and chat template have the Qwen3-VL form that the Cosmos 3 code relies on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import Qwen2Tokenizer
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

VOCAB_SIZE = 1024
"""Rows of the embedding; the tokenizer may use a few less, as in the published checkpoints."""

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
PLAIN_TOKENS = ("<think>", "</think>", "<answer>", "</answer>")
"""Single tokens that stay in the text when special tokens are skipped."""

CHAT_TEMPLATE = """\
{%- set seen = namespace(images=0, videos=0) -%}
{%- macro spell(content) -%}
  {%- if content is string -%}
    {{- content -}}
  {%- else -%}
    {%- for part in content -%}
      {%- if part.type in ('image', 'image_url') or 'image' in part or 'image_url' in part -%}
        {%- set seen.images = seen.images + 1 -%}
        {%- if add_vision_id -%}{{- 'Picture ' ~ seen.images ~ ': ' -}}{%- endif -%}
        {{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
      {%- elif part.type in ('video', 'video_url') or 'video' in part or 'video_url' in part -%}
        {%- set seen.videos = seen.videos + 1 -%}
        {%- if add_vision_id -%}{{- 'Video ' ~ seen.videos ~ ': ' -}}{%- endif -%}
        {{- '<|vision_start|><|video_pad|><|vision_end|>' -}}
      {%- elif 'text' in part -%}
        {{- part.text -}}
      {%- endif -%}
    {%- endfor -%}
  {%- endif -%}
{%- endmacro -%}
{%- for message in messages -%}
  {{- '<|im_start|>' ~ message.role ~ '\\n' ~ spell(message.content) ~ '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""

GENERAL_ENGLISH = """\
The sun comes up over the hills and the day begins. People walk to work, children play in the garden, and a dog runs
after a ball. How many things can you see? What is on the left, what is on the right, and what is in the middle? Where
is it, which one is it, who is there, when does it start and why does it happen? Please describe the scene in detail.
Yes, there is one. No, there is not. It looks like a small object of a single colour resting on a plain surface. A
bright light shines from above and throws a soft shadow below. First it moves slowly, then it falls faster, touches the
floor, bounces back up and finally comes to rest. Something else rolls along, hits the wall and turns around. Both of
them stop after a short while. Nothing disappears and nothing appears out of thin air, because things keep their shape
and place when nobody looks. If it stood still for a second, we would know that the video is not real. Think about
every object before you answer. I can see two of them near each other, one behind the other, far from the edge. The
larger one is in front of the smaller one. Between them there is some empty space. Above the table hangs a lamp, under
the table sleeps a cat. The camera moves to the left, to the right, up and down, closer and further away. In this
picture the background is light grey, while the foreground is dark. Water flows in the river, wind blows through the
trees, cars drive on the road, a robot arm picks up a cup and puts it on the plate. Write a short story, make a list,
count to ten: zero, one, two, three, four, five, six, seven, eight, nine, ten. Many colours exist: red, orange, yellow,
green, blue, purple, pink, brown, black, white, grey, gray, cyan, magenta. Shapes have names as well: ball, sphere,
circle, cube, box, square, block, pyramid, triangle, cone, cylinder, ring, star. Big, large, huge, tiny, small, little,
tall, wide, thin, round, flat, heavy, quick, quiet, loud, low, high. Locate the accurate bounding box of the object and
return it as JSON. Point to the object and return JSON. List all events with start, end and caption; give the times in
seconds or as minutes and seconds. What happened between those times? Is this video physically possible? Answer with
(A) Possible or (B) Impossible. You are a helpful assistant. Explain your answer and say what will happen next.
"""

PROMPT_FORMS = (
    "You are a helpful assistant.",
    "You are a helpful assistant who will generate images from a give prompt.",
    "You are a helpful assistant who will generate videos from a give prompt.",
    "The video is 1.7 seconds long and is of 10 FPS. The video is not 1.7 seconds long and is not of 24 FPS.",
    "This image is of 192x320 resolution. This video is of 192x320 resolution.",
    "This image is not of 192x320 resolution. This video is not of 192x320 resolution.",
    '{"cinematography": {"framing": "This video is captured from a first-person perspective looking at the scene."}, '
    '"actions": [{"time": "0:00-0:02", "description": "The camera moves."}], "duration": "1s", "fps": 10.0, '
    '"resolution": {"H": 192, "W": 320}, "aspect_ratio": "16,9"}',
    '[{"bbox_2d": [214, 141, 497, 722], "label": "red ball"}]',
    '[{"point_2d": [713, 680], "label": "gripper trajectory"}]',
    '[{"start": 0.1, "end": 2.7, "caption": "The ball bounces."}]',
    '[{"start": "00:00.10", "end": "00:05.70", "caption": "The cube falls."}]',
    '[{"subject_id": "2", "category": "cube", "caption": "A blue cube."}]',
    "```json\n[]\n```",
    "<0.1 seconds><0.2 seconds>",
    "Answer the question in the following format: <think>\nyour reasoning\n</think>\n\nyour answer.",
)


def train_tokenizer(sentences: Iterable[str] = ()) -> Qwen2Tokenizer:
    """Train the tokenizer; the same sentences give the same tokenizer.

    Args:
        sentences: Text of the world to learn words from, beside the general text kept in this file.

    Returns:
        A tokenizer with at most :data:`VOCAB_SIZE` tokens, eos ``<|im_end|>``, pad ``<|endoftext|>``.
    """
    corpus = [*GENERAL_ENGLISH.splitlines(), *PROMPT_FORMS, *sentences]
    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.NFC()
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - len(SPECIAL_TOKENS) - len(PLAIN_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(corpus, trainer)
    learnt = json.loads(bpe.to_str())["model"]
    tokenizer = Qwen2Tokenizer(
        vocab=learnt["vocab"],
        merges=[tuple(merge) for merge in learnt["merges"]],
        unk_token=None,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=32768,
        additional_special_tokens=list(SPECIAL_TOKENS),
    )
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in PLAIN_TOKENS])
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def save_tokenizer(tokenizer: Qwen2Tokenizer, folder: Path) -> None:
    """Write the tokenizer's files: fast form, the older ``vocab.json`` and ``merges.txt``, and both template files."""
    tokenizer.save_pretrained(folder)
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": CHAT_TEMPLATE}, indent=1))
    bpe = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    (folder / "vocab.json").write_text(json.dumps(bpe["vocab"], ensure_ascii=False))
    merges = "\n".join(" ".join(merge) for merge in bpe["merges"])
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}\n")
