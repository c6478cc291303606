"""How long a person waits on this machine: page, first preview, picture, video, first answer token.

    .venv/bin/python -m benchmarks.laptop [--repeat 3]

Starts the app itself for the page's time, then drives the engine as the page does. Prints the median of each figure
beside its target; nothing is cached between repeats but the loaded weights.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from PIL import Image

import cosmos_demo
from cosmos_demo.engines.base import Engine
from cosmos_demo.events import Event, Preview, Token
from cosmos_demo.requests import AnswerRequest, GenerateRequest
from cosmos_demo.settings import EXAMPLES, ROOT, Settings

PORT = 7893
PICTURE = GenerateRequest("text-to-image", "A large red ball on the left and a small blue cube on the right.", seed=1)
VIDEO = GenerateRequest("text-to-video", "A red ball falls and bounces.", num_frames=17, sound=True, seed=1)
QUESTION = "How many objects are on the table?"


def page_seconds() -> float:
    """Seconds from starting ``app.py`` until the page answers."""
    start = time.perf_counter()
    app = subprocess.Popen(
        [sys.executable, "app.py", "--port", str(PORT)], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while app.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/", timeout=5):
                    return time.perf_counter() - start
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        raise SystemExit(f"app.py ended with code {app.returncode} before the page was up")
    finally:
        app.terminate()
        app.wait()


def seconds_until(events: object, wanted: type[Event]) -> tuple[float, float]:
    """Seconds until the first ``wanted`` event and until the run's end."""
    start = time.perf_counter()
    first = None
    for event in events:
        if first is None and isinstance(event, wanted):
            first = time.perf_counter() - start
    if first is None:
        raise SystemExit(f"the run ended without a {wanted.__name__} event")
    return first, time.perf_counter() - start


def example_picture() -> Image.Image:
    return Image.open(next(Path(EXAMPLES).glob("*.png"))).convert("RGB")


def wait_until_ready(engine: Engine) -> float:
    start = time.perf_counter()
    while (status := engine.status()).state == "loading":
        time.sleep(0.05)
    if status.state != "ready":
        raise SystemExit(status.detail)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", default=Settings().checkpoint)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()

    page = [page_seconds() for _ in range(options.repeat)]
    engine = cosmos_demo.open_engine(Settings(checkpoint=options.checkpoint))
    loading = wait_until_ready(engine)
    ask = AnswerRequest(QUESTION, images=(example_picture(),), seed=1)
    first_use = seconds_until(engine.generate(PICTURE), Preview)
    pictures = [seconds_until(engine.generate(PICTURE), Preview) for _ in range(options.repeat)]
    videos = [seconds_until(engine.generate(VIDEO), Preview) for _ in range(options.repeat)]
    answers = [seconds_until(engine.answer(ask), Token) for _ in range(options.repeat)]
    engine.close()

    status = engine.status()
    print(f"{status.checkpoint}, {os.cpu_count()} cores, median of {options.repeat}")
    rows = [
        ("page up after start", statistics.median(page), 20),
        ("weights loaded", loading, None),
        ("first picture after loading", first_use[1], None),
        ("picture: first preview", statistics.median(first for first, _ in pictures), 1),
        ("picture: result", statistics.median(total for _, total in pictures), 3),
        ("17-frame video with sound: result", statistics.median(total for _, total in videos), 12),
        ("answer: first token", statistics.median(first for first, _ in answers), 1),
    ]
    for name, seconds, target in rows:
        aim = f"target {target} s" if target else ""
        print(f"{name:<36} {seconds:6.2f} s  {aim}")


if __name__ == "__main__":
    main()
