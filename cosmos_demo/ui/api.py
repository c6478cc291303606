"""The named endpoints: what the tabs do, for ``gradio_client``, curl and MCP.

While a run works its endpoint yields outputs without a result: the answer so far, or no file and ``{"progress": ...}``
as details. The last output is the result. Leaving early stops the run.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr
from gradio_client.utils import is_file_obj_with_meta

from cosmos_demo.engines.base import Engine
from cosmos_demo.errors import DemoError, EngineError, RequestError
from cosmos_demo.events import Event, Preview
from cosmos_demo.generator.modes import MODES, Mode
from cosmos_demo.settings import Settings
from cosmos_demo.ui import forms
from cosmos_demo.ui.running import Moment, advance

log = logging.getLogger(__name__)

MODEL = "model"
"""Concurrency id of all listeners that use the model; in truth the engine's own queue lets them through one by one."""

Values = dict[str, Any]
Run = Callable[[Values], Iterator[Any]]
"""What an endpoint does: gets the inputs by name, yields outputs, the result last."""


@dataclass(frozen=True)
class Input:
    """One input of an endpoint: its type, what it means, and what stands for its absence."""

    kind: Any
    text: str
    default: Any = None


INPUTS = {
    "prompt": Input(str, "What to ask, to show, or to do; plain text or a structured JSON caption.", ""),
    "negative_prompt": Input(str, "What to avoid.", ""),
    "image": Input(gr.FileData, "PNG, JPEG, WebP, BMP or GIF file."),
    "video": Input(gr.FileData, "Video file of any common kind."),
    "task": Input(str, "Name of a Reasoner task; chat sends the prompt as it is.", "chat"),
    "reasoning": Input(bool, "Think before answering.", False),
    "max_new_tokens": Input(int, "Longest answer, 1 to 4096 tokens."),
    "temperature": Input(float, "Of sampling; 0 always takes the likeliest token."),
    "top_p": Input(float, "Of sampling, 0 to 1."),
    "top_k": Input(int, "Of sampling."),
    "resolution": Input(int, "Tier: 256, 480, 720 or 768."),
    "aspect_ratio": Input(str, "16:9, 4:3, 1:1, 3:4 or 9:16."),
    "num_frames": Input(int, "5 to 300, rounded to the form 4k+1."),
    "fps": Input(int, "Frames per second: 10, 16, 24 or 30; in action modes the domain's own rate."),
    "sound": Input(bool, "Make sound with the video.", False),
    "steps": Input(int, "Denoising steps, 1 to 100."),
    "guidance_scale": Input(float, "1 to 20; 1 turns guidance off."),
    "flow_shift": Input(float, "0.1 to 20; 0 takes the schedule shipped with the checkpoint."),
    "seed": Input(int, "0 to 4294967295; without it one is drawn and told in the record."),
    "condition_frames": Input(int, "Source frames to continue from, of the form 4k+1.", 5),
    "keep": Input(str, "Which end of the source these frames are of: first or last.", "last"),
    "domain": Input(str, "Embodiment domain, for example camera_pose or av."),
    "chunk_size": Input(int, "Action steps, a multiple of 4."),
    "view_point": Input(str, "ego_view, third_person_view, wrist_view or concat_view."),
    "actions": Input(list | gr.FileData, "Rows of numbers in the model's action space, or a JSON file of them."),
    "control": Input(gr.FileData, "Control video."),
    "kind": Input(str, "What the control video shows: edge, blur, depth, seg or wsm.", "edge"),
    "compute": Input(str, "Take edge or blur from an ordinary clip at this strength: low, medium or high."),
    "more_controls": Input(dict, "Further control videos by kind."),
    "control_guidance": Input(float, "Guidance towards the controls, 1 to 10."),
    "mode": Input(str, "Generator mode the prompt is for, for example text-to-video.", "text-to-video"),
}

ANSWER = ("prompt", "image", "video", "task", "reasoning", "max_new_tokens", "temperature", "top_p", "top_k", "seed")
UPSAMPLE = ("prompt", "mode", "image")
FILES = ("image", "video", "control")


def add_endpoints(engine: Engine, settings: Settings) -> None:
    """Register all endpoints; call it inside the page's ``gr.Blocks``."""

    def answer(values: Values) -> Iterator[tuple[str, dict[str, Any]]]:
        values["images"] = values.pop("image")
        for moment in _moments(engine.answer(forms.answer_request(values, capabilities=engine.capabilities()))):
            if moment.result is None:
                yield moment.text, _progress(moment)
            else:
                yield moment.result.text, forms.details(moment.result)

    def generate(mode: str, values: Values) -> Iterator[tuple[gr.FileData | None, dict[str, Any]]]:
        request = forms.generate_request(mode, values, engine.capabilities())
        for moment in _moments(engine.generate(request)):
            if moment.result is None:
                yield None, _progress(moment)
            else:
                written, details = forms.write_result(moment.result, settings.outputs), forms.details(moment.result)
                yield _file(written), details | _rounded(request.num_frames, details["record"])

    def transfer(values: Values) -> Iterator[tuple[gr.FileData | None, dict[str, Any]]]:
        more = values.pop("more_controls") or {}
        if not isinstance(more, dict):
            raise RequestError("more_controls", "Give control videos by kind, for example {'depth': file}.")
        kind = str(values.pop("kind"))
        values["controls"] = {kind: values.pop("control"), **more}
        values["compute"] = {kind: values.pop("compute")}
        return generate("transfer", values)

    def inverse_dynamics(values: Values) -> Iterator[dict[str, Any]]:
        return (details for _, details in generate("inverse-dynamics", values))

    def upsample_prompt(values: Values) -> Iterator[tuple[str, dict[str, Any]]]:
        prompt, mode, image = (values[name] for name in UPSAMPLE)
        for moment in _moments(engine.answer(forms.upsample_request(prompt, mode, image))):
            if moment.result is None:
                yield moment.text, _progress(moment)
            else:
                text = forms.upsampled(moment.result, mode, {}, engine.capabilities())
                yield text, forms.details(moment.result)

    def status(values: Values) -> Iterator[dict[str, Any]]:
        yield {**asdict(engine.status()), "capabilities": asdict(engine.capabilities())}

    def add(name: str, text: str, inputs: Sequence[str], returns: Any, run: Run) -> None:
        # One more than the engine's queue holds, so that the engine refuses it and not the framework lets it wait.
        limit = settings.queue_size + 2
        gr.api(_endpoint(name, text, inputs, returns, run), concurrency_id=MODEL, concurrency_limit=limit)

    add("answer", "Answers a question about words, a picture or a video.", ANSWER, tuple[str, dict], answer)
    for mode in MODES.values():
        name, returns, run = mode.name.replace("-", "_"), tuple[gr.FileData, dict], partial(generate, mode.name)
        if mode.name == "transfer":
            run = transfer
        elif mode.name == "inverse-dynamics":
            returns, run = dict, inverse_dynamics
        add(name, mode.description, _inputs(mode), returns, run)
    add(
        "upsample_prompt", "Writes a short prompt out as a structured one.", UPSAMPLE, tuple[str, dict], upsample_prompt
    )
    gr.api(
        _endpoint("status", "Tells the checkpoint, its abilities, and what it does now.", (), dict, status), queue=False
    )


def _file(written: forms.Written) -> gr.FileData | None:
    shown = written.video or written.picture
    return gr.FileData(path=str(shown)) if shown else None


def _rounded(asked: int | None, record: dict[str, Any]) -> dict[str, str]:
    made = record["settings"].get("num_frames")
    return (
        {} if asked in (None, made) else {"note": f"num_frames: {asked} was changed to {made}, which fits the model."}
    )


def _inputs(mode: Mode) -> list[str]:
    """Names of the inputs of a mode's endpoint, what the mode needs first."""
    controls = ("control", "kind", "compute", "more_controls")
    needs = [name for field in mode.needs for name in (controls if field == "controls" else (field,))]
    return [*needs, *mode.takes, *mode.defaults, *(("chunk_size", "fps") if mode.acts else ()), "seed"]


def _endpoint(name: str, text: str, names: Sequence[str], returns: Any, run: Run) -> Callable[..., Iterator[Any]]:
    """Make the function of an endpoint, whose signature and docstring tell clients what it takes and gives.

    Args:
        names: Those of `INPUTS` that it takes; the first is required.
    """

    def endpoint(*values: Any) -> Iterator[Any]:
        with _plain_errors(name):
            given = {key: _received(key, value) for key, value in zip(names, values, strict=True)}
            yield from run(given)

    parameters = [_parameter(key, required=key == names[0]) for key in names]
    lines = [text, "", "Args:", *(f"    {key}: {INPUTS[key].text}" for key in names)]
    endpoint.__name__, endpoint.__doc__ = name, "\n".join(lines)
    endpoint.__signature__ = inspect.Signature(parameters, return_annotation=returns)
    endpoint.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return endpoint


def _parameter(name: str, required: bool) -> inspect.Parameter:
    given = INPUTS[name]
    plain = required or given.default is not None or given.kind is gr.FileData  # MCP finds no file behind "or null"
    return inspect.Parameter(
        name,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        default=inspect.Parameter.empty if required else given.default,
        annotation=given.kind if plain else given.kind | None,
    )


def _moments(events: Iterator[Event]) -> Iterator[Moment]:
    """What a run is at, after each of its events; the last moment has the result. Leaving early stops the run."""
    moment = Moment()
    with closing(events):
        for event in events:
            moment = advance(moment, event)
            if not isinstance(event, Preview):
                yield moment
    if moment.result is None:
        raise EngineError("The run was stopped.")


def _progress(moment: Moment) -> dict[str, Any]:
    names = ("words", "fraction", "elapsed", "remaining")
    return {"progress": {name: getattr(moment, name) for name in names}}


@contextmanager
def _plain_errors(name: str) -> Iterator[None]:
    """Give clients errors that they can read; what nobody foresaw goes to the log."""
    try:
        yield
    except DemoError as error:
        raise gr.Error(escape(str(error), quote=False), print_exception=False) from error
    except Exception as error:
        log.exception("A call of %s failed.", name)
        raise gr.Error("Something went wrong inside the app; its log says what.", print_exception=False) from error


def _received(name: str, value: Any) -> Any:
    """A client's value; an uploaded file becomes its path, and no other value ever does."""
    if is_file_obj_with_meta(value):
        return Path(value["path"])
    if name == "more_controls" and isinstance(value, dict):
        return {kind: _received("control", clip) for kind, clip in value.items()}
    if name in FILES and value is not None:
        raise RequestError(name, "Upload a file, in Python with gradio_client.handle_file.")
    return value
