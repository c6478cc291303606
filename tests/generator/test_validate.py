"""Every limit of a generation request, and what open fields become."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cosmos_demo.engines.base import Capabilities
from cosmos_demo.errors import RequestError
from cosmos_demo.generator.modes import MODES, round_frames, size
from cosmos_demo.generator.validate import resolve
from cosmos_demo.media import Clip
from cosmos_demo.requests import GenerateRequest

NANO = Capabilities("Cosmos3-Nano", "cosmos3_omni", sample_rate=48_000, action_dim=64)
PICO = Capabilities(
    "Cosmos3-Pico",
    "cosmos3_omni",
    resolutions=(256,),
    defaults={"resolution": 256, "num_frames": 17, "fps": 10, "domain": "camera_pose", "chunk_size": 16, "steps": 20},
    sample_rate=16_000,
    action_dim=64,
)
PICTURE = Image.new("RGB", (64, 64))


def _clip(frames: int) -> Clip:
    return Clip(np.zeros((frames, 32, 32, 3), np.uint8), 10.0, np.arange(frames) / 10)


T2I = GenerateRequest("text-to-image", "a ball")
T2V = GenerateRequest("text-to-video", "a ball falls")
I2V = GenerateRequest("image-to-video", "it rolls", image=PICTURE)
V2V = GenerateRequest("video-to-video", "it rolls on", video=_clip(9))
POLICY = GenerateRequest("policy", "look left", image=PICTURE)
FORWARD = GenerateRequest("forward-dynamics", image=PICTURE, actions=np.zeros((16, 9), np.float32), domain="av")
INVERSE = GenerateRequest("inverse-dynamics", video=_clip(17), domain="av")
TRANSFER = GenerateRequest("transfer", "a ball", controls={"edge": _clip(17)})
ALL = {request.mode: request for request in (T2I, T2V, I2V, V2V, POLICY, FORWARD, INVERSE, TRANSFER)}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("capabilities", [NANO, PICO], ids=["nano", "pico"])
def test_every_mode_resolves_and_stays_resolved(mode: str, capabilities: Capabilities):
    resolved = resolve(ALL[mode], capabilities)
    assert resolved.seed is not None
    assert None not in (resolved.steps, resolved.guidance_scale, resolved.flow_shift, resolved.resolution)
    assert resolve(resolved, capabilities) == resolved


def test_published_defaults():
    video = resolve(T2V, NANO)
    assert (video.steps, video.guidance_scale, video.flow_shift, video.num_frames, video.fps) == (
        35,
        6.0,
        10.0,
        189,
        24,
    )
    assert (video.resolution, video.aspect_ratio) == (480, "16:9")
    act = resolve(replace(POLICY, domain="droid_lerobot"), NANO)
    assert (act.steps, act.guidance_scale, act.chunk_size, act.fps) == (30, 1.0, 16, 15)
    assert act.view_point == "concat_view"
    assert resolve(TRANSFER, NANO).control_guidance == 1.5
    assert resolve(replace(TRANSFER, controls={"wsm": _clip(17)}), NANO).fps == 10


def test_the_edge_family_has_settings_of_its_own():
    edge = replace(NANO, family="cosmos3_edge", resolutions=(256, 480))
    video, picture, act = (resolve(request, edge) for request in (T2V, T2I, POLICY))
    assert (video.steps, video.guidance_scale, video.flow_shift, video.num_frames) == (50, 5.0, 3.0, 121)
    assert (picture.steps, picture.guidance_scale, picture.flow_shift) == (50, 4.0, 3.0)
    assert (act.steps, act.guidance_scale, act.flow_shift) == (30, 1.0, 10.0)


def test_the_checkpoint_prefers_its_own():
    video = resolve(T2V, PICO)
    assert (video.resolution, video.num_frames, video.fps, video.steps) == (256, 17, 10, 20)
    act = resolve(POLICY, PICO)
    assert (act.domain, act.chunk_size, act.fps) == ("camera_pose", 16, 10)
    assert resolve(replace(POLICY, domain="umi"), PICO).fps == 20


def test_what_it_prefers_for_one_mode_holds_there_alone():
    own = replace(PICO, defaults={**PICO.defaults, "text-to-image": {"guidance_scale": 3.0}})
    assert resolve(T2I, own).guidance_scale == 3.0
    assert resolve(T2V, own).guidance_scale == 6.0
    assert resolve(POLICY, own).guidance_scale == 1.0


def test_few_steps_take_the_shipped_schedule():
    assert resolve(replace(T2V, steps=12), NANO).flow_shift == 0
    assert resolve(replace(T2V, steps=13), NANO).flow_shift == 10
    assert resolve(replace(T2V, steps=8, flow_shift=3.0), NANO).flow_shift == 3


def test_a_seed_is_drawn_once_and_kept():
    seeds = {resolve(T2I, NANO).seed for _ in range(20)}
    assert len(seeds) == 20
    assert resolve(replace(T2I, seed=0), NANO).seed == 0


@pytest.mark.parametrize(("asked", "made"), [(5, 5), (6, 5), (8, 5), (20, 17), (189, 189), (300, 297)])
def test_frames_are_rounded_to_4k_plus_1(asked: int, made: int):
    assert round_frames(asked) == made
    assert resolve(replace(T2V, num_frames=asked), NANO).num_frames == made


def test_sizes():
    assert size(256, "16:9") == (320, 192)
    assert size(480, "4:3") == (736, 544)
    assert size(720, "9:16") == (720, 1280)
    assert size(768, "1:1") == (1024, 1024)


BAD: list[tuple[str, GenerateRequest, dict[str, Any], str]] = [
    ("mode", T2I, {"mode": "image-to-image"}, "text-to-image"),
    ("prompt", T2I, {"prompt": "  "}, "needs a prompt"),
    ("prompt", T2I, {"prompt": "x" * 20_001}, "20000"),
    ("prompt", T2I, {"prompt": 7}, "not text"),
    ("negative_prompt", T2I, {"negative_prompt": None}, "not text"),
    ("negative_prompt", T2I, {"negative_prompt": "x" * 20_001}, "20000"),
    ("resolution", T2I, {"resolution": 512}, "256, 480, 720, 768"),
    ("resolution", POLICY, {"resolution": 768, "domain": "av"}, "704"),
    ("aspect_ratio", T2I, {"aspect_ratio": "2:1"}, "16:9"),
    ("num_frames", T2V, {"num_frames": 4}, "5 to 300"),
    ("num_frames", T2V, {"num_frames": 301}, "5 to 300"),
    ("num_frames", T2V, {"num_frames": 17.0}, "whole"),
    ("num_frames", POLICY, {"num_frames": 17}, "chunk_size"),
    ("fps", T2V, {"fps": 12}, "10, 16, 24, 30"),
    ("fps", POLICY, {"fps": 61}, "1 to 60"),
    ("steps", T2I, {"steps": 0}, "1 to 100"),
    ("steps", T2I, {"steps": 101}, "1 to 100"),
    ("steps", T2I, {"steps": True}, "whole"),
    ("steps", T2I, {"steps": "20"}, "whole"),
    ("guidance_scale", T2I, {"guidance_scale": 0.5}, "1 to 20"),
    ("guidance_scale", T2I, {"guidance_scale": float("nan")}, "1 to 20"),
    ("guidance_scale", T2I, {"guidance_scale": float("inf")}, "1 to 20"),
    ("flow_shift", T2I, {"flow_shift": 21.0}, "0.1 to 20"),
    ("flow_shift", T2I, {"flow_shift": -1.0}, "0.1 to 20"),
    ("seed", T2I, {"seed": -1}, "0 to 4294967295"),
    ("seed", T2I, {"seed": 2**32}, "0 to 4294967295"),
    ("seed", T2I, {"seed": "cat"}, "whole"),
    ("image", I2V, {"image": None}, "needs a picture"),
    ("image", T2I, {"image": PICTURE}, "takes no image"),
    ("video", V2V, {"video": None}, "needs a video"),
    ("video", I2V, {"video": _clip(5)}, "takes no video"),
    ("video", V2V, {"video": _clip(3)}, "3 frames"),
    ("video", INVERSE, {"video": _clip(4)}, "4 frames"),
    ("video", INVERSE, {"chunk_size": 20}, "17 frames"),
    ("condition_frames", V2V, {"condition_frames": 4}, "4k\\+1"),
    ("condition_frames", V2V, {"condition_frames": 0}, "4k\\+1"),
    ("condition_frames", V2V, {"condition_frames": 9, "num_frames": 9}, "less than the 9"),
    ("condition_frames", V2V, {"condition_frames": True}, "4k\\+1"),
    ("video", V2V, {"video": _clip(5), "condition_frames": 9, "num_frames": 17}, "9 are to be kept"),
    ("steps", T2I, {"steps": float("nan")}, "whole"),
    ("guidance_scale", T2I, {"guidance_scale": True}, "1 to 20"),
    ("guidance_scale", T2I, {"guidance_scale": "6"}, "1 to 20"),
    ("keep", V2V, {"keep": "middle"}, "first, last"),
    ("sound", T2I, {"sound": True}, "makes no sound"),
    ("sound", POLICY, {"sound": True}, "makes no sound"),
    ("domain", POLICY, {"domain": "toaster"}, "camera_pose"),
    ("domain", POLICY, {"domain": "libero"}, "not fixed"),
    ("domain", POLICY, {"domain": "no_action"}, "no actions"),
    ("domain", T2V, {"domain": "av"}, "action modes"),
    ("chunk_size", POLICY, {"chunk_size": 6}, "multiples of 4"),
    ("chunk_size", POLICY, {"chunk_size": 0}, "4 to 120"),
    ("chunk_size", POLICY, {"chunk_size": 124}, "4 to 120"),
    ("chunk_size", FORWARD, {"actions": np.zeros((18, 9), np.float32)}, "multiples of 4"),
    ("view_point", POLICY, {"view_point": "moon_view"}, "ego_view"),
    ("actions", FORWARD, {"actions": None}, "needs actions"),
    ("actions", FORWARD, {"actions": np.zeros((16, 10), np.float32)}, "rows of 9"),
    ("actions", FORWARD, {"actions": np.zeros(16, np.float32)}, "list of rows"),
    ("actions", FORWARD, {"actions": np.full((16, 9), np.nan, np.float32)}, "finite"),
    ("actions", FORWARD, {"chunk_size": 20}, "16 rows"),
    ("actions", POLICY, {"actions": np.zeros((16, 9), np.float32)}, "takes no actions"),
    ("controls", TRANSFER, {"controls": {}}, "needs a control"),
    ("controls", TRANSFER, {"controls": {"smell": _clip(9)}}, "edge, blur"),
    ("controls", TRANSFER, {"controls": {"edge": _clip(4)}}, "at least 5"),
    ("controls", T2V, {"controls": {"edge": _clip(9)}}, "takes no controls"),
    ("control_guidance", TRANSFER, {"control_guidance": 0.5}, "1 to 10"),
]


@pytest.mark.parametrize(("field", "request_", "change", "says"), BAD, ids=[f"{b[1].mode}-{b[2]}"[:60] for b in BAD])
def test_bad_requests_name_the_field_and_what_works(
    field: str, request_: GenerateRequest, change: dict[str, Any], says: str
):
    with pytest.raises(RequestError, match=says) as caught:
        resolve(replace(request_, **change), NANO)
    assert caught.value.field == field


def test_what_the_checkpoint_cannot_do_is_said_with_its_reason():
    edge = replace(NANO, unavailable={"transfer": "Edge has no transfer.", "sound": "Edge is silent."})
    with pytest.raises(RequestError, match="Edge has no transfer"):
        resolve(TRANSFER, edge)
    with pytest.raises(RequestError, match="Edge is silent"):
        resolve(replace(T2V, sound=True), edge)
    with pytest.raises(RequestError, match="choose of 256"):
        resolve(replace(T2I, resolution=480), PICO)


def test_fixed_values_of_distilled_checkpoints():
    distilled = replace(NANO, fixed={"steps": 4, "guidance_scale": 1.0, "negative_prompt": ""})
    resolved = resolve(T2I, distilled)
    assert (resolved.steps, resolved.guidance_scale) == (4, 1.0)
    for change, says in (({"steps": 20}, "works with 4"), ({"guidance_scale": 6.0}, "with 1.0"),
                         ({"negative_prompt": "blurry"}, "takes none")):  # fmt: skip
        with pytest.raises(RequestError, match=says) as caught:
            resolve(replace(T2I, **change), distilled)
        assert caught.value.field in change


def test_chunks_follow_what_is_given():
    assert resolve(replace(FORWARD, actions=np.zeros((32, 9), np.float32)), NANO).chunk_size == 32
    assert resolve(replace(FORWARD, actions=np.zeros((32, 9), np.float32), chunk_size=16), NANO).chunk_size == 16
    assert resolve(replace(INVERSE, video=_clip(12)), NANO).chunk_size == 8


def test_transfer_is_no_longer_than_its_controls():
    both = {"edge": _clip(30), "blur": _clip(17)}
    assert resolve(replace(TRANSFER, controls=both), NANO).num_frames == 17
    assert resolve(replace(TRANSFER, num_frames=9), NANO).num_frames == 9
