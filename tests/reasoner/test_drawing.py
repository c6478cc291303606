"""What was found lands in the right place on the picture."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageColor

from cosmos_demo.events import Answered, Box, Point
from cosmos_demo.reasoner import drawing

GREY = Image.new("RGB", (320, 192), (120, 120, 120))
FIRST = np.array(ImageColor.getrgb(drawing.COLOURS[0]))


def _changed(picture: Image.Image) -> np.ndarray:
    return (np.asarray(picture) != 120).any(-1)


def test_a_box_is_drawn_at_its_thousandths_of_each_axis():
    drawn = drawing.draw(GREY, Answered("", boxes=(Box(250, 500, 750, 1000, ""),)))
    assert drawn.size == (640, 384)
    rows, columns = np.nonzero(_changed(drawn))
    assert (columns.min(), columns.max()) == pytest.approx((160, 480), abs=1)
    assert (rows.min(), rows.max()) == pytest.approx((192, 383), abs=1)
    assert (np.asarray(drawn)[250, 161] == FIRST).all()


def test_points_and_trajectories_are_drawn_where_they_are():
    for found in ({"points": (Point(500, 500, ""),)}, {"trajectory": (Point(500, 500, ""), Point(500, 500, ""))}):
        rows, columns = np.nonzero(_changed(drawing.draw(GREY, Answered("", **found))))
        assert (columns.mean(), rows.mean()) == pytest.approx((320, 192), abs=1.5)


def test_labels_stay_inside():
    corner = drawing.draw(GREY, Answered("", boxes=(Box(990, 0, 1000, 10, "a long label indeed"),)))
    assert _changed(corner)[:30, 400:].any()


def test_marks_are_numbered_and_the_original_is_untouched():
    marked = drawing.mark(GREY, (Point(100, 100, "x"), Point(900, 900, "y")))
    assert _changed(marked).sum() > 200
    assert not _changed(GREY).any()


def test_large_pictures_keep_their_size():
    assert drawing.draw(Image.new("RGB", (1280, 720)), Answered("")).size == (1280, 720)
