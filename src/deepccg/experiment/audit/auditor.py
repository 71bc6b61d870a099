"""The auditor: checks that a run keeps the protocol, whatever its learner declares."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NoReturn

import numpy as np
from torch import nn

from deepccg.core import Learner, ProtocolViolation, State, StateMismatch
from deepccg.evaluation import PredictionCallback
from deepccg.experiment.audit.examples import ExampleIndex
from deepccg.experiment.audit.measure import (
    Held,
    PassCounter,
    StorageLimits,
    beside,
    fingerprint,
    how_to_declare,
    reserved,
    saved_sizes,
    state_parts,
)
from deepccg.experiment.audit.reach import Part, Reach, searchable
from deepccg.experiment.audit.verdict import Findings, PredictionSample, report
from deepccg.experiment.build import RunData
from deepccg.experiment.config import RunConfig

_PLACES = 3  # of examples that a message names


class Auditor:
    """Audits one run: call ``on_batch`` for every batch, and evaluate inside ``evaluating``.

    A broken rule raises ``ProtocolViolation``, after ``audit.json`` has been written. What is run
    (``config``) declares passes, budget and validation.
    """

    def __init__(self, config: RunConfig, data: RunData) -> None:
        self._config, self._data = config, data
        self._stream = data.stream
        self._offline = config.stream.joint is not None
        self._passes = config.stream.epochs if self._offline else 1
        self._budget = config.budget(len(self._stream.classes), data.shape)
        self._reads = np.zeros(self._stream.source_size, dtype=np.int64)
        self._counter = PassCounter()
        self._batches = 0
        self._found = Findings(passes=self._counter.counts)
        self._complete = True  # whether the run was audited from its first step
        self._write: Callable[[bytes], None] = lambda _: None
        self._examples = ExampleIndex(data.shape)
        self._train: set[int] = set()  # hashes of the examples read
        self._test: set[int] = set()  # and of those to score on
        self._uncounted: list[int] = []  # steps whose reads were not counted yet
        self._unknown: list[int] = []  # steps whose examples the index does not know yet
        self._trained_before = 0  # images trained on at evaluations before this step

    def attach(self, network: nn.Module) -> None:
        """Count the passes of the network and measure it, before the learner gets it."""
        self._network = network
        dim = int(getattr(network, "dim", 0))
        self._counter.attach(network, dim)
        tensors = [*network.parameters(), *network.buffers()]
        self._limits = StorageLimits(
            budget=self._budget,
            network=sum(tensor.numel() * tensor.element_size() for tensor in tensors),
            classes=len(self._stream.classes),
            dim=dim,
            itemsize=tensors[0].element_size() if tensors else 4,
        )

    def begin(
        self, position: int, saved: Mapping[str, Any] | None, write: Callable[[bytes], None]
    ) -> None:
        """Continue after step ``position`` with a checkpoint's audit; ``write`` audit.json."""
        self._write, self._batches = write, position
        self._complete = position == 0 or saved is not None
        self._uncounted, self._unknown = list(range(position)), list(range(position))
        self._counter.weights.attach(self._network)  # after whatever was loaded
        if saved is None or not position:
            return
        try:
            self._found = Findings.from_json(saved)
            moves, moved = int(self._found.moves or 0), bool(self._found.moved)
            self._counter.weights.attach(self._network, moves, moved=moved)
            self._counter.load(self._found.passes)
            self._found.passes = self._counter.counts
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise StateMismatch(f"the checkpoint's audit is not one: {error!r}") from None

    def state(self) -> dict[str, Any] | None:
        """Return what a checkpoint has to keep; ``None`` if not audited from the start."""
        self._count_moves()
        return asdict(self._found) if self._complete else None

    def _count_moves(self) -> None:
        self._found.moved = self._counter.weights.moved
        if self._found.moves is not None:  # else the count has no beginning
            self._found.moves = self._counter.weights.moves

    def on_batch(self, step: int) -> None:
        """Note that the batch of ``step`` was read; it is judged at the next evaluation."""
        self._batches += 1
        self._uncounted.append(step - 1)
        self._unknown.append(step - 1)
        self._trained_before = self._counter.trained_at_evaluation

    def on_shard(self, steps: range, passes: Mapping[str, Mapping[str, int]]) -> None:
        """Note that another process read the batches at ``steps``, with so many passes."""
        for step in steps:
            self.on_batch(step + 1)
        self._counter.add(passes)

    @contextlib.contextmanager
    def evaluating(self, learner: Learner) -> Iterator[PredictionCallback]:
        """Audit an evaluation, which passes its predictions to the callback that this yields."""
        before = fingerprint(learner.state_dict())
        images = len(self._data.test)
        sample = PredictionSample(images, self._config.seed, self._found.evaluations)
        self._counter.phase = "evaluation"
        yield sample.record
        self._counter.phase = "audit"
        self._found.evaluations += 1
        self._judge_reads()
        self._judge_predictions(learner, sample)
        state = learner.state_dict()
        if fingerprint(state) != before:
            self._fail("evaluation", "the learner's state changed while it was being tested")
        self._judge_test_part()
        self._judge_memory(learner, state)
        self._counter.phase = "learning"

    @contextlib.contextmanager
    def observing(self, *, counted: bool = True) -> Iterator[None]:
        """Count the passes inside the block as those of an evaluation, or not at all."""
        self._counter.phase = "evaluation" if counted else "audit"
        yield
        self._counter.phase = "learning"

    def audit(self) -> dict[str, Any] | None:
        """Return the content of ``audit.json`` so far; ``None`` if not audited from the start."""
        if not self._complete:
            return None
        self._count_reads()
        self._count_moves()
        reads = {
            "passes": self._passes,
            "examples": int((self._reads > 0).sum()),
            "total": int(self._reads.sum()),
            "most": int(self._reads.max(initial=0)),
        }
        return report(self._found, reads, self._batches, self._budget, self._offline)

    def close(self) -> None:
        """Write ``audit.json``: every rule was kept. Nothing is counted afterwards."""
        self._counter.phase = "audit"
        self._write_audit()

    def _count_reads(self) -> None:
        for step in self._uncounted:
            np.add.at(self._reads, self._stream.indices(step), 1)
        self._uncounted.clear()

    def _judge_reads(self) -> None:
        self._count_reads()
        most = int(self._reads.max(initial=0))
        if most > self._passes:
            self._fail("reads", f"an example was read {most} times, {self._passes} declared")

    def _judge_predictions(self, learner: Learner, sample: PredictionSample) -> None:
        """Class-incremental predictions may depend neither on tasks nor on the other images."""
        if not sample.images:
            return
        self._found.class_incremental = True
        differing = sample.differing(learner)
        self._found.asked_again += len(sample.images)
        if differing:
            self._fail(
                "task identifiers",
                f"{differing} of {len(sample.images)} test images got another class when asked "
                f"again shuffled and without tasks: class-incremental predictions depend on the "
                f"tasks or the other images of the batch",
            )

    def _judge_memory(self, learner: Learner, state: State) -> None:
        self._index_examples()
        claims, reach, saved = learner.memory_usage(), Reach(learner), state_parts(state)
        self._found.not_searched = sorted(reach.processes)
        stored = self._examples.found_in(searchable(saved)) & self._train
        self._found.held = held = Held(
            examples=max(len(stored), claims.examples),
            bytes={kind: int(size) for kind, size in claims.bytes.items()},
            unnamed_bytes=self._limits.unnamed(saved, claims.total) + len(json.dumps(state.meta)),
        )
        self._found.most_examples = max(self._found.most_examples, held.examples)
        trained = self._counter.trained_at_evaluation - self._trained_before
        passes = round(trained / max(1, held.examples))
        self._found.memory_passes = max(self._found.memory_passes, passes)
        within = self._examples.found_in(searchable(reach.parts))
        examples = max(held.examples, len(within & self._train))
        if examples > self._budget:
            where = self._places(reach.parts, self._train)
            self._fail("memory", f"{examples} examples are held, {self._budget} are allowed{where}")
        tested = within & self._test - self._train
        if tested:
            where = self._places(reach.parts, tested)
            self._fail("test data", f"the learner holds {len(tested)} test examples{where}")
        in_reach = self._limits.unnamed(reach.parts, reserved(claims, self._limits))
        self._judge_bytes(in_reach, beside(self._network, reach.parts))
        self._judge_bytes(held.unnamed_bytes, saved_sizes(state))

    def _judge_bytes(self, unnamed: int, sizes: Mapping[str, int]) -> None:
        if unnamed > self._limits.allowance:
            self._fail(
                "bytes",
                f"the learner holds {unnamed:,} bytes in addition to network and head that its "
                f"memory_usage() does not name; {self._limits.allowance:,} need no name. "
                f"{how_to_declare(sizes)}",
            )

    def _index_examples(self) -> None:
        """Remember the examples read since the last time and, at first, those to score on."""
        for step in self._unknown:
            self._train |= self._examples.add(self._stream[step].x)
        self._unknown.clear()
        for scored in (self._data.test, self._data.shift_images):
            if scored is not None and not self._test:
                for part in scored.parts(len(scored.tasks)):
                    self._test |= self._examples.add(part.images())

    def _places(self, parts: Sequence[Part], wanted: set[int]) -> str:
        """Say where the ``wanted`` examples are; each is told of once, with most of the others."""
        by_name: dict[str, list[Part]] = {}
        for part in parts:
            by_name.setdefault(part.name, []).append(part)
        found = {
            name: self._examples.found_in(searchable(own)) & wanted for name, own in by_name.items()
        }
        told: list[str] = []
        for name, own in sorted(found.items(), key=lambda item: -len(item[1])):
            if own & wanted and len(told) < _PLACES:
                told.append(f"{len(own & wanted)} in {name}")
            wanted = wanted - own
        return f" ({', '.join(told)})" if told else ""

    def _judge_test_part(self) -> None:
        opened = self._data.test_openings
        self._found.test_opened |= opened > 0
        validation = self._config.evaluation.validation is not None
        if opened > (0 if validation else 1):  # the one time is for scoring
            what = "in a run scored on held-out training data" if validation else "while training"
            self._fail("test part", f"the test part of the data set was opened {what}")

    def _fail(self, rule: str, message: str) -> NoReturn:
        self._found.violations.append({"rule": rule, "message": message})
        self._write_audit()
        raise ProtocolViolation(f"protocol violation ({rule}): {message}")

    def _write_audit(self) -> None:
        if (audit := self.audit()) is not None:
            self._write(json.dumps(audit, indent=2, allow_nan=False).encode() + b"\n")
