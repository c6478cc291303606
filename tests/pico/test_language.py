"""Words against the truth they are made from."""

from __future__ import annotations

import random
import re

import pytest
import torch

from cosmos_demo.pico import language, world
from cosmos_demo.pico.language import Scene
from cosmos_demo.reasoner import parse


@pytest.fixture(scope="module")
def stills() -> list[Scene]:
    return language.scenes(world.sample_stills(200, torch.Generator().manual_seed(0)))


@pytest.fixture(scope="module")
def videos() -> list[Scene]:
    return language.scenes(world.sample_videos(200, 17, 10, torch.Generator().manual_seed(1)))


def _plain(text: str) -> str:
    """The text in the words that answers use."""
    for word, others in language.SYNONYMS.items():
        for other in others:
            text = re.sub(rf"\b{other}(e?s)?\b", lambda found, word=word: word + ("s" if found[1] else ""), text)
    return text


def _named(text: str) -> list[str]:
    """Names such as ``red ball`` in a text, in plural as often as its number says."""
    numbers = {word: number for number, word in enumerate(language.NUMBERS)}
    colours, shapes = "|".join(language.COLOURS), "|".join(language.SHAPES)
    found = []
    for match in re.finditer(rf"(?:(\w+) )?(?:(?:small|large) )?\b({colours}) ({shapes})(s?)\b", _plain(text)):
        found += [f"{match[2]} {match[3]}"] * (numbers[match[1]] if match[4] else 1)
    return sorted(found)


def test_captions_name_exactly_the_objects(stills: list[Scene]):
    rng = random.Random(0)
    for scene in stills:
        names = sorted(thing.name for thing in scene.things)
        assert _named(language.caption_image(scene, rng).lower()) == names
        assert _named(language.describe(scene)) == names


def test_counts_and_places_by_hand():
    def thing(colour: str, shape: str, x: float) -> language.Thing:
        return language.Thing(shape, colour, "small", (x - 15, 120, x + 15, 150), (x,), (135,), (True,))

    scene = Scene((thing("red", "ball", 40), thing("red", "cube", 160), thing("blue", "ball", 300)))
    assert language.describe(scene) == (
        "There are three objects on a wooden table: a small red ball on the left, a small red cube in the middle and "
        "a small blue ball on the right."
    )
    answers = {language.question(scene, random.Random(seed), "count of")[1:] for seed in range(200)}
    asked = {(re.search(r"(balls|cubes|pyramids|\w+ objects)", q)[1], a) for q, a in answers}
    assert ("balls", "There are two balls.") in asked
    assert ("red objects", "There are two red objects.") in asked
    assert ("cubes", "There is one cube.") in asked
    assert all(a.startswith("There are no") for what, a in asked if what in ("pyramids", "green objects"))


def test_boxes_and_points_parse_to_the_truth(stills: list[Scene]):
    rng = random.Random(2)
    for scene in stills:
        _, _, answer = language.question(scene, rng, "boxes")
        truth = {tuple(language._unit(thing.box)) for thing in scene.things}
        found = parse.read("grounding", answer).boxes
        assert found
        assert {(box.x1, box.y1, box.x2, box.y2) for box in found} <= truth
        _, _, answer = language.question(scene, rng, "points")
        for point in parse.read("pointing", answer).points:
            assert any(x1 < point.x < x2 and y1 < point.y < y2 for x1, y1, x2, y2 in truth)


def test_exists_agrees_with_the_scene(stills: list[Scene]):
    rng = random.Random(3)
    for scene in stills:
        _, asked, answer = language.question(scene, rng, "exists")
        (name,) = _named(asked)
        assert answer.startswith("Yes") == (name in {thing.name for thing in scene.things})


def test_timelines_parse_to_the_impacts(videos: list[Scene]):
    rng = random.Random(4)
    told = 0
    for scene in videos:
        _, _, answer = language.video_question(scene, rng, "timeline")
        spans = parse.read("event-timeline", answer).spans
        events = language.events(scene)[:6]
        assert len(spans) == len(events)
        for span, (start, end, caption) in zip(spans, events, strict=True):
            assert (span.start, span.end) == pytest.approx((start, end), abs=0.006)
            assert span.caption == caption
        told += len(spans)
    assert told > 100


def test_motion_says_the_direction(videos: list[Scene]):
    for scene in videos:
        for thing in scene.things:
            words = language.motion(thing, scene)
            if thing.travelled > language.MOVED:
                assert "to the right" in words
            elif thing.travelled < -language.MOVED:
                assert "to the left" in words
            else:
                assert not re.search("to the (left|right)", words)


def test_plausibility_follows_the_kind():
    rng = random.Random(5)
    for implausible, letter in ((False, "Possible"), (True, "Impossible")):
        clips = world.sample_videos(20, 9, 10, torch.Generator().manual_seed(6), implausible=implausible)
        for scene in language.scenes(clips):
            _, _, answer = language.video_question(scene, rng, "plausible")
            assert parse.read("physical-plausibility", answer).label == letter


def test_heldout_questions_use_no_training_wording(stills: list[Scene]):
    """Compared with the objects' own words taken out."""
    rng = random.Random(8)
    asked: dict[str, set[str]] = {"train": set(), "heldout": set()}
    for kind in [kind for kind in language.KINDS if kind != "describe"]:
        for split, seen in asked.items():
            made = (language.question(scene, rng, kind, split) for scene in stills)
            seen |= {f"{kind}: {_blank(question[1])}" for question in made if question}
    assert len(asked["train"]) > 50
    assert len(asked["heldout"]) > 15
    assert not asked["train"] & asked["heldout"]


def _blank(text: str) -> str:
    words = "|".join((*language.COLOURS, *language.SHAPES, "left", "right"))
    return re.sub(rf"\b({words})", "_", text)


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_captions_of_either_split_name_exactly_the_objects(stills: list[Scene], videos: list[Scene], split: str):
    rng = random.Random(9)
    for scenes, caption in ((stills, language.caption_image), (videos, language.caption_video)):
        for scene in scenes:
            assert _named(caption(scene, rng, split).lower()) == sorted(thing.name for thing in scene.things)


def test_a_camera_is_told_of_one_object_only():
    rng = random.Random(10)
    told = 0
    for scene in language.scenes(world.sample_camera(1000, 17, 10, torch.Generator().manual_seed(11))[0]):
        text = language.caption_camera(scene, rng)
        if named := _named(f"a {text.lower()}"):
            told += 1
            assert named == [scene.target.name]
            twins = [thing for thing in scene.things if thing.name == scene.target.name]
            assert len(twins) == 1 or scene.target.size in _plain(text)
    assert told > 300


def test_a_scene_without_such_a_question_is_refused(stills: list[Scene]):
    with pytest.raises(ValueError, match="no question of the kinds when"):
        language.asked(stills[0], random.Random(11), ["when"])


def test_thinking_comes_before_the_answer_and_is_asked_for(stills: list[Scene]):
    prompt, answer = language.asked(stills[0], random.Random(7), ["count"], reasoning=1.0)
    thinking, text, closed = parse.split_thinking(answer)
    assert "<think>" in prompt
    assert closed
    assert _named(thinking) == sorted(thing.name for thing in stills[0].things)
    assert text == language.question(stills[0], random.Random(7), "count")[2]


TEMPLATES = {name: value for name, value in vars(language).items() if isinstance(value, dict) and "heldout" in value}


def test_templates_give_hundreds_of_wordings_and_none_in_both_splits():
    every = 0
    for name, splits in TEMPLATES.items():
        train = {form for template in splits["train"] for form in language.forms(template)}
        heldout = {form for template in splits["heldout"] for form in language.forms(template)}
        assert not train & heldout, name
        every += len(train)
    assert len(TEMPLATES) > 12
    assert every > 500


def test_a_template_of_choices_by_hand():
    assert language.forms("a [b|c[ d|]] e") == ["a b e", "a c d e", "a b e", "a c e"]
    assert language.say("a [b|c] d", random.Random(0)) in {"a b d", "a c d"}


def test_hasty_typing_keeps_every_word_that_matters():
    rng = random.Random(3)
    for _ in range(200):
        assert {"color", "large", "cube"} <= set(
            re.findall(r"\w+", language.loosened("What color is the large cube?", rng, 1))
        )
