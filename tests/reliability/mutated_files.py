"""Saved classifiers with entries, types, lengths and codes changed, and their checksums right.

Each is loaded, and then predicts, learns and is saved as usual, or ``load`` refuses it in one line.
"""

import copy
import json
import math
import random
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import safetensors.torch
import torch
from torch import Tensor

from deepccg import METHODS, DeepCCGClassifier
from deepccg.core import DeepCCGError, Diverged, TaskRequired
from deepccg.learners.state_file import _checksum, load_state

Content = tuple[dict[str, Any], dict[str, Tensor]]
KINDS = [*METHODS, "sampled", "images", "frame", "numbers"]
JUNK: list[Any] = [
    None, True, False, -1, 0, 1, 2, 3, 7, 2**31, 2**63, -(2**63) - 1, 10**30, 0.5, 1e300, math.nan,
    math.inf, "", "x", "0", "cpu", "meta", "identity", "<U3", "|O", "<i8", "<f8", "|V8", "<M8[D]",
    [], [0], [1, 0], [0, 0], [0.5], ["x"], [[]], [[0]], [None], {}, {"x": 1}, {"lr": -1},
]  # fmt: skip


@cache
def saved(kind: str) -> Content:
    """Header and tensors of a file."""
    model = learned(kind)
    with TemporaryDirectory() as place:
        model.save(Path(place) / "model")
        state, about = load_state(Path(place) / "model")
    return {"format": 1, "state": state.meta, "about": about}, state.tensors


def learned(kind: str) -> DeepCCGClassifier:
    """A classifier with declared classes, two tasks, and a memory that is full."""
    rng = np.random.default_rng(0)
    x: Any = rng.normal(size=(2, 6, 3))
    names: Sequence[Any] = ("ant", "bee", "cow", "dog")
    fields: dict[str, Any] = {"method": kind if kind in METHODS else "deepccg"}
    if kind == "sampled":
        fields["method_params"] = {"posterior": "sampled"}
    elif kind == "images":
        fields["encoder"] = "identity"
        x = rng.integers(0, 255, size=(2, 6, 4, 4, 1), dtype=np.uint8)
    elif kind == "frame":
        x = [pd.DataFrame(part, columns=["p", "q", "r"]) for part in x]
    elif kind == "numbers":
        names = (3, -7, 2**53 + 1, 5)
    if "encoder" not in fields:
        fields["encoder_params"] = {"layers": (5, 4)}
    model = DeepCCGClassifier(**fields, memory=5, random_state=0)
    for part, own in zip(x, (names[:2], names[2:]), strict=True):
        model.partial_fit(part, list(own) * 3, classes=names, task=own)
    return model


def mutated(kind: str, rng: random.Random) -> bytes:
    """A file with one to three changes."""
    header, tensors = saved(kind)
    header, tensors = copy.deepcopy(header), dict(tensors)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if rng.random() < 0.7:
            _change_header(header, rng)
        else:
            _change_tensor(tensors, rng)
    content = written(header, tensors)
    if rng.random() < 0.05:
        place = rng.randrange(len(content))
        changed = content[place] ^ (1 << rng.randrange(8))
        return content[:place] + bytes([changed]) + content[place + 1 :]
    return content


def written(header: dict[str, Any], tensors: dict[str, Tensor]) -> bytes:
    """A file with a checksum that is right, as anybody can write one."""
    text = json.dumps({"checksum": _checksum(header, tensors), **header})
    return safetensors.torch.save(tensors, {"deepccg": text})


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in a tree of JSON."""
    inner = dict(enumerate(value)) if isinstance(value, list) else value
    found = [path] if path else []
    if isinstance(inner, dict):
        found += [place for key, each in inner.items() for place in places(each, (*path, key))]
    return found


def _change_header(header: dict[str, Any], rng: random.Random) -> None:
    """Replace, remove, repeat or change an entry."""
    part = rng.choice(["about", "about", "state", None])  # mostly what no learner checks
    start = (part,) if isinstance(header.get(str(part)), dict) else ()
    options = places(header[part], start) if start else places(header)
    if not options:
        return
    *way, last = rng.choice(options)
    parent: Any = header
    for key in way:
        parent = parent[key]
    value = parent[last]
    action = rng.random()
    if action < 0.2:
        del parent[last]
    elif action < 0.35 and isinstance(value, list):
        parent[last] = rng.choice(
            [[*value, *value], value[:-1], value[::-1], [*value, 0], value * 3]
        )
    elif action < 0.5 and type(value) is int:
        parent[last] = value + rng.choice([-1, 1, 2, 100])
    elif action < 0.6 and isinstance(parent, dict):
        parent["unknown"] = rng.choice(JUNK)
    else:
        parent[last] = copy.deepcopy(rng.choice(JUNK))


def _change_tensor(tensors: dict[str, Tensor], rng: random.Random) -> None:
    """Change shape, length, type or values of a tensor, or remove it."""
    name = rng.choice(sorted(tensors))
    tensor = tensors[name]
    options = [
        None, tensor.flatten(), tensor[None], tensor.reshape(-1)[:0], torch.zeros(()),
        torch.zeros(2, 3), tensor.double() * 3, -tensor.to(torch.int64) - 1,
        torch.full_like(tensor, 77), torch.zeros_like(tensor), tensor != 0, tensor.half(),
        torch.full_like(tensor, 2), tensor.to(torch.float64),
    ]  # fmt: skip
    if tensor.ndim:
        options += [tensor[:-1], torch.cat([tensor, tensor]), tensor.flip(0)]
    changed = rng.choice(options)
    if changed is None:
        del tensors[name]
    else:
        tensors[name] = changed.contiguous().clone()


@dataclass
class Figures:
    """How many files were loaded or refused, and what went wrong."""

    loaded: int = 0
    refused: int = 0
    errors: list[str] = field(default_factory=list)


def load_mutated(files: int, place: Path, seed: int = 0) -> Figures:
    """Load so many mutated files, of every kind in turn."""
    figures, rng = Figures(), random.Random(seed)  # noqa: S311  (to choose changes)
    for number in range(files):
        kind = KINDS[number % len(KINDS)]
        if (wrong := failure(mutated(kind, rng), place, figures)) is not None:
            figures.errors.append(f"{kind}, file {number}: {wrong}")
    return figures


def failure(content: bytes, place: Path, figures: Figures) -> str | None:
    """What is wrong with how a file is loaded and used; ``None`` if nothing is."""
    path = place / "mutated"
    path.write_bytes(content)
    with warnings.catch_warnings(action="ignore"):  # other fields are loaded with a warning
        try:
            model = DeepCCGClassifier.load(path)
        except DeepCCGError as refusal:
            figures.refused += 1
            return None if str(refusal).isprintable() else f"more than a line: {refusal}"
        except Exception as error:  # noqa: BLE001  (what this looks for)
            return f"load: {error!r}"
        figures.loaded += 1
        return _use(model, place)


def _use(model: DeepCCGClassifier, place: Path) -> str | None:
    """Predict, learn and save; return what went wrong."""
    done = "nothing"
    try:
        x = _inputs(model)
        labels = model.classes_.tolist()
        tasks: list[Any] = [None, *[_task(model, codes) for codes in model._labels.tasks]]
        for task in tasks:
            for done in ("predict", "predict_proba"):
                try:
                    getattr(model, done)(x, task)
                except TaskRequired:
                    assert task is None
        done = "reports"
        _ = model.memory_, model.class_counts_
        if hasattr(model, "forget") and len(model.memory_["index"]):
            _ = model.ood_score(x), model.explain(x)
            done = "forget"
            copy.deepcopy(model).forget(index=0)
        for task in tasks:
            done = "partial_fit"
            known = labels if task is None else task
            model.partial_fit(x, [known[i % len(known)] for i in range(len(x))], task=task)
        done = "partial_fit of a new class"
        new = "new" if isinstance(labels[0], str) else 99
        model.partial_fit(x, [new] * len(x), task=[new])
        assert new in model.predict(x, task=[new]).tolist()
        done = "save"
        model.save(place / "again")
        DeepCCGClassifier.load(place / "again").predict(x, task=[new])
    except Diverged:  # a step size may be anything
        return None
    except Exception as error:  # noqa: BLE001  (what this looks for)
        return f"{done}: {error!r}"
    return None


def _inputs(model: DeepCCGClassifier) -> Any:
    x = np.random.default_rng(1).normal(size=(4, *model.input_shape_))
    if len(model.input_shape_) == 3:
        return (x * 50).clip(0, 255).astype(np.uint8)
    names = vars(model).get("feature_names_in_")
    return x if names is None else pd.DataFrame(x, columns=names)


def _task(model: DeepCCGClassifier, codes: Sequence[int]) -> list[Any]:
    """The labels of a task."""
    return [model.classes_.tolist()[position] for position in model._labels.positions(codes)]
