"""Runs of a tab: every ending is told, a stop reaches only its own run, strangers' text stays text."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from cosmos_demo.errors import RequestError
from cosmos_demo.events import Answered, Generated, Loading, Phase, Preview, Queued, Step, Token
from cosmos_demo.turns import Emit, Turns
from cosmos_demo.ui import stage
from cosmos_demo.ui.running import Moment, Runs, advance

PATIENCE = 10.0


def _endless(started: threading.Event):
    def work(emit: Emit) -> Answered:
        while True:
            emit(Phase("encoding"))
            started.set()
            threading.Event().wait(0.002)

    return work


def test_a_run_ends_with_its_result_and_what_was_kept_of_it():
    turns = Turns(1)
    moments = list(
        Runs().watch(lambda: turns.run(lambda emit: Answered("yes")), "anna", "tab", lambda answer: answer.text.upper())
    )
    assert [moment.over for moment in moments] == [False, True]
    assert moments[-1].kept == "YES"
    assert not moments[-1].error


def test_text_and_thinking_gather_apart():
    moment = Moment()
    for event in (Token("I ", True), Token("see.", True), Token("Two ", False), Token("balls", False)):
        moment = advance(moment, event)
    assert (moment.thinking, moment.text) == ("I see.", "Two balls")


@pytest.mark.parametrize(
    ("event", "words", "fraction"),
    [
        (Queued(0), "Waiting for the model, you are next", None),
        (Queued(1), "Waiting for the model, one before you", None),
        (Queued(3), "Waiting for the model, 3 before you", None),
        (Loading(0.25, "transformer"), "Loading the checkpoint: transformer", 0.25),
        (Phase("decoding"), "Decoding", None),
        (Step(7, 35, 2.0, 8.0), "Step 7 of 35", 0.2),
    ],
)
def test_each_phase_has_its_words(event, words, fraction):
    moment = advance(Moment(), event)
    assert (moment.words, moment.fraction) == (words, fraction)


def test_stop_ends_a_working_run_and_frees_the_model():
    turns, runs, started = Turns(1), Runs(), threading.Event()
    watched = runs.watch(lambda: turns.run(_endless(started)), "anna", "tab")
    next(watched)
    next(watched)
    assert started.wait(PATIENCE)
    runs.stop("anna", "tab")
    assert list(watched)[-1].cancelled
    assert list(turns.run(lambda emit: Answered("next")))[-1] == Answered("next")


def test_stop_reaches_only_the_visitors_own_run():
    turns, runs, started = Turns(1), Runs(), threading.Event()
    watched = runs.watch(lambda: turns.run(_endless(started)), "anna", "tab")
    next(watched)
    next(watched)
    runs.stop("ben", "tab")
    runs.stop("anna", "another tab")
    assert not next(watched).over
    watched.close()
    assert list(turns.run(lambda emit: Answered("free")))[-1] == Answered("free")


def test_a_stop_before_the_engine_has_begun_is_not_lost():
    turns, runs, started = Turns(1), Runs(), threading.Event()

    def begin():
        runs.stop("anna", "tab")
        return turns.run(_endless(started))

    assert list(runs.watch(begin, "anna", "tab"))[-1].cancelled


def test_a_new_run_of_the_same_tab_stops_the_old_one():
    turns, runs, started = Turns(2), Runs(), threading.Event()
    old = runs.watch(lambda: turns.run(_endless(started)), "anna", "tab")
    next(old)
    next(old)
    new = runs.watch(lambda: turns.run(lambda emit: Answered("new")), "anna", "tab")
    assert list(new)[-1].result == Answered("new")
    assert list(old)[-1].cancelled


def test_a_refused_request_names_its_field_and_the_next_run_works():
    turns, runs = Turns(1), Runs()

    def refused():
        raise RequestError("num_frames", "301 is too many.")

    assert list(runs.watch(refused, "anna", "tab"))[-1].error == "Num frames: 301 is too many."
    assert list(runs.watch(lambda: turns.run(lambda emit: Answered("ok")), "anna", "tab"))[-1].result == Answered("ok")


@pytest.mark.parametrize("place", ["work", "keep"])
def test_a_defect_ends_the_run_without_its_insides(place):
    def fail(*_):
        raise KeyError("secret path")

    turns = Turns(1)
    work = fail if place == "work" else (lambda emit: Answered("ok"))
    keep = fail if place == "keep" else (lambda result: None)
    last = list(Runs().watch(lambda: turns.run(work), "anna", "tab", keep))[-1]
    assert last.over
    assert "secret" not in last.error
    assert 'data-state="failed"' in stage.draw(last)


def test_a_picture_counts_as_a_result_even_when_nothing_is_kept():
    picture = Generated(np.zeros((1, 16, 16, 3), np.uint8), 1)
    turns = Turns(1)
    assert list(Runs().watch(lambda: turns.run(lambda emit: picture), "anna", "tab"))[-1].result is picture


def test_the_stage_escapes_what_it_is_told():
    assert "<b>" not in stage.draw(Moment(error="<b>bad</b>"))
    assert "<b>" not in stage.draw(Moment(words="<b>bad</b>"))
    assert "<b>" not in stage.empty("<b>bad</b>")


def test_the_stage_shows_preview_step_and_clock():
    moment = advance(Moment(), Step(3, 6, 1.25, 1.25))
    html = stage.draw(advance(moment, Preview(3, np.full((4, 8, 3), 9, np.uint8))))
    assert "data:image/jpeg;base64," in html
    assert "Step 3 of 6" in html
    assert "width:50%" in html
    assert "1.2 s, 1.2 s left" in html
