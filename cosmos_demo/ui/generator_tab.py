"""The frame of every Generator tab: mode, inputs and controls from the catalogue to the left, results to the right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

import gradio as gr

from cosmos_demo.events import Answered, Event
from cosmos_demo.generator.modes import MODES
from cosmos_demo.generator.validate import defaults_for
from cosmos_demo.requests import GenerateRequest
from cosmos_demo.ui import controls, examples, forms, running, stage
from cosmos_demo.ui.context import Context
from cosmos_demo.ui.form import Form, Updates, joined
from cosmos_demo.ui.results import Results, Send

SAMPLING = ("negative_prompt", "steps", "guidance_scale", "flow_shift")
"""Advanced controls of every tab, beside the seed."""

Layout = tuple[str | tuple[str, ...], ...]
"""Fields one below the other; those of a tuple side by side."""


class GeneratorTab:
    """A tab for one mode, or for several that share most of their controls.

    A mode shows those controls whose fields it needs, takes or has a default for.

    Attributes:
        name: Id of the tab.
        modes: Its modes; the first that the checkpoint can do is chosen to begin with.
        main, advanced: The layout of its controls.
        button, hint: What starts a run, and what to do before the first one.
        clip: Whether results are clips.
        sends: Where results can be sent.
    """

    name: str
    modes: tuple[str, ...]
    main: Layout
    advanced: Layout = SAMPLING
    button: str
    hint: str
    clip = True
    sends: tuple[Send, ...] = ()

    def __init__(self, context: Context) -> None:
        self.context = context
        self.form = Form()
        self._first = next((mode for mode in self.modes if mode not in context.can.unavailable), self.modes[0])
        self._catalogued: list[str] = []
        self._write: gr.Button | None = None
        self._examples = examples.of(self.name)
        self._cards = examples.cards(self._examples, self.name)
        with gr.Row(elem_classes="bench"):
            with gr.Column(elem_classes="controls"):
                self._build_controls()
            with gr.Column(elem_classes="results"):
                self.results = Results(context, self.name, self.hint, self.clip, self.sends)
        self._listen()

    def values(self, given: Mapping[Any, Any]) -> tuple[str, dict[str, Any]]:
        """The chosen mode and the values of its fields, from what Gradio hands a listener."""
        values = self.form.values(given)
        mode = values.pop("mode")
        return mode, {field: value for field, value in values.items() if field in controls.fields(MODES[mode])}

    def request(self, mode: str, values: dict[str, Any]) -> GenerateRequest:
        """The request for `values`. Raises `RequestError`."""
        return forms.generate_request(mode, values, self.context.can)

    def fill(self, values: Mapping[str, Any]) -> Updates:
        """The updates that set the form to ``values`` by field, ``mode`` among them, and the rest to the defaults."""
        mode = values.get("mode", self._first)
        started = defaults_for(MODES[mode], self.context.can, values.get("domain"))
        del started["flow_shift"]  # its field is empty for the preset
        return joined(self.form.fill({"mode": mode, **started, **values}), self._arranged(mode))

    def receive(self, field: str, path: str, mode: str) -> Updates:
        """The updates that put a file from another tab into the form and leave the rest as it is."""
        sent = {self.form["mode"]: gr.update(value=mode), self.form[field]: gr.update(value=path)}
        return joined(sent, self._arranged(mode))

    @property
    def outputs(self) -> list[Any]:
        """What `fill` and `receive` may change."""
        return [*self.form.controls, self._about, self._run]

    # Layout

    def _build_controls(self) -> None:
        chosen = self._first
        titles = [(MODES[mode].title, mode) for mode in self.modes]
        several = len(self.modes) > 1
        mode = gr.Radio(titles, value=chosen, label="Mode", visible=several, elem_id=f"{self.name}-mode")
        self.form.add("mode", mode)
        self._about = gr.HTML(self._tell(chosen))
        self._lay(self.main)
        self._run, self._stop = running.buttons(self.button, self.name)
        self._run.interactive = chosen not in self.context.can.unavailable
        with gr.Accordion("Advanced", open=False):
            self._lay(self.advanced)
            self.form.add_seed()

    def _lay(self, layout: Layout) -> None:
        for line in layout:
            if isinstance(line, str):
                self._add(line)
            else:
                with gr.Row():
                    for field in line:
                        self._add(field)

    def _add(self, field: str) -> None:
        """Put the control for ``field`` here, with the defaults of the first mode that has it."""
        mode = next(MODES[mode] for mode in self.modes if field in controls.fields(MODES[mode]))
        control = self.form.add(field, controls.create(field, self.name, mode, self.context.can))
        control.visible = field in controls.fields(MODES[self._first])
        self._catalogued.append(field)
        if field == "prompt" and not mode.acts:
            lacks = self.context.can.unavailable
            reason = lacks.get("reasoner") or lacks.get("upsample") or ""
            self._write = gr.Button(
                "Write the prompt out", size="sm", interactive=not reason, elem_id=f"{self.name}-write"
            )
            self._writing = gr.HTML(f'<p class="reason">{escape(reason)}</p>', visible=bool(reason))

    def _tell(self, mode: str) -> str:
        """What the mode does, or why the checkpoint can't do it."""
        reason = self.context.can.unavailable.get(mode)
        if reason:
            return f'<p class="reason">{escape(reason)}</p>'
        return f'<p class="about">{escape(MODES[mode].description)}</p>'

    def _arranged(self, name: str) -> Updates:
        """The updates that show what the mode takes."""
        mode = MODES[name]
        shown = {self.form[field]: gr.update(visible=field in controls.fields(mode)) for field in self._catalogued}
        prompt = gr.update(placeholder=mode.example, visible="prompt" in controls.fields(mode))
        return shown | {
            self._about: gr.update(value=self._tell(name)),
            self._run: gr.update(interactive=name not in self.context.can.unavailable),
            self.form["prompt"]: prompt,
        }

    # Behaviour

    def _listen(self) -> None:
        quick = {"show_progress": "hidden", "queue": False, "api_visibility": "private"}
        self.form["mode"].input(self._arranged, self.form["mode"], self.outputs, **quick)
        running_ = {
            "fn": self._go,
            "inputs": set(self.form.controls),
            "outputs": [*self.results.outputs, self._run, self._stop],
            "show_progress": "hidden",
            "concurrency_limit": None,
            "api_visibility": "private",
        }
        self._run.click(**running_)
        if self._write:
            self._write.click(**running_ | {"fn": self._write_out, "outputs": self._written})
        chosen = self._cards.click(examples.chosen(self._examples, self.fill), outputs=self.outputs, **quick)
        chosen.success(**running_)
        self._stop.click(self._halt, **quick)
        self.results.reuse.click(self.form.keep_seed, self.results.seed, self.form.seed, **quick)

    def _go(self, given: dict[Any, Any], request: gr.Request) -> Iterator[Updates]:
        mode, values = self.values(given)

        def begin() -> Iterator[Event]:
            return self.context.engine.generate(self.request(mode, values))

        source = values.get("video")
        yield from self.results.play(begin, request.session_hash, self._run, self._stop, source)

    @property
    def _written(self) -> list[Any]:
        return [self.form["prompt"], self._writing, self._write, self._run, self._stop]

    def _write_out(self, given: dict[Any, Any], request: gr.Request) -> Iterator[Updates]:
        """Let the Reasoner turn the prompt into a structured one, as the Generator was trained on."""
        mode, values = self.values(given)

        def begin() -> Iterator[Event]:
            return self.context.engine.answer(forms.upsample_request(values["prompt"], mode, values.get("image")))

        def keep(answer: Answered) -> str:
            return forms.upsampled(answer, mode, values, self.context.can)

        for moment in self.context.runs.watch(begin, request.session_hash, self.name, keep):
            updates = running.switched(self._run, self._stop, moment)
            updates[self._write] = gr.update(interactive=moment.over)
            updates[self._writing] = gr.update(value=stage.draw(moment, low=True), visible=moment.kept is None)
            if moment.kept is not None:
                updates[self.form["prompt"]] = gr.update(value=moment.kept)
            yield updates

    def _halt(self, request: gr.Request) -> None:
        self.context.runs.stop(request.session_hash, self.name)
