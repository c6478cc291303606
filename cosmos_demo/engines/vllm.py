"""The Reasoner on vLLM servers, or on any other that speaks OpenAI's chat protocol, NVIDIA's NIM among them."""

from __future__ import annotations

import asyncio
import base64
import io
import time
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import openai
from PIL import Image

from cosmos_demo import checkpoints
from cosmos_demo.engines.base import Capabilities, Status
from cosmos_demo.engines.servers import CONNECT_TIMEOUT, SILENCE, Server, Servers, Unavailable, refusal, watched
from cosmos_demo.errors import EngineError, RequestError
from cosmos_demo.events import Answered, Event, Phase, Token
from cosmos_demo.media import Clip
from cosmos_demo.reasoner import validate
from cosmos_demo.reasoner.answers import Parts, typed
from cosmos_demo.reasoner.messages import Conversation, conversation, metadata
from cosmos_demo.reasoner.tasks import DIRECT, THINKING
from cosmos_demo.records import new_record
from cosmos_demo.requests import AnswerRequest
from cosmos_demo.turns import Emit, Turns

AT_ONCE = 16
"""Answers that one server writes at a time; vLLM reads and writes them as one batch."""
JPEG_QUALITY = 95
_NEEDS_FLAG = ("mm_kwargs", "mm-kwargs", "media_io_kwargs", "mm_processor_kwargs")


class VllmReasoner:
    """Answers questions through servers; the Reasoner's half of an engine."""

    def __init__(self, urls: Sequence[str], key: str, queue_size: int) -> None:
        """Look for the servers; it is no error when they aren't up yet. Raises like `Servers`."""
        self._servers = Servers("Reasoner", urls, key)
        self._turns = Turns(queue_size, AT_ONCE * len(urls))

    def capabilities(self) -> Capabilities:
        return checkpoints.served(self._servers.model)

    def status(self) -> Status:
        return self._servers.status("reasoner", self._turns)

    def answer(self, request: AnswerRequest) -> Iterator[Event]:
        resolved = validate.resolve(request, self.capabilities())
        return self._turns.run(lambda emit: asyncio.run(self._answer(resolved, emit)))

    def close(self) -> None:
        self._turns.close()
        self._servers.close()

    async def _answer(self, request: AnswerRequest, emit: Emit) -> Answered:
        emit(Phase("encoding"))
        talk = _Talk(request, emit, self._servers.key)
        return await watched(self._servers.run(talk.on), talk.beat)


class _Talk:
    """One question on its way: what is sent, and what has come back so far."""

    def __init__(self, request: AnswerRequest, emit: Emit, key: str) -> None:
        self._request = request
        self._key = key
        self._emit = emit
        self._asked = conversation(request)
        self._parts = Parts()
        self._began = time.perf_counter()
        self._first: float | None = None
        self._thought, self._written = "", ""

    def beat(self) -> None:
        """Let a stopped run end here; tells nothing new."""
        if self._first is None:
            self._emit(Phase("encoding", time.perf_counter() - self._began))
        else:
            self._emit(Token("", self._parts.thinking))

    async def on(self, server: Server) -> Answered:
        """Ask one server. Raises `Unavailable` only while nothing has come back."""
        try:
            return await self._stream(server)
        except openai.APIStatusError as error:
            raise self._refused(server, error) from None
        except (openai.APIError, httpx.HTTPError) as error:
            if self._first is None and isinstance(error, openai.APIConnectionError | httpx.TransportError):
                raise Unavailable("can't be reached") from None
            raise EngineError(
                f"The Reasoner at {server.place} broke off in the middle of its answer; ask again."
            ) from error

    async def _stream(self, server: Server) -> Answered:
        ended, tokens, prompt_tokens = False, 0, 0
        timeout = httpx.Timeout(SILENCE, connect=CONNECT_TIMEOUT)
        async with (
            httpx.AsyncClient(timeout=timeout, trust_env=False) as http,
            openai.AsyncOpenAI(
                base_url=f"{server.url}/v1", api_key=self._key or "none", http_client=http, max_retries=0
            ) as client,
            await client.chat.completions.create(model=server.model, **self._body()) as stream,
        ):
            async for chunk in stream:
                if chunk.usage:
                    tokens, prompt_tokens = chunk.usage.completion_tokens, chunk.usage.prompt_tokens
                for choice in chunk.choices:
                    ended = ended or choice.finish_reason == "stop"
                    self._say(choice.delta)
        for text, thinking in self._parts.rest():
            self._emit(Token(text, thinking))
        return self._finished(server, ended, tokens, prompt_tokens)

    def _say(self, delta: Any) -> None:
        # A server with a reasoning parser sends the thinking apart; which of the two names depends on its age.
        thought = getattr(delta, "reasoning", None) or getattr(delta, "reasoning_content", None)
        if not (thought or delta.content):
            return
        self._first = self._first or time.perf_counter()
        if thought:
            self._thought += thought
            self._emit(Token(thought, True))
        if delta.content:
            self._written += delta.content
            for text, thinking in self._parts.push(delta.content):
                self._emit(Token(text, thinking))

    def _body(self) -> dict[str, Any]:
        request = self._request
        preset = THINKING if request.reasoning else DIRECT
        body: dict[str, Any] = {
            "messages": _messages(self._asked),
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": request.max_new_tokens,
            "temperature": request.temperature,
            "seed": request.seed,
        }
        extra: dict[str, Any] = {"repetition_penalty": preset.repetition_penalty}
        if request.temperature:
            body |= {"top_p": request.top_p, "presence_penalty": preset.presence_penalty}
            extra["top_k"] = request.top_k
        if self._asked.clips:
            extra["media_io_kwargs"] = {"video": _timing(self._asked.clips)}
        return {**body, "extra_body": extra}

    def _finished(self, server: Server, ended: bool, tokens: int, prompt_tokens: int) -> Answered:
        now = time.perf_counter()
        written = f"<think>{self._thought}</think>{self._written}" if self._thought else self._written
        record = new_record(
            "reasoner",
            self._request,
            server.model,
            self._request.seed,
            {"first_token": (self._first or now) - self._began, "total": now - self._began},
            {
                "engine": "vLLM server",
                "prompt": self._asked.prompt,
                "prompt_tokens": prompt_tokens,
                "new_tokens": tokens,
                "tokens_per_second": round(tokens / (now - self._began), 2),
            },
        )
        return typed(self._request.task, written, record, tokens=tokens, ended=ended)

    def _refused(self, server: Server, error: openai.APIStatusError) -> Exception:
        who = f"The Reasoner at {server.place}"
        if error.status_code == httpx.codes.BAD_REQUEST and any(word in str(error) for word in _NEEDS_FLAG):
            return RequestError(
                "video", f"{who} takes no frames with times of their own; start vLLM with --trust-request-mm-kwargs."
            )
        return refusal(who, error.status_code, error.body)


def _messages(asked: Conversation) -> list[dict[str, Any]]:
    """The chat messages with their media in place, as data URIs."""
    images, clips = iter(asked.images), iter(asked.clips)

    def part(item: dict[str, Any]) -> dict[str, Any]:
        if item["type"] == "image":
            return {"type": "image_url", "image_url": {"url": _uri(next(images))}}
        if item["type"] == "video":
            return {"type": "video_url", "video_url": {"url": _frames_uri(next(clips))}}
        return item

    return [{**message, "content": [part(item) for item in message["content"]]} for message in asked.messages]


def _uri(picture: Image.Image) -> str:
    """A picture as a PNG, which keeps it exactly."""
    return f"data:image/png;base64,{_encoded(picture, format='PNG')}"


def _frames_uri(clip: Clip) -> str:
    """A clip's frames as JPEGs, vLLM's form for frames that were sampled already."""
    frames = (
        _encoded(Image.fromarray(frame), format="JPEG", quality=JPEG_QUALITY, subsampling=0) for frame in clip.frames
    )
    return f"data:video/jpeg;base64,{','.join(frames)}"


def _timing(clips: Sequence[Clip]) -> dict[str, Any]:
    """When each frame is shown, in vLLM's words; see `messages.metadata`.

    Raises:
        RequestError: for clips of different times; one request has one set of them.
    """
    said, *others = (metadata(clip) for clip in clips)
    if any(other != said for other in others):
        raise RequestError("history", "a server reads clips of one timing in a conversation; start a new one.")
    return {"num_frames": -1, "fps": said["fps"], "frames_indices": said["frames_indices"]}


def _encoded(picture: Image.Image, **options: Any) -> str:
    held = io.BytesIO()
    picture.save(held, **options)
    return base64.b64encode(held.getvalue()).decode()
