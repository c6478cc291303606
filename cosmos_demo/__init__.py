"""The web demo of NVIDIA Cosmos 3: one model, two heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cosmos_demo.engines.base import Engine
    from cosmos_demo.settings import Settings

__version__ = "0.1.0"


def open_engine(settings: Settings) -> Engine:
    """Open what ``settings`` name: servers for either head, and for what they leave a checkpoint in this process.

    Returns:
        An engine whose checkpoint is known and whose weights are being loaded, or that asks its servers.

    Raises:
        CheckpointError: when there is no such checkpoint, or it is gated, damaged or of an unknown kind.
        SettingsError: for something that is no address of a server.
    """
    from cosmos_demo.engines.pair import PairEngine

    reasoner_urls, generator_urls = (
        [url for url in text.split(",") if url.strip()] for text in (settings.reasoner_url, settings.generator_url)
    )
    local = None
    if not (reasoner_urls and generator_urls):
        from cosmos_demo.engines.local import LocalEngine

        local = LocalEngine(settings)
    reasoner = generator = local
    if reasoner_urls:
        from cosmos_demo.engines.vllm import VllmReasoner

        reasoner = VllmReasoner(reasoner_urls, settings.reasoner_key, settings.queue_size)
    if generator_urls:
        from cosmos_demo.engines.vllm_omni import OmniGenerator

        generator = OmniGenerator(generator_urls, settings.generator_key, settings.queue_size)
    return local if reasoner is generator else PairEngine(reasoner, generator)
