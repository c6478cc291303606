"""The Generator on vLLM-Omni servers: pictures by one call, videos and actions by jobs that are asked after."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image

from cosmos_demo import checkpoints, media
from cosmos_demo.engines.base import Capabilities, Status
from cosmos_demo.engines.servers import LONGEST_PAUSE, Server, Servers, Unavailable, refusal, watched
from cosmos_demo.errors import EngineError, RequestError
from cosmos_demo.events import Event, Generated, Phase, Step
from cosmos_demo.generator import modes, validate
from cosmos_demo.generator.actions import DOMAINS
from cosmos_demo.generator.modes import MODES
from cosmos_demo.generator.prompts import is_structured
from cosmos_demo.records import new_record
from cosmos_demo.requests import GenerateRequest
from cosmos_demo.turns import Emit, Turns

AT_ONCE = 1
"""Runs that one server is given at a time; it works on one after another anyway, and here each sees its position."""
ASK_EVERY = 0.25
"""Seconds between two questions after a job."""
LOST_AFTER = 60.0
"""Seconds without an answer after which a job counts as lost with its server."""
FORGET_WITHIN = 5.0
"""Seconds given to the call that tells a server to drop a job."""


class OmniGenerator:
    """Generates through servers; the Generator's half of an engine."""

    def __init__(self, urls: Sequence[str], key: str, queue_size: int) -> None:
        """Look for the servers; it is no error when they aren't up yet. Raises like `Servers`."""
        self._servers = Servers("Generator", urls, key)
        self._turns = Turns(queue_size, AT_ONCE * len(urls))

    def capabilities(self) -> Capabilities:
        return checkpoints.served(self._servers.model)

    def status(self) -> Status:
        return self._servers.status("generator", self._turns)

    def generate(self, request: GenerateRequest) -> Iterator[Event]:
        resolved = validate.resolve(request, self.capabilities())
        if len(resolved.controls) > 1:
            raise RequestError("controls", "a server takes one control at a time; leave out the second.")
        return self._turns.run(lambda emit: asyncio.run(self._generate(resolved, emit)))

    def close(self) -> None:
        self._turns.close()
        self._servers.close()

    async def _generate(self, request: GenerateRequest, emit: Emit) -> Generated:
        emit(Phase("encoding"))
        job = _Job(request, emit, self._servers)
        return await watched(self._servers.run(job.on), job.beat)


class _Job:
    """One generation on its way."""

    def __init__(self, request: GenerateRequest, emit: Emit, servers: Servers) -> None:
        self._request = request
        self._emit = emit
        self._servers = servers
        self._began = time.perf_counter()
        self._percent = 0

    def beat(self) -> None:
        """Tell how long it has taken, and how far it got where the server says so; a stopped run ends here."""
        elapsed = time.perf_counter() - self._began
        if not 0 < self._percent < 100:
            self._emit(Phase("generating", elapsed))
            return
        total = self._request.steps
        done = round(total * self._percent / 100)
        self._emit(Step(done, total, elapsed, elapsed * (100 - self._percent) / self._percent))

    async def on(self, server: Server) -> Generated:
        """Generate on one server. Raises `Unavailable` only while the server has not taken the request."""
        who = f"The Generator at {server.place}"
        async with self._servers.client(server) as client:
            try:
                if self._request.mode == "text-to-image":
                    return self._finished(server, await self._picture(client, who))
                return self._finished(server, **await self._video(client, who))
            except (httpx.ConnectError, httpx.ConnectTimeout):
                raise Unavailable("can't be reached") from None
            except httpx.HTTPError as error:
                raise EngineError(
                    f"{who} broke off; whether it began the run isn't known, so it was not sent again. Try again."
                ) from error

    async def _picture(self, client: httpx.AsyncClient, who: str) -> np.ndarray:
        fields = _settings(self._request)
        answer = await client.post("/v1/images/generations", json={**fields, "response_format": "b64_json"})
        body = _checked(answer, who)
        with Image.open(io.BytesIO(base64.b64decode(body["data"][0]["b64_json"]))) as picture:
            return np.asarray(picture.convert("RGB"))[None]

    async def _video(self, client: httpx.AsyncClient, who: str) -> dict[str, Any]:
        fields = _settings(self._request)
        fields["extra_params"] = json.dumps(fields["extra_params"])
        answer = await client.post("/v1/videos", data=fields, files=await asyncio.to_thread(_files, self._request))
        name = _checked(answer, who)["id"]
        try:
            job = await self._ended(client, name, who)
            content = b"" if self._request.mode == "inverse-dynamics" else await self._content(client, name, who)
        finally:
            await asyncio.shield(_forget(client, name))
        # Forward dynamics only hands back the actions it was given.
        actions = (job.get("action") or {}).get("data") if self._request.mode != "forward-dynamics" else None
        return {
            **(await asyncio.to_thread(_decoded, content) if content else {"frames": None}),
            "actions": None if actions is None else _rows(actions, who),
        }

    async def _ended(self, client: httpx.AsyncClient, name: str, who: str) -> dict[str, Any]:
        """Ask after a job until it is done. Raises what its failure means, also when the server lost it."""
        silent_since, pause = time.monotonic(), ASK_EVERY
        while True:
            await asyncio.sleep(pause)
            try:
                answer = await client.get(f"/v1/videos/{name}")
            except httpx.TransportError:
                answer = None
            if answer is None or (answer.status_code in (502, 503, 504) and not _is_job(answer)):
                if time.monotonic() - silent_since > LOST_AFTER:
                    raise EngineError(f"{who} stopped answering and the run is lost; try again when it is back.")
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            silent_since, pause = time.monotonic(), ASK_EVERY
            if answer.status_code == httpx.codes.NOT_FOUND:
                raise EngineError(f"{who} was started again and lost the run; try again.")
            # The answer about a failed job has an error's status itself, with the job as its body.
            body = _checked(answer, who)
            self._percent = int(body.get("progress") or 0)
            if body.get("status") == "completed":
                return body

    async def _content(self, client: httpx.AsyncClient, name: str, who: str) -> bytes:
        answer = await client.get(f"/v1/videos/{name}/content")
        if answer.is_error:
            _checked(answer, who)
        return answer.content

    def _finished(
        self,
        server: Server,
        frames: np.ndarray | None,
        sound: np.ndarray | None = None,
        sample_rate: int | None = None,
        actions: np.ndarray | None = None,
    ) -> Generated:
        request = self._request
        if frames is not None and sound is not None and sample_rate:
            sound = media.fit_sound(sound, round(len(frames) / request.fps * sample_rate))
        size = {} if frames is None else {"width": frames.shape[2], "height": frames.shape[1], "frames": len(frames)}
        record = new_record(
            "generator",
            request,
            server.model,
            request.seed,
            {"total": time.perf_counter() - self._began},
            {"engine": "vLLM-Omni server", **size},
        )
        return Generated(frames, request.fps or 1, sound, sample_rate, actions, record)


def _settings(request: GenerateRequest) -> dict[str, Any]:
    """The fields of a request in the server's words, with all that is special to Cosmos 3 under ``extra_params``."""
    mode = MODES[request.mode]
    plain = not is_structured(request.prompt)
    fields: dict[str, Any] = {
        "prompt": request.prompt,
        "num_inference_steps": request.steps,
        "guidance_scale": request.guidance_scale,
        "seed": request.seed,
    }
    extra: dict[str, Any] = {}
    if request.negative_prompt:
        fields["negative_prompt"] = request.negative_prompt
    if request.flow_shift != modes.SHIPPED_SCHEDULE:
        extra["flow_shift"] = request.flow_shift
    if mode.acts:
        domain = DOMAINS[request.domain]
        extra |= {
            "action_mode": request.mode.replace("-", "_"),
            "domain_name": domain.name,
            "action_chunk_size": request.chunk_size,
            "raw_action_dim": domain.width,
            "resolution": request.resolution,
        }
        if request.actions is not None:
            extra["action"] = np.asarray(request.actions, np.float32)[: request.chunk_size].tolist()
        fields |= {"num_frames": request.chunk_size + 1, "fps": request.fps}
    else:
        width, height = modes.size(request.resolution, request.aspect_ratio)
        fields["size"] = f"{width}x{height}"
        extra |= {"use_resolution_template": plain, "use_duration_template": plain}
    if request.mode == "text-to-image":
        return fields | {"extra_params": extra}
    if not mode.acts:
        fields |= {"num_frames": request.num_frames, "fps": request.fps}
    if request.sound:
        fields["generate_sound"] = True
    if request.mode == "video-to-video":
        extra |= {
            "condition_frame_indexes_vision": list(range((request.condition_frames - 1) // 4 + 1)),
            "condition_video_keep": request.keep,
        }
    if request.mode == "transfer":
        fields["control_type"] = next(iter(request.controls))
        extra |= {"control_guidance": request.control_guidance, "resolution": request.resolution}
    return fields | {"extra_params": extra}


def _files(request: GenerateRequest) -> dict[str, tuple[str, bytes, str]]:
    """The media of a request, without loss."""
    if request.mode == "transfer":
        # The server takes the size from the control, so that one has the size that is asked for.
        clip = _resized(next(iter(request.controls.values())), *modes.size(request.resolution, request.aspect_ratio))
        return {"control_reference": ("control.mp4", _packed(clip, request), "video/mp4")}
    if request.video is not None:
        return {"input_reference": ("clip.mp4", _packed(request.video, request), "video/mp4")}
    if request.image is not None:
        held = io.BytesIO()
        request.image.save(held, format="PNG")
        return {"input_reference": ("frame.png", held.getvalue(), "image/png")}
    return {}


def _resized(clip: media.Clip, width: int, height: int) -> media.Clip:
    if clip.frames.shape[1:3] == (height, width):
        return clip
    frames = [np.asarray(Image.fromarray(frame).resize((width, height))) for frame in clip.frames]
    return media.Clip(np.stack(frames), clip.fps, clip.times)


def _packed(clip: media.Clip, request: GenerateRequest) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return media.write_exact_video(Path(folder) / "clip.mp4", clip.frames, request.fps or clip.fps).read_bytes()


def _decoded(content: bytes) -> dict[str, Any]:
    """Frames and sound of a finished video."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "video.mp4"
        path.write_bytes(content)
        sound, rate = media.read_sound(path)
        return {"frames": media.read_clip(path).frames, "sound": sound, "sample_rate": rate}


def _rows(actions: Any, who: str) -> np.ndarray:
    """Actions as ``[T, D]``; the server may put them into a batch of one."""
    rows = np.asarray(actions, np.float32)
    rows = rows[0] if rows.ndim == 3 else rows
    if rows.ndim != 2 or not np.isfinite(rows).all():
        raise EngineError(f"{who} sent actions that are no table of numbers; try another seed.")
    return rows


def _is_job(answer: httpx.Response) -> bool:
    body = _parsed(answer)
    return isinstance(body, dict) and "status" in body


def _checked(answer: httpx.Response, who: str) -> dict[str, Any]:
    """The JSON of a good answer. Raises what a bad one means."""
    body = _parsed(answer)
    if answer.is_error or not isinstance(body, dict):
        raise refusal(who, answer.status_code if answer.is_error else httpx.codes.BAD_GATEWAY, body)
    return body


def _parsed(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        return answer.text


async def _forget(client: httpx.AsyncClient, name: str) -> None:
    """Have the server drop a job, done or not; a server that is gone has dropped it already."""
    with suppress(httpx.HTTPError):
        await client.delete(f"/v1/videos/{name}", timeout=FORGET_WITHIN)
