"""How a training run is set up: changed numbers, and a start from a finished checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cosmos_demo.pico.blueprint import read_components, write_checkpoint
from cosmos_demo.pico.train import Config, configured
from cosmos_demo.settings import PICO


def test_a_config_changes_only_the_named_fields():
    config = configured(Config(), {"peak_rate": 1e-4, "mixture": {"videos": 2}, "amounts": {"stills": 1}})
    assert (config.peak_rate, config.mixture.videos, config.amounts.stills) == (1e-4, 2, 1)
    assert config.mixture.pictures == Config().mixture.pictures
    assert config.amounts.clips == Config().amounts.clips


@pytest.mark.parametrize("fields", [{"peek_rate": 1}, {"mixture": {"video": 2}}])
def test_a_config_with_an_unknown_field_is_refused(fields: dict[str, object]):
    with pytest.raises(TypeError, match="unexpected keyword"):
        configured(Config(), fields)


def test_a_checkpoint_read_and_written_again_is_the_same(tmp_path: Path):
    first = read_components(PICO)
    second = read_components(write_checkpoint(tmp_path, first))
    for name in ("transformer", "vision", "vae", "sound"):
        mine, other = getattr(first, name).state_dict(), getattr(second, name).state_dict()
        assert mine.keys() == other.keys()
        assert all(torch.equal(mine[key], other[key]) for key in mine), name
    assert first.vae.config.latents_mean == second.vae.config.latents_mean
    assert first.tokenizer.get_vocab() == second.tokenizer.get_vocab()
