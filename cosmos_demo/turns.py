"""Who may use the model now: so many runs at a time, first come first served, cancelled by closing a run.

A web framework frees its own queue slot the moment a person presses stop, while the Python thread runs on. So the
model has a turn of its own, which ends only when the work has truly ended.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator

from cosmos_demo.errors import EngineError, RequestError
from cosmos_demo.events import Event, Queued

Emit = Callable[[Event], None]
"""Hands an event to whoever watches the run; raises `Cancelled` once nobody does."""

Work = Callable[[Emit], Event]
"""Does the run, emitting on the way, and returns its last event."""


class Cancelled(Exception):
    """Nobody watches the run any more; its work unwinds and frees the model."""


class Turns:
    """A fair queue in front of one model."""

    def __init__(self, limit: int, slots: int = 1) -> None:
        """Make an empty queue: ``limit`` runs may wait while ``slots`` work."""
        self._limit = limit
        self._slots = slots
        self._line: deque[Run] = deque()
        self._moved = threading.Condition()
        self._closed = False

    @property
    def waiting(self) -> int:
        """Runs in line behind those that work."""
        return max(0, len(self._line) - self._slots)

    @property
    def working(self) -> bool:
        """Whether a run works."""
        return bool(self._line)

    def run(self, work: Work) -> Run:
        """Queue ``work``; it gets a thread of its own and starts when its turn comes.

        Raises:
            RequestError: when the line is full.
            EngineError: after `close`.
        """
        with self._moved:
            if self._closed:
                raise EngineError("The engine is shutting down.")
            if self.waiting >= self._limit and len(self._line) >= self._slots:
                raise RequestError("queue", f"{self._limit} runs are waiting already; try again in a moment.")
            run = Run(self, work)
            self._line.append(run)
        threading.Thread(target=self._serve, args=(run,), daemon=True).start()
        return run

    def close(self) -> None:
        """Refuse new runs, stop all others, and return once the model is free."""
        with self._moved:
            self._closed = True
            for run in self._line:
                run.stop(EngineError("The engine is shutting down; the run was stopped."))
            self._moved.notify_all()
            self._moved.wait_for(lambda: not self._line)

    def wake(self) -> None:
        """Let runs in line look again whether they are still wanted."""
        with self._moved:
            self._moved.notify_all()

    def _serve(self, run: Run) -> None:
        try:
            self._wait_in_line(run)
            last: Event | BaseException | None = run.work(run.emit)
        except Cancelled:
            last = None
        except BaseException as error:
            last = error
        with self._moved:
            self._line.remove(run)
            self._moved.notify_all()
        run.finish(last)

    def _wait_in_line(self, run: Run) -> None:
        with self._moved:
            while (position := self._line.index(run) - self._slots) >= 0:
                run.emit(Queued(position))
                self._moved.wait_for(lambda seen=position: self._line.index(run) - self._slots != seen or run.stopped)
            run.check()


class Run(Iterator[Event]):
    """One run's events, ending with the work's result; raises what the work raised. `close` cancels the run."""

    def __init__(self, turns: Turns, work: Work) -> None:
        self.work = work
        self._turns = turns
        self._outbox: queue.SimpleQueue[Event | BaseException | None] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._over = False

    def __next__(self) -> Event:
        if self._over:
            raise StopIteration
        item = self._outbox.get()
        if item is None:
            self._over = True
            raise StopIteration
        if isinstance(item, BaseException):
            self._over = True
            raise item
        return item

    def close(self) -> None:
        """Stop the run, whether it waits or works; the model is free within one step or token."""
        self._over = True
        self._stopped.set()
        self._turns.wake()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def stop(self, reason: EngineError) -> None:
        """Stop the run from the engine's side; the watcher gets ``reason``."""
        self._stopped.set()
        self._outbox.put(reason)

    def check(self) -> None:
        """Raise `Cancelled` if the run was stopped."""
        if self.stopped:
            raise Cancelled

    def emit(self, event: Event) -> None:
        """Hand ``event`` to the watcher. Raises `Cancelled` if the run was stopped."""
        self.check()
        self._outbox.put(event)

    def finish(self, last: Event | BaseException | None) -> None:
        """Hand over the last event or the error, then end the stream."""
        if last is not None:
            self._outbox.put(last)
        self._outbox.put(None)
