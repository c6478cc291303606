"""The page: masthead, tabs, and what passes between them. It only composes."""

from __future__ import annotations

from html import escape
from typing import Any

import gradio as gr

from cosmos_demo import records
from cosmos_demo.engines.base import Engine
from cosmos_demo.errors import RequestError
from cosmos_demo.settings import EXAMPLES, Settings
from cosmos_demo.ui import api, forms, scorecard, status, theme
from cosmos_demo.ui.action_tab import ActionTab
from cosmos_demo.ui.context import Context
from cosmos_demo.ui.form import Updates
from cosmos_demo.ui.generator_tab import GeneratorTab
from cosmos_demo.ui.picture_tab import PictureTab
from cosmos_demo.ui.reasoner_tab import ReasonerTab
from cosmos_demo.ui.results import Send
from cosmos_demo.ui.running import explain
from cosmos_demo.ui.transfer_tab import TransferTab
from cosmos_demo.ui.video_tab import VideoTab

TITLE = "Cosmos 3"
BRAND = (
    '<div class="brand"><svg viewBox="0 0 92 60" aria-hidden="true"><circle cx="34" cy="30" r="24"/>'
    '<circle cx="58" cy="30" r="24"/></svg><div><h1>Cosmos 3</h1><p>One model, two heads</p></div></div>'
)
GENERATORS = (PictureTab, VideoTab, ActionTab, TransferTab)
CACHE = (3600, 24 * 3600)
"""Gradio's copies of files: how often to look, and how old they may grow, in seconds."""

_QUICK = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}


def build(engine: Engine, settings: Settings) -> gr.Blocks:
    """Build the page and its endpoints for ``engine``."""
    context = Context(engine, settings)
    with gr.Blocks(title=TITLE, analytics_enabled=False, delete_cache=CACHE) as page:
        with gr.Row(elem_id="masthead"):
            gr.HTML(BRAND, elem_id="brand")
            status.create(engine)
        if context.can.home:
            gr.HTML(f'<p class="home">{escape(context.can.home)}</p>')
        with gr.Tabs(selected=ReasonerTab.name, elem_id="tabs") as tabs:
            with gr.Tab("Reasoner", id=ReasonerTab.name):
                reasoner = ReasonerTab(context)
            generators = []
            for kind in GENERATORS:
                with gr.Tab(kind.name.capitalize(), id=kind.name):
                    generators.append(kind(context))
        _connect(reasoner, generators, tabs)
        scorecard.create(context.can)
        _restoring(reasoner, generators, tabs)
        for tab in generators:
            tab.results.remembered.render()
            page.load(tab.results.reload, tab.results.remembered, tab.results.outputs, **_QUICK)
        _remembering(page, reasoner, generators)
        api.add_endpoints(engine, settings)
    return page


def serve(page: gr.Blocks, settings: Settings) -> None:
    """Serve the page until the process is told to end; results that are too many from earlier runs are deleted.

    A host that wasn't chosen is left to Gradio: its own default is the same, and Spaces sets another through it.
    """
    forms.delete_old_results(settings.outputs)
    page.launch(
        server_name=None if settings.host == Settings().host else settings.host,
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


def _connect(reasoner: ReasonerTab, generators: list[GeneratorTab], tabs: gr.Tabs) -> None:
    """Let the buttons under each result hand it to other tabs."""
    by_name = {tab.name: tab for tab in (reasoner, *generators)}

    def handing(send: Send, target: ReasonerTab | GeneratorTab) -> Any:
        def hand(files: dict[str, str]) -> Updates:
            return target.receive(send.field, send.file(files), send.mode) | {tabs: gr.Tabs(selected=target.name)}

        return hand

    for tab in generators:
        for send, button in tab.results.sends.items():
            target = by_name[send.tab]
            button.click(handing(send, target), tab.results.latest, [*target.outputs, tabs], **_QUICK)


def _remembering(page: gr.Blocks, reasoner: ReasonerTab, generators: list[GeneratorTab]) -> None:
    """Let the browser keep each tab's prompt, so that a reload doesn't lose it; the server isn't asked."""
    for tab in (reasoner, *generators):
        kept = gr.BrowserState("", storage_key=f"cosmos-demo-{tab.name}-prompt")
        prompt = tab.form["prompt"]
        same = {"fn": None, "js": "text => text", **_QUICK}
        page.load(inputs=kept, outputs=prompt, **same)
        prompt.change(inputs=prompt, outputs=kept, **same)


def _restoring(reasoner: ReasonerTab, generators: list[GeneratorTab], tabs: gr.Tabs) -> None:
    """Put the field here that takes a result's file and sets the tab it was made on as it was then."""
    by_mode = {mode: tab for tab in generators for mode in tab.modes}
    dropped = gr.File(label="Restore settings: drop a file that was made here", height=96, elem_id="restore")

    def restore(path: str) -> Updates:
        try:
            head, name, settings = records.restore(records.read_record(path))
        except RequestError as error:
            raise gr.Error(escape(explain(error)), print_exception=False) from error
        tab = reasoner if head == "reasoner" else by_mode.get(name)
        if tab is None:
            raise gr.Error(f"The file is of a mode that this app doesn't know: {escape(name)}.", print_exception=False)
        naming = "task" if head == "reasoner" else "mode"
        return tab.fill({naming: name, **settings}) | {tabs: gr.Tabs(selected=tab.name), dropped: None}

    outputs = [*reasoner.outputs, *(output for tab in generators for output in tab.outputs), tabs, dropped]
    dropped.upload(restore, dropped, outputs, **_QUICK)
