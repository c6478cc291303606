"""The Reasoner at work: from a checked question to a stream of text and a typed answer."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

import torch
from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedTokenizerBase
from transformers.generation.streamers import BaseStreamer

from cosmos_demo.errors import RequestError
from cosmos_demo.events import Answered, Phase, Token
from cosmos_demo.omni import OmniModel
from cosmos_demo.reasoner.answers import Parts, typed
from cosmos_demo.reasoner.messages import Conversation, conversation, metadata
from cosmos_demo.reasoner.tasks import DIRECT, THINKING
from cosmos_demo.records import new_record
from cosmos_demo.requests import AnswerRequest
from cosmos_demo.turns import Emit

_LONGEST_CHARACTER = 8
"""Tokens after which bytes that form no character are shown as they are."""


@torch.inference_mode()
def answer(model: OmniModel, request: AnswerRequest, emit: Emit) -> Answered:
    """Answer a resolved request.

    Args:
        model: Its head must be ``reasoner`` now (`OmniModel.head`).
        request: From `validate.resolve`.
        emit: Told `Phase` while the media are read, then a `Token` for each piece of text. When it raises, the
            generation ends within one token and the exception passes through.

    Raises:
        RequestError: when question, media and answer are longer than the model's context.
    """
    emit(Phase("encoding"))
    start = time.perf_counter()
    asked = conversation(request)
    inputs = model_inputs(model, asked)
    prompt_tokens = inputs["input_ids"].shape[1]
    _check_length(model, request, prompt_tokens)
    stops = _stops(model)
    stream = _Stream(model.processor.tokenizer, stops, emit)
    preset = THINKING if request.reasoning else DIRECT
    presence_penalty = preset.presence_penalty if request.temperature else 0.0
    sampling: dict[str, Any] = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
    if request.temperature:
        sampling = {"do_sample": True, **{key: getattr(request, key) for key in ("temperature", "top_p", "top_k")}}
    encoded = time.perf_counter()
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()), device_type="cuda"):
        torch.manual_seed(request.seed)
        model.reasoner.generate(
            **inputs,
            max_new_tokens=request.max_new_tokens,
            eos_token_id=stops,
            repetition_penalty=preset.repetition_penalty,
            logits_processor=LogitsProcessorList([PresencePenalty(presence_penalty, prompt_tokens)]),
            streamer=stream,
            **sampling,
        )
    ended = time.perf_counter()
    record = new_record(
        "reasoner",
        request,
        model.checkpoint.name,
        request.seed,
        {
            "encoding": encoded - start,
            "first_token": (stream.first or ended) - start,
            "total": ended - start,
        },
        {
            "prompt": asked.prompt,
            "prompt_tokens": prompt_tokens,
            "new_tokens": stream.count,
            "tokens_per_second": round(stream.count / (ended - encoded), 2),
            "presence_penalty": presence_penalty,
            "repetition_penalty": preset.repetition_penalty,
        },
    )
    return typed(request.task, stream.text, record, tokens=stream.count, ended=stream.ended)


def model_inputs(model: OmniModel, asked: Conversation) -> dict[str, torch.Tensor]:
    """Token ids, media patches and everything else ``generate`` needs, on the model's device."""
    text = model.processor.apply_chat_template(asked.messages, tokenize=False, add_generation_prompt=True)
    inputs = model.processor(
        text=[text],
        images=asked.images or None,
        videos=[list(clip.frames) for clip in asked.clips] or None,
        video_metadata=[metadata(clip) for clip in asked.clips] or None,
        do_sample_frames=False,
        return_metadata=True,  # Edge's processor reads the times from there, and drops them otherwise
        return_tensors="pt",
        return_mm_token_type_ids=True,
    )
    result = {name: value.to(model.device) for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    for name in ("pixel_values", "pixel_values_videos"):
        if name in result:
            result[name] = result[name].to(model.dtype)
    return result


def _check_length(model: OmniModel, request: AnswerRequest, prompt_tokens: int) -> None:
    """Refuse what is longer than the positions that the model knows, before any network runs."""
    room = model.reasoner.config.get_text_config().max_position_embeddings
    if prompt_tokens + request.max_new_tokens > room:
        raise RequestError(
            "history" if request.history else "prompt",
            f"with its media it has {prompt_tokens} tokens, and {request.max_new_tokens} are asked for; "
            f"{model.capabilities.checkpoint} has room for {room}. "
            + ("Start a new conversation." if request.history else "Shorten it, or give fewer pictures or frames."),
        )


def _stops(model: OmniModel) -> list[int]:
    """Tokens that end an answer, as the checkpoint says, and the tokenizer's own."""
    configured = model.reasoner.generation_config.eos_token_id
    stops = configured if isinstance(configured, list) else [configured]
    return list({*stops, model.processor.tokenizer.eos_token_id} - {None})


class PresencePenalty(LogitsProcessor):
    """Lowers the logits of tokens already written in this answer, each by the same amount however often it came."""

    def __init__(self, penalty: float, prompt_tokens: int) -> None:
        self.penalty = penalty
        self.prompt_tokens = prompt_tokens

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Penalise: ``input_ids`` ``[B, L]`` and ``scores`` ``[B, V]``."""
        written = torch.zeros_like(scores, dtype=torch.bool).scatter(1, input_ids[:, self.prompt_tokens :], True)
        return torch.where(written, scores - self.penalty, scores)


class _Stream(BaseStreamer):
    """Turns tokens into text as they come: whole characters only, tags taken out, thinking told apart."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stops: Collection[int], emit: Emit) -> None:
        self.text = ""
        self.count = 0
        self.first: float | None = None
        self.ended = False
        self._tokenizer = tokenizer
        self._emit = emit
        self._stops = stops
        self._pending: list[int] = []
        self._parts = Parts()
        self._prompt_seen = False

    def put(self, value: torch.Tensor) -> None:
        if not self._prompt_seen:
            self._prompt_seen = True
            return
        token = int(value.reshape(-1)[-1])
        self.count += 1
        self.first = self.first or time.perf_counter()
        if token in self._stops:
            self.ended = True
            return
        self._pending.append(token)
        piece = self._tokenizer.decode(self._pending, skip_special_tokens=True)
        if piece.endswith("\ufffd") and len(self._pending) < _LONGEST_CHARACTER:
            self._say("")
        else:
            self._pending = []
            self._say(piece)

    def end(self) -> None:
        self._say(self._tokenizer.decode(self._pending, skip_special_tokens=True))
        for text, thinking in self._parts.rest():
            self._emit(Token(text, thinking))

    def _say(self, piece: str) -> None:
        """Pass on text; an empty piece still lets a stopped run end here."""
        self.text += piece
        said = False
        for text, thinking in self._parts.push(piece):
            self._emit(Token(text, thinking))
            said = True
        if not said:
            self._emit(Token("", self._parts.thinking))
