"""The local engine: both heads in turn on one model, loading told, failures survived, cancelling frees the model."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from cosmos_demo import open_engine
from cosmos_demo.engines.local import LocalEngine
from cosmos_demo.errors import CheckpointError, DemoError, RequestError
from cosmos_demo.events import Answered, Event, Generated, Loading, Queued, Step, Token
from cosmos_demo.omni import OmniModel
from cosmos_demo.requests import AnswerRequest, GenerateRequest
from cosmos_demo.settings import Settings

PICTURE = GenerateRequest("text-to-image", "a red ball", steps=3, seed=1, aspect_ratio="1:1")
QUESTION = AnswerRequest("How many?", max_new_tokens=4, temperature=0.0, seed=1)
PATIENCE = 30.0


def _last(events: object) -> Event:
    return list(events)[-1]


def test_both_heads_work_in_turn_without_loading_again(engine: LocalEngine, model: OmniModel):
    assert isinstance(_last(engine.answer(QUESTION)), Answered)
    assert isinstance(_last(engine.generate(PICTURE)), Generated)
    assert isinstance(_last(engine.answer(QUESTION)), Answered)
    assert engine._load.model is model
    status = engine.status()
    assert (status.state, status.head, status.waiting) == ("ready", None, 0)
    assert status.memory["weights"] == model.memory()["weights"]


def test_the_head_at_work_is_told(engine: LocalEngine):
    heads = {engine.status().head for event in engine.generate(PICTURE) if isinstance(event, Step)}
    assert "generator" in heads
    heads = {engine.status().head for event in engine.answer(QUESTION) if isinstance(event, Token)}
    assert "reasoner" in heads


def test_a_question_waits_for_the_picture(engine: LocalEngine):
    picture = engine.generate(PICTURE)
    next(picture)
    question = engine.answer(QUESTION)
    assert next(question) == Queued(0)
    assert isinstance(_last(picture), Generated)
    assert isinstance(_last(question), Answered)


def test_closing_a_run_frees_the_model_for_the_next(engine: LocalEngine):
    long = engine.generate(GenerateRequest("text-to-video", "a ball", num_frames=5, steps=100, seed=1))
    next(event for event in long if isinstance(event, Step))
    long.close()
    assert list(long) == []
    assert isinstance(_last(engine.answer(QUESTION)), Answered)


def test_bad_requests_are_refused_before_any_work(engine: LocalEngine):
    with pytest.raises(RequestError, match="steps"):
        engine.generate(GenerateRequest("text-to-image", "a ball", steps=0))
    with pytest.raises(RequestError, match="prompt"):
        engine.answer(AnswerRequest(""))
    assert engine.status().waiting == 0


def test_runs_tell_of_loading_while_the_weights_are_read(pico_path: Path, monkeypatch: pytest.MonkeyPatch):
    def slow(checkpoint: object, progress: object, **options: object) -> None:
        progress(0.5, "reading transformer")
        time.sleep(0.6)
        raise CheckpointError("the shard is cut short; download it again")

    monkeypatch.setattr(OmniModel, "load", slow)
    engine = LocalEngine(Settings(checkpoint=str(pico_path), device="cpu"))
    run = engine.answer(QUESTION)
    assert next(run) in (Loading(0.5, "reading transformer"), Loading(0.0, "starting"))
    with pytest.raises(CheckpointError, match="download it again"):
        list(run)
    status = engine.status()
    assert (status.state, status.detail) == ("failed", "the shard is cut short; download it again")


def test_a_failed_load_is_tried_again(pico_path: Path, model: OmniModel, monkeypatch: pytest.MonkeyPatch):
    attempts = []

    def load(checkpoint: object, **options: object) -> OmniModel:
        attempts.append(checkpoint)
        if len(attempts) == 1:
            raise CheckpointError("interrupted")
        return model

    monkeypatch.setattr(OmniModel, "load", load)
    engine = LocalEngine(Settings(checkpoint=str(pico_path), device="cpu"))
    assert engine._load.over.wait(PATIENCE)
    assert isinstance(_last(engine.answer(QUESTION)), Answered)
    assert len(attempts) == 2


def test_an_unknown_folder_is_told_at_once(tmp_path: Path):
    with pytest.raises(CheckpointError, match="model_index"):
        open_engine(Settings(checkpoint=str(tmp_path)))


def test_what_a_checkpoint_cannot_do_is_refused_with_its_reason(pico_path: Path, tmp_path: Path):
    silent = tmp_path / "silent"
    shutil.copytree(pico_path, silent)
    config = silent / "transformer" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "sound_gen": False}))
    engine = LocalEngine(Settings(checkpoint=str(silent), device="cpu"))
    with pytest.raises(RequestError, match="sound"):
        engine.generate(GenerateRequest("text-to-video", "a ball", sound=True))
    engine.close()


def test_a_closed_engine_refuses(pico_path: Path):
    engine = LocalEngine(Settings(checkpoint=str(pico_path), device="cpu"))
    engine.close()
    engine.close()
    assert engine.status().state == "failed"
    with pytest.raises(DemoError, match="shutting down"):
        engine.answer(QUESTION)
