"""The joint step on a bank of a few worlds: what it mixes, what it learns from, and that it resumes where it was."""

from __future__ import annotations

import pytest
import torch
from diffusers import Cosmos3OmniPipeline, UniPCMultistepScheduler

from cosmos_demo.pico.bank import Amounts, Bank, Writer, fill_bank, render_kind, word_chunk
from cosmos_demo.pico.blueprint import SCHEDULER, new_components
from cosmos_demo.pico.joint import JointStep, Mixture, flow_loss, mix
from cosmos_demo.pico.train import load_joint, save_joint

AMOUNTS = Amounts(1, 1, 1, 1, 1, 1, 1, 1, 1, 1)


class Ready:
    """A result that is already there."""

    def __init__(self, value: object) -> None:
        self.value = value

    def get(self) -> object:
        return self.value


@pytest.fixture(scope="module")
def made():
    parts = new_components(seed=3)
    scheduler = UniPCMultistepScheduler(**SCHEDULER)
    write = Writer(
        Cosmos3OmniPipeline(
            parts.transformer, parts.tokenizer, parts.vae, scheduler, parts.sound, enable_safety_checker=False
        )
    )
    size, device = 2, torch.device("cpu")
    kinds = ("camera", "impossible", "clip", "still")
    words = {kind: [Ready(word_chunk(kind, 1, 0, size, AMOUNTS, write))] for kind in kinds}
    stills = render_kind("still", 1, 1, size, device)[:, 0]
    clips = torch.cat([render_kind(kind, 1, 1, size, device) for kind in ("clip", "impossible")])
    bank = fill_bank(parts, stills, clips, words, write, seed=1, amounts=AMOUNTS, size=size, batch=2)
    return parts, bank


def test_bank_latents_are_normalised(made):
    _, bank = made
    assert isinstance(bank, Bank)
    assert bank.still_latents.shape == (2, 48, 1, 12, 20)
    assert bank.clip_sounds.shape == (2, 43, 32)
    assert bank.camera_actions.shape == (2, 16, 9)
    assert 0.5 < float(bank.clip_latents.float().std()) < 2


def test_one_step_over_every_kind(made):
    parts, bank = made
    step = JointStep(parts, bank, Mixture(1, 1, 1, 1, 1, 1, 1), average_decay=0.5, compiled=False)
    step()
    flows = {"picture", "video", "sound", "camera", "action", "transfer"}
    assert flows | {"short", "long", "clip"} <= step.figures.keys()
    assert all(torch.isfinite(value) for value in step.figures.values())


def test_a_saved_run_resumes_where_it_was(made, tmp_path):
    parts, bank = made
    step = JointStep(parts, bank, Mixture(1, 0, 0, 1, 0, 0, 0), average_decay=0.5, compiled=False)
    step.set_rate(1e-3)
    step()
    save_joint(tmp_path / "joint.pt", step, 3, 12.5)
    kept = [parameter.detach().clone() for parameter in step.parameters]
    averaged = [value.clone() for value in step.average.kept]
    step()
    assert not all(torch.equal(a, b) for a, b in zip(kept, step.parameters, strict=True))
    assert load_joint(tmp_path / "joint.pt", step) == (3, 12.5)
    assert all(torch.equal(a, b) for a, b in zip(kept, step.parameters, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(averaged, step.average.kept, strict=True))


def test_mix_leaves_conditions_clean_and_its_velocity_leads_home():
    torch.manual_seed(0)
    clean = torch.randn(2, 4, 3, 2, 2)
    sigma = torch.tensor([0.25, 0.9])
    noisy = torch.tensor([[0.0, 1, 1], [0, 0, 1]])
    mixed, velocity = mix(clean, sigma, noisy[:, None, :, None, None])
    assert torch.equal(mixed[0, :, 0], clean[0, :, 0])
    assert torch.equal(mixed[1, :, :2], clean[1, :, :2])
    torch.testing.assert_close(mixed[1, :, 2] - 0.9 * velocity[1, :, 2], clean[1, :, 2])
    assert float(flow_loss(velocity, velocity, noisy)) == 0
    worse = velocity.clone()
    worse[0, :, 0] += 5
    assert float(flow_loss(worse, velocity, noisy)) == 0
    worse[0, :, 1] += 2
    assert float(flow_loss(worse, velocity, noisy)) == pytest.approx(4 / 3)
