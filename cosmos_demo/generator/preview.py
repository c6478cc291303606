"""A glimpse of the picture while it is denoised: the clean estimate, through a linear map instead of the VAE."""

from __future__ import annotations

import weakref

import numpy as np
import torch
from diffusers import AutoencoderKLWan
from PIL import Image
from torch import Tensor

CELL = 16
"""Pixels of a latent cell along each side."""
_SCENES, _SIDE, _BOXES = 8, 128, 4
_RIDGE = 1e-2

_maps: weakref.WeakKeyDictionary[AutoencoderKLWan, Tensor] = weakref.WeakKeyDictionary()


def frame(estimate: Tensor, vae: AutoencoderKLWan) -> np.ndarray:
    """The middle frame of a clean estimate.

    Args:
        estimate: Normalised latents ``[..., C, T, h, w]`` of one sample.
        vae: Whose latents they are; its colours are measured once (`colour_map`).

    Returns:
        uint8 ``[16 h, 16 w, 3]``.
    """
    cells = estimate.reshape(estimate.shape[-4:])[:, estimate.shape[-3] // 2].float()
    weights = colour_map(vae).to(cells.device)
    colours = torch.einsum("chw,cd->hwd", cells, weights[:-1]) + weights[-1]
    small = (colours.clamp(0, 1) * 255).round().to(torch.uint8).cpu().numpy()
    large = (small.shape[1] * CELL, small.shape[0] * CELL)
    return np.asarray(Image.fromarray(small).resize(large, Image.Resampling.BICUBIC))


@torch.no_grad()
def colour_map(vae: AutoencoderKLWan) -> Tensor:
    """Least-squares map from a normalised latent cell to its mean colour (0 to 1): ``[C + 1, 3]``, the last row added.

    Measured once for each VAE on a few simple pictures; needs the VAE on its device.
    """
    if vae not in _maps:
        pictures = _scenes()
        mean, std = (
            torch.tensor(values).view(1, -1, 1, 1, 1) for values in (vae.config.latents_mean, vae.config.latents_std)
        )
        pixels = (pictures * 2 - 1).unsqueeze(2).to(vae.device, vae.dtype)
        latents = vae.encode(pixels).latent_dist.mode().float().cpu()
        cells = ((latents - mean) / std).movedim(1, -1).flatten(0, -2).double()
        colours = torch.nn.functional.avg_pool2d(pictures, CELL).movedim(1, -1).flatten(0, -2).double()
        centred = cells - cells.mean(0)
        gram = centred.T @ centred + _RIDGE * len(cells) * torch.eye(cells.shape[1], dtype=torch.float64)
        slopes = torch.linalg.solve(gram, centred.T @ (colours - colours.mean(0)))
        offset = colours.mean(0) - cells.mean(0) @ slopes
        _maps[vae] = torch.cat([slopes, offset[None]]).float()
    return _maps[vae]


def _scenes() -> Tensor:
    """Pictures of plain boxes before a ground shaded from top to bottom: ``[N, 3, side, side]`` from 0 to 1.

    Large even areas with few edges, as real pictures have; noise or colour tables alone would give gaudy previews.
    """
    generator = torch.Generator().manual_seed(0)
    top, bottom = torch.rand(2, _SCENES, 3, 1, 1, generator=generator)
    grey, strength = torch.rand(2, _SCENES, 1, 1, 1, generator=generator)
    height = torch.linspace(0, 1, _SIDE).view(1, 1, _SIDE, 1)
    ground = grey + (top * (1 - height) + bottom * height - 0.5) * strength
    scenes = ground.clamp(0, 1).repeat(1, 1, 1, _SIDE)
    for scene in scenes:
        for _ in range(_BOXES):
            left, upper = torch.randint(_SIDE, (2,), generator=generator).tolist()
            wide, high = torch.randint(_SIDE // 16, _SIDE // 2, (2,), generator=generator).tolist()
            scene[:, upper : upper + high, left : left + wide] = torch.rand(3, 1, 1, generator=generator)
    return scenes
