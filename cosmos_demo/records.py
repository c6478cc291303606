"""The record of a run: what was asked, with which seed, checkpoint and versions; written into files and read back.

A record is a JSON object::

    app, version     marker and format version
    app_version      of this program
    kind             head that worked: ``reasoner`` or ``generator``
    settings         request fields, as resolved
    inputs           given media in words ("17 frames of 320x192 at 10 fps"); never their content or names
    checkpoint       short name or hub id
    seed             the one used
    timings          seconds by phase
    details          what else the head wants known, for example the size used
    versions         of the libraries
    date             UTC, ISO 8601

Files come from strangers, so reading keeps only known keys of the right types. Free text (prompts) stays as it was
typed: show it as text, never as HTML.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_type_hints

import numpy as np
from PIL import Image

from cosmos_demo.errors import RequestError
from cosmos_demo.media import MAX_JSON_BYTES, Clip, read_comment
from cosmos_demo.requests import AnswerRequest, GenerateRequest

APP = "cosmos_demo"
APP_VERSION = "0.1.0"
VERSION = 1
MAX_BYTES = 256 * 2**10
"""A record longer than this is refused when read."""
MAX_TEXT = 50_000
"""Characters of one string."""
MAX_NUMBERS = 8192
"""Numbers of an array kept in a record: 128 steps of a 64-wide action space."""

_KINDS: dict[str, tuple[type, str]] = {"reasoner": (AnswerRequest, "task"), "generator": (GenerateRequest, "mode")}
_LIBRARIES = ("torch", "diffusers", "transformers", "gradio", "av", "numpy")
_FREE_TEXT = frozenset({"prompt", "negative_prompt"})
_WORD = re.compile(r"[\w .,:+-]{0,200}", re.ASCII)
_CHECKPOINT = re.compile(r"\w[\w.-]{0,95}(/\w[\w.-]{0,95})?", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_NO_RECORD = "This file carries no record of this app; drop a PNG, JPEG, MP4, WAV or JSON file that the app wrote."


def new_record(
    kind: str,
    settings: Any,
    checkpoint: str,
    seed: int | None,
    timings: Mapping[str, float] | None = None,
    details: Mapping[str, Any] | None = None,
    versions: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Make the record of a run, safe for JSON.

    Args:
        kind: ``reasoner`` or ``generator``.
        settings: The resolved request itself, or a mapping of its fields. Media and large arrays are described under
            ``inputs``; fields that are ``None`` are left out.
        checkpoint: Short name, hub id or folder; of a folder only its name is kept.
        seed: The one used.
        timings: Seconds by phase.
        details: Numbers, flags and short words worth keeping.
        versions: Of libraries beside the installed ones.
    """
    given = {f.name: getattr(settings, f.name) for f in fields(settings)} if is_dataclass(settings) else settings
    kept: dict[str, Any] = {}
    inputs: dict[str, str] = {}
    for name, value in given.items():
        words = _described(value)
        if words:
            inputs[name] = words
        elif isinstance(value, Mapping):
            inputs |= {f"{name}.{key}": _described(item) for key, item in value.items()}
        elif value is not None and not (isinstance(value, tuple) and not value):
            kept[name] = _plain(value)
    if seed is not None:
        kept["seed"] = int(seed)
    return {
        "app": APP,
        "version": VERSION,
        "app_version": APP_VERSION,
        "kind": kind,
        "settings": kept,
        "inputs": inputs,
        "checkpoint": Path(checkpoint).name if Path(checkpoint).is_absolute() else checkpoint,
        "seed": None if seed is None else int(seed),
        "timings": {name: round(float(seconds), 3) for name, seconds in (timings or {}).items()},
        "details": _plain(details or {}),
        "versions": {**_installed(), **(versions or {})},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def read_record(path: str | Path, field: str = "file") -> dict[str, Any]:
    """Read the record that a PNG, JPEG, MP4, WAV or JSON file carries, reduced to what is known and harmless.

    Raises:
        RequestError: naming ``field``, when the file can't be read, carries no record, or one that is too long,
            damaged or of a newer format.
    """
    return parse(read_comment(path, field), field)


def parse(text: str, field: str = "file") -> dict[str, Any]:
    """Parse and clean the text of a record, or of a JSON file with one under ``record``. Raises like `read_record`."""
    if len(text) > MAX_JSON_BYTES:
        raise RequestError(field, _NO_RECORD)
    try:
        raw = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise RequestError(field, _NO_RECORD) from None
    if isinstance(raw, dict) and isinstance(raw.get("record"), dict):
        raw = raw["record"]
    if not isinstance(raw, dict) or raw.get("app") != APP or raw.get("kind") not in list(_KINDS):
        raise RequestError(field, _NO_RECORD)
    if len(json.dumps(raw)) > MAX_BYTES:
        raise RequestError(field, f"The record in this file is longer than {MAX_BYTES // 1024} KB.")
    version = raw.get("version")
    if not _is_int(version) or version < 1:
        raise RequestError(field, _NO_RECORD)
    if version > VERSION:
        raise RequestError(field, "The record was written by a newer version of this app; update to restore it.")
    seed = raw.get("seed")
    return {
        "app": APP,
        "version": version,
        "app_version": _word(raw.get("app_version")) or "",
        "kind": raw["kind"],
        "settings": _settings(raw["kind"], raw.get("settings"), field),
        "inputs": _words(raw.get("inputs")),
        "checkpoint": _checkpoint(raw.get("checkpoint")),
        "seed": seed if _is_int(seed) else None,
        "timings": {k: v for k, v in _words(raw.get("timings")).items() if _is_number(v)},
        "details": _words(raw.get("details")),
        "versions": {k: v for k, v in _words(raw.get("versions")).items() if isinstance(v, str)},
        "date": _word(raw.get("date")) or "",
    }


def restore(record: Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """Tell a form how to fill itself from a record of `read_record`.

    Returns:
        The head (``reasoner`` or ``generator``), the task or mode, and the other settings by request field. Whether
        the task or mode exists, and the limits of each value, are for the catalogues to check.

    Raises:
        RequestError: when the record names no task or mode.
    """
    head = record["kind"]
    _, naming = _KINDS[head]
    settings = dict(record["settings"])
    name = settings.pop(naming, "")
    if not name:
        raise RequestError("file", f"The record in this file is damaged: it names no {naming}.")
    return head, name, settings


@cache
def _installed() -> dict[str, str]:
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _described(value: Any) -> str:
    """Put media and what else a record doesn't hold into words; empty for plain values."""
    if isinstance(value, Image.Image):
        return f"picture of {value.width}x{value.height}"
    if isinstance(value, Clip):
        count, height, width = value.frames.shape[:3]
        return f"{count} frames of {width}x{height} at {value.fps:g} fps"
    if isinstance(value, np.ndarray) and value.size > MAX_NUMBERS:
        return "array of " + "x".join(map(str, value.shape))
    if isinstance(value, tuple | list) and value and (isinstance(value[0], Image.Image) or is_dataclass(value[0])):
        return ", ".join(map(_described, value)) if isinstance(value[0], Image.Image) else f"{len(value)} earlier turns"
    return ""


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.integer | np.bool_):
        return value.item()
    if isinstance(value, np.ndarray):
        # The shortest digits that name each float32 exactly, not the longer ones of its float64 twin.
        shortest = value.astype(str).astype(np.float64) if value.dtype == np.float32 else value
        return _plain(shortest.tolist())
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    raise TypeError(f"A record can't hold a {type(value).__name__}")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53


def _is_number(value: Any) -> bool:
    return _is_int(value) or (isinstance(value, float) and math.isfinite(value))


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and _WORD.fullmatch(value) else None


def _words(value: Any) -> dict[str, Any]:
    """Keep the entries that are numbers, flags or harmless words."""
    if not isinstance(value, dict):
        return {}
    harmless = {k: v for k, v in value.items() if isinstance(v, bool) or _is_number(v) or _word(v) is not None}
    return {k: v for k, v in list(harmless.items())[:64] if _word(k)}


def _checkpoint(value: Any) -> str:
    return value if isinstance(value, str) and _CHECKPOINT.fullmatch(value) else ""


def _settings(kind: str, raw: Any, field: str) -> dict[str, Any]:
    """Keep the request fields of plain types; one of a wrong type means that the record can't be trusted."""
    if not isinstance(raw, dict):
        raise RequestError(field, _NO_RECORD)
    kept = {}
    for name, hint in get_type_hints(_KINDS[kind][0]).items():
        choices = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        wanted = next((choice for choice in choices if choice in (str, int, float, bool, np.ndarray)), None)
        value = raw.get(name)
        if value is None or wanted is None:
            continue
        kept[name] = _value(name, value, wanted)
        if kept[name] is None:
            raise RequestError(field, f"The record in this file is damaged: {name} has a value of the wrong type.")
    return kept


def _value(name: str, value: Any, wanted: type) -> Any:
    if wanted is str and name in _FREE_TEXT:
        return _CONTROL.sub("", value) if isinstance(value, str) and len(value) <= MAX_TEXT else None
    if wanted is str:
        return _word(value)
    if wanted is bool:
        return value if isinstance(value, bool) else None
    if wanted is int:
        return value if _is_int(value) else None
    if wanted is float:
        return float(value) if _is_number(value) else None
    return _rows(value)


def _rows(value: Any) -> list[list[float]] | None:
    """Actions: rows of numbers, all of one width."""
    if not isinstance(value, list) or not value or not all(isinstance(row, list) for row in value):
        return None
    even = {len(row) for row in value} == {len(value[0])} and 0 < len(value) * len(value[0]) <= MAX_NUMBERS
    return value if even and all(_is_number(number) for row in value for number in row) else None
