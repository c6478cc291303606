"""Decode and encode pictures, video and sound, within limits; every file the app writes or reads passes here."""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import av
import numpy as np
from av.video.reformatter import ColorPrimaries, ColorRange, Colorspace, ColorTrc, Interpolation
from PIL import Image, ImageOps, PngImagePlugin

from cosmos_demo.errors import RequestError

MIN_SIDE = 16
"""Pixels; the smallest patch either head can see."""
MAX_ASPECT = 100
"""Longer side over shorter side; the Reasoner's processor refuses 200."""
MAX_IMAGE_BYTES = 64 * 2**20
MAX_IMAGE_PIXELS = 40_000_000
MAX_VIDEO_BYTES = 2**30
MAX_SOURCE_PIXELS = 40_000_000
"""Pixels of a frame as stored; 8K video has 33 million."""
MAX_FRAME_PIXELS = 2**20
"""Pixels of a frame as returned; about the largest tier of the Generator (1360x768)."""
MAX_CLIP_PIXELS = 300 * 1280 * 720
"""Pixels of a whole clip as returned, 3 bytes each; longer clips get smaller frames."""
MAX_FRAMES = 300
"""The Generator's longest clip."""
MAX_SECONDS = 600.0
MAX_PACKETS = 500_000
MAX_JSON_BYTES = 4 * 2**20
MAX_JPEG_COMMENT = 65_533
"""Bytes; the length field of a JPEG segment has 16 bits and counts itself."""
RECORD_KEY = "cosmos_demo"
"""Name of the PNG text chunk with the record; the other formats use their comment."""

_PICTURES = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
_CONTAINERS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,flv,asf,ogg,gif,wav"
"""Playlists and the like are left out: they make the reader open other files and addresses."""
_READING: dict[str, Any] = {
    "container_options": {"format_whitelist": _CONTAINERS, "protocol_whitelist": "file"},
    "metadata_errors": "replace",
}
_SHARP = Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT | Interpolation.FULL_CHR_H_INP


@dataclass(frozen=True)
class Clip:
    """Decoded frames.

    Attributes:
        frames: uint8 ``[T, H, W, 3]``.
        fps: Frames per second of ``frames``.
        times: Seconds of each frame in the original file, ``[T]`` float64; timestamps in answers refer to these.
    """

    frames: np.ndarray
    fps: float
    times: np.ndarray


@dataclass(frozen=True)
class Probe:
    """What a video file holds: seconds, upright size in square pixels, frames, their mean rate, whether it sounds."""

    duration: float
    width: int
    height: int
    frames: int
    fps: float
    has_sound: bool


def read_image(path: str | Path, field: str = "image") -> Image.Image:
    """Read a PNG, JPEG, WebP, BMP or GIF (first frame) as an upright RGB picture, transparency over white.

    Raises:
        RequestError: naming ``field``, for a file that is missing, too large, damaged or of another kind, and for
            pictures under 16 pixels a side, over 40 megapixels or thinner than 1:100.
    """
    path = _checked_file(path, MAX_IMAGE_BYTES, field)
    try:
        with Image.open(path, formats=_PICTURES) as image:
            _check_size(image.width, image.height, MAX_IMAGE_PIXELS, "picture", field)
            image.load()
            return _flat_rgb(ImageOps.exif_transpose(image))
    except RequestError:
        raise
    except Image.UnidentifiedImageError:
        raise RequestError(field, "Not a picture the app can read; PNG, JPEG, WebP, BMP and GIF work.") from None
    except Image.DecompressionBombError:
        raise RequestError(field, f"The picture is larger than {MAX_IMAGE_PIXELS // 10**6} megapixels.") from None
    except Exception as error:  # decoders of hostile bytes raise errors of every kind
        raise RequestError(field, "The picture is damaged or cut off; export or upload it again.") from error


def probe(path: str | Path, field: str = "video") -> Probe:
    """Look into a video without decoding more than a frame. Raises like `read_clip`."""
    with _opened(path, field) as (container, stream):
        timeline = _timeline(container, stream, field)
        width, height = _upright_size(_first_frame(container, stream, field), stream)
        return Probe(timeline.end, width, height, len(timeline.times), timeline.fps, bool(container.streams.audio))


def read_clip(
    path: str | Path,
    fps: float | None = None,
    max_frames: int = MAX_FRAMES,
    max_seconds: float = MAX_SECONDS,
    keep: Literal["all", "first", "last"] = "all",
    even: bool = False,
    field: str = "video",
) -> Clip:
    """Read frames of a video, upright and in square pixels, larger ones scaled down.

    Args:
        path: Any common container (MP4, MOV, WebM, MKV, AVI, GIF and so on).
        fps: Rate to sample at; the frame on screen at each instant is taken, so a rate above the file's repeats frames.
            ``None`` takes every frame once.
        max_frames: Most frames returned. With ``keep="all"`` and a rate, a longer clip is sampled more thinly.
        max_seconds: Longest file read as a whole (``keep="all"``).
        keep: ``all``, or the ``first`` or ``last`` ``max_frames`` frames; only that end is decoded.
        even: Show the last frame twice where the count is odd (the Reasoner takes frames in pairs).
        field: Request field that errors name.

    Raises:
        RequestError: for a file that is missing, too large or long, damaged, cut off, no video, or without pictures.
    """
    with _opened(path, field) as (container, stream):
        timeline = _timeline(container, stream, field, max_seconds if keep == "all" else math.inf)
        times, rate = _instants(timeline.times, timeline.end, timeline.fps, fps, max_frames, keep)
        if len(times) > max_frames:
            raise RequestError(
                field, f"The video has {len(times)} frames; at most {max_frames} work. Shorten it or sample it."
            )
        frames = _decode(container, stream, timeline, times, field)
    return _evened(Clip(frames, rate, times)) if even else Clip(frames, rate, times)


def sample_clip(clip: Clip, fps: float, max_frames: int = MAX_FRAMES, even: bool = False) -> Clip:
    """Sample a decoded clip at ``fps``, more thinly where that gives over ``max_frames``; see `read_clip`."""
    times, rate = _instants(clip.times, clip.times[-1] + 1 / clip.fps, clip.fps, fps, max_frames, "all")
    shown = np.searchsorted(clip.times, times + _TICK, side="right") - 1
    sampled = Clip(clip.frames[np.maximum(shown, 0)], rate, times)
    return _evened(sampled) if even else sampled


def fit_sound(sound: np.ndarray, samples: int) -> np.ndarray:
    """Cut ``[channels, n]`` sound to ``samples``, or pad its end with silence."""
    kept = sound[:, :samples]
    return np.pad(kept, ((0, 0), (0, samples - kept.shape[1])))


def write_image(path: str | Path, frame: np.ndarray, record: Mapping[str, Any] | None = None) -> Path:
    """Write uint8 ``[H, W, 3]`` as PNG, or as JPEG where the name ends so, with its record.

    Raises:
        ValueError: for a record over 65,533 bytes in a JPEG.
    """
    image = Image.fromarray(frame)
    with _replacing(path) as part:
        if Path(path).suffix.lower() in {".jpg", ".jpeg"}:
            comment = _text(record).encode() if record else b""
            if len(comment) > MAX_JPEG_COMMENT:
                raise ValueError(f"The record has {len(comment)} bytes; a JPEG holds {MAX_JPEG_COMMENT}.")
            image.save(part, "JPEG", quality=95, subsampling=0, comment=comment)
        else:
            chunks = PngImagePlugin.PngInfo()
            if record:
                chunks.add_itxt(RECORD_KEY, _text(record))
            image.save(part, "PNG", pnginfo=chunks)
    return Path(path)


def write_video(
    path: str | Path,
    frames: np.ndarray,
    fps: float | Fraction,
    sound: np.ndarray | None = None,
    sample_rate: int | None = None,
    record: Mapping[str, Any] | None = None,
) -> Path:
    """Write an MP4 that plays everywhere: H.264 (yuv420p, BT.709), AAC, index at the front; same input, same bytes.

    Args:
        path: Where to write; it appears only when complete.
        frames: uint8 ``[T, H, W, 3]``; odd sides grow by one repeated row or column, which 4:2:0 needs.
        fps: Exact rate; give a `Fraction` for 30000/1001 and its like.
        sound: float ``[1 or 2, samples]`` in -1 to 1, cut or padded to the length of the frames.
        sample_rate: Of ``sound`` in Hz, one that AAC knows (8000 to 96000).
        record: Goes into the comment of the container.
    """
    count, height, width = frames.shape[:3]
    rate = Fraction(fps).limit_denominator(1001)
    padding = ((0, 0), (0, height % 2), (0, width % 2), (0, 0))
    frames = np.pad(frames, padding, mode="edge") if height % 2 or width % 2 else frames
    options = {"movflags": "+faststart", "fflags": "+bitexact"}
    with _replacing(path) as part, av.open(f"file:{part}", "w", format="mp4", options=options) as container:
        if record:
            container.metadata["comment"] = _text(record)
        # mbtree off: with it x264 gives other bytes on every run.
        picture = container.add_stream("libx264", rate=rate, options={"crf": "16", "preset": "fast", "mbtree": "0"})
        picture.width, picture.height, picture.pix_fmt = frames.shape[2], frames.shape[1], "yuv420p"
        coder = picture.codec_context
        coder.time_base, coder.thread_count = 1 / rate, 4  # a fixed count: x264's output depends on it
        coder.flags |= av.codec.context.Flags.bitexact
        coder.colorspace, coder.color_range = 1, ColorRange.MPEG  # 1 is BT.709
        coder.color_primaries, coder.color_trc = ColorPrimaries.BT709, ColorTrc.BT709
        voice = None
        if sound is not None and sample_rate:
            sound = np.clip(fit_sound(sound, round(count / rate * sample_rate)), -1, 1).astype(np.float32)
            layout = {1: "mono", 2: "stereo"}[sound.shape[0]]
            voice = container.add_stream("aac", rate=sample_rate, layout=layout)
            voice.codec_context.flags |= av.codec.context.Flags.bitexact
            voice.bit_rate = min(96_000, 3 * sample_rate) * sound.shape[0]
        for index, frame in enumerate(frames):
            image = av.VideoFrame.from_ndarray(frame, format="rgb24").reformat(
                format="yuv420p",
                dst_colorspace=Colorspace.ITU709,
                dst_color_range=ColorRange.MPEG,
                interpolation=Interpolation.BICUBIC | _SHARP,
            )
            image.pts, image.time_base = index, 1 / rate
            container.mux(picture.encode(image))
            if voice and sample_rate:
                start, stop = (round(edge / rate * sample_rate) for edge in (index, index + 1))
                if stop > start:
                    container.mux(voice.encode(_sound_frame(sound[:, start:stop], start, sample_rate, layout, "fltp")))
        for stream in filter(None, (picture, voice)):
            container.mux(stream.encode(None))
    return Path(path)


def write_exact_video(path: str | Path, frames: np.ndarray, fps: float | Fraction) -> Path:
    """Write an MP4 whose frames, uint8 ``[T, H, W, 3]``, decode to the very same numbers; few players show it."""
    rate = Fraction(fps).limit_denominator(1001)
    with _replacing(path) as part, av.open(f"file:{part}", "w", format="mp4") as container:
        picture = container.add_stream("libx264rgb", rate=rate, options={"qp": "0", "preset": "ultrafast"})
        picture.height, picture.width, picture.pix_fmt = *frames.shape[1:3], "rgb24"
        for index, frame in enumerate(frames):
            image = av.VideoFrame.from_ndarray(frame, format="rgb24")
            image.pts, image.time_base = index, 1 / rate
            container.mux(picture.encode(image))
        container.mux(picture.encode(None))
    return Path(path)


def read_sound(path: str | Path, field: str = "video") -> tuple[np.ndarray, int] | tuple[None, None]:
    """Read the sound of a video: float32 ``[channels, samples]`` and Hz, or twice ``None`` without any.

    Raises like `read_clip`.
    """
    with _opened(path, field) as (container, _):
        if not container.streams.audio:
            return None, None
        heard = container.streams.audio[0]
        resampler = av.AudioResampler(format="fltp", layout=heard.layout, rate=heard.rate)
        decoded = (part for frame in container.decode(heard) for part in resampler.resample(frame))
        pieces = [part.to_ndarray() for part in decoded]
        return np.concatenate(pieces, axis=1), int(heard.rate)


def write_sound(path: str | Path, sound: np.ndarray, rate: int, record: Mapping[str, Any] | None = None) -> Path:
    """Write float ``[1 or 2, samples]`` in -1 to 1 as a 16-bit WAV, with its record as the comment."""
    samples = np.round(np.clip(sound, -1, 1) * 32767).astype(np.int16)
    layout = {1: "mono", 2: "stereo"}[sound.shape[0]]
    with (
        _replacing(path) as part,
        av.open(f"file:{part}", "w", format="wav", options={"fflags": "+bitexact"}) as container,
    ):
        if record:
            container.metadata["comment"] = _text(record)
        stream = container.add_stream("pcm_s16le", rate=rate, layout=layout)
        packed = samples.T.reshape(1, -1)
        container.mux(stream.encode(_sound_frame(packed, 0, rate, layout, "s16")))
        container.mux(stream.encode(None))
    return Path(path)


def write_json(path: str | Path, data: Mapping[str, Any], record: Mapping[str, Any] | None = None) -> Path:
    """Write JSON-safe ``data``, with the record under the key ``record``."""
    with _replacing(path) as part:
        content = {**data, "record": record} if record else dict(data)
        part.write_text(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False), encoding="utf-8")
    return Path(path)


def read_comment(path: str | Path, field: str = "file") -> str:
    """Return the text in which a PNG, JPEG, MP4 or WAV carries its record, or a JSON file's own; empty if none.

    Raises:
        RequestError: naming ``field``, for a file that is missing, too large or of none of these kinds.
    """
    path = _checked_file(path, MAX_VIDEO_BYTES, field)
    with path.open("rb") as file:
        head = file.read(64)
    try:
        if head.startswith((b"\x89PNG", b"\xff\xd8")):
            with Image.open(path, formats=("PNG", "JPEG")) as image:
                text = image.info.get(RECORD_KEY) or image.info.get("comment") or ""
                return text.decode() if isinstance(text, bytes) else str(text)
        if head.lstrip().startswith((b"{", b"[")):
            return _checked_file(path, MAX_JSON_BYTES, field).read_text(encoding="utf-8")
        with av.open(f"file:{path}", **_READING) as container:
            return container.metadata.get("comment", "")
    except RequestError:
        raise
    except Exception as error:  # as above
        raise RequestError(
            field, "Can't be read for its record; PNG, JPEG, MP4, WAV and JSON files written by the app work."
        ) from error


# What follows serves the functions above.

_TICK = 1e-4
"""Seconds; containers round timestamps, some to the millisecond, and all to far less than half a frame."""


@dataclass(frozen=True)
class _Timeline:
    """When the frames of a stream show: seconds from its start, ascending, the end of the last, and the mean rate."""

    times: np.ndarray
    end: float
    fps: float


def _checked_file(path: str | Path, most: int, field: str) -> Path:
    path = Path(path)
    if not path.is_file():
        raise RequestError(field, "There is no such file; upload it again.")
    size = path.stat().st_size
    if size == 0:
        raise RequestError(field, "The file is empty.")
    if size > most:
        raise RequestError(field, f"The file has {size / 2**20:.0f} MB; at most {most // 2**20} MB work.")
    return path


def _check_size(width: int, height: int, most: int, what: str, field: str) -> None:
    if min(width, height) < MIN_SIDE:
        raise RequestError(field, f"The {what} is {width}x{height}; both sides must have at least {MIN_SIDE} pixels.")
    if width * height > most:
        raise RequestError(field, f"The {what} is {width}x{height}; at most {most // 10**6} megapixels work.")
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise RequestError(field, f"The {what} is {width}x{height}; one side may be {MAX_ASPECT} times the other.")


def _flat_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        # Pillow clips 16-bit greys instead of scaling them.
        image = Image.fromarray((np.asarray(image).astype(np.uint32) >> 8).clip(0, 255).astype(np.uint8))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


@contextmanager
def _opened(path: str | Path, field: str) -> Iterator[tuple[av.container.InputContainer, av.VideoStream]]:
    """Open a video safely; what FFmpeg or hostile numbers raise inside the block becomes `RequestError`."""
    path = _checked_file(path, MAX_VIDEO_BYTES, field)
    with path.open("rb") as file:
        if _cut_off(file.read(12), path):
            raise RequestError(field, "The video is cut off; export or upload it again.")
    try:
        with av.open(f"file:{path}", **_READING) as container:
            if not container.streams.video:
                raise RequestError(field, "The file has no picture track; a video is needed.")
            stream = container.streams.video[0]
            if stream.codec_context is None:
                raise RequestError(field, "The video is in a format the app can't decode; MP4 with H.264 works.")
            _check_size(stream.width, stream.height, MAX_SOURCE_PIXELS, "video", field)
            stream.codec_context.options = {"max_pixels": str(MAX_SOURCE_PIXELS)}
            stream.thread_type = "AUTO"
            yield container, stream
    except (av.FFmpegError, ValueError, ArithmeticError) as error:
        raise RequestError(
            field, "Not a video the app can read, or a damaged one; MP4, MOV, WebM, MKV, AVI and GIF work."
        ) from error


def _cut_off(head: bytes, path: Path) -> bool:
    """Whether an MP4 or MOV ends before its boxes do; FFmpeg would just show fewer frames."""
    if head[4:8] != b"ftyp":
        return False
    size = path.stat().st_size
    with path.open("rb") as file:
        start = 0
        while start < size:
            file.seek(start)
            header = file.read(16)
            length = int.from_bytes(header[:4], "big")
            if length == 1:
                length = int.from_bytes(header[8:16], "big")
            elif length == 0:
                length = size - start
            if length < 8:
                return True
            start += length
    return start > size


def _timeline(
    container: av.container.InputContainer, stream: av.VideoStream, field: str, max_seconds: float = math.inf
) -> _Timeline:
    """Read the packets' clocks without decoding: headers may lack or misstate length and rate."""
    long = f"The video is longer than {max_seconds:g} s; cut it first."
    if (container.duration or 0) / av.time_base > max_seconds + 1:
        raise RequestError(field, long)
    origin = _origin(container)
    starts, end = [], 0.0
    for packet in container.demux(stream):
        clock = packet.dts if packet.pts is None or _lacks_clock(container) else packet.pts
        if clock is None or packet.is_discard or not packet.size:
            continue
        starts.append(float(clock * stream.time_base) - origin)
        end = max(end, starts[-1] + float((packet.duration or 0) * stream.time_base))
        if len(starts) > MAX_PACKETS or starts[-1] > max_seconds:
            raise RequestError(field, long if starts[-1] > max_seconds else f"Over {MAX_PACKETS} frames; cut it first.")
    container.seek(0)
    if not starts:
        raise RequestError(field, "The video has no frames.")
    times = np.unique(np.array(starts))
    span = times[-1] - times[0]
    rate = (len(times) - 1) / span if span > 0 else float(stream.average_rate or 1)
    return _Timeline(times, max(end, float(times[-1]) + _TICK), round(float(rate), 3))


def _lacks_clock(container: av.container.InputContainer) -> bool:
    """AVI stores no display times and FFmpeg's guesses come out of order, so its frames are counted."""
    return container.format.name == "avi"


def _origin(container: av.container.InputContainer) -> float:
    """Seconds on the container's clock at which players show 0."""
    return (container.start_time or 0) / av.time_base


def _instants(
    times: np.ndarray, end: float, own_rate: float, fps: float | None, max_frames: int, keep: str
) -> tuple[np.ndarray, float]:
    """Choose the instants to show, in seconds, and give their rate."""
    if fps is None:
        chosen = {"all": times, "first": times[:max_frames], "last": times[-max_frames:]}[keep]
        return chosen, own_rate
    first, last = times[0], times[-1]
    if keep == "last":
        count = min(max_frames, 1 + math.floor((last - first) * fps + 1e-6))
        return last - np.arange(count)[::-1] / fps, float(fps)
    count = max(1, math.ceil((end - first) * fps - 1e-3))
    if count > max_frames and keep == "all":
        fps = max_frames / (end - first)
    return first + np.arange(min(count, max_frames)) / fps, float(fps)


def _evened(clip: Clip) -> Clip:
    if len(clip.times) % 2 == 0:
        return clip
    return Clip(np.concatenate([clip.frames, clip.frames[-1:]]), clip.fps, np.append(clip.times, clip.times[-1]))


def _first_frame(container: av.container.InputContainer, stream: av.VideoStream, field: str) -> av.VideoFrame:
    for frame in container.decode(stream):
        return frame
    raise RequestError(field, "The video has no frames.")


def _upright_size(frame: av.VideoFrame, stream: av.VideoStream) -> tuple[int, int]:
    aspect = stream.sample_aspect_ratio or 1
    width, height = round(frame.width * (aspect if 0.1 < aspect < 10 else 1)), frame.height
    return (height, width) if _quarters(frame) % 2 else (width, height)


def _quarters(frame: av.VideoFrame) -> int:
    """Quarter turns counterclockwise that show the frame upright."""
    return round(frame.rotation / 90) % 4


def _decode(
    container: av.container.InputContainer, stream: av.VideoStream, timeline: _Timeline, times: np.ndarray, field: str
) -> np.ndarray:
    """Decode the frames on screen at ``times`` (ascending), the last one held beyond the end."""
    origin, counted = _origin(container), _lacks_clock(container)
    if times[0] > timeline.times[0] and not counted:
        container.seek(int((times[0] + origin) / stream.time_base), stream=stream)
    frames: np.ndarray | None = None
    shown: av.VideoFrame | None = None
    done = 0
    for index, frame in enumerate(container.decode(stream)):
        if counted or frame.pts is None:
            start = timeline.times[min(index, len(timeline.times) - 1)]
        else:
            start = float(frame.pts * stream.time_base) - origin
        while shown is not None and done < len(times) and times[done] < start - _TICK:
            frames = _put(frames, done, len(times), shown, stream)
            done += 1
        if done == len(times):
            break
        shown = frame
    if shown is None:
        raise RequestError(field, "The video has no frames that can be decoded.")
    while done < len(times):
        frames = _put(frames, done, len(times), shown, stream)
        done += 1
    return frames


def _put(frames: np.ndarray | None, index: int, count: int, frame: av.VideoFrame, stream: av.VideoStream) -> np.ndarray:
    """Store ``frame`` at ``index``, scaled and upright, in the array that the first one shapes."""
    if frames is None:
        width, height = _upright_size(frame, stream)
        scale = min(1.0, math.sqrt(min(MAX_FRAME_PIXELS, MAX_CLIP_PIXELS // count) / (width * height)))
        frames = np.empty((count, max(1, round(height * scale)), max(1, round(width * scale)), 3), np.uint8)
    height, width = frames.shape[1:3]
    if _quarters(frame) % 2:
        height, width = width, height
    shrinks = width < frame.width or height < frame.height
    way = Interpolation.AREA if shrinks else Interpolation.BICUBIC
    pixels = frame.to_ndarray(format="rgb24", width=width, height=height, interpolation=way | _SHARP)
    frames[index] = np.rot90(pixels, _quarters(frame))
    return frames


def _sound_frame(samples: np.ndarray, start: int, rate: int, layout: str, form: str) -> av.AudioFrame:
    frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples), format=form, layout=layout)
    frame.sample_rate, frame.pts, frame.time_base = rate, start, Fraction(1, rate)
    return frame


def _text(record: Mapping[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":"), allow_nan=False)


@contextmanager
def _replacing(path: str | Path) -> Iterator[Path]:
    """Give a name beside ``path`` to write to; it takes the place of ``path`` only when all went well."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.stem}-{secrets.token_hex(4)}.part")
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
