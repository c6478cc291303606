"""Makes the README's pictures with the app itself: ``python -m scripts.make_pictures`` (needs Chromium).

In ``assets/screenshots``: ``results.jpg`` holds what Pico made, ``reasoner.png`` the page answering with boxes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import numpy as np
from PIL import Image, ImageDraw
from playwright.sync_api import expect, sync_playwright

from cosmos_demo import media, open_engine
from cosmos_demo.engines.base import Engine
from cosmos_demo.events import Generated
from cosmos_demo.requests import GenerateRequest
from cosmos_demo.settings import EXAMPLES, ROOT, Settings

OUT = ROOT / "assets" / "screenshots"
PORT = 7894
PICTURES = (
    "A large red ball on the left and a small blue cube on the right.",
    "A large green pyramid in the middle.",
    "A large purple cube on the left and a small orange ball on the right.",
    "A large red cube on the left, a small blue ball in the middle and a small yellow pyramid on the right.",
)
CELL, GAP, WAVE = (320, 192), 8, 72
PAPER, INK = (24, 28, 25), (131, 186, 82)


def made(engine: Engine, request: GenerateRequest) -> Generated:
    """The result of a run; raises what the run raises."""
    *_, last = engine.generate(request)
    if not isinstance(last, Generated):
        raise TypeError(f"the run ended with {last}")
    return last


def strip(frames: np.ndarray) -> Image.Image:
    """Four frames of a clip, evenly spread, side by side."""
    sheet = Image.new("RGB", (4 * CELL[0] + 3 * GAP, CELL[1]), PAPER)
    for place, index in enumerate(np.linspace(0, len(frames) - 1, 4).round().astype(int)):
        sheet.paste(Image.fromarray(frames[index]).resize(CELL), (place * (CELL[0] + GAP), 0))
    return sheet


def waveform(sound: np.ndarray, width: int) -> Image.Image:
    """The loudest sample of each column, both channels."""
    sheet = Image.new("RGB", (width, WAVE), PAPER)
    pen = ImageDraw.Draw(sheet)
    columns = np.array_split(np.abs(sound).max(0), width)
    top = max(float(np.abs(sound).max()), 1e-3)
    for x, column in enumerate(columns):
        half = column.max() / top * (WAVE / 2 - 4)
        pen.line((x, WAVE / 2 - half, x, WAVE / 2 + half), fill=INK)
    return sheet


def results(engine: Engine) -> Image.Image:
    pictures = [made(engine, GenerateRequest("text-to-image", prompt, seed=4)).frames[0] for prompt in PICTURES]
    fall = made(engine, GenerateRequest("text-to-video", "A small red ball falls and bounces.", sound=True, seed=1))
    start = media.read_image(EXAMPLES / "pan_start.png")
    look = made(engine, GenerateRequest("policy", "Look at the black cube.", image=start, seed=1))
    rows = [strip(np.stack(pictures)), strip(fall.frames)]
    rows += [waveform(fall.sound, rows[0].width), strip(look.frames)]
    sheet = Image.new("RGB", (rows[0].width, sum(row.height for row in rows) + GAP * (len(rows) - 1)), PAPER)
    top = 0
    for row in rows:
        sheet.paste(row, (0, top))
        top += row.height + GAP
    return sheet


def served() -> Iterator[str]:
    """The running app's address."""
    address = f"http://127.0.0.1:{PORT}"
    app = subprocess.Popen([sys.executable, "app.py", "--port", str(PORT)], cwd=ROOT)
    try:
        for _ in range(600):
            try:
                with urllib.request.urlopen(address, timeout=5):
                    break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.2)
        yield address
    finally:
        app.terminate()
        app.wait()


def screenshot() -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for address in served():
            page = browser.new_page(viewport={"width": 1440, "height": 1000})
            page.goto(address)
            page.get_by_role("button", name="Find every object").click()
            expect(page.locator("#reasoner-drawn img")).to_be_visible(timeout=120_000)
            page.wait_for_timeout(1500)
            page.screenshot(path=OUT / "reasoner.png")
        browser.close()


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    engine = open_engine(Settings())
    results(engine).save(OUT / "results.jpg", quality=90)
    engine.close()
    screenshot()


if __name__ == "__main__":
    main()
