"""Joint training of both heads: flow matching for what is generated, next-token loss for what is answered.

One step draws a fixed number of samples of every kind from the bank, on the device, and runs them in one pass
(`packing.forward`). Nothing in it depends on the host, so on CUDA the whole step is replayed as a graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from cosmos_demo.pico.bank import Bank, Rows
from cosmos_demo.pico.blueprint import Components
from cosmos_demo.pico.optimise import Average, Muon
from cosmos_demo.pico.packing import (
    Group,
    GroupedAttention,
    Prediction,
    VisionForward,
    forward,
    patch_rows,
    relative_positions,
)

LATENT_GRID = (12, 20)
PATCH_GRID = (12, 20)
CAMERA_DOMAIN = 2
SHIFTS = (1.0, 3.0, 8.0)
"""Noise levels are uniform ones pushed up by one of these shifts, to cover the shipped and the shift-10 schedules."""


@dataclass(frozen=True)
class Mixture:
    """Samples of each kind in one step, and the weight of each kind's loss."""

    pictures: int = 256
    short_questions: int = 144
    long_questions: int = 48
    videos: int = 32
    cameras: int = 12
    video_questions: int = 10
    transfers: int = 6
    picture_weight: float = 1.0
    video_weight: float = 1.0
    sound_weight: float = 0.3
    camera_weight: float = 0.5
    action_weight: float = 1.0
    transfer_weight: float = 0.3
    question_weight: float = 0.5
    prompt_dropout: float = 0.1
    sound_share: float = 0.5


@dataclass
class Task:
    """A group and how to turn its prediction into named losses with their weights."""

    group: Group
    losses: Callable[[Prediction], dict[str, tuple[float, Tensor]]]


class JointStep:
    """One optimisation step over all kinds; call it, then read :attr:`figures`.

    Args:
        parts: Components whose transformer and vision encoder are trained, on the device.
        bank: What to train on, on the same device.
        mixture: How much of each kind.
        average_decay: Decay of the averaged weights.
        compiled: Compile the decoder layers (CUDA).
    """

    def __init__(
        self, parts: Components, bank: Bank, mixture: Mixture, *, average_decay: float, compiled: bool
    ) -> None:
        self.parts, self.bank, self.mixture = parts, bank, mixture
        self.device = bank.stills.device
        transformer, vision = parts.transformer.train(), parts.vision.train()
        transformer.set_attn_processor(GroupedAttention())
        self.vision = VisionForward(vision, PATCH_GRID)
        if compiled:
            for layer in transformer.layers:
                layer.compile(dynamic=False)
            self.vision = torch.compile(self.vision.__call__, dynamic=False)

        named = [*transformer.named_parameters(), *vision.named_parameters()]
        inner = [p for name, p in named if p.ndim == 2 and ("layers." in name or "blocks." in name)]
        inner_ids = {id(p) for p in inner}
        outer = [p for _, p in named if id(p) not in inner_ids]
        self.parameters = [p for _, p in named]
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)
        self.muon = Muon(inner)
        self.rate = torch.zeros((), device=self.device)
        on_gpu = self.device.type == "cuda"
        self.adam = torch.optim.AdamW(
            outer, lr=torch.zeros((), device=self.device), betas=(0.9, 0.98), weight_decay=0.01,
            fused=True, capturable=on_gpu,
        )  # fmt: skip
        self.average = Average(self.parameters, average_decay)
        self.figures: dict[str, Tensor] = {}
        self.shifts = torch.tensor(SHIFTS, device=self.device)
        self.video_positions = relative_positions(5, 6, 10, 10, temporal_factor=4).to(self.device)
        self.still_positions = relative_positions(1, 6, 10, 10, temporal_factor=4).to(self.device)
        self.action_positions = relative_positions(16, 1, 1, 10, temporal_factor=1, first=1).to(self.device)
        sound_length = bank.clip_sounds.shape[1]
        self.sound_positions = relative_positions(sound_length, 1, 1, 25, temporal_factor=1, base_factor=1).to(
            self.device
        )

    def set_rate(self, rate: float) -> None:
        """Learning rate of the next steps: Muon's; AdamW gets half of it."""
        self.rate.fill_(rate)
        self.adam.param_groups[0]["lr"].fill_(rate / 2)

    def __call__(self) -> None:
        tasks = [task for task in self._draw() if task is not None]
        with torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False):
            predictions = forward(self.parts.transformer, {PATCH_GRID: self.vision}, [task.group for task in tasks])
            losses: dict[str, tuple[float, Tensor]] = {}
            for task, prediction in zip(tasks, predictions, strict=True):
                losses |= task.losses(prediction)
        total = sum(weight * loss for weight, loss in losses.values())
        for parameter in self.parameters:
            parameter.grad.zero_()
        total.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        self.muon.step(self.rate)
        self.adam.step()
        self.average.step()
        for name, value in {**{name: loss for name, (_, loss) in losses.items()}, "gradient": norm}.items():
            self.figures.setdefault(name, torch.zeros((), device=self.device)).copy_(value.detach())

    def _draw(self) -> list[Task | None]:
        bank, mixture = self.bank, self.mixture
        return [
            self._pictures(mixture.pictures),
            self._videos(mixture.videos),
            self._cameras(mixture.cameras),
            self._transfers(mixture.transfers),
            self._questions("short", bank.short_questions, mixture.short_questions),
            self._questions("long", bank.long_questions, mixture.long_questions),
            self._questions("clip", bank.video_questions, mixture.video_questions),
        ]

    def _prompts(self, rows: Rows, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Token rows, their lengths and what each describes; some rows replaced by the empty prompt's."""
        chosen = torch.randint(len(rows), (count,), device=self.device)
        dropped = torch.rand(count, device=self.device) < self.mixture.prompt_dropout
        ids = torch.where(dropped[:, None], rows.empty_ids, rows.ids[chosen].long())
        lengths = torch.where(dropped, rows.empty_length, rows.lengths[chosen])
        return ids, lengths, rows.owners[chosen]

    def _sigma(self, count: int) -> Tensor:
        uniform = torch.rand(count, device=self.device)
        shifts = self.shifts[torch.randint(len(SHIFTS), (count,), device=self.device)]
        return shifts * uniform / (1 + (shifts - 1) * uniform)

    def _pictures(self, count: int) -> Task | None:
        if not count:
            return None
        ids, lengths, owner = self._prompts(self.bank.still_prompts, count)
        sigma = self._sigma(count)
        clean = self.bank.still_latents[owner].float()
        noisy = torch.ones(count, 1, device=self.device)
        mixed, velocity = mix(clean, sigma, noisy[:, None, :, None, None])
        group = Group(
            ids, lengths, vision=mixed, vision_noisy=noisy,
            vision_positions=self.still_positions, timesteps=1000 * sigma,
        )  # fmt: skip
        weight = self.mixture.picture_weight
        return Task(group, lambda made: {"picture": (weight, flow_loss(made.vision, velocity, noisy))})

    def _videos(self, count: int) -> Task | None:
        """Text-, image- and video-to-video: no, one or two clean latent frames; half of them with sound."""
        if not count:
            return None
        ids, lengths, owner = self._prompts(self.bank.clip_prompts, count)
        sigma = self._sigma(count)
        kept = torch.randint(3, (count, 1), device=self.device)
        noisy = (torch.arange(5, device=self.device) >= kept).float()
        mixed, velocity = mix(self.bank.clip_latents[owner].float(), sigma, noisy[:, None, :, None, None])
        audible = torch.rand(count, device=self.device) < self.mixture.sound_share
        sound, sound_velocity = mix(self.bank.clip_sounds[owner].float(), sigma, torch.ones((), device=self.device))
        group = Group(
            ids, lengths, vision=mixed, vision_noisy=noisy, vision_positions=self.video_positions,
            sound=sound, sound_present=audible, sound_positions=self.sound_positions, timesteps=1000 * sigma,
        )  # fmt: skip
        weights = self.mixture

        def losses(made: Prediction) -> dict[str, tuple[float, Tensor]]:
            error = (made.sound.float() - sound_velocity).square().mean((1, 2))
            heard = (error * audible).sum() / audible.sum().clamp(min=1)
            return {
                "video": (weights.video_weight, flow_loss(made.vision, velocity, noisy)),
                "sound": (weights.sound_weight, heard),
            }

        return Task(group, losses)

    def _cameras(self, count: int) -> Task | None:
        """Forward dynamics, inverse dynamics and policy by thirds; channels beyond the domain's are always zero."""
        if not count:
            return None
        ids, lengths, owner = self._prompts(self.bank.camera_prompts, count)
        sigma = self._sigma(count)
        mode = torch.randint(3, (count, 1), device=self.device)
        noisy = ((torch.arange(5, device=self.device) > 0) & (mode != 1)).float()
        action_noisy = (mode[:, 0] != 0).float()
        mixed, velocity = mix(self.bank.camera_latents[owner].float(), sigma, noisy[:, None, :, None, None])
        raw = self.bank.camera_actions[owner]
        action, action_velocity = mix(raw, sigma, action_noisy[:, None, None])
        width = self.parts.transformer.config.action_dim - raw.shape[2]
        group = Group(
            ids, lengths, vision=mixed, vision_noisy=noisy, vision_positions=self.video_positions,
            action=F.pad(action, (0, width)), action_noisy=action_noisy, action_positions=self.action_positions,
            domains=torch.full((count,), CAMERA_DOMAIN, device=self.device), timesteps=1000 * sigma,
        )  # fmt: skip
        weights = self.mixture

        def losses(made: Prediction) -> dict[str, tuple[float, Tensor]]:
            error = (made.action[..., : raw.shape[2]].float() - action_velocity).square().mean((1, 2))
            return {
                "camera": (weights.camera_weight, flow_loss(made.vision, velocity, noisy)),
                "action": (weights.action_weight, (error * action_noisy).sum() / action_noisy.sum().clamp(min=1)),
            }

        return Task(group, losses)

    def _transfers(self, count: int) -> Task | None:
        """Clips drawn after a clean control clip that sits before them at the same positions."""
        if not count:
            return None
        ids, lengths, owner = self._prompts(self.bank.transfer_prompts, count)
        sigma = self._sigma(count)
        noisy = (torch.arange(10, device=self.device) >= 5).float().repeat(count, 1)
        both = torch.cat([self.bank.control_latents[owner], self.bank.controlled_latents[owner]], dim=2).float()
        mixed, velocity = mix(both, sigma, noisy[:, None, :, None, None])
        group = Group(
            ids, lengths, vision=mixed, vision_noisy=noisy,
            vision_positions=self.video_positions.repeat(1, 2), timesteps=1000 * sigma,
        )  # fmt: skip
        weight = self.mixture.transfer_weight
        return Task(group, lambda made: {"transfer": (weight, flow_loss(made.vision, velocity, noisy))})

    def _questions(self, name: str, rows: Rows, count: int) -> Task | None:
        """Questions about a still, or about the first sixteen frames of a clip, with loss on the answer alone."""
        if not count:
            return None
        chosen = torch.randint(len(rows), (count,), device=self.device)
        if name == "clip":
            pixels = self.bank.clips[rows.owners[chosen], :16].unflatten(1, (8, 2)).flatten(0, 1)
        else:
            pixels = self.bank.stills[rows.owners[chosen], None].expand(-1, 2, -1, -1, -1)
        patches = patch_rows(pixels.movedim(-1, 2).float() / 127.5 - 1)
        ids = rows.ids[chosen].long()
        slots = rows.media_slots + torch.arange(count, device=self.device)[:, None] * ids.shape[1]
        group = Group(
            ids, rows.lengths[chosen], text_positions=rows.positions[:, None].expand(-1, count, -1),
            frames=patches, frame_grid=PATCH_GRID, frame_slots=slots.flatten(),
        )  # fmt: skip
        answer = rows.starts[chosen][:, None] + torch.arange(rows.longest_answer, device=self.device)
        real = answer < rows.lengths[chosen][:, None]
        answer = answer.clamp(max=ids.shape[1] - 1)
        labels = torch.where(real, ids.gather(1, answer), -100)
        weight = self.mixture.question_weight * (1.0 if name == "short" else 0.5)

        def losses(made: Prediction) -> dict[str, tuple[float, Tensor]]:
            before = (answer - 1)[:, :, None].expand(-1, -1, made.text.shape[2])
            logits = self.parts.transformer.lm_head(made.text.gather(1, before))
            loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=-100)
            right = ((logits.argmax(-1) == labels) | ~real).all(1).float().mean()
            return {name: (weight, loss), f"{name}_exact": (0.0, right)}

        return Task(group, losses)


def mix(clean: Tensor, sigma: Tensor, noisy: Tensor) -> tuple[Tensor, Tensor]:
    """Flow matching: ``(1 - sigma) * clean + sigma * noise`` where ``noisy`` is 1, and the velocity noise - clean."""
    noise = torch.randn_like(clean)
    level = sigma.view(-1, *(1,) * (clean.ndim - 1)) * noisy
    return clean + level * (noise - clean), noise - clean


def flow_loss(made: Tensor, velocity: Tensor, noisy: Tensor) -> Tensor:
    """Mean squared error over the noisy frames; ``[B, C, F, h, w]`` each, ``noisy`` ``[B, F]``."""
    error = (made.float() - velocity).square().mean((1, 3, 4))
    return (error * noisy).sum() / noisy.sum().clamp(min=1)
