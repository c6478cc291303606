"""Which checkpoints there are and what each can do, read from its configs before any weights.

A checkpoint is a folder in the layout of ``nvidia/Cosmos3-Nano``, on disk or on the Hugging Face Hub. Nothing here
needs torch: configs are JSON, and the headers of weight files tell shapes and whether a file is whole.
"""

from __future__ import annotations

import json
import logging
import math
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from tqdm import tqdm

from cosmos_demo.engines.base import Capabilities, Score
from cosmos_demo.errors import CheckpointError

log = logging.getLogger(__name__)

Progress = Callable[[float, str], None]
"""Told the fraction done, 0 to 1, and what is being worked on."""

OMNI = "cosmos3_omni"
EDGE = "cosmos3_edge"

ACTION_MODES = ("policy", "forward-dynamics", "inverse-dynamics")
VIDEO_MODES = ("text-to-video", "image-to-video", "video-to-video")
MODES = ("text-to-image", *VIDEO_MODES, *ACTION_MODES, "transfer")

PIPELINES = ("Cosmos3OmniPipeline", "Cosmos3OmniDiffusersPipeline")
"""Names of the pipeline in ``model_index.json``; the second is the one Nano was first published with."""

MODULAR_PIPELINES = ("Cosmos3OmniModularPipeline", "Cosmos3DistilledModularPipeline")

BLOCKS = ("Cosmos3OmniBlocks", "Cosmos3DistilledBlocks")
"""Block classes of these, named in ``modular_model_index.json``."""

PICO_VOCABULARY = 1024
"""Vocabulary of Cosmos3-Pico's tokenizer, which knows its tabletop's sentences only; no published checkpoint has it."""

CONFIG_FILES = ("*.json", "*.txt", "*.jinja")
NOT_NEEDED = ("assets/*", "images/*")
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")

MAX_HEADER_BYTES = 100_000_000
"""The format's own limit on a header; a larger length means that the file isn't safetensors."""


@dataclass(frozen=True)
class Known:
    """What a published checkpoint's configs don't say."""

    modes: tuple[str, ...] = MODES
    resolutions: tuple[int, ...] | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    home: str = ""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """Task to the reason why it was not trained for it."""


DROID = {"domain": "droid_lerobot", "chunk_size": 32, "fps": 15, "steps": 4, "guidance_scale": 3.0, "flow_shift": 5.0}
"""Settings of the DROID policy checkpoints' own server in NVIDIA's cosmos-framework."""

DROID_HOME = (
    "Made for its own robot server, which also gives the robot's state and reads 8 joint channels; the droid_lerobot "
    "domain here has 10 end-effector channels and no state, so don't drive a robot with its actions."
)

KNOWN = {
    "Cosmos3-Pico": Known(
        resolutions=(256,),
        defaults={
            "resolution": 256,
            "aspect_ratio": "16:9",
            "num_frames": 17,
            "fps": 10,
            "video_fps": 10,
            "domain": "camera_pose",
            "chunk_size": 16,
            "steps": 20,
            **{mode: {"guidance_scale": 3.0} for mode in ("text-to-image", *VIDEO_MODES)},
        },
        home="Cosmos3-Pico knows only its own tabletop of coloured shapes; for real photos and prompts load "
        "nvidia/Cosmos3-Nano.",
        lacks={"upsample": "Cosmos3-Pico was not trained to write prompts out; load nvidia/Cosmos3-Nano."},
    ),
    "Cosmos3-Nano": Known(),
    "Cosmos3-Super": Known(),
    "Cosmos3-Super-Text2Image": Known(("text-to-image",), (768,), {"resolution": 768}),
    "Cosmos3-Super-Image2Video": Known(("image-to-video",)),
    "Cosmos3-Super-Text2Image-4Step": Known(("text-to-image",), (768,), {"resolution": 768}),
    "Cosmos3-Super-Image2Video-4Step": Known(("image-to-video",), (480,), {"resolution": 480, "fps": 16}),
    "Cosmos3-Edge": Known(defaults={"resolution": 480, "num_frames": 121}),
    "Cosmos3-Nano-Policy-DROID": Known(("policy",), defaults=DROID, home=DROID_HOME),
    "Cosmos3-Edge-Policy-DROID": Known(("policy",), defaults=DROID, home=DROID_HOME),
}


@dataclass(frozen=True)
class WeightFile:
    """One safetensors file: where it lies, its size, and how many elements each of its tensors has."""

    path: Path
    bytes: int
    elements: Mapping[str, int]

    @property
    def elements_total(self) -> int:
        return sum(self.elements.values())


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose configs were read.

    Attributes:
        name: Short name, for example ``Cosmos3-Nano``.
        folder: Where its files lie; on the Hub's cache for a hub id.
        hub_id, revision: Where it comes from; empty for a folder.
        capabilities: What it can do.
        components: Folders of weights that are loaded: ``transformer``, ``vae`` and what else the checkpoint has of
            ``sound_tokenizer`` and ``vision_encoder``.
        pipeline_options: Flags of the pipeline from its index (system prompt, native flow schedule).
        distilled_sigmas: The fixed noise levels of a few-step checkpoint, empty otherwise.
        quantized: The transformer's weights are stored quantised (FP8 revisions).
    """

    name: str
    folder: Path
    hub_id: str
    revision: str
    capabilities: Capabilities
    components: tuple[str, ...]
    pipeline_options: Mapping[str, Any]
    distilled_sigmas: tuple[float, ...]
    quantized: bool
    token: str | None = field(default=None, repr=False)

    @property
    def family(self) -> str:
        return self.capabilities.family

    @property
    def is_pico(self) -> bool:
        return self.name == "Cosmos3-Pico"

    @property
    def distilled(self) -> bool:
        return bool(self.distilled_sigmas)

    @property
    def has_reasoner(self) -> bool:
        return "reasoner" not in self.capabilities.unavailable

    def weights(self, progress: Progress = lambda fraction, what: None) -> dict[str, tuple[WeightFile, ...]]:
        """The weight files of each component, downloaded if need be and checked by their headers.

        Args:
            progress: Told about the download.

        Raises:
            CheckpointError: when files are missing, cut short or don't hold what the index says.
        """
        if self.hub_id:
            patterns = [f"{component}/*.safetensors" for component in self.components]
            _download(self.hub_id, self.folder.name, self.token, patterns, progress)
        return {component: weight_files(self.folder / component) for component in self.components}


def find(name: str | Path, revision: str = "", token: str | None = None) -> Checkpoint:
    """Look a checkpoint up and read what it can do.

    Args:
        name: A folder, or an id on the Hugging Face Hub such as ``nvidia/Cosmos3-Nano`` (only its configs are
            downloaded now; weights follow when it is loaded).
        revision: Branch, tag or commit on the Hub, for example ``fp8``; empty for the main branch.
        token: Access token of the Hub; by default the one of ``hf auth login`` or ``HF_TOKEN``.

    Raises:
        CheckpointError: when there is no such checkpoint, it is gated, damaged, or of an unknown kind.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        checkpoint = _read(folder, hub_id="", revision="", token=None)
        checkpoint.weights()
        return checkpoint
    if not HUB_ID.fullmatch(str(name)):
        raise CheckpointError(
            f"There is no folder {str(name)!r}. Give an existing folder, or an id on the Hugging Face Hub such as "
            "nvidia/Cosmos3-Nano."
        )
    folder = _download(str(name), revision, token, CONFIG_FILES)
    return _read(folder, hub_id=str(name), revision=revision, token=token)


def weight_files(folder: Path) -> tuple[WeightFile, ...]:
    """The safetensors files of one component, checked against the index and their own headers.

    Raises:
        CheckpointError: when one is missing, cut short, or lacks a tensor that the index places in it.
    """
    indexes = sorted(folder.glob("*.safetensors.index.json"))
    if indexes:
        placed: Mapping[str, str] = read_json(indexes[0]).get("weight_map", {})
        names: Iterable[str] = sorted(set(placed.values()))
    else:
        placed, names = {}, sorted(path.name for path in folder.glob("*.safetensors"))
    if not names:
        raise CheckpointError(f"{folder} holds no weights (*.safetensors); download the checkpoint again.")
    files = {name: read_header(folder / name) for name in names}
    for tensor, name in placed.items():
        if tensor not in files[name].elements:
            raise CheckpointError(
                f"{indexes[0]} places {tensor} in {name}, which doesn't hold it: the index belongs to other weights. "
                "Download the checkpoint again."
            )
    return tuple(files.values())


def read_header(path: Path) -> WeightFile:
    """Read a safetensors header: eight bytes of length, then JSON with the place of each tensor.

    Raises:
        CheckpointError: when the file is missing, no safetensors file, or shorter than its header says.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else MAX_HEADER_BYTES + 1
            header = json.loads(file.read(length)) if length <= MAX_HEADER_BYTES else None
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing; download the checkpoint again.") from None
    except ValueError:
        header = None
    if header is None:
        raise CheckpointError(f"{path} is damaged (no safetensors header); delete it and download it again.")
    tensors = {name: tensor for name, tensor in header.items() if name != "__metadata__"}
    end = 8 + length + max((tensor["data_offsets"][1] for tensor in tensors.values()), default=0)
    if size != end:
        raise CheckpointError(
            f"{path} is damaged: it has {size:,} bytes and should have {end:,}; delete it and download it again."
        )
    return WeightFile(
        path=path,
        bytes=size,
        elements={name: math.prod(tensor["shape"]) for name, tensor in tensors.items()},
    )


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        CheckpointError: when it is missing or no JSON object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing; download the checkpoint again.") from None
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged ({error}); download it again.") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} should hold a JSON object; download it again.")
    return value


def read_scores(folder: Path) -> tuple[Score, ...]:
    """The rows of ``scorecard.json`` in ``folder``; none without the file, or when it can't be read."""
    path = folder / "scorecard.json"
    if not path.exists():
        return ()
    try:
        return tuple(_score(row) for row in read_json(path)["rows"])
    except (CheckpointError, KeyError, TypeError, ValueError) as error:
        log.warning("%s is not shown, it can't be read: %s", path, error)
        return ()


def _score(row: Mapping[str, Any]) -> Score:
    """One row; ``at_most`` is another way to say that less is better."""
    numbers = {name: float(row[name]) for name in ("value", "low", "high", "target")}
    if not all(map(math.isfinite, numbers.values())):
        raise ValueError(f"{row['name']} has a value that is not a number")
    return Score(
        name=str(row["name"]),
        what=str(row["what"]),
        n=int(row["n"]),
        met=bool(row["met"]),
        unit=str(row.get("unit", "")),
        higher=bool(row.get("higher", not row.get("at_most", False))),
        **numbers,
    )


def _read(folder: Path, hub_id: str, revision: str, token: str | None) -> Checkpoint:
    """Read the configs in ``folder``."""
    index, modular = (
        read_json(path) if path.exists() else {}
        for path in (folder / "model_index.json", folder / "modular_model_index.json")
    )
    _check_kind(folder, index, modular)
    transformer = read_json(folder / "transformer" / "config.json")
    root = read_json(folder / "config.json") if (folder / "config.json").exists() else {}
    family = _family(folder, root, transformer)
    name = _name(hub_id or str(folder.resolve()), family, transformer)
    sigmas = tuple(float(sigma) for sigma in modular.get("distilled_sigmas") or ())
    quantized = "quantization_config" in transformer

    sound = _folder_config(folder / "sound_tokenizer") if transformer.get("sound_gen") else None
    vision = (folder / "vision_encoder").is_dir() if root and not quantized else False
    known = KNOWN.get(name, Known())
    capabilities = Capabilities(
        checkpoint=name,
        family=family,
        unavailable=_unavailable(name, known, family, transformer, sound, vision, quantized, bool(sigmas)),
        resolutions=known.resolutions or ((256, 480) if family == EDGE else (256, 480, 720)),
        defaults=known.defaults,
        fixed={"steps": len(sigmas), "guidance_scale": 1.0, "negative_prompt": ""} if sigmas else {},
        sample_rate=int(sound.get("sampling_rate", 48_000)) if sound is not None else None,
        action_dim=transformer.get("action_dim") if transformer.get("action_gen") else None,
        home=known.home,
        scores=read_scores(folder),
    )
    present = {"transformer": True, "vae": True, "sound_tokenizer": sound is not None, "vision_encoder": vision}
    options = ("default_use_system_prompt", "use_native_flow_schedule")
    return Checkpoint(
        name=name,
        folder=folder,
        hub_id=hub_id,
        revision=revision,
        capabilities=capabilities,
        components=tuple(component for component, there in present.items() if there),
        pipeline_options={key: value for key, value in {**modular, **index}.items() if key in options},
        distilled_sigmas=sigmas,
        quantized=quantized,
        token=token,
    )


def _check_kind(folder: Path, index: Mapping[str, Any], modular: Mapping[str, Any]) -> None:
    """Raise `CheckpointError` unless an index names one of the Cosmos 3 pipelines."""
    if index.get("_class_name") in PIPELINES or modular.get("_class_name") in MODULAR_PIPELINES:
        return
    if modular.get("_blocks_class_name") in BLOCKS:
        return
    found = index.get("_class_name") or modular.get("_class_name")
    if found:
        raise CheckpointError(
            f"{folder} holds a {found}, not a Cosmos 3 checkpoint; choose one such as nvidia/Cosmos3-Nano."
        )
    if (folder / "config.json").exists():
        raise CheckpointError(
            f"{folder} has no model_index.json: it holds the Reasoner alone or another model. This app needs a full "
            "checkpoint such as nvidia/Cosmos3-Nano."
        )
    raise CheckpointError(
        f"{folder} has no model_index.json, so it is no Cosmos 3 checkpoint or an incomplete one; give the folder that "
        "holds model_index.json, or download the checkpoint again."
    )


def _family(folder: Path, root: Mapping[str, Any], transformer: Mapping[str, Any]) -> str:
    """The family from the root config, or without one from the activation that only Edge uses."""
    family = root.get("model_type") or (EDGE if transformer.get("hidden_act") == "relu2" else OMNI)
    if family not in (OMNI, EDGE):
        raise CheckpointError(f"{folder / 'config.json'} is of the kind {family!r}; this app runs {OMNI} and {EDGE}.")
    return family


def _name(origin: str, family: str, transformer: Mapping[str, Any]) -> str:
    if family == OMNI and transformer.get("vocab_size") == PICO_VOCABULARY:
        return "Cosmos3-Pico"
    return short_name(origin)


def short_name(origin: str) -> str:
    """The last part of a path or id that is a known name (``--`` parts names in the Hub's cache), or its last part."""
    parts = [part for piece in Path(origin).parts for part in piece.split("--")]
    return next((part for part in reversed(parts) if part in KNOWN), parts[-1] if parts else "")


def served(model: str) -> Capabilities:
    """What a checkpoint that a server holds can do, as far as its name tells; its configs are out of reach.

    Args:
        model: Id that the server gives; empty while no server has answered.
    """
    name = short_name(model) or "unknown"
    known = KNOWN.get(name, Known())
    edge, distilled = "-Edge" in name, name.endswith("-4Step")
    reasons = _unavailable(
        name, known, EDGE if edge else OMNI, {"action_gen": True}, None if edge else {}, True, False, distilled
    )
    return Capabilities(
        checkpoint=name,
        family=EDGE if edge else OMNI,
        unavailable=reasons,
        resolutions=known.resolutions or ((256, 480) if edge else (256, 480, 720)),
        defaults=known.defaults,
        fixed={"steps": 4, "guidance_scale": 1.0, "negative_prompt": ""} if distilled else {},
        sample_rate=None if "sound" in reasons else 48_000,
        action_dim=None if distilled else 64,
        home=known.home,
    )


def _folder_config(folder: Path) -> dict[str, Any] | None:
    return read_json(folder / "config.json") if folder.is_dir() else None


def _unavailable(
    name: str,
    known: Known,
    family: str,
    transformer: Mapping[str, Any],
    sound: Mapping[str, Any] | None,
    vision: bool,
    quantized: bool,
    distilled: bool,
) -> dict[str, str]:
    """Why each mode, ``sound`` and ``reasoner`` that this checkpoint lacks is not there."""
    specialist = f"{name} is made for {' and '.join(known.modes)} alone."
    reasons = {**known.lacks, **{mode: specialist for mode in MODES if mode not in known.modes}}
    if family == EDGE:
        for mode in ("video-to-video", "transfer"):
            reasons.setdefault(mode, f"{name} is of the Edge family, which can't do this; load nvidia/Cosmos3-Nano.")
    if not transformer.get("action_gen"):
        reasons |= dict.fromkeys(ACTION_MODES, f"{name} has no action head.")
    if sound is None:
        reasons["sound"] = f"{name} has no sound tokenizer."
    if distilled:
        few_steps = f"{name} is distilled to a few steps; it makes pictures and silent videos only."
        reasons |= dict.fromkeys((*ACTION_MODES, "transfer", "sound"), few_steps)
    if quantized:
        reasons["reasoner"] = f"{name} is quantised; the Reasoner needs the unquantised weights (no revision)."
    elif not vision:
        reasons["reasoner"] = f"{name} has no vision encoder, so it can't answer questions."
    return reasons


def _download(
    hub_id: str,
    revision: str,
    token: str | None,
    patterns: Iterable[str],
    progress: Progress = lambda fraction, what: None,
) -> Path:
    """Bring files of a repository into the Hub's cache; a file already there is not fetched again."""

    class Bar(tqdm):
        """The Hub's own bar over all bytes; tells us instead of drawing itself."""

        def display(self, *_: object, **__: object) -> bool:
            return True

        def update(self, n: float | None = 1) -> bool | None:
            drawn = super().update(n)
            if self.unit == "B" and self.total:
                progress(min(1.0, self.n / self.total), f"downloading {hub_id}")
            return drawn

    where = f"{hub_id} (revision {revision})" if revision else hub_id
    try:
        return Path(
            snapshot_download(
                hub_id,
                revision=revision or None,
                token=token,
                allow_patterns=list(patterns),
                ignore_patterns=list(NOT_NEEDED),
                tqdm_class=Bar,
            )
        )
    except GatedRepoError:
        raise CheckpointError(
            f"{where} is gated: ask for access at https://huggingface.co/{hub_id}, then log in with `hf auth login` or "
            "set HF_TOKEN."
        ) from None
    except RevisionNotFoundError:
        raise CheckpointError(f"{hub_id} has no revision {revision!r}; leave it empty for the main one.") from None
    except RepositoryNotFoundError:
        raise CheckpointError(
            f"There is no {where} on the Hugging Face Hub, or it is private: check the spelling, or log in with "
            "`hf auth login`. A folder with this name doesn't exist either."
        ) from None
    except LocalEntryNotFoundError:
        raise CheckpointError(
            f"{where} isn't downloaded and the Hugging Face Hub can't be reached: check the network, or give a folder."
        ) from None
    except HfHubHTTPError as error:
        if error.response is not None and error.response.status_code in (401, 403):
            raise CheckpointError(
                f"The Hugging Face Hub refuses {where}: your token is missing or lacks access. Log in with `hf auth "
                "login` or set HF_TOKEN."
            ) from None
        raise CheckpointError(f"Downloading {where} failed ({error}); try again.") from error
    except OSError as error:
        raise CheckpointError(f"Downloading {where} failed ({error}); check network and free disk space.") from error
