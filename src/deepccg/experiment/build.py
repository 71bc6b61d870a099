"""From settings to a complete configuration, and from that to stream, test set and learner."""

import contextlib
import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from deepccg.core import InputError, Learner, TestSet, validated
from deepccg.experiment.config import RunConfig
from deepccg.experiment.presets import laid_over, merged, preset_settings, recorded_name
from deepccg.methods import METHODS
from deepccg.networks import build_network
from deepccg.streams import (
    Dataset,
    JointStream,
    Split,
    Stream,
    build_stream,
    cap_per_class,
    default_classes_per_task,
    hold_out,
    make_test_set,
)


@dataclass(frozen=True)
class Material:
    """The data side of a run.

    Args:
        stream: What is learned from.
        test: What is scored on.
        of_images: How many images there would be to score on.
        class_names: The name of each label.
        shape: The shape of one input.
        data: Where all this comes from.
        asked_before: How often its test part had been asked for before the run.
        shift: Images of the first task, whose shift is recorded; ``None``: it is not.
    """

    stream: Stream
    test: TestSet
    of_images: int
    class_names: tuple[str, ...]
    shape: tuple[int, ...]
    data: Dataset
    asked_before: int
    shift: TestSet | None = None

    @property
    def test_asked(self) -> int:
        """How often the run asked for the test part."""
        return self.data.asked["test"] - self.asked_before


def learner_class(name: str) -> type[Learner]:
    """The class behind a method's name: one of ``METHODS``, or ``package.module:Class``.

    The second imports code, also from the working directory: it is for names that the user gave,
    never for those that stand in a file.
    """
    if name in METHODS:
        return METHODS[name]
    module_name, colon, class_name = name.partition(":")
    if not colon or not all(part.isidentifier() for part in module_name.split(".")):
        raise InputError(
            f"unknown method {name!r}: choose one of {', '.join(METHODS)}, or package.module:Class"
        )
    _find_modules_here()
    try:
        found = importlib.import_module(module_name)
        for part in class_name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InputError(f"cannot import method {name}: {error}") from None
    if not (isinstance(found, type) and issubclass(found, Learner)):
        raise InputError(f"{name} is not a subclass of deepccg.Learner")
    return found


def _find_modules_here() -> None:
    """As with ``python -m``; the path of an installed program begins with its own directory.

    Worker processes get the path of this one.
    """
    with contextlib.suppress(OSError):  # the directory was removed
        here = str(Path.cwd())
        if here not in sys.path and "" not in sys.path:
            sys.path.insert(0, here)


def resolve(settings: Mapping[str, Any], learner: type[Learner] | None = None) -> RunConfig:
    """A complete configuration: the user's settings over the preset's over the defaults.

    Args:
        settings: Nested, or with dotted keys such as ``method.selector``.
        learner: A class of the user's own, instead of a method's name.
    """
    given = nested(settings)
    if learner is not None:
        name = f"{learner.__module__}:{learner.__qualname__}"
        given = merged(given, {"method": {"name": name}})
    outline = validated(RunConfig, given)
    key = {
        "preset": outline.preset,
        "method": outline.method.name,
        "dataset": outline.dataset,
        "stream": outline.stream.kind,
        "scenario": outline.scenario,
    }
    config = validated(RunConfig, laid_over(preset_settings(key), given))
    config = config.model_copy(update={"preset": recorded_name(config.preset)})
    return _complete(config, learner or learner_class(config.method.name))


def resolve_recorded(settings: Mapping[str, Any]) -> RunConfig:
    """What a run was, by what it recorded; fields that are younger than it have their defaults.

    A field's default is what was done before there was the field. What the presets of this version
    say does not count: they may have changed since.
    """
    config = validated(RunConfig, settings)
    return _complete(config, learner_class(config.method.name))


def _complete(config: RunConfig, learner: type[Learner]) -> RunConfig:
    if config.memory is not None and config.memory_per_class is not None:
        raise InputError("give memory (in total) or memory_per_class, not both")
    if config.stream.joint is not None and config.evaluation.shift_images is not None:
        raise InputError(
            "evaluation.shift_images needs tasks that come one after the other: "
            "a joint stream has all of them at once"
        )
    fields = validated(learner.Config, config.method.fields, "method")
    method = {"name": config.method.name, **fields.model_dump(mode="json")}
    complete = merged(config.model_dump(mode="json"), {"method": method})
    return validated(RunConfig, complete)


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys become tables, and a bare method name ``{"name": ...}``; so does a stream's.

    >>> nested({"method": "er", "method.lr": 0.2, "stream": "joint"})
    {'method': {'name': 'er', 'lr': 0.2}, 'stream': {'joint': 'tasks', 'kind': 'disjoint'}}
    """
    result: dict[str, Any] = {}
    for key, value in settings.items():
        if value is None:
            continue
        table = {"name": value} if key == "method" and isinstance(value, str) else value
        if key == "stream" and isinstance(value, str):
            table = {"kind": value}
        for part in reversed(key.split(".")[1:]):
            table = {part: table}
        result = merged(result, {key.split(".")[0]: table})
    stream = result.get("stream")
    if isinstance(stream, Mapping) and stream.get("kind") == "joint":
        result["stream"] = {"joint": "tasks", **stream, "kind": "disjoint"}
    return result


def build_material(config: RunConfig, data: Dataset) -> Material:
    """The stream a run reads and the images it is scored on.

    With ``evaluation.validation`` those images are held out of the training data, and the test
    part is never opened.
    """
    before = data.asked["test"]
    train = data.train
    if config.evaluation.validation is not None:
        capped = cap_per_class(train, config.stream.examples_per_class, config.seed)
        train, scored = hold_out(capped, config.evaluation.validation, config.seed)
    stream = _stream(config, train, data.n_classes)
    if config.evaluation.validation is None:
        scored = data.test
    test = make_test_set(scored, stream.tasks, config.evaluation.images, config.seed)
    followed = config.evaluation.shift_images
    shift = None
    if followed is not None:
        shift = make_test_set(scored, stream.tasks[:1], followed, config.seed)
    shape = tuple(train.x.shape[1:])
    return Material(stream, test, len(scored), data.class_names, shape, data, before, shift)


def _stream(config: RunConfig, train: Split, n_classes: int) -> Stream:
    fields = config.stream

    def online(kind: str) -> Stream:
        return build_stream(
            kind,
            train,
            classes_per_task=fields.classes_per_task or default_classes_per_task(n_classes),
            examples_per_class=fields.examples_per_class,
            batch_size=fields.batch_size,
            seed=config.seed,
        )

    stream = online(fields.kind)
    if fields.joint is None:
        return stream
    # Without tasks the pool is all data, whatever the stream; a window leaves some of it out.
    pool = online("disjoint") if fields.joint == "classes" else None
    passes, size = fields.epochs, fields.batch_size
    return JointStream(stream, pool=pool, passes=passes, batch_size=size, seed=config.seed)


def build_learner(
    config: RunConfig,
    shape: tuple[int, ...],
    classes: tuple[int, ...],
    learner: type[Learner],
    watch: Callable[[nn.Module], None] | None = None,
) -> Learner:
    """A fresh learner for inputs of ``shape``; ``classes`` in order of arrival.

    ``watch`` gets to see the network before the learner does.
    """
    try:
        native = config.kernels == "native"
        network = build_network(config.network, shape, config.seed, native)
        device = torch.device(config.device)
        if device.type == "meta":
            raise RuntimeError("it holds no numbers")
        network = network.to(device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"device {config.device!r} cannot be used: {reason}") from None
    if watch is not None:
        watch(network)
    fields = validated(learner.Config, config.method.fields, "method")
    budget = config.budget(len(classes))
    return learner(network, fields, memory=budget, classes=classes, seed=config.seed)
