"""Decoding many images, by several processes where that saves time.

Pillow holds the interpreter's lock while it decodes, so threads do not help. As in a sweep, the
helpers are plain processes, ``python -m deepccg.streams.decoding``: a message on standard input is
a line of JSON and the encoded images, the answer on standard output a line of JSON and the pixels.
When the input ends, because the parent closed it or was killed, a helper exits.
"""

import contextlib
import itertools
import json
import os
import queue
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, cast

import numpy as np

from deepccg.core import InputError
from deepccg.streams.images import ImageSource, decode

Shape = tuple[int, int, int]
Encoded = Sequence[tuple[str, bytes]]  # where each image is, and its bytes

AT_ONCE = 64  # images in a message
TRIAL_SECONDS = 1.0  # that are decoded here, to know how long it takes
WORTH_SECONDS = 10.0  # starting a process takes some of them


def decode_all(source: ImageSource, shape: Shape) -> Iterator[bytes]:
    """Yield the pixels of all images in their order, those of many ``[C, H, W]`` at a time."""
    images = iter(source)
    chunks = iter(lambda: list(itertools.islice(images, AT_ONCE)), [])
    start, done = time.monotonic(), 0
    for chunk in chunks:
        yield decode_chunk(chunk, shape)
        done += len(chunk)
        seconds = time.monotonic() - start
        if seconds > TRIAL_SECONDS and seconds * (len(source) / done - 1) > WORTH_SECONDS:
            yield from _decode_elsewhere(chunks, shape)


def decode_chunk(images: Encoded, shape: Shape) -> bytes:
    """Decode these images, one after the other."""
    return b"".join(decode(where, encoded, shape).tobytes() for where, encoded in images)


def _decode_elsewhere(chunks: Iterator[list[tuple[str, bytes]]], shape: Shape) -> Iterator[bytes]:
    """As ``decode_chunk`` for each of the chunks, by a process for each processor."""
    processes = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    idle: queue.SimpleQueue[Decoder] = queue.SimpleQueue()

    def decode_by_any(chunk: list[tuple[str, bytes]]) -> bytes:
        decoder = idle.get()
        try:
            return decoder.decode(chunk, shape)
        finally:
            idle.put(decoder)

    with contextlib.ExitStack() as stack:
        for _ in range(processes):
            idle.put(stack.enter_context(contextlib.closing(Decoder())))
        pool = stack.enter_context(ThreadPoolExecutor(processes))
        waiting: deque[Future[bytes]] = deque()
        for chunk in chunks:
            waiting.append(pool.submit(decode_by_any, chunk))
            if len(waiting) > 2 * processes:  # not all encoded images are read at once
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


class Decoder:
    """A process that decodes, and finds the modules that this one finds."""

    def __init__(self) -> None:
        path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
        self._process: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError):  # no memory for it, or no interpreter
            self._process = subprocess.Popen(
                # -P: modules of the working directory are not found unless this process finds them.
                [sys.executable, "-P", "-m", "deepccg.streams.decoding"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": path},
                start_new_session=True,  # Ctrl-C is for the parent
            )

    def decode(self, images: Encoded, shape: Shape) -> bytes:
        """As ``decode_chunk``; if the process cannot be started or dies, here."""
        try:
            answer = self._ask(images, shape)
        except (OSError, ValueError):  # its output ended, or its input is closed
            return decode_chunk(images, shape)
        if isinstance(answer, str):
            raise InputError(answer)
        return answer

    def _ask(self, images: Encoded, shape: Shape) -> bytes | str:
        """Return the pixels, or what is wrong with an image."""
        if self._process is None:
            raise OSError("there is no process")
        to, back = cast(IO[bytes], self._process.stdin), cast(IO[bytes], self._process.stdout)
        wheres = [where for where, _ in images]
        header = {"shape": shape, "where": wheres, "bytes": [len(each) for _, each in images]}
        to.write(json.dumps(header).encode() + b"\n" + b"".join(each for _, each in images))
        to.flush()
        error = json.loads(back.readline())
        return str(error) if error else _read_exactly(back, len(images) * int(np.prod(shape)))

    def close(self) -> None:
        """Let the process exit, and wait for it."""
        if self._process is not None:
            with contextlib.suppress(OSError):  # it has died, and not all was sent
                cast(IO[bytes], self._process.stdin).close()
            cast(IO[bytes], self._process.stdout).close()
            self._process.wait()


def _read_exactly(file: IO[bytes], size: int) -> bytes:
    content = file.read(size)
    if len(content) != size:
        raise OSError("the output ended")
    return content


def main() -> None:
    """Decode what comes until the input ends."""
    with contextlib.suppress(ImportError):
        from PIL import AvifImagePlugin

        # Threads for one small image take longer to start than to decode it.
        AvifImagePlugin.DEFAULT_MAX_THREADS = 1
    with contextlib.suppress(OSError):  # the parent was killed
        while line := sys.stdin.buffer.readline():
            request = json.loads(line)
            images = [
                (where, _read_exactly(sys.stdin.buffer, size))
                for where, size in zip(request["where"], request["bytes"], strict=True)
            ]
            try:
                error, pixels = None, decode_chunk(images, tuple(request["shape"]))
            except InputError as refused:
                error, pixels = str(refused), b""
            sys.stdout.buffer.write(json.dumps(error).encode() + b"\n" + pixels)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
