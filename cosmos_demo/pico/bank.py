"""The training bank: worlds drawn once, rendered, encoded and put into token rows, all on the device.

Worlds come in chunks, each drawn from its own seed on the CPU, so that worker processes can word a chunk while the
device draws its pictures.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.pool import AsyncResult, Pool

import numpy as np
import torch
import torch.nn.functional as F
from diffusers import Cosmos3OmniPipeline
from torch import Tensor

from cosmos_demo.pico import language, world
from cosmos_demo.pico.autoencoders import encode_pictures, encode_sound, fit_latent_statistics, normalise
from cosmos_demo.pico.blueprint import SOUND_HOP, Components, reasoner_config
from cosmos_demo.pico.sounds import SAMPLE_RATE, render_sound

FRAMES, FPS = 17, 10.0
CLIP_SECONDS = FRAMES / FPS
QUESTION_FRAMES = 16
CHUNK = 1000
VISUAL_TOKENS = 60
"""Tokens of one 320x192 picture, or of a pair of frames."""

LIMITS = {"still": 112, "clip": 160, "camera": 168, "transfer": 192, "short": 152, "long": 288, "video": 896}
"""Longest token row of each kind; longer ones are left out."""


@dataclass
class Rows:
    """Token rows of one kind.

    Attributes:
        ids: int16 ``[R, U]``, padded on the right; ``lengths``: ``[R]``; ``owners``: ``[R]`` which still or clip.
        empty_ids, empty_length: Prompts only: the row of the empty (unconditional) prompt.
        starts, longest_answer: Questions only: where each answer begins, and how long answers get.
        positions: Questions only: float ``[3, U]`` M-RoPE positions, the same for all rows.
        media_slots: Questions only: columns of the picture tokens, the same for all rows.
    """

    ids: Tensor
    lengths: Tensor
    owners: Tensor
    empty_ids: Tensor | None = None
    empty_length: Tensor | None = None
    starts: Tensor | None = None
    longest_answer: int = 0
    positions: Tensor | None = None
    media_slots: Tensor | None = None

    def __len__(self) -> int:
        return self.ids.shape[0]


@dataclass
class Bank:
    """Everything a training step draws from.

    Attributes:
        stills: uint8 ``[N, 192, 320, 3]``; still_latents: ``[N, 48, 1, 12, 20]``.
        clips: uint8 ``[M, 17, 192, 320, 3]``; clip_latents: ``[M, 48, 5, 12, 20]``; clip_sounds: ``[M, S, D]``.
        camera_latents: ``[K, 48, 5, 12, 20]``; camera_actions: ``[K, 16, 9]``.
        control_latents, controlled_latents: ``[T, 48, 5, 12, 20]`` edges or blurred clips, and what they are of.
    """

    stills: Tensor
    still_latents: Tensor
    clips: Tensor
    clip_latents: Tensor
    clip_sounds: Tensor
    camera_latents: Tensor
    camera_actions: Tensor
    control_latents: Tensor
    controlled_latents: Tensor
    still_prompts: Rows
    clip_prompts: Rows
    camera_prompts: Rows
    transfer_prompts: Rows
    short_questions: Rows
    long_questions: Rows
    video_questions: Rows


@dataclass(frozen=True)
class Amounts:
    """How much world to draw, in chunks, and how many texts for each still or clip.

    Questions are asked about the first ``shown`` chunks of clips, whose frames are kept, and about the impossible ones.
    The first ``controlled`` chunks also serve transfer.
    """

    stills: int = 60
    clips: int = 10
    shown: int = 4
    impossible: int = 2
    cameras: int = 4
    controlled: int = 2
    prompts_each: int = 3
    short_each: int = 5
    long_each: int = 3
    video_each: int = 6


# --- worlds -----------------------------------------------------------------------------------------------------------


def draw_worlds(kind: str, seed: int, chunk: int, size: int = CHUNK) -> tuple[world.Clips, Tensor | None]:
    """One chunk of a kind (``still``, ``clip``, ``impossible``, ``camera``) and its actions, the same at every call."""
    order = ("still", "clip", "impossible", "camera").index(kind)
    generator = torch.Generator().manual_seed((seed * 4 + order) * 100_000 + chunk)
    match kind:
        case "still":
            return world.sample_stills(size, generator), None
        case "camera":
            return world.sample_camera(size, FRAMES, FPS, generator)
        case _:
            return world.sample_videos(size, FRAMES, FPS, generator, implausible=kind == "impossible"), None


# --- words ------------------------------------------------------------------------------------------------------------


class Writer:
    """Puts words into the exact token rows that the two heads see at inference."""

    def __init__(self, pipeline: Cosmos3OmniPipeline) -> None:
        self.pipeline = pipeline
        self.tokenizer = pipeline.text_tokenizer

    def prompt(self, kind: str, text: str) -> tuple[list[int], list[int]]:
        """Token ids of a prompt and of the empty one that guidance compares it with."""
        size = {"height": world.HEIGHT, "width": world.WIDTH}
        match kind:
            case "still":
                return self.pipeline.tokenize_prompt(text, num_frames=1, **size)
            case "clip":
                return self.pipeline.tokenize_prompt(text, num_frames=FRAMES, fps=FPS, **size)
            case "camera":
                return self.pipeline.tokenize_prompt(
                    text, num_frames=FRAMES, fps=FPS, use_system_prompt=False,
                    action_mode="policy", action_view_point="ego_view", **size,
                )  # fmt: skip
        return self._transfer(text), self._transfer("")

    def _transfer(self, text: str) -> list[int]:
        """Transfer prompts have their own system prompt and no templates (diffusers' modular pipeline)."""
        from diffusers.modular_pipelines.cosmos.encoders import _SYSTEM_PROMPT_TRANSFER

        messages = [{"role": "system", "content": _SYSTEM_PROMPT_TRANSFER}, {"role": "user", "content": text}]
        ids = self.tokenizer.apply_chat_template(messages, tokenize=True, add_generation_prompt=True, return_dict=True)
        special = self.pipeline.llm_special_tokens
        return [*ids.input_ids, special["eos_token_id"], special["start_of_generation"]]

    def question(self, prompt: str, answer: str, video: bool) -> tuple[list[int], int]:
        """Token ids of a question with its media and answer, and where the answer begins."""
        media = {"type": "video"} if video else {"type": "image"}
        messages = [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": [media, {"type": "text", "text": prompt}]},
        ]
        text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        if video:
            stamps = [frame / FPS for frame in range(QUESTION_FRAMES)]
            times = [(first + second) / 2 for first, second in zip(stamps[::2], stamps[1::2], strict=True)]
            frames = "<|video_pad|>" * VISUAL_TOKENS
            shown = "".join(f"<{time:.1f} seconds><|vision_start|>{frames}<|vision_end|>" for time in times)
            text = text.replace("<|vision_start|><|video_pad|><|vision_end|>", shown)
        else:
            text = text.replace("<|image_pad|>", "<|image_pad|>" * VISUAL_TOKENS)
        asked = self.tokenizer(text).input_ids
        return [*asked, *self.tokenizer(answer).input_ids, self.tokenizer.eos_token_id], len(asked)


Found = dict[str, tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]
"""Rows by kind: ids, lengths, owners within the chunk, and starts of answers (zero for prompts)."""

_writer: Writer


def _become_writer(writer: Writer) -> None:
    global _writer
    _writer = writer
    torch.set_num_threads(1)


def start_writers(parts: Components, scheduler: object, processes: int) -> Pool:
    """Worker processes that word chunks. They are forks: start them before CUDA is touched."""
    pipeline = Cosmos3OmniPipeline(
        parts.transformer, parts.tokenizer, parts.vae, scheduler, parts.sound, enable_safety_checker=False
    )
    context = torch.multiprocessing.get_context("fork")
    return context.Pool(processes, _become_writer, (Writer(pipeline),))


def word_chunk(kind: str, seed: int, chunk: int, size: int, amounts: Amounts, write: Writer | None = None) -> Found:
    """All token rows about one chunk of worlds."""
    write = write or _writer
    scenes = language.scenes(draw_worlds(kind, seed, chunk, size)[0])
    rng = random.Random(f"{kind} {seed} {chunk}")
    rows: dict[str, list[tuple[list[int], int, int]]] = {}

    def prompts(name: str, text: Callable[[language.Scene, random.Random], str], each: int) -> None:
        made = [(write.prompt(name, text(scene, rng))[0], n, 0) for n, scene in enumerate(scenes) for _ in range(each)]
        rows[name] = made

    def questions(name: str, kinds: Sequence[str], reasoning: float, each: int) -> None:
        made = rows.setdefault(name, [])
        for n, scene in enumerate(scenes):
            for _ in range(each):
                ids, start = write.question(*language.asked(scene, rng, kinds, reasoning=reasoning), name == "video")
                made.append((ids, n, start))

    match kind:
        case "still":
            prompts("still", language.caption_image, amounts.prompts_each)
            questions("short", language.SHORT_KINDS, 0.0, amounts.short_each)
            questions("long", language.LONG_KINDS, 0.0, amounts.long_each)
            questions("long", language.KINDS, 1.0, 1)
        case "clip":
            prompts("clip", language.caption_video, amounts.prompts_each)
            if chunk < amounts.controlled:
                prompts("transfer", language.caption_video, 1)
            if chunk < amounts.shown:
                questions("video", language.VIDEO_KINDS, 0.0, amounts.video_each)
        case "impossible":
            questions("video", ("plausible",), 0.0, 2)
        case "camera":
            prompts("camera", language.caption_camera, amounts.prompts_each)
    return {name: _as_arrays(made, LIMITS[name]) for name, made in rows.items()}


def _as_arrays(rows: list[tuple[list[int], int, int]], limit: int) -> tuple[np.ndarray, ...]:
    rows = [row for row in rows if len(row[0]) <= limit]
    ids = np.zeros((len(rows), limit), dtype=np.int16)
    for line, (tokens, _, _) in zip(ids, rows, strict=True):
        line[: len(tokens)] = tokens
    lengths = np.array([len(tokens) for tokens, _, _ in rows], dtype=np.int64)
    owners, starts = (np.array([row[column] for row in rows], dtype=np.int64) for column in (1, 2))
    return ids, lengths, owners, starts


def gather_rows(name: str, found: Sequence[tuple[int, Found]], write: Writer, device: torch.device) -> Rows:
    """Join the rows of one kind; each chunk comes with the number of its first still or clip."""
    parts = [(first, *chunk[name]) for first, chunk in found if name in chunk]
    ids = torch.from_numpy(np.concatenate([part[1] for part in parts]))
    lengths = torch.from_numpy(np.concatenate([part[2] for part in parts]))
    owners = torch.from_numpy(np.concatenate([part[0] + part[3] for part in parts]))
    starts = torch.from_numpy(np.concatenate([part[4] for part in parts]))
    width = -(-int(lengths.max()) // 8) * 8
    ids = ids[:, :width]
    rows = Rows(ids.to(device), lengths.to(device), owners.to(device))
    if name in {"short", "long", "video"}:
        rows.starts = starts.to(device)
        rows.longest_answer = int((lengths - starts).max())
        rows.positions, rows.media_slots = (part.to(device) for part in question_layout(write, ids[0].long(), name))
    else:
        _, empty = write.prompt(name, "")
        rows.empty_ids = F.pad(torch.tensor(empty), (0, width - len(empty))).to(device)
        rows.empty_length = torch.tensor(len(empty), device=device)
    return rows


def question_layout(write: Writer, ids: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Positions ``[3, U]`` and media columns of question rows, from the library's own position function.

    The media come first and have one size, so all rows of a kind share them.
    """
    from transformers.models.cosmos3_omni.modeling_cosmos3_omni import Cosmos3OmniModel

    config = reasoner_config(write.tokenizer)
    with torch.device("meta"):
        model = Cosmos3OmniModel(config)
    video = name == "video"
    slots = (ids == (config.video_token_id if video else config.image_token_id)).nonzero()[:, 0]
    kinds = torch.zeros_like(ids)
    kinds[slots] = 2 if video else 1
    grid = torch.tensor([[QUESTION_FRAMES // 2 if video else 1, world.HEIGHT // 16, world.WIDTH // 16]])
    positions, _ = model.get_rope_index(
        ids[None], mm_token_type_ids=kinds[None], **{"video_grid_thw" if video else "image_grid_thw": grid}
    )
    return positions[:, 0].float(), slots


# --- pictures and sound -----------------------------------------------------------------------------------------------


def render_kind(kind: str, seed: int, chunks: int, size: int, device: torch.device) -> Tensor:
    """uint8 frames ``[chunks*size, T, 192, 320, 3]`` of all chunks of a kind, on the device."""
    out = None
    for chunk in range(chunks):
        frames = world.render(draw_worlds(kind, seed, chunk, size)[0], device)
        if out is None:
            out = frames.new_empty(chunks * size, *frames.shape[1:])
        out[chunk * size : (chunk + 1) * size] = frames
    return out


def sound_of(clips: world.Clips) -> Tensor:
    """Waveforms ``[n, 2, samples]``, long enough for the pipeline's whole number of sound latents."""
    latents = -(-int(CLIP_SECONDS * SAMPLE_RATE) // SOUND_HOP)
    return render_sound(clips, latents * SOUND_HOP / SAMPLE_RATE)


def edges(clips: Tensor, threshold: float = 40.0) -> Tensor:
    """White edges on black of uint8 clips ``[N, T, H, W, 3]``: steps of brightness that are largest across the edge."""
    grey = clips.float().mean(-1)
    across = F.pad(grey[..., 2:] - grey[..., :-2], (1, 1)).abs()
    down = F.pad(grey[..., 2:, :] - grey[..., :-2, :], (0, 0, 1, 1)).abs()
    size = torch.maximum(across, down)
    left, right = F.pad(across, (1, 0))[..., :-1], F.pad(across, (0, 1))[..., 1:]
    above, below = F.pad(down, (0, 0, 1, 0))[..., :-1, :], F.pad(down, (0, 0, 0, 1))[..., 1:, :]
    peak = torch.where(across >= down, (across >= left) & (across > right), (down >= above) & (down > below))
    return ((size > threshold) & peak).to(torch.uint8)[..., None].expand_as(clips) * 255


def blurred(clips: Tensor, factor: int = 8) -> Tensor:
    """uint8 clips ``[N, T, H, W, 3]`` made coarse by ``factor`` and smoothly enlarged again."""
    flat = clips.flatten(0, 1).movedim(-1, 1).float()
    coarse = F.avg_pool2d(flat, factor)
    smooth = F.interpolate(coarse, scale_factor=factor, mode="bilinear")
    return smooth.round().to(torch.uint8).movedim(1, -1).unflatten(0, clips.shape[:2])


# --- all of it --------------------------------------------------------------------------------------------------------


def order_words(pool: Pool, seed: int, amounts: Amounts, size: int) -> dict[str, list[AsyncResult]]:
    """Let the workers begin on every chunk, rarer kinds first."""
    chunks = {
        "camera": amounts.cameras,
        "impossible": amounts.impossible,
        "clip": amounts.clips,
        "still": amounts.stills,
    }
    return {
        kind: [pool.apply_async(word_chunk, (kind, seed, chunk, size, amounts)) for chunk in range(count)]
        for kind, count in chunks.items()
    }


@torch.no_grad()
def fill_bank(
    parts: Components,
    stills: Tensor,
    clips: Tensor,
    words: dict[str, list[AsyncResult]],
    write: Writer,
    *,
    seed: int,
    amounts: Amounts,
    size: int,
    batch: int,
) -> Bank:
    """Encode everything with the trained autoencoders and collect the workers' rows.

    Args:
        parts: Components on the device; the VAE's latent statistics are set here unless they are already.
        stills: ``[N, 192, 320, 3]``; clips: frames of the shown possible clips first, then of the impossible ones.
        words: From :func:`order_words`.
        batch: Clips encoded at a time; stills go four times as many.
    """
    device = stills.device
    vae = parts.vae
    shown = clips[: amounts.shown * size]
    still_latents = encode_pictures(vae, stills[:, None], 4 * batch)
    clip_latents, sounds = [encode_pictures(vae, shown, batch)], []
    for chunk in range(amounts.clips):
        drawn, _ = draw_worlds("clip", seed, chunk, size)
        if chunk >= amounts.shown:
            clip_latents.append(encode_pictures(vae, world.render(drawn, device), batch))
        sounds.append(encode_sound(parts.sound, sound_of(drawn).to(device), 64))
    clip_latents = torch.cat(clip_latents)
    if not any(vae.config.latents_mean):
        some = clip_latents[:, :, 1:].transpose(1, 2).flatten(0, 1)[: len(still_latents), :, None]
        fit_latent_statistics(vae, torch.cat([still_latents[: len(some)], some]))

    camera_latents, camera_actions = [], []
    for chunk in range(amounts.cameras):
        drawn, actions = draw_worlds("camera", seed, chunk, size)
        camera_latents.append(encode_pictures(vae, world.render(drawn, device), batch))
        camera_actions.append(actions)
    controlled = shown[: amounts.controlled * size]
    controls = [edges(part) if n % 3 else blurred(part) for n, part in enumerate(controlled.split(batch))]

    found = [
        ((amounts.shown if kind == "impossible" else 0) * size + chunk * size, result.get())
        for kind, results in words.items()
        for chunk, result in enumerate(results)
    ]

    def rows(name: str) -> Rows:
        return gather_rows(name, found, write, device)

    return Bank(
        stills=stills,
        still_latents=normalise(vae, still_latents),
        clips=clips,
        clip_latents=normalise(vae, clip_latents),
        clip_sounds=torch.cat(sounds),
        camera_latents=normalise(vae, torch.cat(camera_latents)),
        camera_actions=torch.cat(camera_actions).to(device),
        control_latents=normalise(vae, encode_pictures(vae, torch.cat(controls), batch)),
        controlled_latents=normalise(vae, clip_latents[: len(controlled)]),
        still_prompts=rows("still"),
        clip_prompts=rows("clip"),
        camera_prompts=rows("camera"),
        transfer_prompts=rows("transfer"),
        short_questions=rows("short"),
        long_questions=rows("long"),
        video_questions=rows("video"),
    )
