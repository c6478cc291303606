"""The web demo of NVIDIA Cosmos 3: one model, two heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cosmos_demo.engines.base import Engine
    from cosmos_demo.settings import Settings

__version__ = "0.1.0"


def open_engine(settings: Settings) -> Engine:
    """Open what ``settings`` name: a checkpoint folder or hub id in this process.

    Returns:
        An engine whose checkpoint is known and whose weights are being loaded.

    Raises:
        CheckpointError: when there is no such checkpoint, or it is gated, damaged or of an unknown kind.
    """
    from cosmos_demo.engines.local import LocalEngine

    return LocalEngine(settings)
