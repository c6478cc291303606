"""Draws what the Reasoner found over the picture it looked at."""

from __future__ import annotations

from PIL import Image, ImageDraw, ImageFont

from cosmos_demo.events import Answered, Box, Point
from cosmos_demo.reasoner.parse import UNIT, to_pixels

COLOURS = ("#76b900", "#ff4d8d", "#00b8d9", "#ffab00", "#8777d9", "#ff5630", "#36b37e", "#0065ff")
SMALLEST_SIDE = 640
"""Smaller pictures are enlarged before drawing, so that lines and labels stay legible."""


def draw(picture: Image.Image, answer: Answered) -> Image.Image:
    """The picture with the answer's boxes, points and trajectory; the original stays as it is."""
    canvas = picture.convert("RGB")
    scale = max(1, -(-SMALLEST_SIDE // max(canvas.size)))
    canvas = canvas.resize((canvas.width * scale, canvas.height * scale), Image.Resampling.LANCZOS)
    pen = ImageDraw.Draw(canvas)
    line = max(2, max(canvas.size) // 240)
    font = ImageFont.load_default(size=max(14, max(canvas.size) // 42))
    labels = list(dict.fromkeys(item.label for item in (*answer.boxes, *answer.points)))
    for box in answer.boxes:
        _box(pen, canvas.size, box, COLOURS[labels.index(box.label) % len(COLOURS)], line, font)
    for point in answer.points:
        _point(pen, canvas.size, point, COLOURS[labels.index(point.label) % len(COLOURS)], line, font)
    if answer.trajectory:
        _trajectory(pen, canvas.size, answer.trajectory, line)
    return canvas


def mark(picture: Image.Image, points: tuple[Point, ...]) -> Image.Image:
    """The picture with numbers 1, 2, … at these points, as the describe-anything task wants it."""
    numbered = tuple(Point(point.x, point.y, str(index)) for index, point in enumerate(points, 1))
    return draw(picture, Answered("", points=numbered))


def _place(point: Point, size: tuple[int, int]) -> tuple[float, float]:
    return point.x * size[0] / UNIT, point.y * size[1] / UNIT


def _box(
    pen: ImageDraw.ImageDraw, size: tuple[int, int], box: Box, colour: str, line: int, font: ImageFont.FreeTypeFont
) -> None:
    corners = to_pixels(box, *size)
    pen.rectangle(corners, outline=colour, width=line)
    _tag(pen, size, (corners[0], corners[1]), box.label, colour, font)


def _point(
    pen: ImageDraw.ImageDraw, size: tuple[int, int], point: Point, colour: str, line: int, font: ImageFont.FreeTypeFont
) -> None:
    x, y = _place(point, size)
    radius = 3 * line
    pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour, outline="white", width=line)
    _tag(pen, size, (x + radius, y - radius), point.label, colour, font)


def _trajectory(pen: ImageDraw.ImageDraw, size: tuple[int, int], points: tuple[Point, ...], line: int) -> None:
    places = [_place(point, size) for point in points]
    pen.line(places, fill=COLOURS[0], width=2 * line, joint="curve")
    for index, (x, y) in enumerate(places):
        radius = 3 * line if index in (0, len(places) - 1) else 2 * line
        colour = COLOURS[1] if index == len(places) - 1 else COLOURS[0]
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour, outline="white", width=line)


def _tag(
    pen: ImageDraw.ImageDraw,
    size: tuple[int, int],
    corner: tuple[float, float],
    text: str,
    colour: str,
    font: ImageFont.FreeTypeFont,
) -> None:
    """A label above the corner, kept within the picture."""
    if not text:
        return
    text = text[:40]
    left, top, right, bottom = pen.textbbox((0, 0), text, font=font)
    width, height = right - left + 8, bottom - top + 6
    x = min(max(0, corner[0]), max(0, size[0] - width))
    y = corner[1] - height if corner[1] >= height else corner[1]
    pen.rectangle((x, y, x + width, y + height), fill=colour)
    pen.text((x + 4 - left, y + 3 - top), text, fill="black", font=font)
