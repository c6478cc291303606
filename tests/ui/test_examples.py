"""Every example of the page is a request that Pico serves, with values of the controls' own types."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosmos_demo.checkpoints import find
from cosmos_demo.generator.validate import resolve
from cosmos_demo.ui import examples, forms

GENERATED = [(tab, example) for tab in ("picture", "video", "action") for example in examples.of(tab)]
MODES = {"picture": "text-to-image", "video": "text-to-video"}


@pytest.mark.parametrize(("tab", "example"), GENERATED, ids=[example.title for _, example in GENERATED])
def test_generator_examples_are_served(tab: str, example: examples.Example, pico_path: Path):
    can = find(pico_path).capabilities
    values = {"mode": MODES.get(tab), **example.values}
    mode = values.pop("mode")
    if "actions" in values:
        values["actions"] = Path(values["actions"])
    assert isinstance(values.get("seed", 0), int)
    resolve(forms.generate_request(mode, values, can), can)


def test_every_tab_has_examples():
    assert all(examples.of(tab) for tab in ("reasoner", "picture", "video", "action", "transfer"))
