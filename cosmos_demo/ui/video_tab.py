"""The tab that makes videos from words, a picture or another video, with or without sound."""

from __future__ import annotations

from cosmos_demo.ui.generator_tab import GeneratorTab
from cosmos_demo.ui.results import Send


class VideoTab(GeneratorTab):
    """Text, image and video to video."""

    name = "video"
    modes = ("text-to-video", "image-to-video", "video-to-video")
    main = (
        "image",
        "video",
        ("condition_frames", "keep"),
        "prompt",
        ("resolution", "aspect_ratio"),
        ("num_frames", "fps"),
        "sound",
    )
    button = "Make the video"
    hint = "Say what should happen, or start from a picture or a clip. The examples above run at a click."
    sends = (
        Send("Ask about it", "video", "reasoner", "video"),
        Send("Continue it", "video", "video", "video", "video-to-video"),
        Send("Start from its last frame", "video", "video", "image", "image-to-video", last_frame=True),
        Send("Follow its shapes", "video", "transfer", "control", "transfer"),
    )
