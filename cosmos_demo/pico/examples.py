"""Writes the app's example media from the simulator: ``python -m cosmos_demo.pico.examples``.

Each file is the first clip of a seeded draw that fits its purpose, so the same code makes the same files.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace

import torch

from cosmos_demo import media
from cosmos_demo.pico import language, sounds, world
from cosmos_demo.pico.language import Scene
from cosmos_demo.settings import EXAMPLES

SEED = 2026
DRAWS = 4096
FRAMES, FPS = 17, 10

Wanted = Callable[[Scene], bool]

STILLS: dict[str, Wanted] = {
    "two_objects": lambda s: (
        [t.shape for t in s.things] == ["ball", "cube"]
        and s.things[0].colour == "red"
        and _all_differ(s)
        and _spread(s)
    ),
    "three_objects": lambda s: (
        len(s.things) == 3 and _all_differ(s) and [t.place for t in s.things] == list(language.PLACES)
    ),
    "four_objects": lambda s: len(s.things) == 4 and _all_differ(s) and sum(t.shape == "cube" for t in s.things) == 2,
    "one_pyramid": lambda s: _looks(s) == ["large green pyramid"] and s.things[0].place == "middle",
}
VIDEOS: dict[str, Wanted] = {
    "bounce": lambda s: [t.name for t in s.things] == ["red ball"] and _motions(s) == ["falls and bounces"],
    "roll": lambda s: (
        sorted(_motions(s)) == ["rolls to the right", "stands still"]
        and _all_differ(s)
        and max(t.travelled for t in s.things) > 120
    ),
}


def main() -> None:
    EXAMPLES.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(SEED)
    stills = world.sample_stills(DRAWS, generator)
    for name, wanted in STILLS.items():
        clip = _first(stills, wanted)
        media.write_image(EXAMPLES / f"{name}.png", world.render(clip)[0, 0].numpy())
    videos = world.sample_videos(DRAWS, FRAMES, FPS, generator)
    for name, wanted in VIDEOS.items():
        _write_video(name, _first(videos, wanted))
    broken = world.sample_videos(DRAWS, FRAMES, FPS, generator, implausible=True)
    _write_video("impossible", _first(broken, lambda s: s.kind == "hover" and len(s.things) == 2 and _all_differ(s)))
    pans, _ = world.sample_camera(DRAWS, FRAMES, FPS, generator)
    pan = _first(pans, lambda s: s.target is not None and s.pan > 60 and len(s.things) >= 2)
    _write_video("pan", pan)
    media.write_image(EXAMPLES / "pan_start.png", world.render(pan)[0, 0].numpy())
    actions = world.actions_of(pan.camera)[0]
    rows = [[round(value, 4) for value in row] for row in actions.tolist()]
    (EXAMPLES / "pan_actions.json").write_text(json.dumps(rows) + "\n")


def _write_video(name: str, clip: world.Clips) -> None:
    sound = sounds.render_sound(clip, FRAMES / FPS)[0].numpy()
    frames = world.render(clip)[0].numpy()
    media.write_video(EXAMPLES / f"{name}.mp4", frames, FPS, sound, sounds.SAMPLE_RATE)


def _first(clips: world.Clips, wanted: Wanted) -> world.Clips:
    """The first clip whose scene is wanted."""
    index = next(index for index, scene in enumerate(language.scenes(clips)) if wanted(scene))
    mine = clips.impacts.clip == index
    hits = world.Impacts(*(getattr(clips.impacts, field.name)[mine] for field in fields(world.Impacts)))
    hits = replace(hits, clip=torch.zeros_like(hits.clip))
    tensors = {
        field.name: getattr(clips, field.name)[index : index + 1]
        for field in fields(world.Clips)
        if isinstance(getattr(clips, field.name), torch.Tensor)
    }
    return replace(clips, **tensors, impacts=hits)


def _looks(scene: Scene) -> list[str]:
    return [thing.full_name for thing in scene.things]


def _motions(scene: Scene) -> list[str]:
    return [language.motion(thing, scene) for thing in scene.things]


def _all_differ(scene: Scene) -> bool:
    return len({thing.colour for thing in scene.things}) == len(scene.things)


def _spread(scene: Scene) -> bool:
    return scene.things[0].place == "left" and scene.things[-1].place == "right"


if __name__ == "__main__":
    main()
