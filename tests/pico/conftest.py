"""One set of random components for all tests of the checkpoint, larger than at initialisation so that errors show."""

from __future__ import annotations

import pytest
import torch

from cosmos_demo.pico.blueprint import Components, new_components


@pytest.fixture(scope="session")
def parts() -> Components:
    made = new_components(seed=0)
    for model in (made.transformer, made.vision):
        for parameter in model.parameters():
            parameter.data.add_(torch.randn_like(parameter) * 0.05)
        model.eval()
    return made
