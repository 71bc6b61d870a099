"""A small run in two dimensions, recorded after every batch: what ``deepccg demo`` shows.

Two learners read the same stream with networks that start equal and embed in a plane. After each
batch the same test images are embedded again, and the classifier is recorded as a surface over the
plane: for a linear head and for Gaussians of one width alike, the score of class ``c`` at ``z`` is
``k_c + l_c . z - a_c |z|^2``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from deepccg.core import Learner, derive_seed, validated
from deepccg.experiment.guards import torch_threads
from deepccg.methods import METHODS
from deepccg.networks import MLP
from deepccg.report import method_name
from deepccg.streams import Cursor, Split, Stream, build_stream, load_dataset

Floats = npt.NDArray[np.float32]

REACH = 3.0  # embeddings lie between -REACH and REACH
CLASSES, CLASSES_PER_TASK, MEMORY_PER_CLASS, BATCH = 6, 2, 10, 10
_LAYERS = (100, 50)
_ABOUT = {
    "deepccg": "The classifier is derived from the memory after every step: means and regions are "
    "where the points are now.",
    "er": "The classifier is a softmax head with weights of its own, which follow the points by "
    "gradient steps.",
}
# Of 0.03, 0.05, 0.1 and 0.2 each method has the step size that suits it best in this plane.
_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "deepccg": {"lr": 0.03, "embedding_scale": 2.0, "train_mask": "seen", "replay_mask": "seen"},
    "er": {"lr": 0.1, "train_mask": "seen", "replay_mask": "seen"},
}


@dataclass(frozen=True)
class Trajectory:
    """Embeddings, classifier and accuracy of one learner after each batch."""

    name: str  # what readers call the learner
    about: str  # one sentence on its classifier
    positions: Floats  # embeddings of the test images that are shown, ``[T, N, 2]``
    surfaces: Floats  # ``k, l_x, l_y, a`` of each class, ``[T, C, 4]``; NaN before its first batch
    accuracy: Floats  # on all test images of the classes seen so far, ``[T]``, as fractions
    stale: Floats  # of the classifier before the step on embeddings after it, ``[T]``; NaN at first


@dataclass(frozen=True)
class DemoRun:
    """Two learners on one stream."""

    classes: tuple[int, ...]  # labels in order of arrival, ``[C]``
    labels: npt.NDArray[np.int64]  # of the images shown, as places in ``classes``, ``[N]``
    tasks: npt.NDArray[np.int64]  # the task of each batch, ``[T]``
    trajectories: Mapping[str, Trajectory]  # by the method's name on the command line


class Planar(nn.Module):
    """A small network that embeds in a bounded plane."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.body = MLP(features, _LAYERS)
        self.plane = nn.Linear(_LAYERS[-1], 2)
        self.dim = 2

    def forward(self, x: Tensor) -> Tensor:
        """``[B, ...] -> [B, 2]``."""
        return REACH * torch.tanh(self.plane(self.body(x)) / REACH)


def simulate(seed: int = 0, shown_per_class: int = 25) -> DemoRun:
    """Learn six digits, two at a time, with DeepCCG and with ER, and record both.

    Args:
        seed: Of the class order, the network, and what is replayed.
        shown_per_class: How many test images of each class are followed.
    """
    data = load_dataset("digits")
    # The seed also decides which six of the ten digits are learned.
    chosen = np.random.default_rng(derive_seed(seed, "film")).permutation(10)[:CLASSES]
    train, test = _only(data.train, chosen), _only(data.test, chosen)
    stream = build_stream(
        "disjoint",
        train,
        classes_per_task=CLASSES_PER_TASK,
        examples_per_class=len(train),
        batch_size=BATCH,
        seed=seed,
    )
    places = np.array([stream.classes.index(label) for label in test.y])
    shown = np.concatenate(
        [np.flatnonzero(places == place)[:shown_per_class] for place in range(CLASSES)]
    )
    numbers = {task.id: number for number, task in enumerate(stream.tasks)}
    with torch_threads(1):  # matrices this small only wait for each other
        trajectories = {name: _follow(name, stream, test, shown, seed) for name in _SETTINGS}
    return DemoRun(
        classes=tuple(int(chosen[label]) for label in stream.classes),
        labels=places[shown],
        tasks=np.array([numbers[stream.task_of(step).id] for step in range(len(stream))]),
        trajectories=trajectories,
    )


def _follow(
    name: str, stream: Stream, test: Split, shown: npt.NDArray[np.int64], seed: int
) -> Trajectory:
    learner = _learner(name, stream, int(np.prod(test.x.shape[1:])), seed)
    x, y = torch.from_numpy(test.x), torch.from_numpy(test.y)
    positions, surfaces, accuracy, stale = [], [], [], []
    old = torch.zeros_like(y, dtype=torch.bool)  # images of classes seen before the step
    for batch in Cursor(stream, 0):
        before = learner.classifier() if old.any() else None
        learner.learn(batch)
        known = old | torch.isin(y, batch.y)
        with torch.no_grad():
            z = learner.representation(x)
            stale.append(_accuracy(learner, before, z[old], y[old]) if before else np.nan)
            accuracy.append(_accuracy(learner, learner.classifier(), z[known], y[known]))
        old = known
        positions.append(z[shown].numpy())
        surfaces.append(_surface(learner, stream))
    arrays = (np.array(each, dtype=np.float32) for each in (positions, surfaces, accuracy, stale))
    return Trajectory(method_name(name), _ABOUT[name], *arrays)


def _accuracy(
    learner: Learner, classifier: Callable[[Tensor], Tensor], z: Tensor, y: Tensor
) -> float:
    """Return the share of embeddings ``z`` that a classifier of the learner gets right."""
    predicted = torch.tensor(learner.columns())[classifier(z).argmax(dim=1)]
    return float((predicted == y).double().mean())


def _learner(name: str, stream: Stream, features: int, seed: int) -> Learner:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "network"))
        network = Planar(features)
    method = METHODS[name]
    config = validated(method.Config, _SETTINGS[name], "method")
    budget = MEMORY_PER_CLASS * CLASSES
    return method(network, config, memory=budget, classes=stream.classes, seed=seed)


@torch.no_grad()
def _surface(learner: Learner, stream: Stream) -> Floats:
    """Return the four numbers of each class, from its scores at four points."""
    points = torch.tensor([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    scores = learner.classifier()(points).double().numpy()
    scores = np.where(np.isfinite(scores), scores, np.nan)
    middle, right, left, up = scores
    bend = middle - (right + left) / 2
    found = np.stack([middle, (right - left) / 2, up - middle + bend, bend], axis=1)
    surface = np.full((CLASSES, 4), np.nan, dtype=np.float32)
    for label, values in zip(learner.columns(), found, strict=True):
        surface[stream.classes.index(label)] = values
    return surface


def _only(split: Split, classes: npt.NDArray[np.int64]) -> Split:
    """Return the examples of some classes, relabelled 0, 1, ..."""
    part = split.take(np.flatnonzero(np.isin(split.y, classes)))
    places = {int(label): place for place, label in enumerate(classes)}
    return Split(part.x, np.array([places[int(label)] for label in part.y], dtype=np.int64))
