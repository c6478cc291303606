"""Actions: the embodiment domains and their channels, units and normalisation, rows in and out, paths through space.

Widths are diffusers' own; channel layouts, rates and view points follow NVIDIA's cosmos-framework and cookbooks.
Everything the model takes and gives is in its normalised space; `to_units` turns it into real units where the
normalisation is published.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cosmos_demo.errors import RequestError

POSE = ("x", "y", "z", "r00", "r10", "r20", "r01", "r11", "r21")
"""Translation and the first two columns of the rotation of a 9D pose; axes as in OpenCV: right, down, forward."""
AV_SCALE = 1.35
"""Model units per metre of translation in the ``av`` domain."""
MAX_ROWS = 4096


@dataclass(frozen=True)
class Domain:
    """An embodiment.

    Attributes:
        name: As diffusers knows it.
        title: For people.
        channels: A name for each number of a row.
        chunk_size: Actions of one chunk as trained; fps: their rate.
        view_point: Of the camera.
        resolution: Tier as trained.
        poses: First channel of each 9D pose that a path can be drawn of.
    """

    name: str
    title: str
    channels: tuple[str, ...]
    chunk_size: int = 16
    fps: int = 10
    view_point: str = "ego_view"
    resolution: int = 480
    poses: tuple[int, ...] = (0,)

    @property
    def width(self) -> int:
        return len(self.channels)


def _named(prefix: str, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{prefix} {name}" for name in names)


_GRIPPER = ("gripper",)
_FINGERS = tuple(f"finger {finger} {axis}" for finger in range(1, 6) for axis in "xyz")
_HANDS = (
    *_named("camera", POSE),
    *_named("right wrist", POSE),
    *_named("right", _FINGERS),
    *_named("left wrist", POSE),
    *_named("left", _FINGERS),
)
_HUMANOID = (
    *_named("head", POSE),
    *_named("right arm", (*POSE, *_GRIPPER)),
    *_named("left arm", (*POSE, *_GRIPPER)),
)
_ARM = (*POSE, *_GRIPPER)
_TWO_ARMS = (*_named("left arm", _ARM), *_named("right arm", _ARM))

_ALL = (
    Domain("camera_pose", "Camera motion", POSE, 60, 30),
    Domain("av", "Driving", POSE, 60, 10),
    Domain("pusht", "PushT", ("x", "y"), poses=()),
    Domain("umi", "UMI gripper", _ARM, 16, 20, resolution=256),
    Domain("bridge_orig_lerobot", "Bridge (WidowX)", _ARM, 16, 5),
    Domain("droid_lerobot", "DROID (Franka)", _ARM, 16, 15, "concat_view"),
    Domain("fractal", "Fractal (Google robot)", _ARM, 16, 3),
    Domain("robomind-franka", "RoboMIND Franka", _ARM, 16, 10, "third_person_view"),
    Domain("robomind-franka-dual", "RoboMIND two Frankas", _TWO_ARMS, 16, 10, "concat_view", poses=(0, 10)),
    Domain("robomind-ur", "RoboMIND UR", _ARM, 16, 10, "third_person_view"),
    Domain("agibotworld", "AgiBot World", _HUMANOID, 16, 10, "concat_view", poses=(0, 9, 19)),
    Domain("agibot_gear_gripper", "AgiBot gear gripper", _HUMANOID, 16, 10, "concat_view", poses=(0, 9, 19)),
    Domain(
        "agibot_gear_gripper_ext", "AgiBot gear gripper, extended", _HUMANOID, 16, 10, "concat_view", poses=(0, 9, 19)
    ),
    Domain("galbot", "Galbot", tuple(f"channel {index}" for index in range(1, 31)), poses=()),
    Domain("hand_pose", "Two hands", _HANDS, 16, 15, poses=(0, 9, 33)),
)

DOMAINS: Mapping[str, Domain] = {domain.name: domain for domain in _ALL}

UNSUPPORTED = {
    "libero": "its action width is not fixed, so diffusers does not take it",
    "no_action": "it has no actions",
}

QUANTILES: Mapping[str, Mapping[str, Sequence[float]]] = json.loads(
    (Path(__file__).parent / "quantiles.json").read_text()
)
"""``q01`` and ``q99`` of each channel from cosmos-framework's statistics; model space maps them to -1 and 1."""


def to_units(actions: np.ndarray, domain: str) -> np.ndarray | None:
    """Actions in real units: metres, rotation columns (orthonormal again), gripper 0 closed to 1 open.

    Args:
        actions: ``[T, D]`` in model space.
        domain: A name in `DOMAINS`.

    Returns:
        ``[T, D]`` float32, or ``None`` for a domain whose normalisation is not published.
    """
    actions = np.asarray(actions, np.float32)
    if domain == "av":
        real = actions.copy()
        real[:, :3] /= AV_SCALE
        return real
    if domain not in QUANTILES:
        return None
    low, high = _quantiles(domain)
    real = 0.5 * (actions + 1) * (high - low) + low
    for start in DOMAINS[domain].poses:
        turns = rotations(real[:, start : start + 9])
        real[:, start + 3 : start + 6], real[:, start + 6 : start + 9] = turns[:, :, 0], turns[:, :, 1]
    return real.astype(np.float32)


def to_model(actions: np.ndarray, domain: str) -> np.ndarray:
    """Real units to model space, clipped to -1 and 1 where quantiles are used; the inverse of `to_units`.

    Raises:
        KeyError: for a domain whose normalisation is not published.
    """
    actions = np.asarray(actions, np.float32)
    if domain == "av":
        scaled = actions.copy()
        scaled[:, :3] *= AV_SCALE
        return scaled
    low, high = _quantiles(domain)
    return np.clip(2 * (actions - low) / np.maximum(high - low, 1e-8) - 1, -1, 1).astype(np.float32)


def rotations(poses: np.ndarray) -> np.ndarray:
    """Rotation matrices ``[T, 3, 3]`` of 9D poses ``[T, 9]``: first column normalised, second made orthogonal."""
    first = _unit(poses[:, 3:6])
    second = poses[:, 6:9] - (first * poses[:, 6:9]).sum(1, keepdims=True) * first
    second = _unit(second)
    return np.stack([first, second, np.cross(first, second)], axis=2)


def path(poses: np.ndarray) -> np.ndarray:
    """Positions ``[T+1, 3]`` of something that makes the moves ``[T, 9]``, each seen from where it stands."""
    position, turn = np.zeros(3), np.eye(3)
    positions = [position]
    for move, rotation in zip(poses[:, :3], rotations(poses), strict=True):
        position = position + turn @ move
        turn = turn @ rotation
        positions.append(position)
    return np.array(positions, np.float32)


def camera_move(right: float, down: float, forward: float, steps: int) -> np.ndarray:
    """A steady move without turning: ``[steps, 9]``, the same row again and again, in model units per step."""
    row = np.array([right, down, forward, 1, 0, 0, 0, 1, 0], np.float32)
    return np.tile(row, (steps, 1))


def drive(speed: float, yaw_rate: float, fps: float, steps: int) -> np.ndarray:
    """A car's steady arc in the ``av`` domain's model space: ``[steps, 9]``.

    Args:
        speed: Metres per second.
        yaw_rate: Radians per second, positive to the right.
        fps: Actions per second.
        steps: Actions.
    """
    turn, way = yaw_rate / fps, speed / fps * AV_SCALE
    row = [
        way * math.sin(turn / 2),
        0.0,
        way * math.cos(turn / 2),
        math.cos(turn),
        0.0,
        -math.sin(turn),
        0.0,
        1.0,
        0.0,
    ]
    return np.tile(np.array(row, np.float32), (steps, 1))


def read_rows(text: str, field: str = "actions") -> np.ndarray:
    """Rows of numbers from JSON text, a list of lists or an object with it under ``actions``: float32 ``[T, D]``.

    Raises:
        RequestError: naming ``field``, when it is something else, ragged, too long or holds no finite numbers.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise RequestError(field, "this is not JSON; give a list of rows of numbers, [[0.1, 0.2], ...].") from None
    return as_rows(data.get("actions") if isinstance(data, dict) else data, field)


def as_rows(data: object, field: str = "actions") -> np.ndarray:
    """A list of lists (or an array) as float32 ``[T, D]``. Raises like `read_rows`."""
    rows = data.tolist() if isinstance(data, np.ndarray) else data
    if not isinstance(rows, list | tuple) or not rows or not all(isinstance(row, list | tuple) for row in rows):
        raise RequestError(field, "expected a list of rows of numbers, [[0.1, 0.2], ...].")
    if len(rows) > MAX_ROWS:
        raise RequestError(field, f"{len(rows)} rows; up to {MAX_ROWS} are read.")
    widths = sorted({len(row) for row in rows})
    if len(widths) > 1 or widths == [0]:
        raise RequestError(field, f"every row must have the same number of values; these have {widths}.")
    if any(isinstance(value, bool) or not isinstance(value, int | float) for row in rows for value in row):
        raise RequestError(field, "every value must be a number.")
    try:
        array = np.array(rows, np.float64)
    except OverflowError:
        array = np.array([[math.inf]])
    if not np.isfinite(array).all() or np.abs(array).max() > 1e4:
        raise RequestError(field, "every value must be finite and within -10000 to 10000.")
    return array.astype(np.float32)


def to_json(actions: np.ndarray) -> str:
    """Rows as JSON, the shortest numbers that read back to the same float32."""
    return json.dumps([[float(str(value)) for value in row] for row in np.asarray(actions, np.float32)])


def to_csv(actions: np.ndarray, domain: str, fps: float) -> str:
    """Rows as CSV with the time in seconds and the channel names in the header."""
    names = DOMAINS[domain].channels
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(["time", *names[: np.shape(actions)[1]]])
    for index, row in enumerate(np.asarray(actions, np.float32)):
        writer.writerow([f"{index / fps:.4f}", *(str(value) for value in row)])
    return file.getvalue()


def _quantiles(domain: str) -> tuple[np.ndarray, np.ndarray]:
    return np.array(QUANTILES[domain]["q01"], np.float32), np.array(QUANTILES[domain]["q99"], np.float32)


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-8)
