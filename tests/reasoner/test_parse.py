"""Good, partial and malformed model text."""

from __future__ import annotations

import pytest

from cosmos_demo.events import Box, Point, Span
from cosmos_demo.reasoner import parse

FENCED = '```json\n[{"bbox_2d": [214, 141, 497, 722], "label": "red ball"}]\n```'


@pytest.mark.parametrize(
    ("text", "boxes"),
    [
        (FENCED, [Box(214, 141, 497, 722, "red ball")]),
        ('{"bbox_2d": [1, 2, 3, 4], "label": "x"}', [Box(1, 2, 3, 4, "x")]),
        ('Here it is: [{"bbox": [1, 2, 3, 4], "name": "x"}] as asked.', [Box(1, 2, 3, 4, "x")]),
        ('[{"box": [3, 4, 1, 2]}]', [Box(1, 2, 3, 4, "")]),
        ('[{"bbox_2d": [-5, 10.6, 2000, "900"], "label": "x"}]', [Box(0, 11, 1000, 900, "x")]),
        ('[{"bbox_2d": "[1, 2, 3, 4]", "label": "x"}]', [Box(1, 2, 3, 4, "x")]),
        ('[{"bbox_2d": [1, 2, 3, 4], "label": "x"}, {"bbox_2d": [5, 6, 7', [Box(1, 2, 3, 4, "x")]),
        ('[{"bbox_2d": [1, 2, 3]}, {"bbox_2d": [1, 2, 3, 4]}, 7, "no"]', [Box(1, 2, 3, 4, "")]),
        ('Within [0, 1000]: [{"bbox_2d": [1, 2, 3, 4]}]', [Box(1, 2, 3, 4, "")]),
        ('{"bbox_2d": [1, 2, 3, 4]}\n{"bbox_2d": [5, 6, 7, 8]}', [Box(1, 2, 3, 4, ""), Box(5, 6, 7, 8, "")]),
        ('{"objects": [{"bbox_2d": [1, 2, 3, 4], "label": "x"}]}', [Box(1, 2, 3, 4, "x")]),
        ('{"objects": [{"bbox_2d": [1, 2, 3, 4], "label": "x"}, {"bbox_2d": [5, 6, 7, 8], "la', [Box(1, 2, 3, 4, "x")]),
        ("[{'bbox_2d': [9, 9, 9, 9]}, {\"bbox_2d\": [1, 2, 3, 4]}]", [Box(1, 2, 3, 4, "")]),
    ],
)
def test_boxes(text: str, boxes: list[Box]):
    read = parse.read("grounding", text)
    assert list(read.boxes) == boxes
    assert read.note == ""


@pytest.mark.parametrize(
    "text",
    ["", "There is no ball.", "[{", '[{"bbox_2d": ["a", 1, 2, 3]}]', '[{"bbox_2d": null}]', "[[1, 2, 3, 4]]",
     f'[{{"bbox_2d": [{"9" * 400}, 1, 2, 3]}}]',
     '[{"bbox_2d": [NaN, 1, 2, 3]}]', '[{"bbox_2d": [true, 1, 2, 3]}]', '[{"bbox_2d": [1e999, 1, 2, 3]}]', "[" * 5000],
)  # fmt: skip
def test_what_holds_no_boxes_is_noted(text: str):
    read = parse.read("grounding", text)
    assert read.boxes == ()
    assert "shown as it is" in read.note


def test_points_and_trajectories():
    text = '[{"point_2d": [713, 680], "label": "gripper trajectory"}, {"point_2d": [500, 1001]}]'
    assert parse.read("pointing", text).points == (Point(713, 680, "gripper trajectory"), Point(500, 1000, ""))
    read = parse.read("trajectory", text)
    assert read.trajectory == (Point(713, 680, "gripper trajectory"), Point(500, 1000, ""))
    assert read.points == ()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(1.5, 1.5), ("00:13.30", 13.3), ("01:02:03", 3723), ("7", 7), ("2.5s", 2.5), ("1:00", 60), ("x", None), ("", None),
     (None, None), (True, None), ("-1", None), ("1:2:3:4", None), ("nan", None), ("1:-5", None), ("1.5 seconds", 1.5),
     ("00:05,70", 5.7), (float("inf"), None), ("9" * 400, None), ([1], None)],
)  # fmt: skip
def test_times(value: object, seconds: float | None):
    assert parse.seconds(value) == (None if seconds is None else pytest.approx(seconds))


def test_spans_in_seconds_and_clock_form():
    text = '```json\n[{"start": 0.1, "end": 2.7, "caption": "a"}, {"start": "00:05.70", "end": "00:03.10"}]\n```'
    assert parse.read("temporal-localization", text).spans == (Span(0.1, 2.7, "a"), Span(3.1, 5.7, ""))
    assert parse.read("timestamp-query", '{"start": "00:13.30"}').spans == (Span(13.3, 13.3, ""),)


def test_unreadable_entries_are_counted_and_the_rest_kept():
    text = '[{"start": "soon"}, {"start": 1, "end": 2, "caption": "b"}, 5]'
    read = parse.read("event-timeline", text)
    assert read.spans == (Span(1, 2, "b"),)
    assert read.note == "1 of 2 events had no readable time."
    assert parse.read("event-timeline", "nothing").note.startswith("No events could be read")
    assert parse.read("event-timeline", "```json\n[]\n```").note == "The Reasoner found no events."


@pytest.mark.parametrize(
    ("text", "label"),
    [("(A) Possible", "Possible"), ("B", "Impossible"), ("B. Impossible", "Impossible"),
     ("The answer is (B)", "Impossible"),
     ("It is impossible.", "Impossible"), ("Possible", "Possible"), ("possible or impossible", None), ("Maybe", None),
     ("A ball vanishes, so it is impossible.", "Impossible"), ("**B**", "Impossible"), ("Answer: A", "Possible"),
     ("This is not possible.", None), ("It isn't physically possible.", None), ("Answer: A ball.", None),
     ("(A) or (B)?", None)],
)  # fmt: skip
def test_plausibility(text: str, label: str | None):
    read = parse.read("physical-plausibility", text)
    assert read.label == label
    assert bool(read.note) is (label is None)


def test_driving_labels():
    assert parse.read("driving-chain-of-thought", "Stop - yield to pedestrian").label == "Stop - yield to pedestrian"
    said = "The lane - mine - is blocked.\n\nStop - yield to pedestrian\n**Lane change - left**"
    assert parse.read("driving-chain-of-thought", said).label == "Lane change - left"
    assert parse.read("driving-chain-of-thought", "Just drive").label is None


def test_subjects():
    text = '[{"subject_id": 2, "category": "ski", "caption": "A red ski."}, {"x": 1}]'
    assert parse.read("describe-anything", text).subjects == (
        {"subject_id": "2", "category": "ski", "caption": "A red ski."},
    )


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('Sure: {"a": "x, }", "b": [1, {"c": 2}], "d": "cut', {"a": "x, }", "b": [1, {"c": 2}]}),
        ('{"a": "say \\"hi\\", you", "b": [1, 2', {"a": 'say "hi", you'}),
        ('{"a": "only one, cut', {}),
        ('{"a": 1}', {}),
        ("[1, 2", {}),
        ("", {}),
        ("{{{{,", {}),
    ],
)
def test_objects_cut_short_keep_their_complete_entries(text: str, kept: dict[str, object]):
    assert parse.cut_object(text) == kept


def test_free_text_is_left_alone():
    assert parse.read("chat", '[{"bbox_2d": [1, 2, 3, 4]}]') == parse.Parsed()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Two.", ("", "Two.", True)),
        ("<think>One, two.</think>\nTwo.", ("One, two.", "Two.", True)),
        ("One, two.</think>Two.", ("One, two.", "Two.", True)),
        ("<think>a</think>b</think>c", ("ab", "c", True)),
        ("<think>One, tw", ("One, tw", "", False)),
        ("<think>x</think><answer>Two.</answer>", ("x", "Two.", True)),
    ],
)
def test_thinking_is_split_at_the_last_closing_tag(text: str, parts: tuple[str, str, bool]):
    assert parse.split_thinking(text) == parts


def test_pixels_use_each_axis_by_itself():
    assert parse.to_pixels(Box(0, 0, 1000, 1000, ""), 320, 192) == (0, 0, 320, 192)
    assert parse.to_pixels(Box(250, 500, 501, 501, ""), 320, 192) == (80, 96, 161, 97)
    assert parse.to_pixels(Box(1000, 1000, 1000, 1000, ""), 320, 192) == (319, 191, 320, 192)
