"""Answers from the model: equal to plain ``generate``, streamed whole, cancelled cleanly."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import Cosmos3EdgeImageProcessor, Cosmos3EdgeProcessor, Cosmos3EdgeVideoProcessor
from transformers.generation.streamers import BaseStreamer

from cosmos_demo.errors import RequestError
from cosmos_demo.events import Answered, Box, Event, Phase, Token
from cosmos_demo.media import Clip
from cosmos_demo.omni import OmniModel
from cosmos_demo.reasoner import answering
from cosmos_demo.reasoner.answering import PresencePenalty, answer, model_inputs
from cosmos_demo.reasoner.answers import Parts
from cosmos_demo.reasoner.messages import conversation, metadata
from cosmos_demo.reasoner.tasks import prompt_for
from cosmos_demo.reasoner.validate import resolve
from cosmos_demo.requests import AnswerRequest, Turn
from cosmos_demo.turns import Cancelled

PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8))
CLIP = Clip(np.random.default_rng(1).integers(0, 256, (4, 64, 64, 3), dtype=np.uint8), 2.0, 7 + np.arange(4) / 2)
ASK = AnswerRequest("How many objects are there?", images=(PICTURE,), max_new_tokens=12, temperature=0.0, seed=1)


def _ask(model: OmniModel, request: AnswerRequest, emit: Callable[[Event], None] = lambda event: None) -> Answered:
    with model.head("reasoner"):
        return answer(model, resolve(request, model.capabilities), emit)


@pytest.mark.parametrize(
    "request_",
    [ASK, replace(ASK, images=()), replace(ASK, images=(PICTURE, PICTURE)), replace(ASK, images=(), video=CLIP)],
    ids=["picture", "text", "two pictures", "clip"],
)
def test_greedy_answers_equal_plain_generate(model: OmniModel, request_: AnswerRequest):
    ours = _ask(model, request_)
    with model.head("reasoner"):
        inputs = model_inputs(model, conversation(resolve(request_, model.capabilities)))
        tokens = model.reasoner.generate(**inputs, max_new_tokens=12, do_sample=False)
    new = tokens[0, inputs["input_ids"].shape[1] :]
    plain = model.processor.tokenizer.decode(new, skip_special_tokens=True)
    assert " ".join((ours.thinking, ours.text)).strip() == plain.replace("<think>", "").replace("</think>", "").strip()


def _marks(model: OmniModel) -> list[str]:
    """Time marks in the text for `CLIP`, whose frames are at 7, 7.5, 8 and 8.5 seconds."""
    inputs = model_inputs(model, conversation(replace(ASK, images=(), video=CLIP)))
    assert inputs["mm_token_type_ids"].max() == 2
    return re.findall(r"<([\d.]+) seconds>", model.processor.tokenizer.decode(inputs["input_ids"][0]))


def test_time_marks_are_the_clips_own(model: OmniModel):
    assert _marks(model) == ["7.2", "8.2"], "the middle of each pair"


def test_time_marks_of_the_edge_family(model: OmniModel):
    processor = Cosmos3EdgeProcessor(
        Cosmos3EdgeImageProcessor(),
        model.processor.tokenizer,
        Cosmos3EdgeVideoProcessor(),
        model.processor.chat_template,
    )
    edge = SimpleNamespace(processor=processor, device=model.device, dtype=model.dtype)
    assert _marks(edge) == ["7.0", "7.5", "8.0", "8.5"]


def test_tokens_make_up_the_answer(model: OmniModel):
    events: list[Event] = []
    answered = _ask(model, replace(ASK, temperature=0.7), events.append)
    assert events[0] == Phase("encoding")
    streamed = "".join(event.text for event in events if isinstance(event, Token) and not event.thinking)
    assert streamed.strip() == answered.text


def test_same_seed_same_answer_and_the_global_generator_is_untouched(model: OmniModel):
    hot = replace(ASK, temperature=2.0, top_p=1.0, top_k=0)
    before = torch.get_rng_state()
    one, again, other = (_ask(model, replace(hot, seed=seed)).text for seed in (1, 1, 2))
    assert one == again
    assert one != other
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("at", [1, 4])
def test_cancelling_ends_within_a_token_and_the_next_answer_is_the_same(model: OmniModel, at: int):
    expected, told = _ask(model, ASK).text, []

    def stop(event: Event) -> None:
        if isinstance(event, Token):
            told.append(event)
            if len(told) == at:
                raise Cancelled

    with pytest.raises(Cancelled):
        _ask(model, ASK, stop)
    assert len(told) == at
    assert model.active_head is None
    assert _ask(model, ASK).text == expected


def test_a_long_conversation_reads_as_the_library_reads_it(model: OmniModel):
    """Pictures and a clip in earlier turns; the reference gets them in the messages themselves."""
    turns = (
        Turn("What is it?", "Noise.", images=(PICTURE,)),
        *(Turn(f"Number {number}?", "Yes.") for number in range(10)),
        Turn("And the clip?", "More noise.", video=CLIP),
        Turn("Which of these?", "The first.", images=(PICTURE.rotate(90), PICTURE)),
    )
    request = replace(ASK, prompt="And now?", images=(PICTURE.rotate(180),), history=turns)
    messages = [{"role": "system", "content": [{"type": "text", "text": "You are a helpful assistant."}]}]
    for turn in (*turns, Turn("And now?", "", images=request.images)):
        media = [{"type": "image", "image": image} for image in turn.images]
        media += [{"type": "video", "video": turn.video.frames}] if turn.video else []
        messages.append({"role": "user", "content": [*media, {"type": "text", "text": turn.prompt}]})
        messages.append({"role": "assistant", "content": [{"type": "text", "text": turn.answer}]})
    expected = model.processor.apply_chat_template(
        messages[:-1],
        tokenize=True,
        add_generation_prompt=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs={"do_sample_frames": False, "video_metadata": [metadata(CLIP)]},
    )
    ours = model_inputs(model, conversation(request))
    assert ours.keys() == expected.keys()
    assert all(torch.equal(ours[name], expected[name]) for name in ours)
    assert _ask(model, request).record["details"]["prompt_tokens"] == expected["input_ids"].shape[1]


def test_a_cut_answer_is_noted(model: OmniModel):
    answered = _ask(model, replace(ASK, max_new_tokens=1))
    assert "cut off after 1 tokens" in answered.note
    assert answered.record["details"]["new_tokens"] == 1


@pytest.fixture
def says(model: OmniModel, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts words into the model's mouth, up to its stop token."""

    def say(text: str, stop: bool = True) -> None:
        tokenizer = model.processor.tokenizer
        tokens = tokenizer.encode(text, add_special_tokens=False) + [tokenizer.eos_token_id] * stop

        def generate(streamer: BaseStreamer, input_ids: torch.Tensor, **_: Any) -> None:
            for value in (input_ids, *torch.tensor(tokens)[:, None]):
                streamer.put(value)
            streamer.end()

        monkeypatch.setattr(model.reasoner, "generate", generate)

    return say


def test_thinking_and_findings_are_told_apart(model: OmniModel, says: Callable[[str], None]):
    says('<think>Left, I guess.</think>\n```json\n[{"bbox_2d": [1, 2, 3, 4], "label": "ball"}]\n```')
    events: list[Event] = []
    answered = _ask(model, replace(ASK, task="grounding", reasoning=True), events.append)
    tokens = [event for event in events if isinstance(event, Token)]
    assert "".join(token.text for token in tokens if token.thinking) == answered.thinking == "Left, I guess."
    assert "".join(token.text for token in tokens if not token.thinking).strip() == answered.text
    assert answered.boxes == (Box(1, 2, 3, 4, "ball"),)
    assert answered.note == ""


def test_notes_say_why_there_is_no_answer(model: OmniModel, says: Callable[..., None]):
    says("<think>Hm")
    ended = _ask(model, ASK)
    assert (ended.thinking, ended.text) == ("Hm", "")
    assert "in the middle of its thinking" in ended.note
    says("<think>Hm", stop=False)
    assert "cut off" in _ask(model, ASK).note
    says("No idea.")
    assert "No boxes could be read" in _ask(model, replace(ASK, task="grounding")).note
    says("")
    assert _ask(model, ASK).text == ""


def test_what_is_longer_than_the_context_is_refused_before_the_model_runs(
    model: OmniModel, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(model.reasoner.config.get_text_config(), "max_position_embeddings", 40)
    monkeypatch.setattr(model.reasoner, "generate", None)
    with pytest.raises(RequestError, match="has room for 40") as caught:
        _ask(model, ASK)
    assert caught.value.field == "prompt"
    with pytest.raises(RequestError, match="new conversation") as caught:
        _ask(model, replace(ASK, history=(Turn("a", "b"),)))
    assert caught.value.field == "history"


def test_the_record_says_what_was_used(model: OmniModel):
    record = _ask(model, replace(ASK, task="pointing", prompt="the ball", temperature=0.5)).record
    assert (record["kind"], record["seed"], record["settings"]["task"]) == ("reasoner", 1, "pointing")
    assert record["settings"]["prompt"] == "the ball"
    assert record["timings"].keys() == {"encoding", "first_token", "total"}
    details = record["details"]
    assert details["prompt"] == prompt_for("pointing", "the ball")
    assert (details["presence_penalty"], details["repetition_penalty"]) == (1.5, 1.0)
    assert _ask(model, ASK).record["details"]["presence_penalty"] == 0


def test_presence_penalty_by_hand():
    """Vocabulary of 5; the prompt is (0, 1), the answer so far (2, 2, 3): 2 and 3 lose 1.5, once each."""
    penalty = PresencePenalty(1.5, prompt_tokens=2)
    scores = penalty(torch.tensor([[0, 1, 2, 2, 3]]), torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0]]))
    assert scores.tolist() == [[1.0, 2.0, 1.5, 2.5, 5.0]]


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_tags_are_taken_out_however_the_text_is_cut(size: int):
    text = "<think>a < b</think>\n<answer>Two <b>balls</b></answer><"
    parts = Parts()
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    found = [part for piece in pieces for part in parts.push(piece)] + list(parts.rest())
    assert "".join(piece for piece, thinking in found if thinking) == "a < b"
    assert "".join(piece for piece, thinking in found if not thinking) == "\nTwo <b>balls</b><"


def test_characters_of_many_bytes_come_whole(model: OmniModel):
    tokenizer = model.processor.tokenizer
    text = "Zwölf 球 🙂 fertig"
    events: list[Event] = []
    stream = answering._Stream(tokenizer, [], events.append)
    stream.put(torch.tensor([[1, 2, 3]]))
    for token in tokenizer.encode(text, add_special_tokens=False):
        stream.put(torch.tensor([token]))
    stream.end()
    pieces = [event.text for event in events]
    assert "".join(pieces) == stream.text == text
    assert not any("\ufffd" in piece for piece in pieces)


def test_special_tokens_are_not_shown_and_broken_characters_are_not_kept_for_ever(model: OmniModel):
    tokenizer = model.processor.tokenizer
    half = tokenizer.encode("🙂", add_special_tokens=False)[0]
    events: list[Event] = []
    stream = answering._Stream(tokenizer, [tokenizer.eos_token_id], events.append)
    stream.put(torch.tensor([[1, 2, 3]]))
    for token in (*tokenizer.encode("<|im_start|>a", add_special_tokens=False), *[half] * 20):
        stream.put(torch.tensor([token]))
    assert stream.text.startswith("a\ufffd")
    assert not stream.ended
    stream.put(torch.tensor([tokenizer.eos_token_id]))
    stream.end()
    assert stream.ended
    assert "".join(event.text for event in events) == stream.text
    assert "im_end" not in stream.text
