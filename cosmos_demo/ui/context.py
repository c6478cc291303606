"""What every tab is given: the engine, what its checkpoint can do, the settings, and the runs of all visitors."""

from __future__ import annotations

from dataclasses import dataclass, field

from cosmos_demo.engines.base import Capabilities, Engine
from cosmos_demo.settings import Settings
from cosmos_demo.ui.running import Runs


@dataclass(frozen=True)
class Context:
    engine: Engine
    settings: Settings
    runs: Runs = field(default_factory=Runs)

    @property
    def can(self) -> Capabilities:
        """What the checkpoint can do."""
        return self.engine.capabilities()
