"""One engine out of two halves: any that answers, and any that generates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

from cosmos_demo.engines.base import Capabilities, Status
from cosmos_demo.events import Event
from cosmos_demo.reasoner.tasks import TASKS
from cosmos_demo.requests import AnswerRequest, GenerateRequest

_OF_REASONER = ("reasoner", "upsample", *TASKS)


class _Half(Protocol):
    def capabilities(self) -> Capabilities: ...

    def status(self) -> Status: ...

    def close(self) -> None: ...


class ReasonerHalf(_Half, Protocol):
    def answer(self, request: AnswerRequest) -> Iterator[Event]: ...


class GeneratorHalf(_Half, Protocol):
    def generate(self, request: GenerateRequest) -> Iterator[Event]: ...


class PairEngine:
    """Sends questions to one half and generations to the other, each of which works by itself."""

    def __init__(self, reasoner: ReasonerHalf, generator: GeneratorHalf) -> None:
        self._reasoner = reasoner
        self._generator = generator

    def capabilities(self) -> Capabilities:
        """The Generator's, with the Reasoner's for all that concerns answers."""
        answers, makes = self._reasoner.capabilities(), self._generator.capabilities()
        lacks = {name: why for name, why in makes.unavailable.items() if name not in _OF_REASONER}
        lacks |= {name: why for name, why in answers.unavailable.items() if name in _OF_REASONER}
        defaults = {name: value for name, value in makes.defaults.items() if name != "video_fps"}
        if "video_fps" in answers.defaults:
            defaults["video_fps"] = answers.defaults["video_fps"]
        return replace(
            makes,
            checkpoint=_both(answers.checkpoint, makes.checkpoint),
            unavailable=lacks,
            defaults=defaults,
            home=_both(makes.home, answers.home, " "),
            scores=makes.scores if answers.checkpoint == makes.checkpoint else (),
        )

    def status(self) -> Status:
        """Both states in one: the worse one, both places, both troubles."""
        answers, makes = self._reasoner.status(), self._generator.status()
        worse = min(answers, makes, key=lambda status: _STATES.index(status.state))
        one_up = worse.state == "unreachable" and "ready" in (answers.state, makes.state)
        return Status(
            checkpoint=_both(answers.checkpoint, makes.checkpoint),
            device=_both(answers.device, makes.device),
            dtype=_both(answers.dtype, makes.dtype),
            state="ready" if one_up else worse.state,
            detail=_both(answers.detail, makes.detail, " "),
            loaded=min(answers.loaded, makes.loaded),
            head=_both(answers.head or "", makes.head or "", " and ") or None,
            waiting=answers.waiting + makes.waiting,
            memory=makes.memory or answers.memory,
            guardrails=makes.guardrails or answers.guardrails,
        )

    def answer(self, request: AnswerRequest) -> Iterator[Event]:
        return self._reasoner.answer(request)

    def generate(self, request: GenerateRequest) -> Iterator[Event]:
        return self._generator.generate(request)

    def close(self) -> None:
        self._reasoner.close()
        self._generator.close()


_STATES = ("failed", "unreachable", "not loaded", "loading", "ready")


def _both(first: str, second: str, between: str = " + ") -> str:
    """Two words joined, or the one that both or only one of them is."""
    return between.join(dict.fromkeys(word for word in (first, second) if word))
