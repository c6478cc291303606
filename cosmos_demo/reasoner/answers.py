"""From the text that the Reasoner writes to a typed answer: thinking told apart, boxes, points and events read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cosmos_demo.events import Answered
from cosmos_demo.reasoner import parse

_TAGS = {"<think>": True, "</think>": False, "<answer>": False, "</answer>": False}
"""Tags that are not shown, and whether what follows is thinking."""


def typed(task: str, written: str, record: dict[str, Any], *, tokens: int, ended: bool) -> Answered:
    """The answer in a finished text.

    Args:
        task: Name of the task, whose parser reads the text.
        written: All that was written, tags included.
        record: Of the run.
        tokens: How many were written.
        ended: Whether the Reasoner came to an end by itself.
    """
    thinking, text, closed = parse.split_thinking(written)
    read = parse.read(task, text)
    note = read.note
    if not ended:
        note = f"The answer was cut off after {tokens} tokens; allow more."
    elif not closed:
        note = "The Reasoner ended in the middle of its thinking; ask again or with another seed."
    return Answered(
        text,
        thinking,
        read.boxes,
        read.points,
        read.spans,
        read.trajectory,
        read.label,
        read.subjects,
        note,
        record,
    )


class Parts:
    """Splits streamed text at the thinking and answer tags, also when a tag comes in pieces."""

    def __init__(self) -> None:
        self.thinking = False
        self._held = ""

    def push(self, piece: str) -> Iterator[tuple[str, bool]]:
        """Take more text; yields what is sure to be text, and whether it is thinking."""
        self._held += piece
        while self._held:
            place = self._held.find("<")
            if place < 0:
                place = len(self._held)
            if place:
                yield self._held[:place], self.thinking
                self._held = self._held[place:]
                continue
            tag = next((tag for tag in _TAGS if self._held.startswith(tag)), None)
            if tag:
                self.thinking = _TAGS[tag]
                self._held = self._held[len(tag) :]
            elif any(tag.startswith(self._held) for tag in _TAGS):
                return
            else:
                yield "<", self.thinking
                self._held = self._held[1:]

    def rest(self) -> Iterator[tuple[str, bool]]:
        """What was held back, at the end."""
        if self._held:
            yield self._held, self.thinking
            self._held = ""
