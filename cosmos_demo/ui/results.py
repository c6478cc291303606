"""The right half of a Generator tab: the stage while a run works, then the picture or clip, facts, files, actions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np

from cosmos_demo import media
from cosmos_demo.events import Event, Generated
from cosmos_demo.generator import actions
from cosmos_demo.ui import forms, running, stage, timeline
from cosmos_demo.ui.context import Context
from cosmos_demo.ui.form import Updates
from cosmos_demo.ui.running import Moment


@dataclass(frozen=True)
class Kept:
    """A result on disk and what the page shows of it beside the file."""

    files: forms.Written
    details: dict[str, Any]


@dataclass(frozen=True)
class Send:
    """A button that hands a result to a tab.

    Attributes:
        label: On the button.
        kind: Which file: ``picture`` or ``video``; ``last_frame`` makes a picture of a video.
        tab, field, mode: Where it goes.
    """

    label: str
    kind: str
    tab: str
    field: str
    mode: str = ""
    last_frame: bool = False

    def file(self, files: dict[str, str]) -> str:
        """The file to hand over, of the newest result's."""
        path = Path(files[self.kind])
        if not self.last_frame:
            return str(path)
        frame = media.read_clip(path, max_frames=1, keep="last").frames[-1]
        return str(media.write_image(path.parent / "frames" / f"{path.stem}-last.png", frame))


class Results:
    """Components of the right half and how a run's moments change them.

    Attributes:
        latest: State with the newest result's files as strings by kind, for what is sent to other tabs.
        remembered: What the browser keeps to find the newest result again; the page renders it, outside of the tabs,
            because what lies on a tab isn't there yet when the page has loaded.
        seed: State with the newest result's seed.
        sends: What hands the newest result to other tabs, and its button; the page wires them.
        reuse: Button that keeps the seed for the next run.
    """

    def __init__(self, context: Context, name: str, hint: str, clip: bool, sends: Sequence[Send]) -> None:
        """Put the components here. ``hint`` tells what to do first; ``clip`` says video player or picture."""
        self._context, self._name, self._hint, self._clip = context, name, hint, clip
        self.latest, self.seed = gr.State({}), gr.State(None)
        self.remembered = gr.BrowserState("", storage_key=f"cosmos-demo-{name}", render=False)
        self.stage = gr.HTML(stage.empty(hint), elem_id=f"{name}-stage")
        look = {"visible": False, "interactive": False, "show_label": False, "elem_classes": "screen"}
        if clip:
            self.screen = gr.Video(elem_id=f"{name}-screen", autoplay=True, loop=True, buttons=[], **look)
        else:
            self.screen = gr.Image(elem_id=f"{name}-screen", type="filepath", buttons=["fullscreen"], **look)
        self.facts = gr.HTML(visible=False, elem_id=f"{name}-facts")
        self.plot = gr.HTML(visible=False, elem_id=f"{name}-plot")
        with gr.Row(visible=False, elem_classes="shelf") as self._shelf:
            self.downloads = {
                kind: gr.DownloadButton(label, visible=False, size="sm", elem_id=f"{name}-get-{kind}")
                for kind, label in _DOWNLOADS.items()
            }
            self.sends = {send: gr.Button(send.label, size="sm") for send in sends}
            self.reuse = gr.Button("Keep this seed", size="sm")
        self.table = gr.Dataframe(
            elem_id=f"{name}-table", visible=False, interactive=False, label="Actions", max_height=320
        )
        with gr.Accordion("Record of this run", open=False, visible=False) as self.drawer:
            self.record = gr.JSON(show_label=False)

    @property
    def outputs(self) -> list[Any]:
        """Every component that a run changes."""
        return [
            *(self.latest, self.seed, self.remembered, self.stage, self.screen, self.facts, self.plot, self._shelf),
            *self.downloads.values(),
            *self.sends.values(),
            *(self.table, self.drawer, self.record),
        ]

    def play(
        self,
        begin: Callable[[], Iterator[Event]],
        visitor: str,
        run: gr.Button,
        stop: gr.Button,
        source: str | None = None,
    ) -> Iterator[Updates]:
        """Run what ``begin`` starts and yield the updates of each moment, those of the two buttons included.

        Args:
            source: The given clip, shown beside a result that has none of its own.
        """
        for moment in self._context.runs.watch(begin, visitor, self._name, self._keep):
            yield running.switched(run, stop, moment) | self._updates(moment, source)

    def reload(self, remembered: str) -> Updates:
        """The updates that show the result a browser remembers, if its files are still there."""
        folder = _folder(self._context.settings.outputs, remembered)
        return self._show(read(folder)) if folder else {self.stage: gr.skip()}

    def _keep(self, result: Generated) -> Kept:
        return Kept(forms.write_result(result, self._context.settings.outputs), forms.details(result))

    def _updates(self, moment: Moment, source: str | None) -> Updates:
        if moment.kept is not None:
            return self._show(moment.kept, source)
        cleared = {} if moment.preview is not None or moment.elapsed is not None else self._cleared()
        return cleared | {self.stage: stage.shown(stage.draw(moment))}

    def _cleared(self) -> Updates:
        parts = [self.screen, self.facts, self.plot, self._shelf, self.table, self.drawer]
        return {part: gr.update(visible=False) for part in parts}

    def _show(self, kept: Kept, source: str | None = None) -> Updates:
        """The updates that show a result, or over actions alone the clip ``source`` that they were read from."""
        record, rows = kept.details["record"], kept.details.get("actions")
        files = {kind: str(path) for kind, path in asdict(kept.files).items() if path}
        updates: Updates = {}
        if rows:
            files["table"] = str(_write_table(kept.files.data.with_suffix(".csv"), record, rows))
            updates |= self._acted(record, rows)
        shown = files.get("video") or files.get("picture") or source
        updates |= {
            self.latest: files,
            self.seed: record["seed"],
            self.remembered: kept.files.data.parent.name,
            self.stage: stage.hidden(),
            self.screen: gr.update(value=shown, visible=shown is not None, **self._looped(files)),
            self.facts: gr.update(value=facts(record), visible=True),
            self._shelf: gr.update(visible=True),
            self.drawer: gr.update(visible=True),
            self.record: record,
        }
        updates |= {
            button: gr.update(value=files.get(kind), visible=kind in files) for kind, button in self.downloads.items()
        }
        return updates | {button: gr.update(visible=send.kind in files) for send, button in self.sends.items()}

    def _looped(self, files: dict[str, str]) -> dict[str, bool]:
        """Silent clips play again and again, one with sound plays once."""
        return {"loop": "sound" not in files} if self._clip else {}

    def _acted(self, record: dict[str, Any], rows: list[list[float]]) -> Updates:
        """The updates that show actions: a plot on the clip's own clock, and a table."""
        settings = record["settings"]
        names = actions.DOMAINS[settings["domain"]].channels[: len(rows[0])]
        drawn = timeline.plot(np.asarray(rows), _grouped(names), settings["fps"], f"{self._name}-screen")
        numbered = [[step, *(round(value, 4) for value in row)] for step, row in enumerate(rows)]
        return {
            self.plot: gr.update(value=drawn, visible=True),
            self.table: gr.update(value={"headers": ["step", *names], "data": numbered}, visible=True),
        }


_DOWNLOADS = {"picture": "PNG", "video": "MP4", "sound": "WAV", "data": "JSON", "table": "CSV"}
_TOKEN = re.compile(r"[\w-]{16,40}", re.ASCII)


def facts(record: dict[str, Any]) -> str:
    """The few settings of a run that people ask for first, as HTML."""
    settings, details, seconds = record["settings"], record["details"], record["timings"].get("total")
    frames = details.get("frames", 1)
    named = {
        "seed": record["seed"],
        "size": f"{details['width']}×{details['height']}" if "width" in details else None,
        "frames": frames if frames > 1 else None,
        "fps": settings.get("fps"),
        "steps": settings.get("steps"),
        "guidance": settings.get("guidance_scale"),
        "took": None if seconds is None else f"{seconds:.1f} s",
    }
    parts = "".join(
        f"<span>{name} <b>{escape(str(value))}</b></span>" for name, value in named.items() if value is not None
    )
    return f'<div class="facts">{parts}</div>'


def read(folder: Path) -> Kept:
    """The result that `forms.write_result` wrote into ``folder``."""
    by_kind = {".png": "picture", ".mp4": "video", ".wav": "sound", ".json": "data"}
    files = {by_kind[path.suffix]: path for path in folder.iterdir() if path.suffix in by_kind}
    return Kept(forms.Written(**files), json.loads(files["data"].read_text(encoding="utf-8")))


def _folder(outputs: str, remembered: Any) -> Path | None:
    """The folder of a remembered result; a browser's word is trusted only as the name of one."""
    if not isinstance(remembered, str) or not _TOKEN.fullmatch(remembered):
        return None
    folder = Path(outputs).resolve() / remembered
    return folder if folder.is_dir() and any(folder.glob("*.json")) else None


def _grouped(names: Sequence[str]) -> list[tuple[str, list[tuple[int, str]]]]:
    """Channels that are drawn in one plot: the translation, rotation, gripper or fingers of one limb."""
    groups: dict[str, list[tuple[int, str]]] = {}
    for column, name in enumerate(names):
        *limb, last = name.split(" ")
        kind = "gripper" if last == "gripper" else "rotation" if last in actions.POSE[3:] else "translation"
        groups.setdefault(" ".join((*limb, kind)).capitalize(), []).append((column, last))
    return list(groups.items())


def _write_table(path: Path, record: dict[str, Any], rows: list[list[float]]) -> Path:
    settings = record["settings"]
    path.write_text(actions.to_csv(np.asarray(rows, np.float32), settings["domain"], settings["fps"]), encoding="utf-8")
    return path
