"""Decoding by several processes: what comes out, and what happens when one of them dies."""

import io
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from deepccg.core import InputError
from deepccg.streams import cache, decoding
from deepccg.streams.cache import write_entry
from deepccg.streams.decoding import Decoder, decode_all, decode_chunk
from deepccg.streams.images import ImageSource

SHAPE = (3, 6, 5)


def encoded(pixels: np.ndarray, kind: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


@pytest.fixture
def source(picture) -> ImageSource:
    """300 images: PNG keeps their pixels."""

    def read(rows: np.ndarray) -> Iterator[tuple[str, bytes]]:
        for row in rows:
            yield f"number {row}", encoded(picture(row), "PNG")

    return ImageSource(("a",), np.zeros(300, dtype=np.int64), np.arange(300), read)


@pytest.fixture
def by_processes(monkeypatch: pytest.MonkeyPatch) -> list[Decoder]:
    """Start processes after the first message, however fast this is; returns those started."""
    monkeypatch.setattr(decoding, "TRIAL_SECONDS", -1)
    monkeypatch.setattr(decoding, "WORTH_SECONDS", -1)
    started: list[Decoder] = []

    class Recorded(Decoder):
        def __init__(self) -> None:
            super().__init__()
            started.append(self)

    monkeypatch.setattr(decoding, "Decoder", Recorded)
    return started


def process_of(decoder: Decoder) -> "subprocess.Popen[bytes]":
    assert decoder._process is not None
    return decoder._process


def test_processes_give_the_same_pixels_in_order(
    source: ImageSource, by_processes: list[Decoder], picture
) -> None:
    parts = list(decode_all(source, SHAPE))
    assert len(by_processes) == len(os.sched_getaffinity(0))
    assert len(parts) == 5
    expected = b"".join(picture(row).transpose(2, 0, 1).tobytes() for row in range(300))
    assert b"".join(parts) == expected
    assert [process_of(decoder).returncode for decoder in by_processes] == [0] * len(by_processes)


def test_few_images_start_no_process(source: ImageSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "Decoder", None)
    assert len(b"".join(decode_all(source, SHAPE))) == 300 * 90


@pytest.mark.slow
def test_a_process_decodes_other_formats_to_the_same_bit(picture) -> None:
    kinds = ("AVIF", "JPEG", "WEBP")
    images = [(k, encoded(picture(row, (84, 84)), k)) for k in kinds for row in range(8)]
    decoder = Decoder()
    assert decoder._ask(images, (3, 84, 84)) == decode_chunk(images, (3, 84, 84))
    decoder.close()


@pytest.mark.slow
def test_a_damaged_image_is_named_and_leaves_nothing(
    tmp_path: Path, source: ImageSource, by_processes: list[Decoder]
) -> None:
    def read(rows: np.ndarray) -> Iterator[tuple[str, bytes]]:
        for row, (where, image) in zip(rows, source.read(rows), strict=True):
            yield where, b"nonsense" if row == 200 else image

    broken = ImageSource(source.names, source.y, source.rows, read)
    with pytest.raises(InputError, match="cannot read the image number 200: not an image"):
        write_entry(tmp_path / "entry", broken, (6, 5))
    assert list(tmp_path.iterdir()) == []
    assert all(process_of(decoder).returncode == 0 for decoder in by_processes)


@pytest.mark.slow
def test_a_killed_process_is_done_without(source: ImageSource, by_processes: list[Decoder]) -> None:
    parts = decode_all(source, SHAPE)
    content = next(parts) + next(parts)
    process_of(by_processes[0]).kill()
    content += b"".join(parts)
    assert content == decode_chunk(list(source), SHAPE)


def test_no_interpreter_to_start_is_done_without(
    source: ImageSource, by_processes: list[Decoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert b"".join(decode_all(source, SHAPE)) == decode_chunk(list(source), SHAPE)
    assert all(decoder._process is None for decoder in by_processes)


@pytest.mark.slow
def test_processes_of_a_killed_parent_exit(tmp_path: Path) -> None:
    program = (
        "import itertools, sys; from pathlib import Path; import numpy as np\n"
        "from deepccg.streams import decoding\n"
        "from deepccg.streams.cache import write_entry\n"
        "from deepccg.streams.images import ImageSource\n"
        "decoding.TRIAL_SECONDS = decoding.WORTH_SECONDS = -1\n"
        "class Told(decoding.Decoder):\n"
        "    def decode(self, images, shape):\n"
        "        answer = super().decode(images, shape)\n"
        "        print(self._process.pid, flush=True)\n"
        "        return answer\n"
        "decoding.Decoder = Told\n"
        "image = Path(sys.argv[2]).read_bytes()\n"
        "endless = lambda rows: itertools.repeat(('one', image))\n"
        "many = np.arange(10**6)\n"
        "source = ImageSource(('a',), 0 * many, many, endless)\n"
        "write_entry(Path(sys.argv[1]) / 'entry', source, (6, 5))\n"
    )
    file = tmp_path / "image.png"
    Image.new("RGB", (5, 6)).save(file)
    target = tmp_path / "cache"
    arguments = [sys.executable, "-c", program, str(target), str(file)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        helper = int(parent.stdout.readline())
        os.kill(helper, 0)  # it is there
        parent.send_signal(signal.SIGKILL)
    assert not (target / "entry").exists()
    deadline = time.monotonic() + 30
    while _runs(helper) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(helper)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_progress_is_told(
    tmp_path: Path,
    source: ImageSource,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(cache, "_TELL_SECONDS", -1)
    with caplog.at_level(logging.INFO, "deepccg.streams"):
        write_entry(tmp_path / "entry", source, (6, 5))
    assert caplog.messages[0].startswith(f"decoding 300 images into {tmp_path}")
    counts = [64, 128, 192, 256, 300]
    assert caplog.messages[1:] == [f"decoded {count} of 300 images" for count in counts]
