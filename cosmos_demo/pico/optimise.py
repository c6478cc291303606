"""How weights move: Muon for the matrices inside layers, AdamW for the rest, an average, steps replayed as graphs.

Everything here stays on the device and never reads a value back, so a whole training step can be captured once as a
CUDA graph and replayed; on CPU the same code runs step by step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn


class Muon:
    """Momentum whose update is orthogonalised (Newton-Schulz), matrices of one shape at a time.

    Args:
        parameters: Two-dimensional weights inside layers.
        momentum: Decay of the running gradient.
        weight_decay: Relative shrinkage for a learning rate of one.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], momentum: float = 0.95, weight_decay: float = 0.05) -> None:
        shapes = defaultdict(list)
        for parameter in parameters:
            shapes[parameter.shape].append(parameter)
        self.stacks = list(shapes.values())
        self.velocity = [torch.zeros(len(same), *same[0].shape, device=same[0].device) for same in self.stacks]
        self.momentum = momentum
        self.weight_decay = weight_decay

    @torch.no_grad()
    def step(self, rate: Tensor) -> None:
        """Move all weights; ``rate`` is a scalar on their device. Per-element updates have size about 0.2 x rate."""
        for same, velocity in zip(self.stacks, self.velocity, strict=True):
            gradient = torch.stack([parameter.grad for parameter in same])
            velocity.lerp_(gradient, 1 - self.momentum)
            update = orthogonal(gradient.lerp(velocity, self.momentum))
            # Brings the update to the per-element size of an Adam step, so that one rate serves both.
            scale = 0.2 * max(same[0].shape) ** 0.5
            torch._foreach_mul_(same, 1 - rate * self.weight_decay)
            torch._foreach_sub_(same, list((update * (rate * scale)).unbind(0)))

    def state(self) -> list[Tensor]:
        """Tensors that a resumed run needs."""
        return self.velocity


def orthogonal(matrices: Tensor, rounds: int = 5) -> Tensor:
    """Nearly orthogonal matrices with the singular vectors of ``[N, rows, columns]``, by a quintic iteration.

    The coefficients are those of the published Muon optimiser; singular values end up between about 0.7 and 1.2.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.transpose(1, 2) if tall else matrices
    x = x.to(torch.bfloat16 if x.is_cuda else x.dtype)
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(rounds):
        gram = x @ x.transpose(1, 2)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.transpose(1, 2) if tall else x).float()


class Average:
    """Exponential moving average of the weights: what is saved and shown."""

    def __init__(self, parameters: Iterable[nn.Parameter], decay: float) -> None:
        self.live = list(parameters)
        self.kept = [parameter.detach().clone() for parameter in self.live]
        self.decay = decay

    @torch.no_grad()
    def step(self) -> None:
        torch._foreach_lerp_(self.kept, [parameter.detach() for parameter in self.live], 1 - self.decay)

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange live and averaged weights; call again to undo."""
        for live, kept in zip(self.live, self.kept, strict=True):
            held = live.detach().clone()
            live.copy_(kept)
            kept.copy_(held)


def replayable(step: Callable[[], None], device: torch.device, warmup: int = 3) -> Callable[[], None]:
    """Capture ``step`` as a CUDA graph and return its replay; on CPU, return it unchanged.

    The step must read and write fixed tensors only. It runs ``warmup`` times here before it is captured.
    """
    if device.type != "cuda":
        return step
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(warmup):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay
