"""Polishing of a finished checkpoint's two decoders; encoders stay, so the transformer's latents keep their meaning.

    python -m cosmos_demo.pico.polish assets/cosmos3-pico --minutes 8

Runs on a laptop's CPU. Objects weigh more than the table whatever their colour, which the first training's weight on
saturated pixels did not do for white ones.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from diffusers import AutoencoderKLWan, Cosmos3AVAEAudioTokenizer
from torch import Tensor

from cosmos_demo.pico import world
from cosmos_demo.pico.autoencoders import (
    decode_unclamped,
    encode_sound,
    picture_psnr,
    sound_snr,
    spectral_error,
    to_float,
)
from cosmos_demo.pico.bank import FPS, sound_of
from cosmos_demo.pico.blueprint import SOUND_HOP, save_diffusers

OBJECT_WEIGHT = 10.0
"""Extra weight of pixels where an object is."""
FRAMES = 5
"""Frames of the clips that the VAE is polished on."""
STRETCH = 20
"""Sound latents fitted at a time: 0.8 s."""
UNSEEN = 4_321


def polish_vae(vae: AutoencoderKLWan, *, seconds: float, rate: float, log: Callable[[str], None]) -> None:
    """Train the VAE's decoder on stills and short clips drawn on the fly, one at a time."""
    weights = [*vae.decoder.parameters(), *vae.post_quant_conv.parameters()]
    optimiser = torch.optim.AdamW(weights, lr=rate, betas=(0.9, 0.98))
    generator = torch.Generator().manual_seed(0)
    started, count = time.monotonic(), 0
    while (spent := (time.monotonic() - started) / seconds) < 1:
        clips = world.sample_videos(1, FRAMES, FPS, generator) if count % 4 == 3 else world.sample_stills(2, generator)
        frames = world.render(clips)
        empty = world.render(replace(clips, present=torch.zeros_like(clips.present)))
        target = to_float(frames)
        objects = ((frames.int() - empty.int()).abs().amax(-1) > 6).float()[:, None]
        with torch.no_grad():
            latents = vae.encode(target).latent_dist.mode()
        error = (decode_unclamped(vae, latents) - target).abs()
        loss = ((error + error**2) * (1 + OBJECT_WEIGHT * objects)).mean()
        optimiser.param_groups[0]["lr"] = rate * min(1.0, (count + 1) / 20) * max(0.02, 1 - spent)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimiser.step()
        count += 1
        if count % 25 == 0:
            log(f"vae {count} {loss.item():.4f}")


def polish_sound(
    sound: Cosmos3AVAEAudioTokenizer, *, seconds: float, rate: float, batch: int, log: Callable[[str], None]
) -> None:
    """Train the sound decoder on stretches of the waveforms of new clips, each fitted several times."""
    waves = sound_of(world.sample_videos(400, 17, FPS, torch.Generator().manual_seed(0)))
    waves = waves[waves.abs().amax((1, 2)) > 0]
    latents = encode_sound(sound, waves, 64).transpose(1, 2)
    optimiser = torch.optim.AdamW(sound.decoder.parameters(), lr=rate, betas=(0.9, 0.98))
    started, count = time.monotonic(), 0
    while (spent := (time.monotonic() - started) / seconds) < 1:
        chosen = torch.randint(len(waves), (batch,))
        first = int(torch.randint(latents.shape[2] - STRETCH + 1, ()))
        made = sound.decoder(latents[chosen, :, first : first + STRETCH])
        target = waves[chosen, :, first * SOUND_HOP : (first + STRETCH) * SOUND_HOP]
        loss = spectral_error(made, target) + 10 * F.l1_loss(made, target)
        optimiser.param_groups[0]["lr"] = rate * min(1.0, (count + 1) / 20) * max(0.02, 1 - spent)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(sound.decoder.parameters(), 1.0)
        optimiser.step()
        count += 1
        if count % 25 == 0:
            log(f"sound {count} {loss.item():.4f}")


def unseen_figures(vae: AutoencoderKLWan, sound: Cosmos3AVAEAudioTokenizer) -> dict[str, float]:
    """Round-trip quality on clips drawn from a seed that nothing was trained on."""
    clips = world.sample_videos(8, 17, FPS, torch.Generator().manual_seed(UNSEEN))
    waves: Tensor = sound_of(clips)
    return {"psnr_db": picture_psnr(vae, world.render(clips)[:3]), "snr_db": sound_snr(sound, waves)}


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, polish both decoders and write them back into the checkpoint."""
    parser = argparse.ArgumentParser(prog="python -m cosmos_demo.pico.polish", description=__doc__.split("\n\n")[0])
    parser.add_argument("checkpoint", type=Path, help="folder of the checkpoint, which is changed")
    parser.add_argument("--minutes", type=float, default=8.0, help="time for the VAE; sound gets half of it")
    parser.add_argument("--rate", type=float, default=4e-4, help="peak learning rate")
    chosen = parser.parse_args(arguments)
    vae = AutoencoderKLWan.from_pretrained(chosen.checkpoint / "vae", torch_dtype=torch.float32)
    sound = Cosmos3AVAEAudioTokenizer.from_pretrained(
        chosen.checkpoint / "sound_tokenizer", torch_dtype=torch.float32
    ).eval()
    print("before", unseen_figures(vae, sound), flush=True)

    def log(line: str) -> None:
        print(line, flush=True)

    polish_vae(vae, seconds=60 * chosen.minutes, rate=chosen.rate, log=log)
    polish_sound(sound, seconds=30 * chosen.minutes, rate=chosen.rate, batch=4, log=log)
    print("after", unseen_figures(vae, sound), flush=True)
    save_diffusers(vae, chosen.checkpoint / "vae")
    save_diffusers(sound, chosen.checkpoint / "sound_tokenizer")


if __name__ == "__main__":
    main()
