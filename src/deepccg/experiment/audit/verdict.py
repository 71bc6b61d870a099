"""The verdict of an audit: ``audit.json``, and the one line of it that is printed.

Version 1 has these keys; nothing in it depends on time or on interruptions:

- ``version``: 1; a change that a reader must know of raises it.
- ``protocol``: ``single pass``, or ``offline`` for a joint stream.
- ``passed``, ``violations``: whether every rule was kept, else ``rule`` and ``message`` of the one
  that was not. The run ends there.
- ``reads``: ``passes`` declared, distinct ``examples`` read, ``total`` reads, and the ``most`` of
  one example.
- ``memory``: the ``budget``; distinct ``examples`` of the stream in the saved state, and the
  ``most`` at any evaluation; ``bytes`` by kind; ``unnamed_bytes`` of the state that no kind names
  (counters, fields, means); ``not_searched``: other processes that the learner holds, by name, as
  nobody can look into them (the first audits lack this key); ``passes``: only of a learner that
  trains when it is asked, the most passes over memory at one evaluation.
- ``test``: how many ``evaluations``; whether the learner was scored ``class_incremental``; test
  images ``asked_again``, shuffled and without tasks; whether the test part was ``opened``.
- ``training``: how many ``batches`` were learned and how often the weights moved for them,
  ``optimiser_steps`` (the first audits lack this key; null: an earlier version began the run).
- ``passes``: network calls and images, forwards and backwards, in ``learning`` and ``evaluation``.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from deepccg.core import Learner, make_generator
from deepccg.experiment.audit.measure import Held

VERSION = 1
ASKED_AGAIN = 64  # test images of an evaluation of all tasks, drawn for each
_SAME = 1e-4  # of a row's largest score: what another batch size may change by rounding


@dataclass
class Findings:
    """What an audit has found so far; saved with each checkpoint."""

    evaluations: int = 0
    class_incremental: bool = False
    asked_again: int = 0
    most_examples: int = 0
    memory_passes: int = 0  # the most at one evaluation
    test_opened: bool = False
    not_searched: list[str] = field(default_factory=list)
    held: Held = field(default_factory=Held)
    passes: dict[str, dict[str, int]] = field(default_factory=dict)
    moves: int | None = 0  # of the weights, between passes; None: an earlier version began
    moved: bool = False  # and once more since the last pass

    @property
    def optimiser_steps(self) -> int | None:
        """How often the weights moved."""
        return None if self.moves is None else self.moves + self.moved

    violations: list[dict[str, str]] = field(default_factory=list)

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> "Findings":
        """Read findings saved as plain values; ``TypeError`` or ``KeyError`` for anything else."""
        return cls(**{"moves": None, **saved, "held": Held(**saved["held"])})


def report(
    found: Findings, reads: Mapping[str, int], batches: int, budget: int, offline: bool
) -> dict[str, Any]:
    """Return the content of ``audit.json``."""
    return {
        "version": VERSION,
        "protocol": "offline" if offline else "single pass",
        "passed": not found.violations,
        "violations": list(found.violations),
        "reads": dict(reads),
        "memory": {
            "budget": budget,
            "examples": found.held.examples,
            "most": found.most_examples,
            "bytes": dict(found.held.bytes),
            "unnamed_bytes": found.held.unnamed_bytes,
            "not_searched": list(found.not_searched),
            **({"passes": found.memory_passes} if found.memory_passes else {}),
        },
        "test": {
            "evaluations": found.evaluations,
            "class_incremental": found.class_incremental,
            "asked_again": found.asked_again,
            "opened": found.test_opened,
        },
        "training": {"batches": batches, "optimiser_steps": found.optimiser_steps},
        "passes": {phase: dict(counts) for phase, counts in found.passes.items()},
    }


def protocol_line(audit: Mapping[str, Any] | None) -> str:
    """Return the audit in one line.

    >>> held = Held(100, {"examples": 308_800, "logits": 0}, 312)
    >>> found = Findings(evaluations=5, test_opened=True, held=held, most_examples=100)
    >>> reads = {"passes": 1, "examples": 5000, "total": 5000, "most": 1}
    >>> found.passes, found.moves = {"learning": {"forward_images": 30_000}}, 1000
    >>> print(protocol_line(report(found, reads, 500, 100, offline=False)))
    protocol: single pass, 5,000 examples read once; memory 100 of 100 examples, 308,800 bytes \
+ 0 other; 2 optimiser steps per batch, about 200 passes over memory; no test data in training
    """
    if audit is None:
        return "protocol: not audited, the run was begun by an earlier version"
    reads, memory = audit["reads"], audit["memory"]
    times = "once" if reads["most"] == 1 else f"{reads['most']} times each"
    own = memory["bytes"].get("examples", 0)
    other = sum(memory["bytes"].values()) - own
    parts = [
        f"{audit['protocol']}, {reads['examples']:,} examples read {times}",
        f"memory {memory['examples']:,} of {memory['budget']:,} examples, {own:,} bytes "
        f"+ {other:,} other",
        *_training(audit),
        "no test data in training" + ("" if audit["test"]["opened"] else ", test part not opened"),
    ]
    if memory.get("passes"):
        parts.append(f"offline learner, {memory['passes']:,} passes over memory at an evaluation")
    if memory.get("not_searched"):
        parts.append(f"not searched: {', '.join(memory['not_searched'])}")
    return f"protocol: {'; '.join(parts)}"


def _training(audit: Mapping[str, Any]) -> list[str]:
    """Say how often weights moved for a batch and, of a method with a memory, how often it passed.

    Images that went through the network beside the batch of each step are taken for stored ones.
    """
    counts = audit.get("training", {})
    if not counts.get("batches") or counts["optimiser_steps"] is None:
        return []
    steps = counts["optimiser_steps"] / counts["batches"]
    stored = audit["memory"]["most"]
    said = f"{steps:.3g} optimiser step{'' if steps == 1 else 's'} per batch"
    if stored and steps:
        images = audit["passes"]["learning"]["forward_images"]
        beside = max(0.0, images - max(1.0, steps) * audit["reads"]["total"])
        said += f", about {beside / stored:.3g} passes over memory"
    return [said]


class PredictionSample:
    """A random sample of the ``images`` of a run's evaluation ``number``, with their scores."""

    def __init__(self, images: int, seed: int, number: int) -> None:
        self._share = ASKED_AGAIN / max(ASKED_AGAIN, images)
        self._generator = make_generator(seed, "audit", str(number))
        self.images: list[Tensor] = []
        self._scores: list[Tensor] = []

    def record(self, x: Tensor, scores: Tensor) -> None:
        """Keep some of the images ``x [B, ...]`` and their ``scores [B, C]``."""
        count = math.ceil(self._share * len(x))
        for row in torch.randperm(len(x), generator=self._generator)[:count].tolist():
            self.images.append(x[row].clone())
            self._scores.append(scores[row].detach().clone())

    @torch.no_grad()
    def differing(self, learner: Learner) -> int:
        """Return how many images get another class when predicted again, shuffled, without task."""
        order = torch.randperm(len(self.images), generator=self._generator)
        first = torch.stack(self._scores)[order]
        again = learner.predict_logits(torch.stack(self.images)[order], None)
        if again.shape != first.shape:
            return len(order)
        other = first.argmax(dim=1) != again.argmax(dim=1)
        return int((other & ~_close(first, again)).sum())


def _close(first: Tensor, again: Tensor) -> Tensor:
    """Whether rows of scores differ by rounding only, ``[B]``: near ties may go either way."""
    finite = first.isfinite()
    values = first.masked_fill(~finite, 0)
    apart = (values - again.masked_fill(~finite, 0)).abs().amax(dim=1)
    return (finite == again.isfinite()).all(dim=1) & (apart <= _SAME * values.abs().amax(dim=1))
