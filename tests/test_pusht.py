"""PushT against the real environment: pictures, experts, judges, words and files."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from cosmos_demo.pico import pusht

pytest.importorskip("gym_pusht")


@pytest.fixture(scope="module")
def drawn() -> tuple[Tensor, Tensor, Tensor]:
    """Random states, the environment's pictures of them, and ours."""
    rng = np.random.default_rng(0)
    simulator = pusht.Simulator(pictures=True)
    states, pictures = [], []
    for _ in range(12):
        states.append(simulator.reset(pusht.sample_start("", rng)))
        pictures.append(torch.from_numpy(simulator.picture.copy()))
    states = torch.from_numpy(np.array(states)).float()
    return states, torch.stack(pictures), pusht.render(states[None])[0]


@pytest.fixture(scope="module")
def episodes() -> pusht.Episodes:
    return pusht.sample_episodes(60, seed=3)


def _overlap(one: Tensor, other: Tensor) -> float:
    return float((one & other).sum() / (one | other).sum())


def _blue(frame: Tensor) -> Tensor:
    return frame[..., 2].int() - frame[..., 0].int() > 100


def _grey(frame: Tensor) -> Tensor:
    return (frame.int() - torch.tensor([131, 150, 168])).abs().amax(-1) < 25


def test_pictures_are_the_environments(drawn: tuple[Tensor, Tensor, Tensor]) -> None:
    _, theirs, ours = drawn
    assert ours.shape == theirs.shape == (12, 256, 256, 3)
    assert ours.dtype == torch.uint8
    for one, other in zip(ours, theirs, strict=True):
        assert float((one.float() - other.float()).abs().mean()) < 0.5
        assert _overlap(_blue(one), _blue(other)) > 0.9
        assert _overlap(_grey(one), _grey(other)) > 0.9


def test_pictures_do_not_depend_on_the_chunk(drawn: tuple[Tensor, Tensor, Tensor]) -> None:
    states, _, ours = drawn
    again = pusht.render(states.reshape(3, 4, 5), chunk=5)
    assert torch.equal(again.flatten(0, 1), ours)


def test_a_pusher_beyond_the_board_is_cut_off() -> None:
    states = torch.tensor([[[-400.0, 700.0, 256.0, 256.0, 0.0], [0.0, 0.0, 500.0, 10.0, 2.0]]])
    outside, corner = pusht.render(states)[0]
    assert not _blue(outside).any()
    assert _blue(corner)[:7, :7].any()


def test_pushers_are_found_in_pictures(drawn: tuple[Tensor, Tensor, Tensor]) -> None:
    states, theirs, ours = drawn
    for frames in (theirs, ours):
        for seen, truth in zip(pusht.positions_seen(frames), states[:, :2].tolist(), strict=True):
            assert seen is not None
            assert math.dist(seen, truth) < 2
    assert pusht.positions_seen(torch.full((1, 256, 256, 3), 255, dtype=torch.uint8)) == [None]


def test_a_few_stray_blue_pixels_do_no_harm(drawn: tuple[Tensor, Tensor, Tensor]) -> None:
    states, _, ours = drawn
    frame = ours[:1].clone()
    frame[0, ::50, ::50] = torch.tensor([65, 105, 225], dtype=torch.uint8)
    (seen,) = pusht.positions_seen(frame)
    assert seen is not None
    assert math.dist(seen, states[0, :2].tolist()) < 2


def test_reset_gives_the_state_asked_for() -> None:
    rng, simulator = np.random.default_rng(5), pusht.Simulator()
    for _ in range(5):
        state = pusht.sample_start("", rng)
        assert simulator.reset(state) == pytest.approx(state, abs=1e-6)


def test_the_gap_closes_at_contact() -> None:
    # The bar's outer edge is at y = 100 and the pusher's radius 15.
    states = torch.tensor([[200.0, 75.0, 200.0, 100.0, 0.0], [200.0, 85.0, 200.0, 100.0, 0.0]])
    assert pusht.gap(states).tolist() == pytest.approx([10.0, 0.0], abs=1e-4)


def test_episodes_follow_from_their_actions(episodes: pusht.Episodes) -> None:
    assert episodes.states.shape == (60, 17, 5)
    assert episodes.actions.shape == (60, 16, 2)
    assert episodes.actions.abs().max() <= 1
    assert sum(task == "" for task in episodes.tasks) == 30
    assert set(episodes.tasks) <= {"", *pusht.TASKS}
    simulator = pusht.Simulator()
    # Random pushers begin at rest, so their first frame is the whole truth.
    for index in [n for n, task in enumerate(episodes.tasks) if not task][:10]:
        states = [simulator.reset(episodes.states[index, 0].numpy())]
        states += [simulator.step(target) for target in pusht.to_world(episodes.actions[index]).numpy()]
        again = torch.from_numpy(np.array(states)).float()
        assert torch.allclose(again[:, :2], episodes.states[index, :, :2], atol=0.1)
    assert float((episodes.states[:, -1] - episodes.states[:, 0])[:, 2:4].norm(dim=1).gt(2).float().mean()) > 0.25


def test_episodes_do_not_depend_on_the_processes(monkeypatch: pytest.MonkeyPatch, episodes: pusht.Episodes) -> None:
    monkeypatch.setattr(pusht, "_PART", 6)
    one, two = (pusht.sample_episodes(12, seed=4, processes=processes) for processes in (1, 2))
    assert torch.equal(one.states, two.states)
    assert one.tasks == two.tasks
    assert not torch.equal(one.states, episodes.states[:12])


def test_episodes_survive_the_file(tmp_path: Path, episodes: pusht.Episodes) -> None:
    path = tmp_path / "episodes.npz"
    pusht.save_episodes(path, episodes)
    again = pusht.load_episodes(path)
    assert torch.equal(again.states, episodes.states)
    assert torch.equal(again.actions, episodes.actions)
    assert again.tasks == episodes.tasks
    assert path.stat().st_size < 200 * len(episodes)


@pytest.mark.parametrize("task", pusht.TASKS)
def test_experts_succeed(task: str) -> None:
    policy = pusht.ExpertPolicy(task)
    results = [pusht.rollout(task, policy, seed) for seed in range(10)]
    assert sum(success for success, _ in results) >= 9
    for success, states in results:
        assert success == pusht.done(task, states)


@pytest.mark.parametrize("task", [task for task in pusht.TASKS if task != "stand still"])
def test_standing_still_does_nothing(task: str) -> None:
    def stands(frame: Tensor, instruction: str) -> Tensor:
        assert frame.shape == (256, 256, 3)
        (seen,) = pusht.positions_seen(frame[None])
        return pusht.to_model(torch.tensor(seen)).expand(16, 2)

    success, states = pusht.rollout(task, stands, seed=1, chunks=1)
    assert not success
    assert states.shape == (17, 5)


def test_a_block_pushed_sideways_is_not_pushed_left() -> None:
    start = torch.tensor([50.0, 50.0, 250.0, 250.0, 0.0])
    moves = {"left": (-40.0, 20.0), "down": (-40.0, 60.0), "": (-20.0, 0.0)}
    for side, move in moves.items():
        states = torch.stack([start, start + torch.tensor([0.0, 0.0, *move, 0.0])])
        assert pusht.done("push left", states) == (side == "left")
        assert pusht.done("push down", states) == (side == "down")


def test_instructions_say_what_to_do() -> None:
    rng = random.Random(0)
    for task in pusht.TASKS:
        train = {pusht.instruction(task, rng) for _ in range(300)}
        heldout = {pusht.instruction(task, rng, "heldout") for _ in range(100)}
        assert len(train) >= 10
        assert not train & heldout
        for text in train | heldout:
            assert text[0].isupper()
            assert text.endswith(".")
            assert not set("[]{}|") & set(text)
    for template in pusht._INSTRUCTIONS.values():
        assert len(template["train"]) >= 6
        assert len(template["heldout"]) >= 2


def test_captions_say_what_happens() -> None:
    rng = random.Random(0)

    def told(dx: float, dy: float, bx: float = 0.0, turn: float = 0.0, x: float = 60.0) -> str:
        share = torch.linspace(0, 1, 17)[:, None]
        end = torch.tensor([dx, dy, bx, 0.0, turn])
        return pusht.caption(torch.tensor([x, 256.0, 300.0, 200.0, 0.0]) + share * end, rng)

    for _ in range(20):
        assert "right" in told(80, 10)
        assert re.search("up|top", told(0, -90))
        assert "left" in told(0, 0, bx=-40)
        assert " clockwise" in told(0, 0, turn=0.32)
        assert "counterclockwise" in told(0, 0, turn=-0.32)
        assert re.search("still|not|waits|othing", told(0, 0))
        assert re.search("touches|taps|meets|reaches", told(0, 0, x=280))
    for caption in (pusht.caption(state, rng, split) for split in ("train", "heldout") for state in _some_states()):
        assert not set("[]{}|") & set(caption)


def _some_states() -> Tensor:
    """Short paths ``[40, 3, 5]`` of all sorts."""
    generator = torch.Generator().manual_seed(0)
    first = 100 + 300 * torch.rand(40, 1, 5, generator=generator)
    return first + torch.cumsum(30 * torch.randn(40, 3, 5, generator=generator), 1)
