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
_CALIBRATION_SIDE = 256
_RIDGE = 1e-3

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

    Measured once for each VAE on one 256x256 picture of random blocks; needs the VAE on its device.
    """
    if vae not in _maps:
        generator = torch.Generator().manual_seed(0)
        coarse = torch.rand(1, 3, _CALIBRATION_SIDE // 32, _CALIBRATION_SIDE // 32, generator=generator)
        picture = torch.nn.functional.interpolate(coarse, size=_CALIBRATION_SIDE, mode="nearest")
        where, dtype = next(vae.parameters()).device, vae.dtype
        pixels = (picture * 2 - 1).unsqueeze(2).to(where, dtype)
        latents = vae.encode(pixels).latent_dist.mode().float().cpu()
        mean, std = (
            torch.tensor(values).view(1, -1, 1, 1, 1) for values in (vae.config.latents_mean, vae.config.latents_std)
        )
        cells = ((latents - mean) / std)[0, :, 0].flatten(1).T
        colours = torch.nn.functional.avg_pool2d(picture, CELL)[0].flatten(1).T
        rows = torch.cat([cells, torch.ones(len(cells), 1)], 1).double()
        gram = rows.T @ rows + _RIDGE * len(rows) * torch.eye(rows.shape[1], dtype=torch.float64)
        _maps[vae] = torch.linalg.solve(gram, rows.T @ colours.double()).float()
    return _maps[vae]
