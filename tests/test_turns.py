"""The queue in front of the model: order, cancelling, errors, limits."""

from __future__ import annotations

import threading

import pytest

from cosmos_demo.errors import EngineError, RequestError
from cosmos_demo.events import Answered, Event, Phase, Queued
from cosmos_demo.turns import Cancelled, Emit, Turns

PATIENCE = 10.0


def _answer(name: str):
    def work(emit: Emit) -> Answered:
        emit(Phase(name))
        return Answered(name)

    return work


def _blocked(gate: threading.Event, ended: threading.Event):
    """Work that steps until it is cancelled or let through."""

    def work(emit: Emit) -> Answered:
        try:
            emit(Phase("blocked"))
            while not gate.wait(0.005):
                emit(Phase("blocked"))
            return Answered("through")
        finally:
            ended.set()

    return work


def test_events_come_in_order_and_the_result_last():
    assert list(Turns(1).run(_answer("a"))) == [Phase("a"), Answered("a")]


def test_runs_take_turns_in_order_and_see_their_position():
    turns, gate, ended, order = Turns(5), threading.Event(), threading.Event(), []

    def noting(name: str):
        def work(emit: Emit) -> Answered:
            order.append(name)
            return Answered(name)

        return work

    first = turns.run(_blocked(gate, ended))
    next(first)
    second, third = turns.run(noting("second")), turns.run(noting("third"))
    assert next(second) == Queued(0)
    assert next(third) == Queued(1)
    assert turns.waiting == 2
    gate.set()
    assert list(first)[-1] == Answered("through")
    assert list(second)[-1] == Answered("second")
    assert list(third)[-1] == Answered("third")
    assert order == ["second", "third"]
    assert turns.waiting == 0


def test_closing_a_working_run_frees_the_model():
    turns, gate, ended = Turns(1), threading.Event(), threading.Event()
    run = turns.run(_blocked(gate, ended))
    next(run)
    run.close()
    assert ended.wait(PATIENCE)
    assert list(run) == []
    assert list(turns.run(_answer("next")))[-1] == Answered("next")


def test_closing_a_waiting_run_never_starts_it():
    turns, gate, ended, started = Turns(2), threading.Event(), threading.Event(), threading.Event()

    def work(emit: Emit) -> Answered:
        started.set()
        return Answered("should not be")

    first = turns.run(_blocked(gate, ended))
    next(first)
    waiting = turns.run(work)
    next(waiting)
    waiting.close()
    gate.set()
    assert list(first)[-1] == Answered("through")
    assert list(turns.run(_answer("after")))[-1] == Answered("after")
    assert not started.is_set()


def test_an_error_reaches_the_watcher_and_the_next_run_works():
    turns = Turns(1)

    def work(emit: Emit) -> Answered:
        raise RequestError("steps", "too many")

    with pytest.raises(RequestError, match="too many"):
        list(turns.run(work))
    assert list(turns.run(_answer("next")))[-1] == Answered("next")


def test_a_full_line_refuses():
    turns, gate, ended = Turns(1), threading.Event(), threading.Event()
    first = turns.run(_blocked(gate, ended))
    next(first)
    second = turns.run(_answer("second"))
    with pytest.raises(RequestError, match="waiting already"):
        turns.run(_answer("third"))
    gate.set()
    assert list(second)[-1] == Answered("second")


def test_close_stops_everyone_and_says_so():
    turns, gate, ended = Turns(2), threading.Event(), threading.Event()
    working = turns.run(_blocked(gate, ended))
    next(working)
    waiting = turns.run(_answer("waiting"))
    turns.close()
    assert ended.is_set()
    for run in (working, waiting):
        with pytest.raises(EngineError, match="shutting down"):
            list(run)
    with pytest.raises(EngineError):
        turns.run(_answer("late"))


def test_emit_raises_once_nobody_watches():
    turns, seen = Turns(1), []

    def work(emit: Emit) -> Answered:
        try:
            while True:
                emit(Phase("on"))
        except Cancelled as stop:
            seen.append(stop)
            raise

    run = turns.run(work)
    next(run)
    run.close()
    assert list(turns.run(_answer("next")))[-1] == Answered("next")
    assert len(seen) == 1


def test_as_many_runs_work_at_once_as_there_are_slots():
    turns, gate = Turns(1, slots=2), threading.Event()
    both = threading.Barrier(3, timeout=5)

    def work(emit: Emit) -> Event:
        both.wait()
        gate.wait(5)
        return Answered("done")

    first, second = turns.run(work), turns.run(work)
    both.wait()
    waiting = turns.run(_answer("third"))
    assert next(waiting) == Queued(0)
    assert turns.waiting == 1
    with pytest.raises(RequestError, match="1 runs are waiting"):
        turns.run(work)
    gate.set()
    assert [list(run)[-1] for run in (first, second, waiting)] == [
        Answered("done"),
        Answered("done"),
        Answered("third"),
    ]
