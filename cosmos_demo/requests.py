"""What a person asks for: two frozen dataclasses, one for each head.

Fields left at ``None`` take the published default of the mode or task (``generator.modes``, ``reasoner.tasks``) for the
loaded checkpoint; the engine resolves and checks a request before any accelerator work and raises
`cosmos_demo.errors.RequestError` naming the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from PIL import Image

from cosmos_demo.media import Clip


@dataclass(frozen=True)
class Turn:
    """One earlier exchange of a conversation: what was asked (with its media) and the answer without its thinking."""

    prompt: str
    answer: str
    images: tuple[Image.Image, ...] = ()
    video: Clip | None = None


@dataclass(frozen=True)
class AnswerRequest:
    """A question for the Reasoner.

    Attributes:
        prompt: The question, or the slot text of a task (for grounding: what to locate).
        images: Pictures, shown before the text.
        video: A clip already sampled at the wanted rate (`media.sample_clip`); excludes ``images``.
        task: Name of a task in `reasoner.tasks.TASKS`; ``chat`` sends the prompt as it is.
        history: Earlier turns, oldest first.
        reasoning: Ask for ``<think>`` … ``</think>`` before the answer.
        max_new_tokens: 1 to 4096.
        temperature, top_p, top_k: Sampling; ``None`` takes the published preset. Temperature 0 is greedy.
        seed: 0 to 2**32-1; ``None`` draws one, and the record says which.
    """

    prompt: str
    images: tuple[Image.Image, ...] = ()
    video: Clip | None = None
    task: str = "chat"
    history: tuple[Turn, ...] = ()
    reasoning: bool = False
    max_new_tokens: int = 512
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None


@dataclass(frozen=True)
class GenerateRequest:
    """A picture, video or action chunk for the Generator.

    Attributes:
        mode: ``text-to-image``, ``text-to-video``, ``image-to-video``, ``video-to-video``, ``policy``,
            ``forward-dynamics``, ``inverse-dynamics`` or ``transfer``.
        prompt, negative_prompt: Plain text, or a structured JSON caption (then no templates are appended).
        image: First frame (image-to-video, policy, forward-dynamics).
        video: Source clip (video-to-video, inverse-dynamics).
        controls: Control clips of transfer by kind: ``edge``, ``blur``, ``depth``, ``seg``, ``wsm``.
        resolution: Tier: 256, 480, 720 or 768 (action modes: 256, 480, 704, 720).
        aspect_ratio: ``16:9``, ``4:3``, ``1:1``, ``3:4`` or ``9:16`` (width:height).
        num_frames: Frames of the form 4k+1, 5 to 300. Taken from ``chunk_size`` in action modes.
        fps: 10, 16, 24 or 30 (action modes: the domain's own rate, 1 to 60).
        sound: Make sound with the video.
        steps: Denoising steps, 1 to 100.
        guidance_scale: 1 to 20; 1 turns guidance off.
        flow_shift: 0.1 to 20; ``None`` takes the mode's preset, 0 the schedule shipped with the checkpoint.
        seed: 0 to 2**32-1; ``None`` draws one, and the record says which.
        condition_frames: Source frames kept in video-to-video, of the form 4k+1.
        keep: Which end of the source video is continued: ``first`` or ``last`` frames.
        domain: Embodiment domain of the action modes, for example ``camera_pose``.
        chunk_size: Action steps, a multiple of 4.
        actions: ``[T, D]`` float32 in the model's normalised action space (forward-dynamics).
        view_point: ``ego_view``, ``third_person_view``, ``wrist_view`` or ``concat_view``.
        control_guidance: Guidance towards the controls of transfer, 1 to 10.
    """

    mode: str
    prompt: str = ""
    negative_prompt: str = ""
    image: Image.Image | None = None
    video: Clip | None = None
    controls: Mapping[str, Clip] = field(default_factory=dict)
    resolution: int | None = None
    aspect_ratio: str | None = None
    num_frames: int | None = None
    fps: int | None = None
    sound: bool = False
    steps: int | None = None
    guidance_scale: float | None = None
    flow_shift: float | None = None
    seed: int | None = None
    condition_frames: int = 5
    keep: str = "last"
    domain: str | None = None
    chunk_size: int | None = None
    actions: np.ndarray | None = None
    view_point: str | None = None
    control_guidance: float | None = None
