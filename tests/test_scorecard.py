"""The scorecard: its statistics, its table and file, what a failing case and a broken checkpoint do."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest

import cosmos_demo
from cosmos_demo.pico import scorecard
from cosmos_demo.pico.scorecard import Lab, Measure, Row

if TYPE_CHECKING:
    from cosmos_demo.engines.local import LocalEngine


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> dict[str, Row]:
    """Rows to fill, of a scorecard whose engine does nothing."""
    made: dict[str, Row] = {}
    engine = SimpleNamespace(capabilities=lambda: SimpleNamespace(checkpoint="Fake"), close=lambda: None)
    monkeypatch.setattr(scorecard, "ROWS", made)
    monkeypatch.setattr(cosmos_demo, "open_engine", lambda settings: engine)
    return made


def test_wilson_by_hand() -> None:
    """8 of 10: (0.8 + 0.19207 -+ 1.96 * sqrt(0.016 + 0.0096036)) / 1.38415."""
    assert scorecard.wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert scorecard.wilson(0, 10)[0] == 0
    assert scorecard.wilson(10, 10)[1] == pytest.approx(1)


def test_correlation_and_r2() -> None:
    asked = np.array([1.0, 2.0, 3.0])
    assert scorecard.correlation(asked, 2 * asked + 5) == pytest.approx(1)
    assert scorecard.correlation(asked, np.ones(3)) == 0
    assert scorecard.r2(asked, asked) == 1
    assert scorecard.r2(asked, np.full(3, 2.0)) == 0


def test_a_pooled_figure_counts_failed_cases_as_nothing_known() -> None:
    measure = Measure("r2", "", 0.9, kind="r2")
    good = (np.array([0.0, 1.0]), np.array([0.0, 1.0]))
    assert measure.figure([good, good]) == 1
    assert measure.figure([good, None]) == 0.5
    assert measure.figure([None]) == 0


def test_a_mean_has_an_interval_around_it() -> None:
    measure = Measure("error", "", 0.1, kind="mean", at_most=True, wrong=1.0)
    scores = [0.05, 0.06, 0.07, 0.2]
    low, high = measure.interval(scores)
    assert 0.05 <= low < measure.figure(scores) < high <= 0.2
    assert measure.figure([0.0, None]) == 0.5
    assert measure.reached(0.05, 0.1)
    assert not measure.reached(0.2, 0.1)


def test_a_case_is_the_same_whatever_ran_before() -> None:
    lab = Lab(engine=None)
    lab.begin("count", 3)
    scene, frame = lab.still()
    lab.begin("colour", 1)
    lab.still()
    lab.begin("count", 3)
    again, same = lab.still()
    assert again == scene
    assert (same == frame).all()
    Lab.begin(other := Lab(engine=None, seed=1), "count", 3)
    assert other.still()[0] != scene


def test_one_of_several_clips_keeps_its_truth() -> None:
    lab = Lab(engine=None)
    lab.begin("sound", 0)
    clips, scene, frames = lab.clip(lambda scene: len(scene.hits) > 1)
    assert len(clips) == 1
    assert clips.impacts.time.tolist() == [hit.time for hit in scene.hits]
    assert frames.shape == (17, 192, 320, 3)


def test_rows_are_unique_and_in_the_range_of_their_targets() -> None:
    names = [one.name for row in scorecard.ROWS.values() for one in row.measures]
    assert len(set(names)) == len(names)
    for row in scorecard.ROWS.values():
        assert row.cases >= row.quick >= 0
        for one in row.measures:
            assert one.floor is None or one.reached(one.target, one.floor)


def test_real_answers_give_a_table_and_a_file(
    engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The session's engine must outlive the run."""
    monkeypatch.setattr(
        cosmos_demo,
        "open_engine",
        lambda settings: SimpleNamespace(
            capabilities=engine.capabilities, answer=engine.answer, generate=engine.generate, close=lambda: None
        ),
    )
    out = tmp_path / "score.json"
    assert scorecard.main(["--only", "count", "grounding", "--cases", "2", "--out", str(out)]) == 0
    written = json.loads(out.read_text())
    assert written["checkpoint"] == "Cosmos3-Pico"
    assert [row["name"] for row in written["rows"]] == ["count", "grounding", "grounding-hits"]
    for row in written["rows"]:
        assert row["n"] == 2
        assert row["failures"] == []
        assert 0 <= row["low"] <= row["value"] <= row["high"] <= 1
        assert row["met"] == (row["value"] >= row["target"])
        assert row["seconds"] > 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("row")
    assert [line.split()[0] for line in lines[2:5]] == ["count", "grounding", "grounding-hits"]


def test_a_case_that_raises_is_wrong_and_named(rows: dict[str, Row], capsys: pytest.CaptureFixture[str]) -> None:
    def score(lab: Lab) -> float:
        if lab.case == 1:
            raise RuntimeError("no such thing")
        return 1.0

    rows["fake"] = Row(score, 4, 0, (Measure("fake", "a fake", 0.7),))
    assert scorecard.main([]) == 0
    out = capsys.readouterr().out
    assert "0.750" in out
    assert "case 1: RuntimeError: no such thing" in out
    assert "1 of 1 targets met" in out


@pytest.mark.parametrize(("value", "status"), [(1.0, 0), (0.6, 0), (0.2, 1)])
def test_a_quick_run_fails_below_the_floor_alone(rows: dict[str, Row], value: float, status: int) -> None:
    """Also where the target isn't met; a whole run reports and never fails."""
    rows["fake"] = Row(lambda lab: value, 4, 2, (Measure("fake", "a fake", 0.9, 0.5, "mean"),))
    rows["slow"] = Row(lambda lab: pytest.fail("not in a quick run"), 4, 0, (Measure("slow", "a fake", 0.9, 0.5),))
    assert scorecard.main(["--quick"]) == status
    assert scorecard.main(["--only", "fake"]) == 0


def test_a_run_cut_short_keeps_its_rows(rows: dict[str, Row], tmp_path: Path) -> None:
    def cut(lab: Lab) -> float:
        raise KeyboardInterrupt

    rows["first"] = Row(lambda lab: 1.0, 2, 2, (Measure("first", "a fake", 0.9),))
    rows["second"] = Row(cut, 2, 2, (Measure("second", "a fake", 0.9),))
    out = tmp_path / "score.json"
    with pytest.raises(KeyboardInterrupt):
        scorecard.main(["--out", str(out)])
    assert [row["name"] for row in json.loads(out.read_text())["rows"]] == ["first"]
