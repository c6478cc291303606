"""The Reasoner's tab: a conversation about pictures or a clip, and what its tasks find drawn on them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np

from cosmos_demo.events import Answered, Point
from cosmos_demo.media import read_image, write_image
from cosmos_demo.reasoner import drawing
from cosmos_demo.reasoner.parse import UNIT
from cosmos_demo.reasoner.tasks import DIRECT, TASKS, THINKING, Task
from cosmos_demo.requests import AnswerRequest, Turn
from cosmos_demo.ui import examples, forms, running, stage, timeline
from cosmos_demo.ui.context import Context
from cosmos_demo.ui.form import Form, Updates, joined
from cosmos_demo.ui.running import Moment

NAME = "reasoner"
PLAYER = "reasoner-player"
MARKED = "describe-anything"
"""The task whose picture carries numbered marks."""
HINT = "Give a picture or a clip and ask about it, or take an example above."


@dataclass(frozen=True)
class Exchange:
    """One question and its answer as the conversation shows it; ``rate`` is the one at which its clip was shown."""

    turn: Turn
    media: tuple[str, ...]
    rate: float | None = None
    thinking: str = ""
    note: str = ""


@dataclass(frozen=True)
class Marks:
    """Numbered marks on a picture: its path without them, where they are, and the path of the picture with them."""

    plain: str = ""
    points: tuple[Point, ...] = ()
    drawn: str = ""


class ReasonerTab:
    """Controls to the left, findings and conversation to the right."""

    name = NAME

    def __init__(self, context: Context) -> None:
        self._context = context
        self._tasks = {name: task for name, task in TASKS.items() if task.public}
        self._examples = examples.of(NAME)
        self.form = Form()
        self._build()
        self._listen()

    def fill(self, values: dict[str, Any]) -> Updates:
        """The updates that set the form from ``values`` by request field."""
        values = {"task": "chat", **values}
        if values["task"] not in self._tasks:
            values["task"] = "chat"
        look = "video" if values.get("video") else "image"
        return joined(self.form.fill(values), self._arranged(values["task"], look))

    def receive(self, field: str, path: str, mode: str = "") -> Updates:
        """The updates that put a file from another tab into the form, to be asked about."""
        look = "video" if field == "video" else "image"
        return joined({self.form[field]: gr.update(value=path)}, self._arranged("chat", look))

    # Layout

    def _build(self) -> None:
        reason = self._context.can.unavailable.get("reasoner", "")
        if reason:
            gr.HTML(f'<p class="reason">{escape(reason)}</p>')
        self._cards = examples.cards(self._examples, NAME)
        with gr.Row(elem_classes="bench"):
            with gr.Column(elem_classes="controls"):
                self._build_controls()
            with gr.Column(elem_classes="results"):
                self._build_results()

    def _build_controls(self) -> None:
        form = self.form
        choices = [(task.title, name) for name, task in self._tasks.items()]
        form.add("task", gr.Dropdown(choices, value="chat", label="Task", info=TASKS["chat"].hint))
        self._look = gr.Radio(
            [("Picture", "image"), ("Video", "video")], value="image", label="Ask about", elem_id="reasoner-look"
        )
        form.add("images", gr.Image(type="filepath", label="Picture", elem_id="reasoner-image", height=230))
        with gr.Row(visible=False, elem_classes="marking") as self._marking:
            gr.HTML('<p class="about">Click on things in the picture to number them.</p>')
            self._unmark = gr.Button("Remove the numbers", size="sm", min_width=120, elem_id="reasoner-unmark")
        self._marks = gr.State(Marks())
        form.add("video", gr.Video(label="Video", visible=False, elem_id="reasoner-video"))
        low, high = forms.QUESTION_RATES
        rate = gr.Number(
            self._context.can.defaults.get("video_fps", forms.QUESTION_FPS),
            label="Frames shown of each second",
            info=f"{low:g} to {high:g}; at most {forms.QUESTION_FRAMES} frames of a clip are shown.",
            minimum=low,
            maximum=high,
            visible=False,
            elem_id="reasoner-video-fps",
        )
        form.add("video_fps", rate)
        form.add(
            "prompt",
            gr.Textbox(
                label=TASKS["chat"].asks_for,
                placeholder=TASKS["chat"].example,
                lines=2,
                max_lines=8,
                elem_id="reasoner-prompt",
            ),
        )
        self._run, self._stop = running.buttons("Ask", NAME)
        self._run.interactive = "reasoner" not in self._context.can.unavailable
        with gr.Accordion("More pictures", open=False) as self._more_drawer:
            self._more = gr.File(file_count="multiple", file_types=["image"], show_label=False, height=110)
        form.add("reasoning", gr.Checkbox(False, label="Think first", info="The thinking is shown apart, folded."))
        with gr.Accordion("Sampling", open=False):
            preset = _preset(DIRECT)
            form.add("max_new_tokens", gr.Slider(16, 4096, 512, step=16, label="Longest answer", info="Tokens."))
            with gr.Row():
                for field, label, most in (
                    ("temperature", "Temperature", 2),
                    ("top_p", "Top p", 1),
                    ("top_k", "Top k", None),
                ):
                    control = gr.Number(
                        label=label, placeholder=preset[field], minimum=0, maximum=most, step=0.05, min_width=90
                    )
                    form.add(field, control)
            form.add_seed()

    def _build_results(self) -> None:
        self._picture = gr.Image(
            visible=False,
            interactive=False,
            show_label=False,
            elem_id="reasoner-drawn",
            elem_classes="screen",
            buttons=["download", "fullscreen"],
        )
        self._player = gr.Video(
            visible=False,
            interactive=False,
            show_label=False,
            elem_id=PLAYER,
            elem_classes="screen",
            buttons=[],
        )
        self._findings = gr.HTML(visible=False, elem_id="reasoner-findings")
        self._conversation = gr.State([])
        self._chat = gr.Chatbot(
            show_label=False,
            height="auto",
            max_height=560,
            visible=False,
            elem_id="reasoner-chat",
            allow_tags=False,
            buttons=["copy"],
            feedback_options=None,
            layout="bubble",
        )
        self._stage = gr.HTML(stage.empty(HINT), elem_id="reasoner-stage")
        with gr.Accordion("Record of this answer", open=False, visible=False) as self._drawer:
            self._record = gr.JSON(show_label=False, elem_id="reasoner-record")

    # Behaviour

    def _listen(self) -> None:
        private = {"api_visibility": "private"}
        task, look = self.form["task"], self._look
        gr.on(
            [task.input, look.input],
            self._choose,
            [task, look],
            self._arranging,
            queue=False,
            show_progress="hidden",
            **private,
        )
        asking = {
            "fn": self._ask,
            "inputs": self._inputs,
            "outputs": self._outputs,
            "show_progress": "hidden",
            "concurrency_limit": None,
            **private,
        }
        gr.on([self._run.click, self.form["prompt"].submit], **asking)
        filling = self._cards.click(
            examples.chosen(self._examples, self.fill), outputs=self.outputs, show_progress="hidden", **private
        )
        filling.success(**asking)
        picture = self.form["images"]
        marking = {"outputs": [picture, self._marks], "queue": False, "show_progress": "hidden", **private}
        picture.select(self._mark, [task, picture, self._marks], **marking)
        self._unmark.click(self._plain, [picture, self._marks], **marking)
        self._stop.click(self._halt, queue=False, show_progress="hidden", **private)
        self._chat.clear(self._cleared, outputs=self._outputs, queue=False, show_progress="hidden", **private)

    @property
    def outputs(self) -> list[Any]:
        """What `fill` may change."""
        return [*self.form.controls, *self._arranging]

    @property
    def _arranging(self) -> list[Any]:
        media = ("images", "video", "video_fps")
        fields = ("task", *media, "reasoning", "max_new_tokens", "prompt", "temperature", "top_p", "top_k")
        return [*(self.form[field] for field in fields), self._look, self._more_drawer, self._marking]

    @property
    def _inputs(self) -> set[Any]:
        return {*self.form.controls, self._look, self._more, self._conversation}

    @property
    def _outputs(self) -> list[Any]:
        return [
            *(self._picture, self._player, self._findings, self._conversation, self._chat, self._stage),
            *(self.form["prompt"], self._run, self._stop, self._drawer, self._record),
        ]

    def _choose(self, name: str, look: str) -> Updates:
        """Arrange the form for another task and let it start with the task's own length and thinking."""
        task = self._tasks[name]
        own = {"reasoning": gr.update(value=task.reasoning), "max_new_tokens": gr.update(value=task.max_new_tokens)}
        return self._arranged(name, look) | {self.form[field]: update for field, update in own.items()}

    def _arranged(self, name: str, look: str) -> Updates:
        """The updates that show what the task takes."""
        task, form = self._tasks[name], self.form
        seen = _seen(task, look)
        preset = _preset(THINKING if task.reasoning else DIRECT)
        return {
            form["task"]: gr.update(value=name, info=task.hint),
            self._look: gr.update(value=seen, visible=task.media == "any"),
            form["images"]: gr.update(visible=seen == "image"),
            form["video"]: gr.update(visible=seen == "video"),
            form["video_fps"]: gr.update(visible=seen == "video"),
            self._more_drawer: gr.update(visible=seen == "image" and task.media == "any"),
            self._marking: gr.update(visible=name == MARKED),
            form["prompt"]: gr.update(label=task.asks_for, placeholder=task.example, visible=bool(task.asks_for)),
            **{form[field]: gr.update(placeholder=text) for field, text in preset.items()},
        }

    def _mark(self, name: str, path: str | None, marks: Marks, event: gr.SelectData) -> tuple[Any, Any]:
        """Put the next number where the picture was clicked, if the task wants that."""
        if name != MARKED or not path:
            return gr.skip(), gr.skip()
        if path != marks.drawn:
            marks = Marks(plain=path)
        width, height = read_image(path).size
        x, y = event.index
        points = (*marks.points, Point(round(x * UNIT / width), round(y * UNIT / height), ""))
        drawn = drawing.mark(read_image(marks.plain), points)
        # Among Gradio's own files, so that it deletes this one like them.
        file = Path(self.form["images"].GRADIO_CACHE) / secrets.token_urlsafe(16) / "marked.png"
        marks = Marks(marks.plain, points, str(write_image(file, np.asarray(drawn))))
        return marks.drawn, marks

    def _plain(self, path: str | None, marks: Marks) -> tuple[Any, Any]:
        """The picture without its numbers; another picture that was put there since stays."""
        return (marks.plain if path and path == marks.drawn else gr.skip()), Marks()

    def _ask(self, given: dict[Any, Any], request: gr.Request) -> Iterator[Updates]:
        values = self.form.values(given)
        task = self._tasks[values["task"]]
        media = _media(task, given[self._look], values.pop("images"), values.pop("video"), given[self._more])
        seen = "video" if _seen(task, given[self._look]) == "video" else "images"
        rate = values["video_fps"] if seen == "video" else None
        past: list[Exchange] = given[self._conversation]
        if past and (past[-1].media, past[-1].rate) != (media, rate):
            past = []
        sent = media if task.name != "chat" or not past else ()
        history = [exchange.turn for exchange in past] if task.name == "chat" else []
        asked: list[AnswerRequest] = []

        def begin() -> Iterator[Any]:
            chosen = {seen: sent[0] if seen == "video" else list(sent)} if sent else {}
            asked.append(forms.answer_request(values | chosen, history, self._context.can))
            return self._context.engine.answer(asked[0])

        shown = values["prompt"].strip() or task.title
        for moment in self._context.runs.watch(begin, request.session_hash, NAME):
            now = Exchange(Turn(shown, moment.text), media, rate, moment.thinking)
            updates = running.switched(self._run, self._stop, moment) | self._stage_at(moment)
            if moment.result is not None:
                yield updates | self._finished(past, now, asked[0], moment.result)
            else:
                yield updates | self._working(past, now, moment)

    def _working(self, past: list[Exchange], now: Exchange, moment: Moment) -> Updates:
        busy = not moment.over
        updates: Updates = {
            self._chat: gr.update(value=_messages([*past, now], thinking=busy and not now.turn.answer), visible=True)
        }
        if moment.over and now.turn.answer:
            updates[self._conversation] = [*past, now]
        if busy and not (moment.text or moment.thinking):
            updates |= {
                part: gr.update(visible=False) for part in (self._picture, self._player, self._findings, self._drawer)
            }
        return updates

    def _finished(self, past: list[Exchange], now: Exchange, asked: AnswerRequest, answer: Answered) -> Updates:
        first = not past
        turn = Turn(now.turn.prompt, answer.text, asked.images if first else (), asked.video if first else None)
        conversation = [*past, Exchange(turn, now.media, now.rate, answer.thinking, answer.note)]
        updates: Updates = {
            self._conversation: conversation,
            self._chat: gr.update(value=_messages(conversation), visible=True),
            self._drawer: gr.update(visible=True),
            self._record: answer.record,
        }
        if asked.task == "chat":
            updates[self.form["prompt"]] = gr.update(value="")
        drawn = drawing.draw(asked.images[0], answer) if asked.images and _is_drawn(answer) else None
        updates[self._picture] = gr.update(value=drawn, visible=drawn is not None)
        rows = ""
        if answer.spans and asked.video is not None:
            duration = float(asked.video.times[-1]) + 1 / asked.video.fps
            rows = timeline.spans(answer.spans, duration, PLAYER)
            updates[self._player] = gr.update(value=now.media[0], visible=True)
        found = _badge(answer) + rows + _subjects(answer.subjects) + _note(answer.note)
        updates[self._findings] = gr.update(value=found, visible=bool(found))
        return updates

    def _stage_at(self, moment: Moment) -> Updates:
        done = moment.result is not None
        return {self._stage: stage.hidden() if done else stage.shown(stage.draw(moment, low=True))}

    def _cleared(self) -> Updates:
        parts = (self._picture, self._player, self._findings, self._chat, self._drawer)
        return {
            self._conversation: [],
            self._stage: stage.shown(stage.empty(HINT)),
            **{part: gr.update(visible=False) for part in parts},
        }

    def _halt(self, request: gr.Request) -> None:
        self._context.runs.stop(request.session_hash, NAME)


def _preset(sampling: Any) -> dict[str, str]:
    return {field: f"{getattr(sampling, field):g}" for field in ("temperature", "top_p", "top_k")}


def _seen(task: Task, look: str) -> str:
    """Whether the task is shown a picture or a clip."""
    return task.media if task.media in ("image", "video") else look


def _media(task: Task, look: str, image: str | None, video: str | None, more: Sequence[str] | None) -> tuple[str, ...]:
    """The paths of what the task is shown."""
    if _seen(task, look) == "video":
        return (video,) if video else ()
    extra = more or () if task.media == "any" else ()
    return (*((image,) if image else ()), *extra)


def _messages(conversation: Sequence[Exchange], thinking: bool = False) -> list[dict[str, Any]]:
    """The conversation for `gr.Chatbot`; ``thinking`` says that the last answer is still being thought about."""
    messages: list[dict[str, Any]] = []
    for place, exchange in enumerate(conversation):
        shown = [{"path": path} for path in exchange.media] if place == 0 else []
        messages.append({"role": "user", "content": [*shown, exchange.turn.prompt]})
        if exchange.thinking:
            busy = thinking and place == len(conversation) - 1
            title = {"title": "Thinking" if busy else "Thoughts", "status": "pending" if busy else "done"}
            messages.append({"role": "assistant", "content": exchange.thinking, "metadata": title})
        if exchange.turn.answer:
            messages.append({"role": "assistant", "content": _said(exchange.turn.answer)})
    return messages


def _said(text: str) -> str:
    """The answer as Markdown; bare JSON becomes a code block."""
    return f"```json\n{text.strip()}\n```" if text.lstrip()[:1] in ("[", "{") else text


def _is_drawn(answer: Answered) -> bool:
    return bool(answer.boxes or answer.points or answer.trajectory)


def _badge(answer: Answered) -> str:
    if answer.label is None:
        return ""
    no = "no" if answer.label == "Impossible" else ""
    return f'<p><span class="badge {no}">{escape(answer.label)}</span></p>'


def _subjects(rows: Sequence[dict[str, str]]) -> str:
    cells = "".join(
        f"<tr><th>{escape(row.get('subject_id', ''))}</th><td>{escape(row.get('category', ''))}</td>"
        f"<td>{escape(row.get('caption', ''))}</td></tr>"
        for row in rows
    )
    return f'<table class="subjects">{cells}</table>' if rows else ""


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>' if text else ""
