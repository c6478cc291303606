"""The Generator's modes: what each takes, its published defaults, and the limits of every control.

One catalogue drives the page, the API, the checks and the tests. Defaults come from NVIDIA's model pages, cookbooks and
framework for Cosmos 3 (35 steps, guidance 6, shift 10 for video; 30 steps, guidance 1 for actions; transfer by kind).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SIZES: Mapping[int, Mapping[str, tuple[int, int]]] = {
    256: {"16:9": (320, 192), "4:3": (320, 256), "1:1": (256, 256), "3:4": (256, 320), "9:16": (192, 320)},
    480: {"16:9": (832, 480), "4:3": (736, 544), "1:1": (640, 640), "3:4": (544, 736), "9:16": (480, 832)},
    720: {"16:9": (1280, 720), "4:3": (1104, 832), "1:1": (960, 960), "3:4": (832, 1104), "9:16": (720, 1280)},
    768: {"16:9": (1360, 768), "4:3": (1184, 880), "1:1": (1024, 1024), "3:4": (880, 1184), "9:16": (768, 1360)},
}
"""Width and height of each tier and aspect ratio."""

ASPECT_RATIOS = ("16:9", "4:3", "1:1", "3:4", "9:16")
RESOLUTIONS = tuple(SIZES)
ACTION_RESOLUTIONS = (256, 480, 704, 720)
FPS = (10, 16, 24, 30)
VIEW_POINTS = ("ego_view", "third_person_view", "wrist_view", "concat_view")
KEEP = ("first", "last")
CONTROLS = ("edge", "blur", "depth", "seg", "wsm")
"""Kinds of control of transfer, in the order in which the model takes them; the first given one sets the length."""

FRAMES = (5, 300)
ACTION_FPS = (1, 60)
STEPS = (1, 100)
GUIDANCE = (1.0, 20.0)
FLOW_SHIFT = (0.1, 20.0)
CONTROL_GUIDANCE = (1.0, 10.0)
CHUNK = (4, 120)
MAX_SEED = 2**32 - 1
MAX_PROMPT = 20_000
"""Characters; the longest prompt that NVIDIA's own service takes."""

SHIPPED_SCHEDULE = 0.0
"""As a flow shift: the schedule that the checkpoint ships."""
FEW_STEPS = 12
"""Up to so many steps the shipped schedule is the default: shift 10 would end in one large jump (0.59 to 0 at 8)."""


@dataclass(frozen=True)
class Mode:
    """One mode.

    Attributes:
        name: Its id.
        title: For people.
        description: One sentence.
        needs: Request fields that must be given beside the defaults.
        takes: Further request fields that may be given.
        defaults: Published value of each control that the mode has.
        example: A prompt to start from.
    """

    name: str
    title: str
    description: str
    needs: tuple[str, ...] = ("prompt",)
    takes: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    example: str = ""

    @property
    def makes_picture(self) -> bool:
        """Whether frames come out, one or many."""
        return self.name != "inverse-dynamics"

    @property
    def acts(self) -> bool:
        """Whether actions go in or come out."""
        return "domain" in self.defaults


_PICTURE = {"resolution": 480, "aspect_ratio": "16:9", "steps": 35, "guidance_scale": 6.0, "flow_shift": 10.0}
_VIDEO = {**_PICTURE, "num_frames": 189, "fps": 24}
_ACTION = {"domain": "av", "resolution": 480, "steps": 30, "guidance_scale": 1.0, "flow_shift": 10.0}
_TRANSFER = {
    **_VIDEO,
    "resolution": 720,
    "num_frames": 121,
    "fps": 30,
    "steps": 50,
    "guidance_scale": 3.0,
    "control_guidance": 1.5,
}

_ALL = (
    Mode(
        "text-to-image",
        "Text to image",
        "Makes a picture from words.",
        takes=("negative_prompt",),
        defaults=_PICTURE,
        example="A large red ball on the left and a small blue cube on the right of a wooden table.",
    ),
    Mode(
        "text-to-video",
        "Text to video",
        "Makes a video from words, with sound if you like.",
        takes=("negative_prompt", "sound"),
        defaults=_VIDEO,
        example="A small red ball falls and bounces.",
    ),
    Mode(
        "image-to-video",
        "Image to video",
        "Lets a picture move: it becomes the first frame.",
        needs=("image", "prompt"),
        takes=("negative_prompt", "sound"),
        defaults=_VIDEO,
        example="The ball rolls to the right.",
    ),
    Mode(
        "video-to-video",
        "Continue a video",
        "Keeps some frames of a clip and goes on from there.",
        needs=("video", "prompt"),
        takes=("negative_prompt", "sound", "condition_frames", "keep"),
        defaults=_VIDEO,
        example="The ball rolls on to the right.",
    ),
    Mode(
        "policy",
        "Policy",
        "From one picture and a task: the actions to take, and the video of taking them.",
        needs=("image", "prompt"),
        takes=("view_point",),
        defaults=_ACTION,
        example="Look at the blue pyramid.",
    ),
    Mode(
        "forward-dynamics",
        "Forward dynamics",
        "From one picture and actions: the video of what they lead to.",
        needs=("image", "actions"),
        takes=("prompt", "view_point"),
        defaults=_ACTION,
        example="The camera pans to the right.",
    ),
    Mode(
        "inverse-dynamics",
        "Inverse dynamics",
        "From a video: the actions that explain it.",
        needs=("video",),
        takes=("prompt", "view_point"),
        defaults=_ACTION,
        example="The camera pans to the right.",
    ),
    Mode(
        "transfer",
        "Transfer",
        "Makes a video that follows the edges, blur, depth, segments or map of another.",
        needs=("controls", "prompt"),
        takes=("negative_prompt",),
        defaults=_TRANSFER,
        example="A small red ball falls and bounces on a wooden table.",
    ),
)

MODES: Mapping[str, Mode] = {mode.name: mode for mode in _ALL}


def transfer_defaults(kinds: tuple[str, ...]) -> dict[str, Any]:
    """Published settings of transfer that depend on the kinds of control given."""
    if "wsm" in kinds:
        return {"guidance_scale": 1.0, "control_guidance": 3.0, "fps": 10, "num_frames": 101}
    return {"control_guidance": 2.0} if "seg" in kinds else {}


def family_defaults(family: str, mode: Mode) -> dict[str, Any]:
    """Published settings in which the Edge family differs from the others; its actions are made alike."""
    if family != "cosmos3_edge" or mode.acts:
        return {}
    if mode.name == "text-to-image":
        return {"steps": 50, "guidance_scale": 4.0, "flow_shift": 3.0}
    return {"steps": 50, "guidance_scale": 5.0, "flow_shift": 3.0, "num_frames": 121}


def size(resolution: int, aspect_ratio: str) -> tuple[int, int]:
    """Width and height in pixels of a tier and an aspect ratio; KeyError when there is no such tier or ratio."""
    return SIZES[resolution][aspect_ratio]


def round_frames(frames: int) -> int:
    """The largest 4k+1 that is not more: what the model really makes of ``frames``."""
    return (frames - 1) // 4 * 4 + 1
