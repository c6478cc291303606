"""What the tabletop sounds like: every impact rings, by who hit what, how fast, and where."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cosmos_demo.pico.world import WIDTH, Clips

SAMPLE_RATE = 16_000
PITCH = (880.0, 440.0)
"""Hz of a small and of a large object."""
OVERTONES = ((1.0, 0.25, 0.0), (1.0, 0.0, 0.6), (1.0, 0.7, 0.4))
"""Strength of the partials at 1, 2 and 3 times the pitch, by shape: a ball is round, a cube hollow, a pyramid sharp."""
DECAY = (0.10, 0.06, 0.08)
"""Seconds in which a shape's ring falls to 1/e."""
LOUDEST = 450.0
"""Closing speed in pixels per second that rings at full strength."""
RING = 0.5
"""Seconds after which a ring is silent."""


def render_sound(clips: Clips, seconds: float, sample_rate: int = SAMPLE_RATE) -> Tensor:
    """Stereo sound of clips.

    Args:
        clips: What happens.
        seconds: Length.
        sample_rate: In Hz.

    Returns:
        float32 ``[n, 2, samples]`` within -1 to 1 on the clips' device; channel 0 is left.
    """
    hits, device = clips.impacts, clips.x.device
    samples = round(seconds * sample_rate)
    ring = round(RING * sample_rate)
    mono_start = (hits.time * sample_rate).long()
    shape, size = clips.shape[hits.clip, hits.object], clips.size[hits.clip, hits.object]
    time = torch.arange(ring, device=device) / sample_rate
    pitch = torch.tensor(PITCH, device=device)[size][:, None]
    partials = torch.tensor(OVERTONES, device=device)[shape]
    wave = sum(
        partials[:, k, None] * torch.sin(2 * math.pi * (k + 1) * pitch * time) for k in range(len(OVERTONES[0]))
    ) / partials.sum(1, keepdim=True)
    loud = 0.5 * (hits.speed / LOUDEST).clamp(0.1, 1.0)
    wave = wave * torch.exp(-time / torch.tensor(DECAY, device=device)[shape][:, None]) * loud[:, None]
    angle = (hits.x / WIDTH).clamp(0, 1) * math.pi / 2
    sound = torch.zeros(len(clips), 2, samples + ring, device=device)
    place = mono_start[:, None] + torch.arange(ring, device=device)
    kept = place < samples
    for channel, gain in enumerate((torch.cos(angle), torch.sin(angle))):
        flat = (hits.clip[:, None] * 2 + channel) * (samples + ring) + place
        sound.view(-1).index_add_(0, flat[kept], (wave * gain[:, None])[kept])
    return torch.tanh(sound[..., :samples])
