"""Servers of one kind: which are up, which to ask next, and when to try again.

Both server engines share this: a `Servers` watches its servers' health in the background, hands out the one with the
least work, and runs a request on it, on another after a failure that is safe to repeat.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import urlsplit

import httpx

from cosmos_demo.checkpoints import short_name
from cosmos_demo.engines.base import Status
from cosmos_demo.errors import EngineError, RequestError, SettingsError
from cosmos_demo.turns import Turns

log = logging.getLogger(__name__)

CHECK_EVERY = 3.0
"""Seconds between two looks at a server."""
CHECK_TIMEOUT = 5.0
CONNECT_TIMEOUT = 10.0
SILENCE = 600.0
"""Seconds without a byte after which a server counts as lost; a long prompt or a picture may take minutes."""
PATIENCE = 30.0
"""Seconds that a request waits for a server to come up."""
BEAT = 0.2
"""Seconds between two looks whether a run is still wanted."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 8.0
"""Seconds before a request is sent again; doubled each time."""

T = TypeVar("T")


class Unavailable(Exception):
    """A server did not take a request, so that sending it again, or to another server, is safe."""


@dataclass
class Server:
    """One server as seen last.

    Attributes:
        url: Its root, without ``/v1``.
        model: Id of the model it serves, empty until known.
        trouble: Why it can't be used now, empty when it can.
        working: Our requests on it.
    """

    url: str
    model: str = ""
    trouble: str = "not asked yet"
    working: int = 0

    @property
    def place(self) -> str:
        """Host and port, as shown to people; without a user name or password."""
        parts = urlsplit(self.url)
        return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)


@dataclass
class Servers:
    """Several servers of one kind.

    Args:
        what: Their head, ``Reasoner`` or ``Generator``, for messages.
        urls: Their addresses, with or without ``/v1``.
        key: Sent as a bearer token; empty for none.

    Raises:
        SettingsError: for something that is no http address.
    """

    what: str
    urls: Sequence[str]
    key: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        self.all = [Server(_root(url)) for url in self.urls]
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._look()
        threading.Thread(target=self._watch, daemon=True).start()

    @property
    def model(self) -> str:
        """Id of the model they serve, empty until one has answered."""
        return next((server.model for server in self.all if server.model), "")

    @property
    def trouble(self) -> str:
        """What is wrong with those that are down, empty when all is well."""
        down = [f"{server.place} {server.trouble}" for server in self.all if server.trouble]
        return f"{self.what}: {'; '.join(down)}. Asked again every {CHECK_EVERY:.0f} s." if down else ""

    @property
    def usable(self) -> bool:
        return any(not server.trouble for server in self.all)

    def status(self, head: str, turns: Turns) -> Status:
        """The servers as half an engine, whose runs ``turns`` holds."""
        return Status(
            checkpoint=short_name(self.model) or "unknown",
            device=", ".join(server.place for server in self.all),
            dtype="server" if len(self.all) == 1 else "servers",
            state="ready" if self.usable else "unreachable",
            detail=self.trouble,
            loaded=1.0,
            head=head if turns.working else None,
            waiting=turns.waiting,
        )

    def close(self) -> None:
        self._closed.set()

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def client(self, server: Server) -> httpx.AsyncClient:
        """A client of one server, for one run."""
        timeout = httpx.Timeout(SILENCE, connect=CONNECT_TIMEOUT)
        return httpx.AsyncClient(base_url=server.url, headers=self.headers, timeout=timeout, trust_env=False)

    async def run(self, work: Callable[[Server], Awaitable[T]]) -> T:
        """Run ``work`` on the server with the least to do, again elsewhere or later when it raises `Unavailable`.

        Raises:
            EngineError: when no server took it within `PATIENCE`.
        """
        deadline = time.monotonic() + PATIENCE
        pause, tried = FIRST_PAUSE, set[str]()
        while True:
            async with self._taken(tried) as server:
                if server is not None:
                    try:
                        return await work(server)
                    except Unavailable as error:
                        server.trouble = str(error)
                        tried.add(server.url)
            if time.monotonic() + pause > deadline:
                raise EngineError(f"{self.trouble or f'{self.what}: busy.'} The request was not begun; try again.")
            if tried.issuperset(server.url for server in self.all if not server.trouble):
                await asyncio.sleep(pause)
                pause, tried = min(2 * pause, LONGEST_PAUSE), set()
                await asyncio.to_thread(self._look)

    @asynccontextmanager
    async def _taken(self, tried: set[str]) -> AsyncIterator[Server | None]:
        with self._lock:
            free = [server for server in self.all if not server.trouble and server.url not in tried]
            server = min(free, key=lambda server: server.working, default=None)
            if server:
                server.working += 1
        try:
            yield server
        finally:
            if server:
                with self._lock:
                    server.working -= 1

    def _watch(self) -> None:
        while not self._closed.wait(CHECK_EVERY):
            self._look()

    def _look(self) -> None:
        """Ask every server whether it is well and what it serves."""
        with httpx.Client(headers=self.headers, timeout=CHECK_TIMEOUT, trust_env=False) as client:
            for server in self.all:
                before = server.trouble
                try:
                    server.model = _served(client, server)
                    server.trouble = ""
                except httpx.HTTPError as error:
                    server.trouble = _in_words(error)
                except (ValueError, KeyError, IndexError, TypeError):
                    server.trouble = "does not speak the OpenAI protocol"
                if server.trouble != before:
                    log.warning("%s at %s: %s", self.what, server.place, server.trouble or f"serves {server.model}")


def _served(client: httpx.Client, server: Server) -> str:
    """Id of the served model. Raises `httpx.HTTPError` when the server isn't well."""
    health = client.get(f"{server.url}/health")
    if health.status_code != httpx.codes.NOT_FOUND:  # some servers have no such page
        health.raise_for_status()
    models = client.get(f"{server.url}/v1/models")
    models.raise_for_status()
    return str(models.json()["data"][0]["id"])


def _in_words(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.HTTPStatusError):
        code = error.response.status_code
        if code in (401, 403):
            return f"refuses the API key ({code})"
        return f"is not well (HTTP {code})"
    if isinstance(error, httpx.TimeoutException):
        return "does not answer in time"
    return "can't be reached"


def _root(url: str) -> str:
    parts = urlsplit(url.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError(f"{url!r} is no address of a server; give one such as http://localhost:8000/v1.")
    return url.strip().rstrip("/").removesuffix("/v1").rstrip("/")


async def watched(work: Awaitable[T], beat: Callable[[], None]) -> T:
    """Await ``work``, calling ``beat`` at times; when it raises, ``work`` is cancelled and the exception passes on.

    A run that is no longer wanted learns of it only by emitting, so ``beat`` emits something.
    """
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=BEAT))[0]:
            beat()
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


def refusal(what: str, status: int, body: object, field: str = "prompt") -> Exception:
    """What an HTTP error of a server means to the person.

    Args:
        what: Who refused, for the message.
        status: HTTP status.
        body: Parsed JSON or text of the answer.
        field: Request field named when the request itself is at fault.
    """
    said = _message(body)
    if status in (429, 502, 503):
        return Unavailable(f"is busy or starting (HTTP {status})")
    if status in (401, 403):
        return EngineError(f"{what} refuses the API key (HTTP {status}); set the right one and start the app again.")
    if status == 404:
        return EngineError(f"{what} knows no such model or page (HTTP 404): {said}")
    if "out of memory" in said.lower():
        return EngineError(f"{what} ran out of memory; choose a lower resolution or fewer frames. It said: {said}")
    if 400 <= status < 500:
        return RequestError(field, f"{what} refuses it: {said}")
    return EngineError(f"{what} failed (HTTP {status}): {said}")


MAX_SAID = 400


def _message(body: object) -> str:
    """The sentence in an error's body, whichever of the usual forms it has, cut to `MAX_SAID`."""
    while isinstance(body, dict):
        body = body.get("error") or body.get("detail") or body.get("message") or "no reason given"
    if isinstance(body, list):
        body = "; ".join(str(item.get("msg", item)) if isinstance(item, dict) else str(item) for item in body)
    said = " ".join(str(body).split())
    return said if len(said) <= MAX_SAID else f"{said[:MAX_SAID]} ..."
