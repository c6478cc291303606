"""What all tests share: Cosmos3-Pico on CPU in float32, loaded once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cosmos_demo.settings import PICO, Settings

if TYPE_CHECKING:
    from cosmos_demo.engines.local import LocalEngine
    from cosmos_demo.omni import OmniModel

os.environ.setdefault("HF_HUB_OFFLINE", "1")
THREADS = 2


@pytest.fixture(scope="session")
def pico_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of this repository; without it an untrained one of the same shape."""
    if (PICO / "model_index.json").exists():
        return PICO
    from cosmos_demo.pico.blueprint import build

    return build(tmp_path_factory.mktemp("checkpoint") / "cosmos3-pico")


@pytest.fixture(scope="session")
def model(pico_path: Path) -> OmniModel:
    """Pico loaded; the very instance that `engine` runs."""
    import torch

    from cosmos_demo import checkpoints
    from cosmos_demo.omni import OmniModel

    torch.set_num_threads(THREADS)
    return OmniModel.load(checkpoints.find(pico_path), device="cpu")


@pytest.fixture(scope="session")
def engine(model: OmniModel, pico_path: Path) -> Iterator[LocalEngine]:
    """The app's own engine on `model`."""
    from cosmos_demo.engines.local import LocalEngine

    engine = LocalEngine(Settings(checkpoint=str(pico_path), device="cpu"))
    yield engine
    engine.close()
