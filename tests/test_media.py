"""Files survive the round trip; bad ones are refused with the field and the reason."""

from __future__ import annotations

import struct
import zlib
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from cosmos_demo import media
from cosmos_demo.errors import RequestError


def gradient(count: int, height: int = 96, width: int = 160) -> np.ndarray:
    """Smooth colour frames whose blue channel tells their index (12 a frame, so up to 21 frames)."""
    y, x = np.mgrid[0:height, 0:width]
    frames = np.empty((count, height, width, 3), np.uint8)
    frames[..., 0], frames[..., 1] = x * 255 // width, y * 255 // height
    frames[..., 2] = 12 * np.arange(count)[:, None, None]
    return frames


def index_of(frame: np.ndarray) -> int:
    return round(float(frame[..., 2].mean()) / 12)


def indices(clip: media.Clip) -> list[int]:
    return [index_of(frame) for frame in clip.frames]


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    return 10 * np.log10(255**2 / max(1e-9, np.mean((a.astype(float) - b) ** 2)))


def decoded_sound(path: Path) -> np.ndarray:
    with av.open(str(path)) as container:
        return np.concatenate([frame.to_ndarray() for frame in container.decode(audio=0)], axis=1)


def write_timed(path: Path, frames: np.ndarray, times_ms: list[int]) -> Path:
    """Write a video whose frames show at the given milliseconds."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=1000, options={"crf": "10", "bf": "0"})
        stream.height, stream.width, stream.pix_fmt = frames.shape[1], frames.shape[2], "yuv420p"
        for frame, time in zip(frames, times_ms, strict=True):
            image = av.VideoFrame.from_ndarray(frame, format="rgb24")
            image.pts, image.time_base = time, Fraction(1, 1000)
            container.mux(stream.encode(image))
        container.mux(stream.encode(None))
    return path


def refused(error: pytest.ExceptionInfo[RequestError], field: str, words: str) -> bool:
    return error.value.field == field and words in error.value.message


# Video, written and read


@pytest.mark.parametrize("fps", [10, 16, 24, 30, Fraction(30000, 1001)])
def test_a_video_keeps_its_frames_and_its_exact_rate(tmp_path: Path, fps: int | Fraction) -> None:
    frames = gradient(17)
    path = media.write_video(tmp_path / "clip.mp4", frames, fps)
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert (stream.average_rate, stream.frames) == (fps, 17)
        assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
    clip = media.read_clip(path)
    assert clip.frames.shape == frames.shape
    assert clip.frames.dtype == np.uint8
    assert psnr(clip.frames, frames) > 42
    assert clip.fps == pytest.approx(float(fps), abs=1e-3)
    np.testing.assert_allclose(clip.times, np.arange(17) / float(fps), atol=1e-5)


def test_colours_come_back_as_they_went(tmp_path: Path) -> None:
    colours = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 0], [255, 255, 255], [0, 0, 0]], np.uint8)
    frames = np.repeat(np.repeat(colours[None, None], 64, axis=1), 32, axis=2)[[0] * 5]
    clip = media.read_clip(media.write_video(tmp_path / "clip.mp4", frames, 10))
    centres = clip.frames[2, 32, 16::32].astype(int)
    assert np.abs(centres - colours).max() <= 4


def test_the_index_comes_before_the_data_so_that_players_start_at_once(tmp_path: Path) -> None:
    content = media.write_video(tmp_path / "clip.mp4", gradient(5), 10).read_bytes()
    assert content.index(b"moov") < content.index(b"mdat")


def test_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    frames, sound = gradient(17), np.sin(np.arange(2 * 27200).reshape(2, -1) / 9).astype(np.float32)
    files = [
        media.write_video(tmp_path / f"{index}.mp4", frames, 10, sound, 16000, {"a": 1}).read_bytes()
        for index in range(6)
    ]
    assert len(set(files)) == 1


@pytest.mark.parametrize(("height", "width"), [(95, 161), (96, 161), (95, 160)])
def test_odd_sides_grow_by_one_repeated_line(tmp_path: Path, height: int, width: int) -> None:
    frames = gradient(3, height, width)
    clip = media.read_clip(media.write_video(tmp_path / "clip.mp4", frames, 10))
    assert clip.frames.shape == (3, height + height % 2, width + width % 2, 3)
    assert psnr(clip.frames[:, :height, :width], frames) > 40
    assert np.abs(clip.frames[:, -1].astype(int) - clip.frames[:, height - 1]).max() < 12


def test_one_frame_is_a_video_of_one_frame(tmp_path: Path) -> None:
    path = media.write_video(tmp_path / "clip.mp4", gradient(1), 10)
    assert media.read_clip(path).frames.shape[0] == 1
    assert media.probe(path).duration == pytest.approx(0.1)


@pytest.mark.parametrize("rate", [16000, 48000])
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("fps", [10, 24])
def test_sound_is_in_sync_and_as_long_as_the_frames(tmp_path: Path, rate: int, channels: int, fps: int) -> None:
    frames = gradient(17)
    samples, onset = round(17 / fps * rate), rate // 2
    sound = np.zeros((channels, samples + 700), np.float32)  # longer than the frames, as the sound tokenizer gives it
    sound[:, onset:] = np.sin(np.arange(sound.shape[1] - onset) * 0.9)
    path = media.write_video(tmp_path / "clip.mp4", frames, fps, sound, rate)
    heard = decoded_sound(path)
    assert heard.shape[0] == channels
    assert 0 <= heard.shape[1] - samples < 1024
    # AAC smears an onset over part of its window; the half-way point of the rise must be where it was.
    assert abs(int(np.argmax(np.abs(heard[0]) > 0.5)) - onset) <= 16
    with av.open(str(path)) as container:
        voice, picture = container.streams.audio[0], container.streams.video[0]
        assert voice.codec_context.name == "aac"
        assert float(voice.duration * voice.time_base) == pytest.approx(17 / fps, abs=2e-3)
        assert float(picture.duration * picture.time_base) == pytest.approx(17 / fps, abs=1e-6)
    assert media.probe(path).has_sound


def test_short_sound_is_padded_with_silence_to_the_frames(tmp_path: Path) -> None:
    path = media.write_video(tmp_path / "clip.mp4", gradient(17), 10, np.full((1, 4000), 0.5, np.float32), 16000)
    heard = decoded_sound(path)
    assert 0 <= heard.shape[1] - 27200 < 1024
    assert np.abs(heard[:, 8000:]).max() < 0.01


def test_probe_tells_what_is_there(tmp_path: Path) -> None:
    silent = media.probe(media.write_video(tmp_path / "clip.mp4", gradient(17), 10))
    assert silent == media.Probe(pytest.approx(1.7), 160, 96, 17, 10.0, False)


def test_nothing_is_left_of_a_write_that_fails(tmp_path: Path) -> None:
    path = media.write_video(tmp_path / "clip.mp4", gradient(2), 10)
    before = path.read_bytes()
    with pytest.raises(KeyError):
        media.write_video(path, gradient(3), 10, np.zeros((5, 100), np.float32), 16000)
    with pytest.raises(ValueError, match="JSON"):
        media.write_json(tmp_path / "new.json", {"a": float("nan")})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


# Sampling


@pytest.fixture(scope="module")
def two_seconds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 frames at 10 per second."""
    return media.write_video(tmp_path_factory.mktemp("media") / "clip.mp4", gradient(20), 10)


@pytest.mark.parametrize(
    ("fps", "times", "shown"),
    [
        (2, [0.0, 0.5, 1.0, 1.5], [0, 5, 10, 15]),
        (4, [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75], [0, 2, 5, 7, 10, 12, 15, 17]),
        (10, [index / 10 for index in range(20)], list(range(20))),
        (1, [0.0, 1.0], [0, 10]),
        (20, [index / 20 for index in range(40)], [index // 2 for index in range(40)]),
    ],
)
def test_sampling_takes_the_frame_on_screen(two_seconds: Path, fps: int, times: list[float], shown: list[int]) -> None:
    clip = media.read_clip(two_seconds, fps=fps)
    np.testing.assert_allclose(clip.times, times, atol=1e-9)
    assert indices(clip) == shown
    assert clip.fps == fps
    again = media.sample_clip(media.read_clip(two_seconds), fps)
    np.testing.assert_allclose(again.times, times, atol=1e-9)
    assert indices(again) == shown


def test_a_clip_over_the_limit_is_sampled_more_thinly_from_end_to_end(two_seconds: Path) -> None:
    for clip in (
        media.read_clip(two_seconds, fps=10, max_frames=5),
        media.sample_clip(media.read_clip(two_seconds), 10, max_frames=5),
    ):
        assert indices(clip) == [0, 4, 8, 12, 16]
        assert clip.fps == pytest.approx(2.5)


def test_all_frames_over_the_limit_are_refused(two_seconds: Path) -> None:
    with pytest.raises(RequestError) as error:
        media.read_clip(two_seconds, max_frames=19, field="control")
    assert refused(error, "control", "20 frames; at most 19")


def test_an_odd_count_is_made_even_by_holding_the_last_frame(two_seconds: Path) -> None:
    clip = media.read_clip(two_seconds, fps=1.5, even=True)
    assert indices(clip) == [0, 6, 13, 13]
    np.testing.assert_allclose(clip.times, [0, 2 / 3, 4 / 3, 4 / 3])
    assert indices(media.read_clip(two_seconds, fps=2, even=True)) == [0, 5, 10, 15]


@pytest.mark.parametrize(
    ("keep", "fps", "shown"),
    [
        ("first", None, [0, 1, 2, 3, 4]),
        ("last", None, [15, 16, 17, 18, 19]),
        ("first", 5, [0, 2, 4, 6, 8]),
        ("last", 5, [11, 13, 15, 17, 19]),
    ],
)
def test_either_end_can_be_read_alone(two_seconds: Path, keep: str, fps: float | None, shown: list[int]) -> None:
    clip = media.read_clip(two_seconds, fps=fps, max_frames=5, keep=keep, max_seconds=0.1)
    assert indices(clip) == shown
    np.testing.assert_allclose(clip.times, np.array(shown) / 10, atol=1e-9)
    assert clip.fps == (fps or 10)


def test_the_end_of_a_long_clip_is_read_from_the_key_frame_before_it(tmp_path: Path) -> None:
    frames = np.tile(gradient(20, 32, 48), (30, 1, 1, 1))  # 600 frames: several groups of pictures
    path = media.write_video(tmp_path / "clip.mp4", frames, 30)
    clip = media.read_clip(path, max_frames=5, keep="last")
    assert indices(clip) == [15, 16, 17, 18, 19]
    np.testing.assert_allclose(clip.times, np.arange(595, 600) / 30, atol=1e-4)


def test_frames_of_varying_length_are_sampled_by_the_clock(tmp_path: Path) -> None:
    shown_at = [0, 100, 200, 1000, 1050, 1900]
    for name in ("clip.mp4", "clip.mkv"):
        path = write_timed(tmp_path / name, gradient(6), shown_at)
        clip = media.read_clip(path)
        assert indices(clip) == [0, 1, 2, 3, 4, 5]
        np.testing.assert_allclose(clip.times, np.array(shown_at) / 1000, atol=1e-3)
        sampled = media.read_clip(path, fps=4, max_frames=8)
        assert indices(sampled) == [0, 2, 2, 2, 3, 4, 4, 4]  # at 0, 250, 500, 750, 1000, 1250, 1500 and 1750 ms


def test_time_starts_where_players_show_zero(tmp_path: Path) -> None:
    shown_at = [5000, 5100, 5200, 5300]
    path = write_timed(tmp_path / "clip.ts", gradient(4), shown_at)  # broadcast clocks start anywhere
    np.testing.assert_allclose(media.read_clip(path).times, [0, 0.1, 0.2, 0.3], atol=1e-3)
    late = media.read_clip(write_timed(tmp_path / "clip.mkv", gradient(4), shown_at), fps=10)
    np.testing.assert_allclose(late.times, [5.0, 5.1, 5.2, 5.3], atol=1e-3)
    assert indices(late) == [0, 1, 2, 3]


def test_a_turned_phone_video_comes_upright(tmp_path: Path) -> None:
    frames = gradient(3)
    path = media.write_video(tmp_path / "clip.mp4", frames, 10)
    content = bytearray(path.read_bytes())
    matrix = content.index(b"tkhd") + 4 + 40  # version and flags, times, ids, duration, reserved, layer, volume
    content[matrix : matrix + 36] = struct.pack(">9i", 0, 65536, 0, -65536, 0, 0, 0, 0, 1 << 30)
    path.write_bytes(content)
    clip = media.read_clip(path)
    # The matrix asks players for a quarter turn clockwise.
    assert psnr(clip.frames, np.rot90(frames, -1, axes=(1, 2))) > 40
    assert (media.probe(path).width, media.probe(path).height) == (96, 160)


def test_large_frames_are_scaled_down_and_keep_their_aspect(tmp_path: Path) -> None:
    clip = media.read_clip(media.write_video(tmp_path / "clip.mp4", gradient(1, 1080, 1920), 10))
    height, width = clip.frames.shape[1:3]
    assert width * height <= media.MAX_FRAME_PIXELS * 1.001
    assert width / height == pytest.approx(16 / 9, rel=2e-3)


def test_many_frames_share_a_budget_of_pixels(two_seconds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media, "MAX_CLIP_PIXELS", 20 * 80 * 48)
    assert media.read_clip(two_seconds).frames.shape == (20, 48, 80, 3)


def test_gif_webm_and_avi_are_read_too(tmp_path: Path) -> None:
    pictures = [Image.fromarray(frame) for frame in gradient(4)]
    pictures[0].save(tmp_path / "moving.gif", save_all=True, append_images=pictures[1:], duration=200)
    clip = media.read_clip(tmp_path / "moving.gif")
    assert clip.frames.shape == (4, 96, 160, 3)
    np.testing.assert_allclose(clip.times, [0, 0.2, 0.4, 0.6])
    pictures[0].save(tmp_path / "still.gif")
    assert media.read_clip(tmp_path / "still.gif", fps=2).frames.shape == (1, 96, 160, 3)
    with av.open(str(tmp_path / "clip.webm"), "w") as container:
        stream = container.add_stream("libvpx", rate=10)
        stream.height, stream.width, stream.pix_fmt = 96, 160, "yuv420p"
        for frame in gradient(4):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode(None))
    assert indices(media.read_clip(tmp_path / "clip.webm")) == [0, 1, 2, 3]
    with av.open(str(tmp_path / "clip.avi"), "w") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.height, stream.width, stream.pix_fmt = 96, 160, "yuv420p"
        for frame in gradient(20):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode(None))
    clip = media.read_clip(tmp_path / "clip.avi")
    assert indices(clip) == list(range(20))
    np.testing.assert_allclose(clip.times, np.arange(20) / 10, atol=1e-6)
    assert indices(media.read_clip(tmp_path / "clip.avi", max_frames=3, keep="last")) == [17, 18, 19]


# Bad videos


@pytest.fixture(scope="module")
def sounding(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    noise = np.random.default_rng(0).integers(0, 255, (17, 96, 160, 3)).astype(np.uint8)
    path = tmp_path_factory.mktemp("media") / "clip.mp4"
    return media.write_video(path, noise, 10, np.zeros((2, 27200), np.float32), 16000).read_bytes()


@pytest.mark.parametrize("part", [0.0005, 0.003, 0.01, 0.1, 0.5, 0.9, 0.999999])
def test_a_video_cut_off_anywhere_is_refused(tmp_path: Path, sounding: bytes, part: float) -> None:
    path = tmp_path / "clip.mp4"
    path.write_bytes(sounding[: int(len(sounding) * part)])
    for reading in (media.read_clip, media.probe):
        with pytest.raises(RequestError) as error:
            reading(path, field="control")
        assert error.value.field == "control"
    path.write_bytes(sounding)
    assert len(media.read_clip(path).frames) == 17


def test_files_of_another_kind_are_refused_with_what_works(tmp_path: Path) -> None:
    path = tmp_path / "clip.mp4"
    png = media.write_image(tmp_path / "frame.png", gradient(1)[0]).read_bytes()
    playlist = b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile:///etc/hostname\n#EXT-X-ENDLIST\n"
    for content in (b"This is no video at all.\n" * 50, bytes(5000), png, playlist, b"<html></html>"):
        path.write_bytes(content)
        with pytest.raises(RequestError) as error:
            media.read_clip(path)
        assert refused(error, "video", "MP4")


def test_empty_and_missing_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.mp4").touch()
    for reading, field in ((media.read_clip, "video"), (media.read_image, "image"), (media.read_comment, "file")):
        with pytest.raises(RequestError) as error:
            reading(tmp_path / "empty.mp4")
        assert refused(error, field, "empty")
        with pytest.raises(RequestError) as error:
            reading(tmp_path / "missing.mp4")
        assert refused(error, field, "no such file")
        with pytest.raises(RequestError):
            reading(tmp_path)


def test_a_file_over_the_limit_is_refused_by_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = media.write_video(tmp_path / "clip.mp4", gradient(5), 10)
    monkeypatch.setattr(media, "MAX_VIDEO_BYTES", 1000)
    with pytest.raises(RequestError) as error:
        media.read_clip(path)
    assert refused(error, "video", "MB")


def test_a_long_video_is_refused_before_decoding(two_seconds: Path) -> None:
    with pytest.raises(RequestError) as error:
        media.read_clip(two_seconds, fps=1, max_seconds=0.5)
    assert refused(error, "video", "longer than 0.5 s")


def test_odd_metadata_do_not_stop_a_video(tmp_path: Path) -> None:
    frames = gradient(3)
    content = media.write_video(tmp_path / "clip.mp4", frames, 10, record={"a": "comment"}).read_bytes()
    matrix = content.index(b"tkhd") + 44
    eighth = struct.pack(">9i", 46341, 46341, 0, -46341, 46341, 0, 0, 0, 1 << 30)  # 45 degrees
    content = content[:matrix] + eighth + content[matrix + 36 :]
    (tmp_path / "clip.mp4").write_bytes(content.replace(b"comment", b"\xff\xfe\xfd\xfc\xfb\xfa\xf9"))
    assert len(media.read_clip(tmp_path / "clip.mp4").frames) == 3


def test_sound_alone_is_no_video(tmp_path: Path) -> None:
    path = media.write_sound(tmp_path / "sound.wav", np.zeros((2, 1600), np.float32), 16000)
    with pytest.raises(RequestError) as error:
        media.read_clip(path)
    assert refused(error, "video", "no picture track")


@pytest.mark.parametrize("name", ["clip.mp4", "clip.mkv"])
def test_a_video_without_frames_is_refused(tmp_path: Path, name: str) -> None:
    with av.open(str(tmp_path / name), "w") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.height, stream.width, stream.pix_fmt = 96, 160, "yuv420p"
        container.start_encoding()
    with pytest.raises(RequestError) as error:
        media.read_clip(tmp_path / name)
    assert error.value.field == "video"


def test_tiny_and_huge_frames_are_refused_before_decoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RequestError) as error:
        media.read_clip(media.write_video(tmp_path / "tiny.mp4", gradient(5, 8, 8), 10))
    assert refused(error, "video", "8x8")
    path = media.write_video(tmp_path / "large.mp4", gradient(2), 10)
    monkeypatch.setattr(media, "MAX_SOURCE_PIXELS", 160 * 95)
    with pytest.raises(RequestError) as error:
        media.read_clip(path)
    assert refused(error, "video", "160x96")


# Pictures


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "BMP", "GIF"])
def test_pictures_are_told_by_content_not_by_name(tmp_path: Path, kind: str) -> None:
    frame = gradient(1)[0]
    Image.fromarray(frame).save(tmp_path / "picture.dat", kind)
    image = media.read_image(tmp_path / "picture.dat")
    assert (image.mode, image.size) == ("RGB", (160, 96))
    assert psnr(np.asarray(image), frame) > 28


def test_png_keeps_every_pixel(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (33, 57, 3)).astype(np.uint8)
    path = media.write_image(tmp_path / "frame.png", noise)
    np.testing.assert_array_equal(np.asarray(media.read_image(path)), noise)


def test_a_turned_photo_comes_upright(tmp_path: Path) -> None:
    frame = gradient(1)[0]
    exif = Image.Exif()
    exif[0x0112] = 6  # stored turned a quarter to the left
    Image.fromarray(np.rot90(frame)).save(tmp_path / "photo.jpg", quality=95, exif=exif)
    assert psnr(np.asarray(media.read_image(tmp_path / "photo.jpg")), frame) > 35


def test_transparency_becomes_white(tmp_path: Path) -> None:
    pixels = np.zeros((20, 20, 4), np.uint8)
    pixels[:10] = [200, 0, 0, 255]
    pixels[10:] = [0, 0, 0, 128]
    Image.fromarray(pixels).save(tmp_path / "picture.png")
    image = np.asarray(media.read_image(tmp_path / "picture.png"))
    assert image[0, 0].tolist() == [200, 0, 0]
    assert image[19, 19].tolist() == [127, 127, 127]


def test_sixteen_bit_greys_are_scaled_not_clipped(tmp_path: Path) -> None:
    Image.fromarray(np.full((20, 20), 32768, np.uint16)).save(tmp_path / "picture.png")
    assert np.asarray(media.read_image(tmp_path / "picture.png"))[0, 0].tolist() == [128, 128, 128]


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds next to nothing."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = chunk(b"IDAT", zlib.compress(bytes(100)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + pixels + chunk(b"IEND", b"")


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(
    ("width", "height", "words"),
    [
        (1, 1, "at least 16"),
        (15, 400, "at least 16"),
        (10_000, 10_000, "megapixels"),
        (100_000, 100_000, "megapixels"),
        (16, 1601, "100 times"),
    ],
)
def test_pictures_of_impossible_size_are_refused_by_their_header(
    tmp_path: Path, width: int, height: int, words: str
) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(png_header(width, height))
    with pytest.raises(RequestError) as error:
        media.read_image(path)
    assert refused(error, "image", words)


def test_damaged_pictures_and_other_files_are_refused(tmp_path: Path, sounding: bytes) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (96, 160, 3)).astype(np.uint8)
    path = tmp_path / "picture.png"
    for name in ("whole.png", "whole.jpg"):
        content = media.write_image(tmp_path / name, noise).read_bytes()
        for part in (0.1, 0.5, 0.9):
            path.write_bytes(content[: int(len(content) * part)])
            with pytest.raises(RequestError) as error:
                media.read_image(path, field="first frame")
            assert error.value.field == "first frame"
    for content in (b"no picture\n" * 99, bytes(5000), sounding):
        path.write_bytes(content)
        with pytest.raises(RequestError) as error:
            media.read_image(path)
        assert refused(error, "image", "PNG, JPEG")


# Sound


def test_wav_keeps_length_rate_and_samples(tmp_path: Path) -> None:
    sound = np.random.default_rng(0).uniform(-1, 1, (2, 27200)).astype(np.float32)
    sound[0, 0], sound[1, 0] = 1.5, -1.5  # beyond full scale: clipped, never wrapped
    path = media.write_sound(tmp_path / "sound.wav", sound, 16000)
    with av.open(str(path)) as container:
        assert container.streams.audio[0].rate == 16000
        heard = np.concatenate([frame.to_ndarray() for frame in container.decode(audio=0)], axis=1)
    heard = heard.reshape(-1, 2).T / 32767
    assert heard.shape == sound.shape
    np.testing.assert_allclose(heard, np.clip(sound, -1, 1), atol=1 / 32767)


def test_fit_sound_cuts_and_pads() -> None:
    sound = np.ones((2, 5), np.float32)
    np.testing.assert_array_equal(media.fit_sound(sound, 3), sound[:, :3])
    np.testing.assert_array_equal(media.fit_sound(sound, 7), np.concatenate([sound, np.zeros((2, 2))], axis=1))
    assert media.fit_sound(sound, 7).dtype == np.float32


# Text


def test_json_of_objects_and_of_rows_is_read_as_it_is(tmp_path: Path) -> None:
    for text in ('{"actions": [[0.5]]}', " [[0.5, 1.0]]"):
        (tmp_path / "actions.json").write_text(text)
        assert media.read_comment(tmp_path / "actions.json") == text
