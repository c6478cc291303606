"""Errors a person can act on. Everything else that is raised is a defect."""

from __future__ import annotations


class DemoError(Exception):
    """Base of all errors whose message is meant for the person at the page or the API."""


class RequestError(DemoError):
    """A request that can't be served as it stands.

    Args:
        field: Name of the request field at fault, for example ``num_frames``.
        message: What was wrong and what would work, one or two sentences.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class SettingsError(DemoError):
    """An option of the app that can't be used; the message says what would work."""


class CheckpointError(DemoError):
    """A checkpoint that is missing, gated, damaged or of an unknown kind; the message says what to do."""


class OutOfMemoryError(DemoError):
    """Neither the accelerator nor the host holds what was asked for; the message gives sizes and a way out."""


class EngineError(DemoError):
    """The engine failed during a run; the run is lost, the engine stays up."""
