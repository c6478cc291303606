"""The model in this process: one `OmniModel`, both heads, one run at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cosmos_demo import checkpoints
from cosmos_demo.engines.base import Capabilities, Status
from cosmos_demo.errors import EngineError
from cosmos_demo.events import Event, Loading
from cosmos_demo.generator import validate as generator_requests
from cosmos_demo.reasoner import validate as reasoner_requests
from cosmos_demo.requests import AnswerRequest, GenerateRequest
from cosmos_demo.settings import Settings
from cosmos_demo.turns import Cancelled, Emit, Turns

if TYPE_CHECKING:
    from cosmos_demo.omni import OmniModel

REPORT_EVERY = 0.2
"""Seconds between two `Loading` events of a run that waits for the checkpoint."""


@dataclass
class _Load:
    """One attempt to load the checkpoint, in a thread of its own."""

    fraction: float = 0.0
    what: str = "starting"
    model: OmniModel | None = None
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self.over = threading.Event()
        self._unwanted = threading.Event()

    def report(self, fraction: float, what: str) -> None:
        """Note how far it got. Raises `Cancelled` once nobody wants the model any more."""
        if self._unwanted.is_set():
            raise Cancelled
        self.fraction, self.what = fraction, what

    def stop(self) -> None:
        """Have the attempt end at the next tensor, and wait for that."""
        self._unwanted.set()
        self.over.wait()


class LocalEngine:
    """Serves both heads from one set of weights. Loading starts at once, in the background."""

    def __init__(self, settings: Settings) -> None:
        """Read the checkpoint's configs and start to load its weights.

        Raises:
            CheckpointError: when there is no such checkpoint, or it is gated, damaged or of an unknown kind.
        """
        self._settings = settings
        self._checkpoint = checkpoints.find(settings.checkpoint, settings.revision)
        self._turns = Turns(settings.queue_size)
        self._load = self._start_loading()

    def capabilities(self) -> Capabilities:
        return self._checkpoint.capabilities

    def status(self) -> Status:
        load, model = self._load, self._load.model
        state = "failed" if load.error else "ready" if model else "loading"
        return Status(
            checkpoint=self._checkpoint.capabilities.checkpoint,
            device=str(model.device) if model else self._settings.device,
            dtype=str(model.dtype).removeprefix("torch.") if model else self._settings.dtype,
            state=state,
            detail=str(load.error) if load.error else "" if model else load.what,
            loaded=1.0 if model else load.fraction,
            head=model.active_head if model else None,
            waiting=self._turns.waiting,
            memory=model.memory() if model else {},
            guardrails=model.guardrails if model else "",
        )

    def answer(self, request: AnswerRequest) -> Iterator[Event]:
        resolved = reasoner_requests.resolve(request, self.capabilities())

        def work(model: OmniModel, emit: Emit) -> Event:
            # Imported once the model is there: the libraries' lazy imports fail when two threads race for them.
            from cosmos_demo.reasoner.answering import answer

            return answer(model, resolved, emit)

        return self._run("reasoner", work)

    def generate(self, request: GenerateRequest) -> Iterator[Event]:
        resolved = generator_requests.resolve(request, self.capabilities())

        def work(model: OmniModel, emit: Emit) -> Event:
            from cosmos_demo.generator.generating import generate

            return generate(model, resolved, emit)

        return self._run("generator", work)

    def close(self) -> None:
        self._turns.close()
        self._load.stop()
        self._load = _Load(error=EngineError("The engine is closed."))
        self._load.over.set()

    def _run(self, head: str, work: Callable[[OmniModel, Emit], Event]) -> Iterator[Event]:
        def take_turn(emit: Emit) -> Event:
            model = self._wait_for_model(emit)
            with model.head(head):
                return work(model, emit)

        return self._turns.run(take_turn)

    def _wait_for_model(self, emit: Emit) -> OmniModel:
        """The loaded model; after a failed attempt this tries once more."""
        if self._load.error:
            self._load = self._start_loading()
        load = self._load
        while not load.over.wait(REPORT_EVERY):
            emit(Loading(load.fraction, load.what))
        if load.error:
            raise load.error
        return load.model

    def _start_loading(self) -> _Load:
        load = _Load()

        def read() -> None:
            from cosmos_demo.omni import OmniModel

            try:
                load.model = OmniModel.load(
                    self._checkpoint,
                    device=self._settings.device,
                    dtype=self._settings.dtype,
                    offload=self._settings.offload,
                    guardrails=not self._settings.no_guardrails,
                    progress=load.report,
                )
            except BaseException as error:
                load.error = error
            finally:
                load.over.set()

        threading.Thread(target=read, daemon=True).start()
        return load
