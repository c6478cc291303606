"""Where weights live: which device and precision this machine offers, what fits, and offloading of what doesn't.

Weights that fit stay on the device for good. Otherwise their home is host memory, and a head that starts to work brings
its own: everything outside the decoder layers, then as many layers as fit; the rest of the layers come one by one while
the network runs, the next one being copied while the present one computes. Weights are never written, so leaving
the device is only forgetting the copy. All this swaps the data of Parameter objects, never the objects, so what the two
heads share stays shared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from torch import nn

from cosmos_demo.errors import EngineError, OutOfMemoryError

WORKING_SHARE = 0.2
"""Part of a device's memory kept free of weights for activations; our choice, generous for 480p clips."""

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
"""Memory limit of a container, ``max`` when there is none."""


@dataclass(frozen=True)
class Memory:
    """Bytes that this process allocated on a device (or the host), that are free, and in total."""

    allocated: int
    free: int
    total: int

    @property
    def for_weights(self) -> int:
        """Free bytes that weights may take."""
        return int(self.free - WORKING_SHARE * self.total)


def memory_of(device: torch.device) -> Memory:
    """The memory of an accelerator, or of the host for ``cpu``."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        allocated = torch.cuda.memory_allocated(device)
        return Memory(allocated, free + torch.cuda.memory_reserved(device) - allocated, total)
    if device.type == "mps":
        allocated, total = torch.mps.driver_allocated_memory(), torch.mps.recommended_max_memory()
        return Memory(allocated, total - allocated, total)
    host, own = psutil.virtual_memory(), psutil.Process().memory_info().rss
    limit = CGROUP_LIMIT.read_text().strip() if CGROUP_LIMIT.exists() else "max"
    if limit == "max":
        return Memory(own, host.available, host.total)
    return Memory(own, min(host.available, int(limit) - own), min(host.total, int(limit)))


def choose_device(wanted: str) -> torch.device:
    """The device of this name; ``auto`` takes CUDA, else MPS, else CPU.

    Raises:
        EngineError: when this machine has no such device.
    """
    cuda = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    there = [*cuda, *(["mps"] if torch.backends.mps.is_available() else []), "cpu"]
    if wanted == "auto":
        wanted = there[0]
    elif wanted == "cuda" and cuda:
        wanted = cuda[0]
    if wanted not in there:
        raise EngineError(f"This machine has no device {wanted!r}; there are {', '.join(there)}, or choose auto.")
    return torch.device(wanted)


def choose_dtype(wanted: str, device: torch.device) -> torch.dtype:
    """The precision of this name; ``auto`` takes bfloat16 on accelerators that have it and float32 elsewhere."""
    if wanted != "auto":
        return getattr(torch, wanted)
    modern = device.type == "cuda" or (device.type == "mps" and torch.backends.mps.is_macos_or_newer(14, 0))
    return torch.bfloat16 if modern else torch.float32


def stays_on_device(needed: int, device: torch.device, offload: str) -> bool:
    """Whether weights of ``needed`` bytes go to the device for good (or to the host and visit it).

    Args:
        offload: ``auto``, ``never`` or ``always``; only CUDA devices have memory of their own to offload from.

    Raises:
        OutOfMemoryError: when neither can be.
    """
    there = memory_of(device)
    if device.type != "cuda" or offload != "always":
        if needed <= there.for_weights:
            return True
        if device.type != "cuda" or offload == "never":
            more = "with --offload auto, " if device.type == "cuda" else ""
            raise OutOfMemoryError(
                f"The weights need {gigabytes(needed)} on {device}, where {gigabytes(there.free)} of "
                f"{gigabytes(there.total)} are free, a part of it for working memory. Start {more}with a smaller "
                "checkpoint or --dtype bfloat16, or on a machine with more memory."
            )
    host = memory_of(torch.device("cpu"))
    if needed > host.for_weights:
        raise OutOfMemoryError(
            f"The weights need {gigabytes(needed)}. {device} has {gigabytes(there.free)} free and host memory "
            f"{gigabytes(host.free)}; neither holds them. Use a smaller checkpoint, a larger GPU, or more host memory."
        )
    return False


class Offload:
    """Weights at home in host memory that visit a device, for one head at a time."""

    def __init__(self, device: torch.device, budget: int, keep: bool) -> None:
        """Make one without weights.

        Args:
            device: Where they compute.
            budget: Bytes that weights may take there.
            keep: Leave a head's weights there after its work, until another head needs the room.
        """
        self._device = device
        self._budget = budget
        self._keep = keep
        self._home: dict[torch.Tensor, torch.Tensor] = {}
        self._here: dict[torch.Tensor, None] = {}
        self._copying = torch.cuda.Stream(device) if device.type == "cuda" else None

    @contextmanager
    def visit(self, networks: Sequence[nn.Module], layers: Sequence[nn.Module]) -> Iterator[None]:
        """Have networks compute on the device.

        Args:
            networks: All that the work uses.
            layers: Their repeated layers in the order in which they run, which may come one by one.

        Raises:
            OutOfMemoryError: when not even two layers fit beside the other weights.
        """
        inside = tensors(layers)
        outside = {tensor: None for tensor in tensors(networks) if tensor not in inside}
        resident = self._resident(outside, layers)
        wanted = outside | tensors(layers[:resident])
        self._leave(tensor for tensor in tuple(self._here) if tensor not in wanted)
        self._bring(wanted)
        hooks = self._stream(layers[resident:])
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
            self._leave(tuple(tensors(layers[resident:])) if self._keep else tuple(self._here))

    def _resident(self, outside: Iterable[torch.Tensor], layers: Sequence[nn.Module]) -> int:
        """How many layers may stay; room for two that come and go is set aside unless all can."""
        room = self._budget - _bytes(outside)
        sizes = [_bytes(tensors([layer])) for layer in layers]
        if sum(sizes) <= room:
            return len(layers)
        room -= 2 * max(sizes)
        if room < 0:
            raise OutOfMemoryError(
                f"The smallest part of the weights that can compute needs {gigabytes(self._budget - room)} on "
                f"{self._device}, which has {gigabytes(self._budget)} for weights. Use a smaller checkpoint or a "
                "larger GPU."
            )
        resident = 0
        while room >= sizes[resident]:
            room -= sizes[resident]
            resident += 1
        return resident

    def _stream(self, layers: Sequence[nn.Module]) -> list[torch.utils.hooks.RemovableHandle]:
        """Have each layer brought just before it runs, with the one after it on its way, and forgotten afterwards."""
        parts = [tensors([layer]) for layer in layers]
        self._pin(tensor for part in parts for tensor in part)

        def before(place: int) -> None:
            self._bring(parts[place])
            self._arrived()
            self._bring(parts[(place + 1) % len(parts)], ahead=True)

        hooks = []
        for place, layer in enumerate(layers):
            hooks.append(layer.register_forward_pre_hook(lambda *_, place=place: before(place)))
            hooks.append(layer.register_forward_hook(lambda *_, place=place: self._leave(parts[place])))
        return hooks

    def _pin(self, these: Iterable[torch.Tensor]) -> None:
        """Move homes to memory that the GPU reads while the host goes on; costs no second copy for long."""
        for tensor in these:
            if self._copying is not None and not tensor.data.is_pinned():
                tensor.data = self._home[tensor] = tensor.data.pin_memory()

    def _bring(self, these: Iterable[torch.Tensor], ahead: bool = False) -> None:
        """Copy to the device what isn't there; ``ahead`` of need beside the computation."""
        stream = self._copying if ahead else None
        with torch.cuda.stream(stream):
            for tensor in these:
                if tensor not in self._here:
                    home = self._home.setdefault(tensor, tensor.data)
                    tensor.data = home.to(self._device, non_blocking=ahead, copy=True)
                    if stream is not None:
                        # The computing stream uses it, so its memory must outlive what that stream has queued.
                        tensor.data.record_stream(torch.cuda.current_stream(self._device))
                    self._here[tensor] = None

    def _arrived(self) -> None:
        if self._copying is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._copying)

    def _leave(self, these: Iterable[torch.Tensor]) -> None:
        for tensor in these:
            if tensor in self._here:
                tensor.data = self._home[tensor]
                del self._here[tensor]


def gigabytes(size: float) -> str:
    """Bytes in words: ``1.5 GB``."""
    return f"{size / 1e9:.1f} GB"


def tensors(networks: Iterable[nn.Module]) -> dict[torch.Tensor, None]:
    """Parameters and buffers, each once, in order."""
    return {tensor: None for network in networks for tensor in (*network.parameters(), *network.buffers())}


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)
