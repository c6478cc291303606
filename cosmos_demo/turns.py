"""Who may use the model now: one run at a time, first come first served, cancelled by closing its iterator.

A web framework frees its own queue slot the moment a person presses stop, while the Python thread runs on. So the
model has a turn of its own, which ends only when the work has truly ended.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeVar

from cosmos_demo.errors import EngineError, RequestError
from cosmos_demo.events import Event, Queued

Emit = Callable[[Event], None]
"""Hands an event to whoever watches the run; raises `Cancelled` once nobody does."""

Result = TypeVar("Result", bound=Event)


class Cancelled(Exception):
    """The watcher closed the run's iterator; work unwinds and frees the model."""


class Turns:
    """A fair queue in front of one model."""

    def __init__(self, limit: int) -> None:
        """Make an empty queue; ``limit`` is how many runs may wait beside the one that works."""
        self._limit = limit
        self._line: deque[object] = deque()
        self._moved = threading.Condition()
        self._closed = False

    @property
    def waiting(self) -> int:
        """Runs in line behind the one that works."""
        return max(0, len(self._line) - 1)

    def close(self) -> None:
        """Refuse new runs, send those in line away, and wait until the one that works has ended."""
        with self._moved:
            self._closed = True
            self._moved.notify_all()
            self._moved.wait_for(lambda: not self._line)

    def run(self, work: Callable[[Emit], Result]) -> Iterator[Event]:
        """Queue ``work`` and stream what it emits, its result last.

        Args:
            work: Called in a thread of its own once it is its turn, with the run's `Emit`. Returns the last event.

        Yields:
            `Queued` while runs are ahead, then the work's events, then its result.

        Raises:
            RequestError: when the line is full.
            EngineError: when the engine is closed before the run's turn.
            Exception: whatever ``work`` raises.
        """
        ticket = object()
        with self._moved:
            if self._closed:
                raise EngineError("The engine is shutting down.")
            if len(self._line) > self._limit:
                raise RequestError("queue", f"{self._limit} runs are waiting already; try again in a moment.")
            self._line.append(ticket)
        outbox: queue.SimpleQueue[Event | BaseException | None] = queue.SimpleQueue()
        left = threading.Event()
        thread = threading.Thread(target=self._take_turn, args=(ticket, work, outbox, left), daemon=True)
        thread.start()
        return self._watch(outbox, left)

    def _watch(
        self, outbox: queue.SimpleQueue[Event | BaseException | None], left: threading.Event
    ) -> Iterator[Event]:
        try:
            while (item := outbox.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            left.set()
            with self._moved:
                self._moved.notify_all()

    def _take_turn(
        self,
        ticket: object,
        work: Callable[[Emit], Result],
        outbox: queue.SimpleQueue[Event | BaseException | None],
        left: threading.Event,
    ) -> None:
        def emit(event: Event) -> None:
            if left.is_set() or self._closed:
                raise Cancelled
            outbox.put(event)

        try:
            self._wait_in_line(ticket, emit, left)
            outbox.put(work(emit))
        except Cancelled:
            if not left.is_set():
                outbox.put(EngineError("The engine is shutting down; the run was stopped."))
        except BaseException as error:
            outbox.put(error)
        finally:
            with self._moved:
                self._line.remove(ticket)
                self._moved.notify_all()
            outbox.put(None)

    def _wait_in_line(self, ticket: object, emit: Emit, left: threading.Event) -> None:
        with self._moved:
            while (position := self._line.index(ticket)) > 0:
                emit(Queued(position - 1))
                self._moved.wait_for(
                    lambda seen=position: self._line.index(ticket) != seen or left.is_set() or self._closed
                )
            if left.is_set() or self._closed:
                raise Cancelled
