"""Actions: widths, units, rows in and out, paths, against values derived by hand."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from diffusers.pipelines.cosmos.pipeline_cosmos3_omni import _EMBODIMENT_TO_RAW_ACTION_DIM

from cosmos_demo.errors import RequestError
from cosmos_demo.generator import actions


def test_domains_are_those_of_the_library():
    assert {name: domain.width for name, domain in actions.DOMAINS.items()} == _EMBODIMENT_TO_RAW_ACTION_DIM


def test_quantiles_fit_their_domains():
    for name, table in actions.QUANTILES.items():
        assert len(table["q01"]) == len(table["q99"]) == actions.DOMAINS[name].width


def test_driving_is_in_metres_times_1_35():
    model = np.array([[1.35, 0, 2.7, 1, 0, 0, 0, 1, 0]], np.float32)
    assert actions.to_units(model, "av")[0, :3] == pytest.approx([1, 0, 2])
    assert actions.to_model(actions.to_units(model, "av"), "av") == pytest.approx(model)


def test_quantile_units_by_hand():
    model = np.zeros((1, 10), np.float32)
    real = actions.to_units(model, "bridge_orig_lerobot")
    assert real[0, 0] == pytest.approx((0.039722 - 0.038884) / 2, abs=1e-6)
    assert real[0, 9] == pytest.approx(0.5)
    assert np.linalg.norm(real[0, 3:6]) == pytest.approx(1, abs=1e-6)
    assert real[0, 3:6] @ real[0, 6:9] == pytest.approx(0, abs=1e-6)
    assert actions.to_units(model, "galbot") is None


def test_translations_and_grippers_survive_the_round_trip():
    model = np.random.default_rng(0).uniform(-1, 1, (5, 10)).astype(np.float32)
    again = actions.to_model(actions.to_units(model, "umi"), "umi")
    assert again[:, [0, 1, 2, 9]] == pytest.approx(model[:, [0, 1, 2, 9]], abs=1e-5)


def test_a_path_straight_ahead_and_a_square():
    ahead = actions.camera_move(0, 0, 0.5, 4)
    assert actions.path(ahead)[-1] == pytest.approx([0, 0, 2])
    quarter = np.array([[0, 0, 1, 0, 0, -1, 0, 1, 0]], np.float32)
    square = actions.path(np.repeat(quarter, 4, 0))
    assert square == pytest.approx(np.array([[0, 0, 0], [0, 0, 1], [1, 0, 1], [1, 0, 0], [0, 0, 0]]), abs=1e-6)


def test_driving_a_quarter_circle():
    speed, fps, steps = 10.0, 10, 60
    rate = (np.pi / 2) / (steps / fps)
    end = actions.path(actions.to_units(actions.drive(speed, rate, fps, steps), "av"))[-1]
    radius = speed / rate
    assert end == pytest.approx([radius, 0, radius], rel=0.002)


def test_rotations_are_rotations():
    turns = actions.rotations(np.random.default_rng(1).normal(size=(8, 9)))
    assert turns @ turns.transpose(0, 2, 1) == pytest.approx(np.tile(np.eye(3), (8, 1, 1)), abs=1e-6)
    assert np.linalg.det(turns) == pytest.approx(np.ones(8))


def test_rows_round_trip_through_json_and_csv():
    rows = np.random.default_rng(2).normal(size=(6, 9)).astype(np.float32)
    assert np.array_equal(actions.read_rows(actions.to_json(rows)), rows)
    assert np.array_equal(actions.read_rows(json.dumps({"actions": rows.tolist()})), rows)
    table = list(csv.reader(io.StringIO(actions.to_csv(rows, "av", 10))))
    assert table[0] == ["time", *actions.POSE]
    assert [line[0] for line in table[1:3]] == ["0.0000", "0.1000"]
    assert np.array_equal(np.array([line[1:] for line in table[1:]], np.float32), rows)


@pytest.mark.parametrize(
    "text",
    ["", "hello", "[]", "[[]]", "{}", "[1, 2]", "[[1], [1, 2]]", '[["a"]]', "[[true]]", "[[NaN]]", "[[1e999]]",
     "[[1e5]]", "[" * 100_000, json.dumps([[0]] * 5000), f"[[{'9' * 400}]]"],
    ids=range(15),
)  # fmt: skip
def test_bad_rows_are_refused(text: str):
    with pytest.raises(RequestError) as caught:
        actions.read_rows(text)
    assert caught.value.field == "actions"
