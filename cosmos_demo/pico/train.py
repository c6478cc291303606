"""Training of Cosmos3-Pico, top to bottom.

    python -m cosmos_demo.pico.train all --state DIR --minutes 25

Stages, in order; each leaves its result in the state folder and is skipped when that is there, so a run that was
stopped goes on where it was:

    sound   train the sound tokenizer on the tabletop's impacts                      -> sound.pt
    vae     train the VAE on single frames, then on short clips                      -> vae.pt
    joint   encode the bank, then train transformer and vision encoder together      -> joint.pt, checkpoint/

``all`` runs them all, the sound tokenizer beside the VAE. With ``--from CHECKPOINT`` its autoencoders are kept and the
joint stage goes on from its weights. ``--config FILE`` is a JSON object with the fields of `Config` that differ. The
log is ``log.jsonl``. One GPU is enough for all of it; a CPU does for a short ``joint --from`` with a small mixture,
and for ``--tiny``, which only shows that every line runs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from diffusers import Cosmos3OmniPipeline, UniPCMultistepScheduler

from cosmos_demo.pico.autoencoders import (
    encode_sound,
    picture_psnr,
    sound_snr,
    train_sound,
    train_vae,
)
from cosmos_demo.pico.bank import (
    CHUNK,
    Amounts,
    Writer,
    draw_worlds,
    fill_bank,
    order_words,
    render_kind,
    sound_of,
    start_writers,
)
from cosmos_demo.pico.blueprint import SCHEDULER, Components, new_components, read_components, write_checkpoint
from cosmos_demo.pico.joint import JointStep, Mixture
from cosmos_demo.pico.optimise import replayable


@dataclass(frozen=True)
class Config:
    """Every number of a training run."""

    seed: int = 1
    amounts: Amounts = field(default_factory=Amounts)
    chunk: int = CHUNK
    mixture: Mixture = field(default_factory=Mixture)
    writers: int = 14
    vae_seconds: float = 215.0
    vae_batch: int = 128
    vae_rate: float = 1e-3
    sound_seconds: float = 125.0
    sound_batch: int = 32
    sound_rate: float = 1e-3
    encode_batch: int = 64
    peak_rate: float = 2e-3
    warmup_steps: int = 200
    decay_share: float = 0.45
    average_decay: float = 0.998
    save_seconds: float = 140.0


TINY = Config(
    amounts=Amounts(1, 1, 1, 1, 1, 1, 1, 1, 1, 1),
    chunk=8,
    mixture=Mixture(4, 2, 2, 2, 1, 1, 1),
    writers=1,
    vae_seconds=5.0,
    vae_batch=4,
    sound_seconds=5.0,
    sound_batch=2,
    encode_batch=2,
    save_seconds=20.0,
)

Log = Callable[..., None]


def configured(config: Config, fields: dict[str, Any]) -> Config:
    """``config`` with some fields changed; those of ``amounts`` and ``mixture`` one by one, under their names.

    Raises:
        TypeError: when there is no such field.
    """
    nested = {name: replace(getattr(config, name), **fields[name]) for name in ("amounts", "mixture") if name in fields}
    return replace(config, **{**fields, **nested})


# --- stage: sound -----------------------------------------------------------------------------------------------------


def sound_stage(parts: Components, config: Config, state: Path, device: torch.device, log: Log) -> None:
    """Train the sound tokenizer on waveforms of the possible clips, silence included."""
    chunks = max(1, min(config.amounts.clips, 8))
    waves = torch.cat([sound_of(draw_worlds("clip", config.seed, n, config.chunk)[0]) for n in range(chunks)])
    waves = waves.to(device)
    parts.sound.to(device)
    train_sound(
        parts.sound, waves, seconds=config.sound_seconds, batch=config.sound_batch, rate=config.sound_rate, log=log
    )
    unseen = sound_of(draw_worlds("clip", config.seed + 1000, 0, min(config.chunk, 200))[0]).to(device)
    spread = float(encode_sound(parts.sound, unseen, config.sound_batch).std())
    log(stage="sound", snr_db=sound_snr(parts.sound, unseen), latent_spread=spread)
    torch.save(parts.sound.state_dict(), state / "sound.pt")


# --- stage: vae -------------------------------------------------------------------------------------------------------


def vae_stage(
    parts: Components, stills: torch.Tensor, clips: torch.Tensor, config: Config, state: Path, log: Log
) -> None:
    """Train the VAE on the bank's own frames."""
    parts.vae.to(stills.device)
    begun = state / "vae.begun.pt"
    if begun.exists():
        parts.vae.load_state_dict(torch.load(begun, map_location=stills.device, weights_only=True))
    train_vae(
        parts.vae,
        stills,
        clips,
        seconds=config.vae_seconds,
        batch=config.vae_batch,
        rate=config.vae_rate,
        log=log,
        resumed=begun.exists(),
    )
    unseen = render_kind("clip", config.seed + 1000, 1, min(config.chunk, 16), stills.device)
    log(stage="vae", psnr_db=picture_psnr(parts.vae, unseen))
    torch.save(parts.vae.state_dict(), state / "vae.pt")


# --- stage: joint -----------------------------------------------------------------------------------------------------


def joint_stage(step: JointStep, parts: Components, config: Config, state: Path, deadline: float, log: Log) -> None:
    """Train until the deadline (on the clock of ``time.time``); the rate falls to zero towards it."""
    saved = state / "joint.pt"
    count, begun = 0, time.time()
    if saved.exists():
        count, begun = load_joint(saved, step)
        log(stage="joint", resumed=count)
    torch.manual_seed(config.seed + count)
    run = replayable(step, step.device)
    last_save = time.time()
    while True:
        now = time.time()
        left = (deadline - now) / (deadline - begun)
        warm = min(1.0, (count + 1) / config.warmup_steps)
        step.set_rate(config.peak_rate * warm * min(1.0, max(left, 0.0) / config.decay_share))
        run()
        count += 1
        if count % 20 == 0 and step.device.type == "cuda":
            torch.cuda.synchronize()
        if count % 100 == 0 or left <= 0:
            log(stage="joint", step=count, rate=float(step.rate), **{k: float(v) for k, v in step.figures.items()})
        if left <= 0 or now - last_save > config.save_seconds:
            save_joint(saved, step, count, begun)
            export(step, parts, state / "checkpoint")
            last_save = time.time()
            log(stage="joint", step=count, saved=True)
        if left <= 0:
            return


def save_joint(path: Path, step: JointStep, count: int, begun: float) -> None:
    """Write everything a resumed run needs; first beside the old file, so that one of the two is always whole."""
    beside = path.with_suffix(".new")
    torch.save(
        {
            "count": count,
            "begun": begun,
            "weights": [parameter.data for parameter in step.parameters],
            "average": step.average.kept,
            "muon": step.muon.state(),
            "adam": step.adam.state_dict(),
        },
        beside,
    )
    beside.replace(path)


@torch.no_grad()
def load_joint(path: Path, step: JointStep) -> tuple[int, float]:
    """Bring a step back to where it was saved; returns how many steps were done and when training began."""
    held = torch.load(path, map_location=step.device, weights_only=True)
    for mine, theirs in (
        *zip(step.parameters, held["weights"], strict=True),
        *zip(step.average.kept, held["average"], strict=True),
        *zip(step.muon.state(), held["muon"], strict=True),
    ):
        mine.copy_(theirs)
    step.adam.load_state_dict(held["adam"])
    return held["count"], held["begun"]


def export(step: JointStep, parts: Components, folder: Path) -> None:
    """Write the averaged weights as a checkpoint."""
    step.average.swap()
    write_checkpoint(folder, parts)
    step.average.swap()


# --- all of it --------------------------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and run the stages."""
    parser = argparse.ArgumentParser(
        prog="python -m cosmos_demo.pico.train", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("stage", choices=("sound", "vae", "joint", "all"), help="how far to go")
    parser.add_argument("--state", type=Path, required=True, help="folder for results, made if missing")
    parser.add_argument("--minutes", type=float, default=25.0, help="length of the whole run (default: 25)")
    parser.add_argument("--seed", type=int, default=Config.seed, help="seed of worlds and weights (default: 1)")
    parser.add_argument("--tiny", action="store_true", help="a few samples of everything, to try the code on a CPU")
    parser.add_argument("--from", type=Path, dest="start", help="checkpoint whose weights to start from")
    parser.add_argument("--config", type=Path, help="JSON file of changed fields of Config")
    chosen = parser.parse_args(arguments)

    began = time.time()
    deadline = began + 60 * chosen.minutes
    changed = json.loads(chosen.config.read_text()) if chosen.config else {}
    config = configured(replace(TINY if chosen.tiny else Config(), seed=chosen.seed), changed)
    state = chosen.state
    state.mkdir(parents=True, exist_ok=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True

    def log(**figures: float | str) -> None:
        line = {"seconds": round(time.time() - began, 1), **figures}
        with (state / "log.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    parts = read_components(chosen.start) if chosen.start else new_components(config.seed)
    if chosen.start:
        torch.save(parts.sound.state_dict(), state / "sound.pt")
        torch.save(parts.vae.state_dict(), state / "vae.pt")
    if chosen.stage == "sound":
        if not (state / "sound.pt").exists():
            sound_stage(parts, config, state, device, log)
        return

    beside = None
    if chosen.stage == "all" and not (state / "sound.pt").exists():
        command = [sys.executable, "-m", "cosmos_demo.pico.train", "sound", "--state", str(state)]
        beside = subprocess.Popen([*command, "--seed", str(config.seed), *(["--tiny"] if chosen.tiny else [])])

    scheduler = UniPCMultistepScheduler(**SCHEDULER)
    # The workers are forks, so they start before CUDA does.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    pool = start_writers(parts, scheduler, config.writers)
    words = order_words(pool, config.seed, config.amounts, config.chunk) if chosen.stage != "vae" else {}
    write = Writer(
        Cosmos3OmniPipeline(
            parts.transformer, parts.tokenizer, parts.vae, scheduler, parts.sound, enable_safety_checker=False
        )
    )

    stills = render_kind("still", config.seed, config.amounts.stills, config.chunk, device)[:, 0]
    shown = render_kind("clip", config.seed, config.amounts.shown, config.chunk, device)
    impossible = render_kind("impossible", config.seed, config.amounts.impossible, config.chunk, device)
    clips = torch.cat([shown, impossible])
    log(stage="worlds", stills=len(stills), clips=len(clips))

    if not (state / "vae.pt").exists():
        vae_stage(parts, stills, shown, config, state, log)
    if chosen.stage == "vae":
        return
    if beside is not None and beside.wait():
        raise RuntimeError("The sound stage failed; its message is above.")
    if not (state / "sound.pt").exists():
        raise FileNotFoundError(f"{state / 'sound.pt'} is missing: run the stage 'sound' first, or 'all'.")
    parts.vae.load_state_dict(torch.load(state / "vae.pt", map_location=device, weights_only=True))
    parts.sound.load_state_dict(torch.load(state / "sound.pt", map_location=device, weights_only=True))
    for model in (parts.vae, parts.sound):
        model.to(device).eval().requires_grad_(False)

    bank = fill_bank(
        parts, stills, clips, words, write,
        seed=config.seed, amounts=config.amounts, size=config.chunk, batch=config.encode_batch,
    )  # fmt: skip
    pool.terminate()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    rows = {name: len(value) for name, value in vars(bank).items()}
    log(stage="bank", **rows)

    parts.transformer.to(device)
    parts.vision.to(device)
    step = JointStep(parts, bank, config.mixture, average_decay=config.average_decay, compiled=device.type == "cuda")
    joint_stage(step, parts, config, state, deadline, log)


if __name__ == "__main__":
    main()
