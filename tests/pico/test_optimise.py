"""The optimisers against hand-derived values."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cosmos_demo.pico.optimise import Average, Muon, orthogonal


@pytest.mark.parametrize("shape", [(2, 16, 40), (2, 40, 16)], ids=["wide", "tall"])
def test_orthogonal_keeps_directions_and_levels_strengths(shape):
    torch.manual_seed(0)
    matrices = torch.randn(shape) * 3
    made = orthogonal(matrices)
    strengths = torch.linalg.svdvals(made)
    assert made.shape == matrices.shape
    assert strengths.min() > 0.5
    assert strengths.max() < 1.3
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    leveled = u.transpose(1, 2) @ made @ v.transpose(1, 2)
    off = leveled - torch.diag_embed(torch.diagonal(leveled, dim1=1, dim2=2))
    assert off.abs().max() < 1e-3


def test_muon_moves_every_matrix_against_its_gradient():
    torch.manual_seed(0)
    weights = [nn.Parameter(torch.randn(8, 8)), nn.Parameter(torch.randn(4, 12)), nn.Parameter(torch.randn(8, 8))]
    goals = [torch.randn_like(weight) for weight in weights]
    muon = Muon(weights, weight_decay=0.0)

    def distance() -> torch.Tensor:
        return sum((weight - goal).square().sum() for weight, goal in zip(weights, goals, strict=True))

    before = float(distance())
    for _ in range(60):
        for weight in weights:
            weight.grad = None
        distance().backward()
        muon.step(torch.tensor(0.3))
    assert float(distance()) < 0.1 * before


def test_average_follows_and_swaps_back():
    weight = nn.Parameter(torch.tensor([0.0, 8.0]))
    average = Average([weight], decay=0.75)
    with torch.no_grad():
        weight.add_(4.0)
    average.step()
    average.swap()
    assert weight.tolist() == [1.0, 9.0]
    average.swap()
    assert weight.tolist() == [4.0, 12.0]
