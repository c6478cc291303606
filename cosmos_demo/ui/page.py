"""The page: masthead, tabs, and what passes between them. It only composes."""

from __future__ import annotations

from html import escape

import gradio as gr

from cosmos_demo.engines.base import Engine
from cosmos_demo.settings import EXAMPLES, Settings
from cosmos_demo.ui import api, status, theme
from cosmos_demo.ui.action_tab import ActionTab
from cosmos_demo.ui.context import Context
from cosmos_demo.ui.picture_tab import PictureTab
from cosmos_demo.ui.reasoner_tab import ReasonerTab
from cosmos_demo.ui.video_tab import VideoTab

TITLE = "Cosmos 3"
BRAND = (
    '<div class="brand"><svg viewBox="0 0 92 60" aria-hidden="true"><circle cx="34" cy="30" r="24"/>'
    '<circle cx="58" cy="30" r="24"/></svg><div><h1>Cosmos 3</h1><p>One model, two heads</p></div></div>'
)
CACHE = (3600, 24 * 3600)
"""Gradio's copies of files: how often to look, and how old they may grow, in seconds."""


def build(engine: Engine, settings: Settings) -> gr.Blocks:
    """Build the page and its endpoints for ``engine``."""
    context = Context(engine, settings)
    with gr.Blocks(title=TITLE, analytics_enabled=False, delete_cache=CACHE) as page:
        with gr.Row(elem_id="masthead"):
            gr.HTML(BRAND, elem_id="brand")
            status.create(engine)
        if context.can.home:
            gr.HTML(f'<p class="home">{escape(context.can.home)}</p>')
        with gr.Tabs(selected="reasoner", elem_id="tabs"):
            with gr.Tab("Reasoner", id="reasoner"):
                ReasonerTab(context)
            with gr.Tab("Picture", id="picture"):
                PictureTab(context)
            with gr.Tab("Video", id="video"):
                VideoTab(context)
            with gr.Tab("Action", id="action"):
                ActionTab(context)
        api.add_endpoints(engine, settings)
    return page


def serve(page: gr.Blocks, settings: Settings) -> None:
    """Serve the page until the process is told to end."""
    page.launch(
        server_name=settings.host,
        server_port=settings.port,
        theme=theme.make(),
        css_paths=[theme.STYLE],
        head=f"<script>{theme.SCRIPT.read_text()}</script>",
        footer_links=["api", "settings"],
        run_history=False,
        allowed_paths=[settings.outputs, str(EXAMPLES)],
        max_file_size=settings.max_upload_mb * 2**20,
        show_error=True,
    )
