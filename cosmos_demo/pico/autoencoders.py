"""Training of the two autoencoders: pictures and clips to latents (VAE), stereo sound to latents (sound tokenizer)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from diffusers import AutoencoderKLWan, Cosmos3AVAEAudioTokenizer
from diffusers.models.autoencoders.autoencoder_kl_wan import unpatchify
from torch import Tensor

from cosmos_demo.pico.optimise import replayable

Log = Callable[..., None]

CROP = 128
COLOUR_WEIGHT = 6.0
"""Extra weight of a fully saturated pixel: objects are few and coloured, the table is large and grey."""
KL_WEIGHT = 1e-4


def to_float(pixels: Tensor) -> Tensor:
    """uint8 ``[..., T, H, W, 3]`` to float ``[..., 3, T, H, W]`` in -1 to 1."""
    return pixels.movedim(-1, -4).float() / 127.5 - 1


def train_vae(
    vae: AutoencoderKLWan,
    stills: Tensor,
    clips: Tensor,
    *,
    seconds: float,
    batch: int,
    rate: float,
    log: Log,
    resumed: bool = False,
) -> None:
    """Train the VAE: crops of single frames, crops of clips, then whole clips.

    Crops learn fastest; whole pictures are needed at the end because attention in the middle of the network and the
    borders look different there, and full length because the causal memory of later frames does.

    Args:
        stills: uint8 ``[N, H, W, 3]``; clips: uint8 ``[M, T, H, W, 3]``, T at least nine.
        seconds: Time to spend.
        batch: Single-frame crops in a step; cropped clips are an eighth as many, whole clips a fortieth.
        rate: Peak learning rate, which falls to a twentieth over the whole time.
        log: Called with figures by name.
        resumed: The VAE has been trained on crops before, so only the whole clips remain.
    """
    device = next(vae.parameters()).device
    optimiser = torch.optim.AdamW(
        vae.parameters(), lr=torch.tensor(rate, device=device), betas=(0.9, 0.98), capturable=device.type == "cuda"
    )
    loss_now = torch.zeros((), device=device)

    def crops(pixels: Tensor, count: int, frames: int, height: int, width: int) -> Tensor:
        chosen = torch.randint(pixels.shape[0], (count,), device=device)
        first = torch.randint(pixels.shape[1] - frames + 1, (count,), device=device)
        top = torch.randint(pixels.shape[2] - height + 1, (count,), device=device)
        left = torch.randint(pixels.shape[3] - width + 1, (count,), device=device)
        when = (first[:, None] + torch.arange(frames, device=device))[:, :, None, None]
        rows = (top[:, None] + torch.arange(height, device=device))[:, None, :, None]
        columns = (left[:, None] + torch.arange(width, device=device))[:, None, None, :]
        return to_float(pixels[chosen[:, None, None, None], when, rows, columns])

    def one_step(*size: Any) -> Callable[[], None]:
        def step() -> None:
            target = crops(*size)
            with torch.autocast(device.type, torch.bfloat16):
                posterior = vae.encode(target).latent_dist
                made = decode_unclamped(vae, posterior.mean + posterior.std * torch.randn_like(posterior.mean))
            saturation = (target.amax(1, keepdim=True) - target.amin(1, keepdim=True)) / 2
            error = (made.float() - target).abs()
            kl = 0.5 * (posterior.mean.float() ** 2 + posterior.var.float() - 1 - posterior.logvar.float()).mean()
            loss = ((error + error**2) * (1 + COLOUR_WEIGHT * saturation)).mean() + KL_WEIGHT * kl
            optimiser.zero_grad(set_to_none=False)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(vae.parameters(), 1.0, foreach=True)
            optimiser.step()
            loss_now.copy_(loss.detach())

        return step

    stills = stills[:, None]
    length, height, width = clips.shape[1:4]
    phases = [
        ("frames", 0.3, one_step(stills, batch, 1, CROP, CROP)),
        ("clips", 0.65, one_step(clips, max(1, batch // 8), 9, CROP, CROP)),
        ("whole", 1.0, one_step(clips, max(1, batch // 40), length, height, width)),
    ]
    started = time.monotonic() - (phases[1][1] * seconds if resumed else 0.0)
    count = 0
    for name, until, step in phases[2:] if resumed else phases:
        run = replayable(step, device)
        while (spent := (time.monotonic() - started) / seconds) < until:
            rate_now = rate * min(1.0, (count + 1) / 100) * max(0.02, 1 - spent)
            optimiser.param_groups[0]["lr"].fill_(rate_now)
            run()
            count += 1
            if count % 20 == 0:
                # Also keeps the queue of launched steps short, so that the clock above means something.
                log(stage="vae", phase=name, step=count, loss=float(loss_now))


def decode_unclamped(vae: AutoencoderKLWan, latents: Tensor) -> Tensor:
    """The VAE's own decoding, frame by frame, without the final clamp that would stop gradients.

    Args:
        latents: ``[B, 48, F, h, w]``, not normalised.

    Returns:
        ``[B, 3, 4*F-3, 16*h, 16*w]``.
    """
    vae.clear_cache()
    states = vae.post_quant_conv(latents)
    parts = []
    for frame in range(states.shape[2]):
        vae._conv_idx = [0]
        parts.append(
            vae.decoder(
                states[:, :, frame : frame + 1],
                feat_cache=vae._feat_map,
                feat_idx=vae._conv_idx,
                first_chunk=frame == 0,
            )
        )
    vae.clear_cache()
    return unpatchify(torch.cat(parts, 2), patch_size=vae.config.patch_size)


@torch.no_grad()
def encode_pictures(vae: AutoencoderKLWan, clips: Tensor, batch: int) -> Tensor:
    """Latent means ``[N, 48, F, h, w]`` (bfloat16, not normalised) of uint8 clips ``[N, T, H, W, 3]``."""
    out = []
    for part in clips.split(batch):
        with torch.autocast(part.device.type, torch.bfloat16):
            out.append(vae.encode(to_float(part)).latent_dist.mode().to(torch.bfloat16))
    return torch.cat(out)


@torch.no_grad()
def picture_psnr(vae: AutoencoderKLWan, clips: Tensor) -> float:
    """Peak signal to noise ratio in dB of the round trip of uint8 clips, over all pixels."""
    target = to_float(clips)
    made = vae.decode(vae.encode(target).latent_dist.mode()).sample
    return float(10 * torch.log10(4 / F.mse_loss(made, target)))


def fit_latent_statistics(vae: AutoencoderKLWan, latents: Tensor) -> None:
    """Write the mean and spread of each latent channel of ``[N, 48, F, h, w]`` into the VAE's configuration."""
    channels = latents.float().transpose(0, 1).flatten(1)
    vae.register_to_config(
        latents_mean=channels.mean(1).cpu().tolist(), latents_std=channels.std(1).clamp(min=1e-3).cpu().tolist()
    )


def normalise(vae: AutoencoderKLWan, latents: Tensor) -> Tensor:
    """Latents as the transformer sees them: mean 0 and spread 1 for each channel."""
    mean = torch.tensor(vae.config.latents_mean, device=latents.device).view(1, -1, 1, 1, 1)
    spread = torch.tensor(vae.config.latents_std, device=latents.device).view(1, -1, 1, 1, 1)
    return ((latents - mean) / spread).to(latents.dtype)


SPECTRA = ((1024, 256), (512, 128), (128, 32))
"""Window and hop of the spectra that decoded sound is compared in."""


def spectral_error(made: Tensor, target: Tensor) -> Tensor:
    """Difference of waveforms ``[N, 2, samples]`` in magnitude and log magnitude, over all :data:`SPECTRA`."""
    error = made.new_zeros(())
    for size, hop in SPECTRA:
        window = torch.hann_window(size, device=made.device)
        a, b = (
            torch.stft(wave.flatten(0, 1), size, hop, window=window, return_complex=True).abs()
            for wave in (made, target)
        )
        error = error + F.l1_loss(a, b) / size**0.5 + 0.1 * F.l1_loss((a + 1e-2).log(), (b + 1e-2).log())
    return error


def train_sound(
    sound: Cosmos3AVAEAudioTokenizer, waves: Tensor, *, seconds: float, batch: int, rate: float, log: Log
) -> None:
    """Train the sound tokenizer on ``[N, 2, samples]`` waveforms in -1 to 1, then bring its latents to unit spread.

    The pipeline feeds sound latents to the transformer as they are, so their scale is folded into the weights.
    """
    device = next(sound.parameters()).device
    sound.train()
    optimiser = torch.optim.AdamW(
        sound.parameters(), lr=torch.tensor(rate, device=device), betas=(0.9, 0.98), capturable=device.type == "cuda"
    )
    loss_now = torch.zeros((), device=device)

    def step() -> None:
        target = waves[torch.randint(waves.shape[0], (batch,), device=device)].float()
        posterior = sound.encode(target).latent_dist
        made = sound.decoder(posterior.mean + posterior.std * torch.randn_like(posterior.mean))
        kl = 0.5 * (posterior.mean**2 + posterior.var - 1 - posterior.logvar).mean()
        centre = posterior.mean.mean((0, 2)).square().mean()
        loss = spectral_error(made, target) + 3 * F.l1_loss(made, target) + KL_WEIGHT * kl + 0.01 * centre
        optimiser.zero_grad(set_to_none=False)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(sound.parameters(), 1.0, foreach=True)
        optimiser.step()
        loss_now.copy_(loss.detach())

    run = replayable(step, device)
    started = time.monotonic()
    count = 0
    while (spent := (time.monotonic() - started) / seconds) < 1:
        optimiser.param_groups[0]["lr"].fill_(rate * min(1.0, (count + 1) / 200) * max(0.05, 1 - spent))
        run()
        count += 1
        if count % 20 == 0:
            log(stage="sound", step=count, loss=float(loss_now))
    sound.eval()
    fold_latent_scale(sound, encode_sound(sound, waves[:512].float(), batch))


@torch.no_grad()
def encode_sound(sound: Cosmos3AVAEAudioTokenizer, waves: Tensor, batch: int) -> Tensor:
    """Latent means ``[N, samples/hop, D]`` of waveforms ``[N, 2, samples]``."""
    parts = [sound.encode(part.float()).latent_dist.mode().transpose(1, 2) for part in waves.split(batch)]
    return torch.cat(parts)


@torch.no_grad()
def fold_latent_scale(sound: Cosmos3AVAEAudioTokenizer, latents: Tensor) -> None:
    """Divide the encoder's means by the overall spread of ``latents``; the decoder's first layer multiplies it back.

    One factor for all channels keeps quiet channels quiet, so that they cost the transformer little.
    """
    spread = latents.std()
    last, first = sound.encoder.layers[-1], sound.decoder.conv1
    means = sound.config.vocoder_input_dim
    last.weight_g[:means] /= spread
    first.weight_g *= spread


@torch.no_grad()
def sound_snr(sound: Cosmos3AVAEAudioTokenizer, waves: Tensor) -> float:
    """Signal to noise ratio in dB of the round trip of waveforms ``[N, 2, samples]``."""
    made = sound(waves.float()).sample[..., : waves.shape[-1]]
    return float(10 * torch.log10(waves.float().square().mean() / (made - waves).square().mean().clamp(min=1e-12)))
