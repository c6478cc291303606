"""Which device, which precision, and where weights go; offloading itself is proved on the model in `test_omni`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cosmos_demo import placement
from cosmos_demo.errors import EngineError, OutOfMemoryError
from cosmos_demo.placement import Memory, choose_device, choose_dtype, memory_of, stays_on_device

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("kind", "offload", "device_free", "host_free", "outcome"),
    [
        ("cuda", "auto", 80, 64, True),
        ("cuda", "auto", 24, 64, False),
        ("cuda", "always", 80, 64, False),
        ("cuda", "never", 80, 64, True),
        ("cuda", "never", 24, 64, "auto"),
        ("cuda", "auto", 24, 32, "neither"),
        ("cpu", "auto", 64, 64, True),
        ("cpu", "always", 64, 64, True),
        ("cpu", "auto", 32, 32, "bfloat16"),
        ("mps", "auto", 32, 32, "more memory"),
    ],
)
def test_where_35_gb_of_weights_go(
    monkeypatch: pytest.MonkeyPatch, kind: str, offload: str, device_free: int, host_free: int, outcome: bool | str
) -> None:
    """A fifth of each memory is left for working: 80 GB give 64 to weights, 24 give 19, 32 give 25."""
    free = {kind: device_free, "cpu": host_free}
    monkeypatch.setattr(
        "cosmos_demo.placement.memory_of",
        lambda device: Memory(0, free[device.type] * 10**9, free[device.type] * 10**9),
    )
    if isinstance(outcome, bool):
        assert stays_on_device(35 * 10**9, torch.device(kind), offload) is outcome
    else:
        with pytest.raises(OutOfMemoryError, match=rf"35\.0 GB.*{outcome}"):
            stays_on_device(35 * 10**9, torch.device(kind), offload)


def test_devices_and_precision_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_device("cpu") == CPU
    with pytest.raises(EngineError, match=r"'tpu'.*cpu"):
        choose_device("tpu")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("auto") == choose_device("cuda") == torch.device("cuda:0")
    assert choose_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(EngineError, match="cuda:2"):
        choose_device("cuda:2")
    assert choose_dtype("auto", CPU) == torch.float32
    assert choose_dtype("bfloat16", CPU) == torch.bfloat16
    assert choose_dtype("auto", torch.device("cuda:0")) == torch.bfloat16


def test_a_containers_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(placement, "CGROUP_LIMIT", limit)
    whole = memory_of(CPU)
    limit.write_text("max\n")
    assert memory_of(CPU).total == whole.total
    limit.write_text("4000000000\n")
    inside = memory_of(CPU)
    assert inside.total == 4_000_000_000
    assert inside.free == 4_000_000_000 - inside.allocated
