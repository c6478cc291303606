"""Checkpoints: what configs tell, and what is said about one that is missing, gated, damaged or of another kind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import errors as hub

from cosmos_demo import checkpoints
from cosmos_demo.checkpoints import find
from cosmos_demo.engines.base import Score
from cosmos_demo.errors import CheckpointError

SIGMAS = [1.0, 0.9375, 0.8333, 0.625]


@pytest.fixture
def copy(pico_path: Path, tmp_path: Path) -> Path:
    """Pico's folder to be changed; weight files are links, so replace them, never write into them."""
    folder = tmp_path / "some-checkpoint"
    shutil.copytree(
        pico_path,
        folder,
        copy_function=lambda source, target: (
            os.symlink(os.path.realpath(source), target)
            if source.endswith(".safetensors")
            else shutil.copy(source, target)
        ),
    )
    return folder


def edit(path: Path, **changes: Any) -> None:
    """Set keys of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes if path.exists() else changes))


def test_pico_is_recognised_and_can_do_all_but_write_prompts_out(pico_path: Path) -> None:
    checkpoint = find(pico_path)
    capabilities = checkpoint.capabilities
    assert checkpoint.is_pico
    assert capabilities.checkpoint == "Cosmos3-Pico"
    assert capabilities.family == "cosmos3_omni"
    assert set(capabilities.unavailable) == {"upsample"}
    assert capabilities.sample_rate == 16_000
    assert capabilities.action_dim == 64
    assert capabilities.resolutions == (256,)
    assert capabilities.defaults["num_frames"] == 17
    assert "Nano" in capabilities.home
    assert checkpoint.components == ("transformer", "vae", "sound_tokenizer", "vision_encoder")


def test_the_vocabulary_that_tells_pico_is_its_tokenizers() -> None:
    from cosmos_demo.pico.tokenizer import VOCAB_SIZE

    assert checkpoints.PICO_VOCABULARY == VOCAB_SIZE


def test_configs_are_read_without_torch(pico_path: Path) -> None:
    code = (
        f"import sys; from cosmos_demo.checkpoints import find; find({str(pico_path)!r}); print('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


def test_weights_are_listed_with_their_sizes(pico_path: Path) -> None:
    files = find(pico_path).weights()
    transformer = files["transformer"]
    on_disk = sorted((pico_path / "transformer").glob("*.safetensors"))
    assert [file.path for file in transformer] == on_disk
    assert sum(file.bytes for file in transformer) == sum(path.stat().st_size for path in on_disk)
    config = json.loads((pico_path / "transformer" / "config.json").read_text())
    embedding = next(
        file.elements["embed_tokens.weight"] for file in transformer if "embed_tokens.weight" in file.elements
    )
    assert embedding == config["vocab_size"] * config["hidden_size"]


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        (lambda folder: edit(folder / "transformer/config.json", sound_gen=False), {"sound"}),
        (lambda folder: shutil.rmtree(folder / "sound_tokenizer"), {"sound"}),
        (
            lambda folder: edit(folder / "transformer/config.json", action_gen=False),
            {"policy", "forward-dynamics", "inverse-dynamics"},
        ),
        (lambda folder: shutil.rmtree(folder / "vision_encoder"), {"reasoner"}),
        (lambda folder: (folder / "config.json").unlink(), {"reasoner"}),
        (lambda folder: edit(folder / "transformer/config.json", quantization_config={}), {"reasoner"}),
        (lambda folder: edit(folder / "config.json", model_type="cosmos3_edge"), {"video-to-video", "transfer"}),
    ],
    ids=["no sound head", "no sound tokenizer", "no action head", "no vision", "no root config", "quantised", "edge"],
)
def test_what_a_part_less_makes_unavailable(copy: Path, change: Callable[[Path], object], missing: set[str]) -> None:
    edit(copy / "transformer/config.json", vocab_size=151_936)
    change(copy)
    checkpoint = find(copy)
    assert set(checkpoint.capabilities.unavailable) == missing
    assert all("some-checkpoint" in reason for reason in checkpoint.capabilities.unavailable.values())
    assert not checkpoint.is_pico
    assert checkpoint.has_reasoner == ("reasoner" not in missing)
    assert (checkpoint.capabilities.sample_rate is None) == ("sound" in missing)
    assert ("sound_tokenizer" in checkpoint.components) == ("sound" not in missing)


def test_edge_serves_its_own_tiers_only(copy: Path) -> None:
    edit(copy / "config.json", model_type="cosmos3_edge")
    capabilities = find(copy).capabilities
    assert capabilities.family == "cosmos3_edge"
    assert capabilities.resolutions == (256, 480)


@pytest.mark.parametrize(
    ("name", "modes", "resolutions"),
    [
        ("Cosmos3-Super-Text2Image", {"text-to-image"}, (768,)),
        ("Cosmos3-Super-Image2Video", {"image-to-video"}, (256, 480, 720)),
        ("Cosmos3-Nano-Policy-DROID", {"policy"}, (256, 480, 720)),
        ("Cosmos3-Nano", set(checkpoints.MODES), (256, 480, 720)),
    ],
)
def test_published_checkpoints_are_known_by_name(
    copy: Path, name: str, modes: set[str], resolutions: tuple[int, ...]
) -> None:
    edit(copy / "transformer/config.json", vocab_size=151_936)
    folder = copy.rename(copy.parent / f"models--nvidia--{name}") / "."
    capabilities = find(folder).capabilities
    assert capabilities.checkpoint == name
    assert set(checkpoints.MODES) - set(capabilities.unavailable) == modes
    assert capabilities.resolutions == resolutions


def test_a_distilled_checkpoint_fixes_steps_and_guidance(copy: Path) -> None:
    edit(copy / "modular_model_index.json", _class_name="Cosmos3DistilledModularPipeline", distilled_sigmas=SIGMAS)
    checkpoint = find(copy)
    assert checkpoint.distilled
    assert checkpoint.distilled_sigmas == tuple(SIGMAS)
    assert checkpoint.capabilities.fixed["steps"] == 4
    assert checkpoint.capabilities.fixed["guidance_scale"] == 1.0
    assert {"sound", "transfer", "policy"} <= set(checkpoint.capabilities.unavailable)
    assert "text-to-video" not in checkpoint.capabilities.unavailable


def test_an_undistilled_modular_index_changes_nothing(copy: Path) -> None:
    edit(copy / "modular_model_index.json", _class_name="Cosmos3OmniModularPipeline", distilled_sigmas=None)
    checkpoint = find(copy)
    assert not checkpoint.distilled
    assert not checkpoint.capabilities.fixed


ROW = {"name": "count", "what": "counted", "value": 1, "low": 0.9, "high": 1, "n": 40, "target": 0.95, "met": True}


def test_a_scorecard_is_read_where_there_is_one(tmp_path: Path) -> None:
    assert checkpoints.read_scores(tmp_path) == ()
    rows = [ROW | {"unit": "share", "seconds": 3.5}, ROW | {"met": False, "higher": False}, ROW | {"at_most": True}]
    (tmp_path / "scorecard.json").write_text(json.dumps({"checkpoint": "Some", "rows": rows}))
    share, plain, at_most = checkpoints.read_scores(tmp_path)
    assert share == Score("count", "counted", 1.0, 0.9, 1.0, 40, 0.95, True, "share")
    assert (plain.unit, plain.met, plain.higher, at_most.higher) == ("", False, False, False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"rows": 3}',
        '{"rows": [3]}',
        '{"rows": [{"name": "count"}]}',
        json.dumps({"rows": [ROW | {"low": float("nan")}]}),
    ],
)
def test_a_scorecard_that_can_not_be_read_stops_nothing(text: str, copy: Path) -> None:
    (copy / "scorecard.json").write_text(text)
    assert find(copy).capabilities.scores == ()


def replace(path: Path, content: bytes) -> None:
    path.unlink()
    path.write_bytes(content)


def shard(folder: Path, component: str = "transformer") -> Path:
    return sorted((folder / component).glob("*.safetensors"))[-1]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: replace(shard(folder), shard(folder).read_bytes()[:-100]), "download it again"),
        (lambda folder: replace(shard(folder), b"version https://git-lfs.github.com"), "no safetensors header"),
        (lambda folder: replace(shard(folder), b""), "no safetensors header"),
        (lambda folder: shard(folder).unlink(), "is missing"),
        (lambda folder: shard(folder).rename(shard(folder).with_suffix(".part")), "is missing"),
        (lambda folder: replace(shard(folder), shard(folder, "vae").read_bytes()), "index belongs"),
        (lambda folder: shutil.rmtree(folder / "vae"), "no weights"),
        (lambda folder: (folder / "transformer/config.json").write_text("{"), "damaged"),
        (lambda folder: (folder / "transformer/config.json").write_text("[]"), "JSON object"),
        (lambda folder: (folder / "model_index.json").write_text("not json"), "damaged"),
        (lambda folder: (folder / "transformer/config.json").unlink(), "is missing"),
        (lambda folder: edit(folder / "model_index.json", _class_name="WanPipeline"), "holds a WanPipeline"),
        (lambda folder: edit(folder / "config.json", model_type="qwen3_vl"), "of the kind 'qwen3_vl'"),
        (lambda folder: (folder / "model_index.json").unlink(), "Reasoner alone or another model"),
    ],
    ids=[
        "cut short", "lfs pointer", "empty", "shard gone", "shard half there", "shard of another", "no vae", "bad json",
        "json list", "bad index", "no config", "other pipeline", "other reasoner", "no pipeline",
    ],
)  # fmt: skip
def test_a_damaged_checkpoint_is_refused_with_advice(copy: Path, damage: Callable[[Path], object], said: str) -> None:
    damage(copy)
    with pytest.raises(CheckpointError, match=said):
        find(copy)


def test_a_stale_root_index_does_not_matter(copy: Path) -> None:
    """Only transformers' own loader reads it; copies of Nano on the Hub often carry an outdated one."""
    edit(copy / "model.safetensors.index.json", weight_map={"layers.0.mlp.up_proj.weight": "gone.safetensors"})
    assert find(copy).has_reasoner


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no model_index\.json"):
        find(tmp_path)


@pytest.mark.parametrize("name", ["/no/such/folder", "no-such-folder", "a/b/c", "nvidia/Cosmos3 Nano", ""])
def test_what_is_neither_folder_nor_hub_id(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match=r"nvidia/Cosmos3-Nano|no model_index"):
        find(name)


def refusal(kind: type[hub.HfHubHTTPError], status: int) -> hub.HfHubHTTPError:
    return kind("refused", response=SimpleNamespace(status_code=status, headers={}, request=None))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (refusal(hub.GatedRepoError, 403), "huggingface.co/nvidia/Cosmos3-Nano.*hf auth login"),
        (refusal(hub.RepositoryNotFoundError, 401), "check the spelling, or log in"),
        (refusal(hub.RevisionNotFoundError, 404), "no revision 'fp8'"),
        (refusal(hub.HfHubHTTPError, 401), "token is missing or lacks access"),
        (refusal(hub.HfHubHTTPError, 403), "token is missing or lacks access"),
        (refusal(hub.HfHubHTTPError, 500), "try again"),
        (hub.LocalEntryNotFoundError("offline"), "check the network"),
        (OSError("No space left on device"), "free disk space"),
    ],
    ids=["gated", "unknown", "revision", "401", "403", "500", "offline", "disk full"],
)
def test_the_hubs_refusals_say_what_to_do(monkeypatch: pytest.MonkeyPatch, error: Exception, said: str) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(checkpoints, "snapshot_download", refuse)
    with pytest.raises(CheckpointError, match=said):
        find("nvidia/Cosmos3-Nano", revision="fp8")


def test_a_hub_id_brings_configs_first_and_weights_when_asked(
    copy: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The Hub is stood in for by a function that copies what the patterns ask for, as the Hub would send it."""
    edit(copy / "transformer/config.json", vocab_size=151_936)
    cache = tmp_path / "snapshots" / "0123abc"
    asked = []

    def download(hub_id: str, *, revision: str | None, allow_patterns: list[str], tqdm_class: type, **_: object) -> str:
        asked.append((hub_id, revision, allow_patterns))
        wanted = [file for file in copy.rglob("*") if any(file.relative_to(copy).match(p) for p in allow_patterns)]
        bar = tqdm_class(total=sum(file.stat().st_size for file in wanted), unit="B")
        for file in wanted:
            target = cache / file.relative_to(copy)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
            bar.update(file.stat().st_size)
        return str(cache)

    monkeypatch.setattr(checkpoints, "snapshot_download", download)
    checkpoint = find("nvidia/Cosmos3-Nano")
    assert checkpoint.name == "Cosmos3-Nano"
    assert not list(cache.rglob("*.safetensors"))
    told = []
    files = checkpoint.weights(lambda fraction, what: told.append((fraction, what)))
    assert set(files) == {"transformer", "vae", "sound_tokenizer", "vision_encoder"}
    assert told[-1] == (1.0, "downloading nvidia/Cosmos3-Nano")
    assert asked[0][1] is None
    assert asked[1][1] == "0123abc", "weights come from the commit whose configs were read"
