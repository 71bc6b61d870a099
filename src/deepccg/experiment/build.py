"""From a complete configuration to the objects of a run: stream, test set and learner."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import nn

from deepccg.core import InputError, Learner, TestSet, validated
from deepccg.experiment.config import RunConfig, example_bytes
from deepccg.learners.recipe import RecipeConfig
from deepccg.networks import build_network, size_to_memory
from deepccg.streams import (
    Dataset,
    JointStream,
    Split,
    Stream,
    build_stream,
    cap_per_class,
    hold_out,
    make_test_set,
)

LearnerT = TypeVar("LearnerT", bound=Learner)


@dataclass(frozen=True)
class RunData:
    """The data of a run."""

    stream: Stream
    test: TestSet  # the images to score on
    of_images: int  # how many there are to score on in all
    dataset: Dataset  # where stream and images come from
    opened_before: int  # how often its test part had been opened before the run
    shift_images: TestSet | None  # images of the first task, if their shift is recorded

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.dataset.train.x.shape[1:])

    @property
    def test_openings(self) -> int:
        """How often the run opened the test part."""
        return self.dataset.asked["test"] - self.opened_before


def build_run_data(config: RunConfig, dataset: Dataset) -> RunData:
    """Build the stream that a run reads and the images that it is scored on.

    With ``evaluation.validation`` those images are held out of the training data, and the test
    part is never opened.
    """
    opened_before = dataset.asked["test"]
    stream, held_out = build_run_stream(config, dataset)
    scoring, scored = config.evaluation, dataset.test if held_out is None else held_out
    test = make_test_set(scored, stream.tasks, scoring.images, config.seed, stream.domains)
    shift_images = None
    if scoring.shift_images is not None:
        shift_images = make_test_set(scored, stream.tasks[:1], scoring.shift_images, config.seed)
    of_images = len(scored) * max(1, len(stream.domains))
    return RunData(stream, test, of_images, dataset, opened_before, shift_images)


def build_run_stream(config: RunConfig, dataset: Dataset) -> tuple[Stream, Split | None]:
    """Build the stream that a run reads, without opening the test part.

    Returns:
        The stream, and the examples that ``evaluation.validation`` holds out of it.
    """
    train, validation = dataset.train, config.evaluation.validation
    if validation is None:
        return _build_stream(config, train), None
    capped = cap_per_class(train, config.stream.examples_per_class, config.seed)
    train, held_out = hold_out(capped, validation, config.seed)
    return _build_stream(config, train), held_out


def _build_stream(config: RunConfig, train: Split) -> Stream:
    fields = config.stream
    online = fields.model_dump(exclude={"kind", "joint", "epochs"}, exclude_none=True)
    stream = build_stream(fields.kind, train, seed=config.seed, **online)
    if fields.joint is None:
        return stream
    pool = None
    if fields.joint == "classes" and fields.kind == "shifting-window":
        # Without tasks the pool is all data; a window leaves some of it out.
        pool = build_stream("disjoint", train, seed=config.seed, **online)
    elif fields.joint == "classes":
        pool = stream
    passes, size = fields.epochs, fields.batch_size
    return JointStream(stream, pool=pool, passes=passes, batch_size=size, seed=config.seed)


def build_learner(
    config: RunConfig,
    shape: tuple[int, ...],
    classes: tuple[int, ...],
    learner: type[LearnerT],
    watch: Callable[[nn.Module], None] = lambda _: None,
) -> LearnerT:
    """Build a new learner.

    Args:
        config: A complete configuration.
        shape: The shape of one input.
        classes: All labels, in order of arrival.
        learner: The class behind the method's name.
        watch: Called with the network before the learner gets it.
    """
    fields = validated(learner.Config, config.method.fields, "method")
    if isinstance(fields, RecipeConfig):
        fields.require_suitable(shape)
    budget = config.budget(len(classes), shape)
    strict = config.memory_bytes is not None
    room = config.memory_bytes if strict else budget * example_bytes(shape)
    largest = learner.largest_dim(fields, room or 0, len(classes)) if room or strict else None
    network_config = size_to_memory(config.network, shape, largest, strict=strict)
    try:
        network = build_network(network_config, shape, config.seed, config.kernels == "native")
        device = torch.device(config.device)
        if device.type == "meta":
            raise RuntimeError("it holds no numbers")
        network = network.to(device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"device {config.device!r} cannot be used: {reason}") from None
    watch(network)
    return learner(network, fields, memory=budget, classes=classes, seed=config.seed)
