"""The tab that makes pictures from words."""

from __future__ import annotations

from cosmos_demo.ui.generator_tab import GeneratorTab
from cosmos_demo.ui.results import Send


class PictureTab(GeneratorTab):
    """Text to image."""

    name = "picture"
    modes = ("text-to-image",)
    main = ("prompt", ("resolution", "aspect_ratio"))
    button = "Make the picture"
    hint = "Say what the picture should show, or take an example above."
    clip = False
    sends = (
        Send("Ask about it", "picture", "reasoner", "images"),
        Send("Let it move", "picture", "video", "image", "image-to-video"),
        Send("Act from it", "picture", "action", "image", "policy"),
    )
