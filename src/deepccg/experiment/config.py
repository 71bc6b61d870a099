"""The configuration of a run: every setting, typed, defaulted and documented."""

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, model_validator

from deepccg.core import Config
from deepccg.networks import NetworkConfig
from deepccg.streams import MOST_SPREAD, check_options
from deepccg.streams.domains import MOST_DOMAINS, Appearance

Scenario = Literal["task", "class"]

MOST_EXAMPLES = 10**9  # of a memory
MOST_BYTES = 2**40
LABEL_BYTES = 16  # of a stored example's class and task
LONGEST_NAME = 200  # bytes of a directory's name; file systems take 255
_YOUNGER_STREAM_FIELDS = ("imbalance", "blur", "spread", "domains", "appearance")


def example_bytes(shape: Sequence[int]) -> int:
    """Return the bytes of a stored example with its labels.

    >>> example_bytes((3, 32, 32)), example_bytes((20,))
    (3088, 96)
    """
    itemsize = 1 if len(shape) == 3 else 4
    return math.prod(shape) * itemsize + LABEL_BYTES


class StreamConfig(Config):
    """In which order the data arrives."""

    kind: Literal["disjoint", "shifting-window", "blurry", "gaussian", "domain"] = Field(
        "disjoint",
        description="tasks that share no class, a window that moves on by one class, disjoint "
        "tasks with blurry boundaries, classes that come and go, or the same classes in changing "
        "appearance (docs/streams.md)",
    )
    classes_per_task: PositiveInt | None = Field(
        None, description="classes per task or window; default 2 up to ten classes, else 5"
    )
    examples_per_class: PositiveInt = Field(500, description="at most so many of each class")
    batch_size: PositiveInt = Field(10, description="examples per batch")
    imbalance: float | None = Field(
        None,
        ge=1,
        description="how many times more examples the most frequent class has than the rarest, "
        "with the others between them (long-tailed); default: as many as there are",
    )
    blur: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="blurry: share of each class that comes in the other tasks; default 0.1",
    )
    spread: float | None = Field(
        None,
        gt=0,
        le=MOST_SPREAD,
        description="gaussian: standard deviation of the times of a class, in distances between "
        "the peaks of two classes; default 1",
    )
    domains: int | None = Field(
        None, ge=2, le=MOST_DOMAINS, description="domain: how many; default 5"
    )
    appearance: Appearance | None = Field(
        None, description="domain: what changes, rotation or permutation; default rotation"
    )
    joint: Literal["tasks", "classes"] | None = Field(
        None,
        description="offline instead: all tasks pooled and shuffled, each example with its own "
        "task (tasks); or all data of the classes, without tasks (classes)",
    )
    epochs: PositiveInt = Field(1, description="joint: how often each example is read")

    @model_validator(mode="after")
    def _online_is_one_pass(self) -> Self:
        if self.epochs > 1 and self.joint is None:
            raise ValueError("epochs is 1 for an online stream: only a joint one is read again")
        return self

    @model_validator(mode="after")
    def _options_are_of_the_kind(self) -> Self:
        check_options(self.kind, [name for name, value in self if value is not None])
        return self


class EvaluationConfig(Config):
    """When and on what the learner is scored."""

    every: PositiveInt | Literal["end", "task"] = Field(
        "task", description="at the end, after every task, or every N batches"
    )
    images: PositiveInt | None = Field(None, description="at most so many images; default all")
    validation: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="hold out this share of the training data and score on it; the test set "
        "is not opened",
    )
    shift_images: PositiveInt | None = Field(
        None,
        description="record, for each batch after the first task, how it moves at most so many "
        "of that task's test images; costs a forward of them per batch; default: do not",
    )


class MethodSettings(BaseModel):
    """A method's name and its own fields."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str = Field(
        "deepccg", description="a name from `deepccg methods`, or package.module:Class"
    )

    @property
    def fields(self) -> dict[str, Any]:
        """The method's own fields."""
        return dict(self.model_extra or {})


class RunConfig(Config):
    """One run. Where the data lies is not part of it."""

    dataset: str = Field("digits", description="a name from `deepccg data`, or hf:owner/name")
    scenario: Scenario = Field("task", description="whose memory sizes and presets are taken")
    preset: str = Field("default", description="where settings not given come from")
    memory: NonNegativeInt | None = Field(
        None, le=MOST_EXAMPLES, description="stored examples in total"
    )
    memory_per_class: NonNegativeInt | None = Field(
        None, le=MOST_EXAMPLES, description="the same, per class"
    )
    memory_bytes: NonNegativeInt | None = Field(
        None,
        le=MOST_BYTES,
        description="the same, as bytes of examples with their labels; a method that keeps "
        "statistics instead takes features that fit",
    )
    seed: NonNegativeInt = Field(0, description="class order, examples, initial weights, replay")
    threads: PositiveInt = Field(
        1, le=1024, description="torch threads; results are exact per number"
    )
    device: str = Field("cpu", description="torch device")
    kernels: Literal["auto", "torch", "native"] = Field(
        "auto",
        description="native: normalise images with a kernel that is compiled once; torch: with "
        "PyTorch's own operations, slower; results are exact per kind; auto: native where it helps",
    )
    stream: StreamConfig = StreamConfig()
    method: MethodSettings = MethodSettings(name="deepccg")
    network: NetworkConfig = NetworkConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    def budget(self, n_classes: int, shape: Sequence[int]) -> int:
        """Return how many examples may be stored.

        Args:
            n_classes: Classes of the data set.
            shape: Of one input: images ``[C, H, W]`` are stored as bytes, vectors as floats.
        """
        if self.memory_bytes is not None:
            return self.memory_bytes // example_bytes(shape)
        return (self.memory_per_class or 0) * n_classes if self.memory is None else self.memory

    def identity(self) -> str:
        """Return a short hash of everything that decides the result except the seed."""
        excluded = {"seed", "threads", "device", "kernels", "preset"}
        fields = self.model_dump(mode="json", exclude=excluded)
        younger = (
            *((fields["stream"], name) for name in _YOUNGER_STREAM_FIELDS),
            (fields["evaluation"], "shift_images"),
            (fields, "memory_bytes"),
        )
        for table, name in younger:  # than the names of runs
            if table[name] is None:
                del table[name]
        text = json.dumps(fields, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()

    def name(self) -> str:
        """Return the directory name for the runs of this configuration, whatever their seed."""
        parts = (self.dataset, self.stream.kind, self.scenario, self.method.name, self.preset)
        last = (part.rstrip("/").split("/")[-1] for part in parts)  # of a folder, not its path
        plain = "".join(c if c.isalnum() or c in "-_." else "-" for c in "-".join(last))
        short = plain.lstrip("-.").encode()[:LONGEST_NAME].decode(errors="ignore")
        return f"{short}-{self.identity()}".lstrip("-")
