"""A first look at a checkpoint through the stock pipelines: pictures to see, and figures on worlds it never met.

python -m cosmos_demo.pico.look assets/cosmos3-pico --out looks --questions 20
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from diffusers import Cosmos3OmniPipeline
from diffusers.pipelines.cosmos.pipeline_cosmos3_omni import CosmosActionCondition
from PIL import Image
from transformers import AutoProcessor, Cosmos3OmniForConditionalGeneration
from transformers.video_utils import VideoMetadata

from cosmos_demo.pico import language, world
from cosmos_demo.pico.autoencoders import picture_psnr, sound_snr
from cosmos_demo.pico.bank import FPS, FRAMES, QUESTION_FRAMES, sound_of

UNSEEN = 987_654_321
SIZE = {"height": world.HEIGHT, "width": world.WIDTH}


def grid(rows: Sequence[Sequence[np.ndarray]]) -> Image.Image:
    """Pictures of one size, row by row."""
    return Image.fromarray(np.concatenate([np.concatenate(list(row), 1) for row in rows], 0))


def ask(
    model: Cosmos3OmniForConditionalGeneration, processor: object, media: dict, prompt: str, **extra: object
) -> str:
    """One greedy answer."""
    messages = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": [media, {"type": "text", "text": prompt}]},
    ]
    row = processor.apply_chat_template(
        messages, tokenize=True, add_generation_prompt=True, return_dict=True, return_tensors="pt", **extra
    )
    made = model.generate(**row, max_new_tokens=220, do_sample=False, temperature=None, top_p=None, top_k=None)
    return processor.tokenizer.decode(made[0, row["input_ids"].shape[1] :], skip_special_tokens=True)


def overlap(answer: str, truth: str) -> float:
    """Mean intersection over union of the boxes in two answers, matched in order; 0 for a missing one."""
    found, wanted = (
        [list(map(int, box)) for box in re.findall(r"\[(\d+), (\d+), (\d+), (\d+)\]", text)] for text in (answer, truth)
    )
    scores = []
    for (a, b, c, d), (p, q, r, s) in zip(found, wanted, strict=False):
        inner = max(0, min(c, r) - max(a, p)) * max(0, min(d, s) - max(b, q))
        union = (c - a) * (d - b) + (r - p) * (s - q) - inner
        scores.append(inner / union if union > 0 else 0.0)
    return sum(scores) / max(len(found), len(wanted), 1)


def look_at_questions(folder: Path, count: int, wording: str) -> dict[str, float]:
    """Exact answers by kind of question, in ``train`` or ``heldout`` wording; boxes by overlap."""
    processor = AutoProcessor.from_pretrained(folder)
    model = Cosmos3OmniForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    rng = random.Random(UNSEEN)
    generator = torch.Generator().manual_seed(UNSEEN)
    stills = world.sample_stills(count, generator)
    pictures = [Image.fromarray(picture) for picture in world.render(stills)[:, 0].numpy()]
    scenes = language.scenes(stills)
    figures: dict[str, float] = {}
    for kind in language.KINDS:
        scores = []
        for scene, picture in zip(scenes, pictures, strict=True):
            made = language.question(scene, rng, kind, wording)
            if made is None:
                continue
            task, text, truth = made
            answer = ask(model, processor, {"type": "image", "image": picture}, language.prompt_for(task, text))
            scores.append(overlap(answer, truth) if kind == "boxes" else float(answer == truth))
            if len(scores) <= 2:
                print(f"  {kind}: {text or task} -> {answer!r}" + ("" if answer == truth else f"  (truth {truth!r})"))
        figures[kind] = sum(scores) / max(1, len(scores))
    for kind in ("plausible", "happens", "when"):
        scores = []
        for n in range(max(2, count // 4)):
            clips = world.sample_videos(1, FRAMES, FPS, generator, implausible=kind == "plausible" and n % 2 == 1)
            scene = language.scenes(clips)[0]
            made = language.video_question(scene, rng, kind, wording)
            if made is None:
                continue
            task, text, truth = made
            frames = [Image.fromarray(frame) for frame in world.render(clips)[0, :QUESTION_FRAMES].numpy()]
            metadata = VideoMetadata(
                total_num_frames=QUESTION_FRAMES, fps=FPS, frames_indices=list(range(QUESTION_FRAMES))
            )
            how = {"do_sample_frames": False, "video_metadata": [[metadata]]}
            answer = ask(
                model, processor, {"type": "video", "video": frames}, language.prompt_for(task, text),
                processor_kwargs=how,
            )  # fmt: skip
            scores.append(float(answer == truth))
            if len(scores) <= 2:
                print(f"  {kind}: {text or task} -> {answer!r}" + ("" if answer == truth else f"  (truth {truth!r})"))
        figures[f"video {kind}"] = sum(scores) / max(1, len(scores))
    return figures


def look_at_pictures(folder: Path, out: Path, pictures: int) -> dict[str, float]:
    """Write sheets of generated pictures and clips; return figures of the autoencoders and of the camera."""
    pipe = Cosmos3OmniPipeline.from_pretrained(folder, dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    rng = random.Random(UNSEEN)
    generator = torch.Generator().manual_seed(UNSEEN)
    seed = torch.Generator()

    stills = world.sample_stills(pictures, generator)
    made, truth = [], world.render(stills)[:, 0].numpy()
    for n, scene in enumerate(language.scenes(stills)):
        text = language.caption_image(scene, rng)
        print(f"  picture {n}: {text}")
        result = pipe(text, num_frames=1, generator=seed.manual_seed(n), output_type="np", **SIZE)
        made.append((result.video[0] * 255).round().astype(np.uint8))
    columns = 3
    rows = [
        [side for n in range(at, min(at + columns, pictures)) for side in (truth[n], made[n])]
        for at in range(0, pictures - pictures % columns, columns)
    ]
    grid(rows).save(out / "pictures.png")

    clips = world.sample_videos(3, FRAMES, FPS, generator)
    frames = world.render(clips)
    figures = {
        "vae_psnr_db": picture_psnr(pipe.vae, frames),
        "sound_snr_db": sound_snr(pipe.sound_tokenizer, sound_of(clips)),
    }
    sheet = []
    for n, scene in enumerate(language.scenes(clips)):
        text = language.caption_video(scene, rng)
        print(f"  clip {n}: {text}")
        clip = frames[n].numpy()
        size = {"num_frames": FRAMES, "fps": FPS, "output_type": "np", **SIZE}
        spoken = pipe(text, generator=seed.manual_seed(n), enable_sound=n == 0, **size)
        continued = pipe(text, image=Image.fromarray(clip[0]), generator=seed.manual_seed(n), **size)
        if n == 0:
            wave = spoken.sound.numpy()
            figures["sound_peak"] = float(np.abs(wave).max())
            np.save(out / "sound.npy", wave)
        for shown in (
            clip,
            (spoken.video * 255).round().astype(np.uint8),
            (continued.video * 255).round().astype(np.uint8),
        ):
            sheet.append([shown[at][::2, ::2] for at in range(0, FRAMES, 2)])
    grid(sheet).save(out / "clips.png")

    clips, actions = world.sample_camera(4, FRAMES, FPS, generator)
    frames = world.render(clips)
    sheet, told, meant = [], [], []
    for n, scene in enumerate(language.scenes(clips)):
        text = language.caption_camera(scene, rng)
        clip = [Image.fromarray(frame) for frame in frames[n].numpy()]
        shared = {
            "chunk_size": FRAMES - 1, "domain_name": "camera_pose", "resolution_tier": 256, "view_point": "ego_view",
        }  # fmt: skip
        call = {
            "fps": FPS, "num_inference_steps": 30, "guidance_scale": 1.0, "use_system_prompt": False,
            "output_type": "np", "generator": seed.manual_seed(n),
        }  # fmt: skip
        rolled = pipe(
            text,
            action=CosmosActionCondition("forward_dynamics", image=clip[0], raw_actions=actions[n], **shared),
            **call,
        )
        read = pipe(text, action=CosmosActionCondition("inverse_dynamics", video=clip, **shared), **call).action[0]
        print(f"  camera {n}: {text} travel {float(actions[n, :, 0].sum()):.1f} read {float(read[:, 0].sum()):.1f}")
        told.append(read[:, 0])
        meant.append(actions[n, :, 0])
        sheet.append([frame[::2, ::2] for frame in frames[n].numpy()[::2]])
        sheet.append([(frame * 255).round().astype(np.uint8)[::2, ::2] for frame in rolled.video[::2]])
    pair = torch.stack([torch.cat(told), torch.cat(meant)])
    figures["camera_correlation"] = float(torch.corrcoef(pair)[0, 1])
    grid(sheet).save(out / "camera.png")
    return figures


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, look, and write ``figures.json``."""
    parser = argparse.ArgumentParser(prog="python -m cosmos_demo.pico.look", description=__doc__.split("\n\n")[0])
    parser.add_argument("checkpoint", type=Path, help="folder of the checkpoint")
    parser.add_argument("--out", type=Path, required=True, help="folder for pictures and figures.json")
    parser.add_argument("--questions", type=int, default=20, help="pictures to ask about, for each kind of question")
    parser.add_argument("--pictures", type=int, default=9, help="pictures to generate; 0 asks only")
    parser.add_argument("--wording", choices=("train", "heldout"), default="train", help="how questions are worded")
    chosen = parser.parse_args(arguments)
    chosen.out.mkdir(parents=True, exist_ok=True)
    figures = look_at_questions(chosen.checkpoint, chosen.questions, chosen.wording)
    if chosen.pictures:
        figures |= look_at_pictures(chosen.checkpoint, chosen.out, chosen.pictures)
    (chosen.out / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
