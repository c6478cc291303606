"""The tab where motion goes in or comes out: policy, forward and inverse dynamics."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import gradio as gr

from cosmos_demo import media
from cosmos_demo.errors import RequestError
from cosmos_demo.generator import actions
from cosmos_demo.generator.modes import MODES
from cosmos_demo.generator.validate import defaults_for
from cosmos_demo.ui.context import Context
from cosmos_demo.ui.form import Updates
from cosmos_demo.ui.generator_tab import SAMPLING, GeneratorTab
from cosmos_demo.ui.results import Send
from cosmos_demo.ui.running import explain


class ActionTab(GeneratorTab):
    """What to do, what it leads to, and what was done."""

    name = "action"
    modes = ("policy", "forward-dynamics", "inverse-dynamics")
    main = ("image", "video", "actions", "prompt", "domain", "chunk_size")
    advanced = (("resolution", "fps"), "view_point", *SAMPLING[1:])
    button = "Run"
    sends = (Send("Ask about it", "video", "reasoner", "video"),)
    hint = "Give a first frame and a task, a first frame and actions, or a clip. The examples above run at a click."

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        quick = {"show_progress": "hidden", "queue": False, "api_visibility": "private"}
        self._file.upload(_read, self._file, self.form["actions"], **quick)
        paced = [self.form["chunk_size"], self.form["fps"]]
        self.form["domain"].input(self._pace, self.form["domain"], paced, **quick)

    def fill(self, values: Mapping[str, Any]) -> Updates:
        """Like any tab's; actions may be rows, or the path of a file of ours with them."""
        rows = values.get("actions")
        if isinstance(rows, list):
            values = {**values, "actions": actions.to_json(actions.as_rows(rows))}
        elif isinstance(rows, str) and not rows.startswith("["):
            values = {**values, "actions": _read(rows)}
        return super().fill(values)

    @property
    def outputs(self) -> list[Any]:
        return [*super().outputs, self._file]

    def _add(self, field: str) -> None:
        super()._add(field)
        if field == "actions":
            self._file = gr.UploadButton(
                "Load actions from a JSON file", file_types=[".json"], size="sm", visible=False
            )

    def _arranged(self, name: str) -> Updates:
        return super()._arranged(name) | {self._file: gr.update(visible=name == "forward-dynamics")}

    def _pace(self, domain: str) -> Updates:
        own = defaults_for(MODES[self.modes[0]], self.context.can, domain)
        return {self.form[field]: own[field] for field in ("chunk_size", "fps")}


def _read(path: str) -> str:
    """The rows of an action file, or of a result's JSON, as JSON text."""
    try:
        return actions.to_json(actions.read_rows(media.read_comment(path, "actions")))
    except RequestError as error:
        raise gr.Error(escape(explain(error)), print_exception=False) from error
