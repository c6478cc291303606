"""The page in Chromium, as a person drives it: each tab's example, progress, result, stop, reload, narrow screens."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from cosmos_demo.settings import EXAMPLES

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SECONDS = 1000.0
PATIENCE = 120 * SECONDS

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


@pytest.fixture(scope="module")
def address(pico_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The real app in a process of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    outputs = tmp_path_factory.mktemp("outputs")
    command = [sys.executable, "app.py", "--checkpoint", str(pico_path), "--port", str(port), "--outputs", str(outputs)]
    process = subprocess.Popen(command, cwd=ROOT)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(address, process)
        yield address
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """A fresh visitor, whose page must raise no script errors."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(address)
    expect(page.locator("#tabs")).to_be_visible(timeout=PATIENCE)
    yield page
    context.close()
    assert not errors


def test_status_line_tells_checkpoint_device_and_memory(page: Page):
    status = page.locator("#status")
    expect(status).to_contain_text("Cosmos3-Pico")
    expect(status).to_contain_text("cpu float32", timeout=PATIENCE)
    expect(status).to_contain_text("GB", timeout=PATIENCE)
    expect(status).to_contain_text("idle", timeout=PATIENCE)


def test_reasoner_answers_an_example_and_forgets_when_cleared(page: Page):
    _example(page, "reasoner", "How many objects?")
    chat = page.locator("#reasoner-chat")
    expect(page.get_by_text("Record of this answer")).to_be_visible(timeout=PATIENCE)
    expect(_stop(page, "reasoner")).to_be_hidden()
    expect(chat.locator(".user")).to_contain_text("How many objects are there?")
    expect(chat.locator(".bot")).not_to_have_count(0)
    page.get_by_text("Record of this answer").click()
    expect(page.locator("#reasoner-record")).to_contain_text("max_new_tokens")
    chat.get_by_label("Clear").click()
    expect(chat).to_be_hidden()
    expect(page.locator("#reasoner-stage .stage.empty")).to_be_visible()


def test_an_event_of_a_timeline_seeks_the_clip(page: Page):
    _example(page, "reasoner", "When does what happen?")
    event = page.locator("#reasoner-findings [data-seek]").last
    expect(event).to_be_visible(timeout=PATIENCE)
    page.wait_for_function("document.querySelector('#reasoner-player video').readyState >= 1")
    event.click()
    start = float(event.get_attribute("data-seek"))
    assert start > 0
    player = page.locator("#reasoner-player video")
    assert player.evaluate("video => video.currentTime") == pytest.approx(start, abs=0.01)


def test_clicks_number_things_in_a_picture_until_the_numbers_are_removed(page: Page):
    page.get_by_label("Task").click()
    page.get_by_role("option", name="Describe marked things").click()
    page.locator("#reasoner-image input[type=file]").set_input_files(EXAMPLES / "three_objects.png")
    picture = page.locator("#reasoner-image img")
    expect(picture).to_be_visible()
    picture.click()
    expect(picture).to_have_attribute("src", re.compile("marked"))
    page.locator("#reasoner-unmark").click()
    expect(picture).to_have_attribute("src", re.compile("three_objects"))


def test_prompts_survive_a_reload(page: Page):
    prompt = page.locator("#reasoner-prompt textarea")
    prompt.fill("What is <b>this</b>?")
    _tab(page, "Picture")
    page.locator("#picture-prompt textarea").fill("a red ball")
    page.wait_for_function("localStorage.getItem('cosmos-demo-picture-prompt') !== null")
    page.reload()
    expect(prompt).to_have_value("What is <b>this</b>?")
    _tab(page, "Picture")
    expect(page.locator("#picture-prompt textarea")).to_have_value("a red ball")


def test_records_of_an_answer_and_of_actions_fill_their_forms(page: Page):
    _restore(page, "reasoner", {"task": "grounding", "prompt": "every cube", "seed": 7, "top_k": 5})
    expect(page.locator("#reasoner-prompt textarea")).to_have_value("every cube")
    expect(page.get_by_label("Task")).to_have_value("Find with boxes")
    rows = [[0.25] * 9] * 4
    _restore(page, "generator", {"mode": "forward-dynamics", "domain": "camera_pose", "actions": rows, "seed": 3})
    actions = page.locator("#action-actions textarea")
    expect(actions).to_be_visible()
    assert json.loads(actions.input_value()) == rows
    expect(page.locator("#action-mode input[value=forward-dynamics]")).to_be_checked()


def test_a_picture_is_made_shown_kept_on_reload_and_handed_on(page: Page, tmp_path: Path):
    _tab(page, "Picture")
    _watch(page, "picture")
    _example(page, "picture", "A green pyramid")
    picture = page.locator("#picture-screen img")
    expect(picture).to_be_visible(timeout=PATIENCE)
    assert _saw_progress(page)
    assert _natural_size(picture) == [320, 192]
    seed = page.locator("#picture-facts b").first.inner_text()

    page.reload()
    _tab(page, "Picture")
    expect(picture).to_be_visible(timeout=PATIENCE)
    expect(page.locator("#picture-facts b").first).to_have_text(seed)

    with page.expect_download() as download:
        page.locator("#picture-get-picture").click()
    file = tmp_path / "result.png"
    download.value.save_as(file)
    page.locator("#restore input[type=file]").set_input_files(file)
    expect(page.locator("#picture-prompt textarea")).to_have_value("A large green pyramid in the middle.")

    page.get_by_role("button", name="Let it move").click()
    expect(page.locator("#video-image img")).to_be_visible()
    expect(page.locator("#video-mode input[value=image-to-video]")).to_be_checked()


def test_a_video_plays_with_sound(page: Page):
    _tab(page, "Video")
    _watch(page, "video")
    _example(page, "video", "A ball falls, with sound")
    video = page.locator("#video-screen video")
    expect(video).to_be_visible(timeout=PATIENCE)
    assert _saw_progress(page)
    page.wait_for_function("document.querySelector('#video-screen video').readyState >= 2")
    assert video.evaluate("video => [video.videoWidth, video.videoHeight]") == [320, 192]
    assert video.evaluate("video => video.duration") == pytest.approx(1.7, abs=0.06)
    expect(page.locator("#video-get-sound")).to_be_visible()


def test_motion_is_read_from_a_clip_and_its_plot_seeks_it(page: Page):
    _tab(page, "Action")
    _example(page, "action", "Read the camera's motion")
    plot = page.locator("#action-plot")
    expect(plot).to_contain_text("Translation", timeout=PATIENCE)
    expect(page.locator("#action-table")).to_be_visible(timeout=PATIENCE)
    page.wait_for_function("document.querySelector('#action-screen video').readyState >= 1")
    page.evaluate("document.querySelector('#action-screen video').pause()")
    chart = plot.locator("[data-seekable]").first
    box = chart.bounding_box()
    chart.click(position={"x": box["width"] / 2, "y": 10})
    page.wait_for_function("Math.abs(document.querySelector('#action-screen video').currentTime - 0.8) < 0.1")


def test_transfer_follows_a_clip(page: Page):
    _tab(page, "Transfer")
    _example(page, "transfer", "Follow the edges")
    expect(page.locator("#transfer-screen video")).to_be_visible(timeout=PATIENCE)


def test_transfer_follows_two_clips(page: Page):
    _tab(page, "Transfer")
    page.locator("#transfer-control input[type=file]").set_input_files(EXAMPLES / "bounce.mp4")
    page.locator("#transfer-prompt textarea").fill("A small red ball falls and bounces.")
    page.get_by_role("button", name="A second control").click()
    page.locator("#transfer-second-control input[type=file]").set_input_files(EXAMPLES / "bounce.mp4")
    expect(page.locator("#transfer-second-control video")).to_be_visible(timeout=PATIENCE)
    page.locator("#transfer-run").click()
    screen = page.locator("#transfer-screen video")
    expect(screen).to_be_visible(timeout=PATIENCE)
    with page.expect_download() as download:
        page.locator("#transfer-get-data").click()
    record = json.loads(download.value.path().read_text())["record"]
    assert record["inputs"].keys() == {"controls.edge", "controls.depth"}


def test_stop_ends_a_run_and_the_next_one_works(page: Page):
    _tab(page, "Video")
    _example(page, "video", "A ball falls, with sound")
    expect(page.locator("#video-stage .words")).to_have_text(re.compile(r"Step \d+ of 20"), timeout=PATIENCE)
    _stop(page, "video").click()
    expect(page.locator("#video-stage .stage.cancelled")).to_be_visible(timeout=PATIENCE)
    expect(_stop(page, "video")).to_be_hidden()
    expect(page.locator("#status")).to_contain_text("idle", timeout=PATIENCE)
    _tab(page, "Picture")
    page.locator("#picture-prompt textarea").fill("a red ball")
    page.locator("#picture-run").click()
    expect(page.locator("#picture-screen img")).to_be_visible(timeout=PATIENCE)


def test_bad_input_is_explained_and_its_text_stays_text(page: Page):
    _tab(page, "Picture")
    page.locator("#picture-run").click()
    expect(page.locator("#picture-stage .stage.failed")).to_contain_text("Prompt", timeout=PATIENCE)
    expect(page.locator("#picture-run")).to_be_enabled()
    _tab(page, "Action")
    page.locator("#action-mode").get_by_text("Forward dynamics").click()
    page.locator("#action-actions textarea").fill("<img src=x onerror=alert(1)>")
    page.locator("#action-run").click()
    failed = page.locator("#action-stage .stage.failed")
    expect(failed).to_be_visible(timeout=PATIENCE)
    expect(failed.locator("img")).to_have_count(0)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_is_cut_off_on_a_narrow_screen(page: Page, address: str, theme: str):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{address}/?__theme={theme}")
    for name in ("Reasoner", "Picture", "Video", "Action", "Transfer"):
        _tab(page, name)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        run = page.locator(f"#{name.lower()}-run").bounding_box()
        assert run["x"] >= 0
        assert run["x"] + run["width"] <= 390


def test_only_the_named_endpoints_are_public(address: str):
    with urllib.request.urlopen(f"{address}/gradio_api/info") as answer:
        names = set(json.load(answer)["named_endpoints"])
    assert names == {
        "/answer",
        "/text_to_image",
        "/text_to_video",
        "/image_to_video",
        "/video_to_video",
        "/policy",
        "/forward_dynamics",
        "/inverse_dynamics",
        "/transfer",
        "/upsample_prompt",
        "/status",
    }


def _wait_for(address: str, process: subprocess.Popen) -> None:
    for _ in range(600):
        assert process.poll() is None, "The app ended before it served its page."
        try:
            urllib.request.urlopen(address).close()
            return
        except urllib.error.URLError:
            time.sleep(0.2)
    pytest.fail("The app serves no page.")


def _tab(page: Page, name: str) -> None:
    page.get_by_role("tab", name=name, exact=True).click()
    expect(page.locator(f"#{name.lower()}-run")).to_be_visible()


def _example(page: Page, tab: str, title: str) -> None:
    page.locator(f"#{tab}-examples").get_by_role("button", name=title).click()


def _restore(page: Page, kind: str, settings: dict[str, Any]) -> None:
    """Drop a file with a record of these settings."""
    record = json.dumps({"app": "cosmos_demo", "version": 1, "kind": kind, "settings": settings})
    file = {"name": "record.json", "mimeType": "application/json", "buffer": record.encode()}
    page.locator("#restore input[type=file]").set_input_files(file)


def _watch(page: Page, tab: str) -> None:
    """Note all that the tab's stage shows from now on, however briefly."""
    page.evaluate(
        """tab => {
          const stage = document.getElementById(`${tab}-stage`);
          window.seen = { words: [], preview: false };
          new MutationObserver(() => {
            window.seen.words.push(stage.querySelector('.words')?.textContent ?? '');
            window.seen.preview ||= stage.querySelector('img') !== null;
          }).observe(stage, { childList: true, subtree: true, characterData: true });
        }""",
        tab,
    )


def _saw_progress(page: Page) -> bool:
    """Whether a watched stage has counted steps and shown a preview."""
    seen = page.evaluate("window.seen")
    return seen["preview"] and any(re.fullmatch(r"Step \d+ of \d+", words.strip()) for words in seen["words"])


def _stop(page: Page, tab: str) -> Locator:
    return page.locator(f"#{tab}-stop")


def _natural_size(picture: Locator) -> list[int]:
    return picture.evaluate("picture => [picture.naturalWidth, picture.naturalHeight]")
