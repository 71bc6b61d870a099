"""GDumb: a balanced memory of first examples, and a network trained on it anew when asked."""

import copy
import math

import torch
import torch.nn.functional as F
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn

from deepccg.core import Batch, Diverged, MemoryUsage, State, StepInfo, Task, all_finite
from deepccg.learners.heads import GrowingLinear, HeadLearner, masked_cross_entropy
from deepccg.learners.optimiser import OptimiserConfig
from deepccg.learners.teacher import Teacher
from deepccg.networks import map_in_chunks

BATCH, MOMENTUM, WEIGHT_DECAY, LARGEST_GRADIENT = 16, 0.9, 1e-6, 10.0
LOWEST, WARM_UP = 0.01, 0.1  # of the highest step size
PADDING, MIXED = 4, 0.5  # pixels around an image to crop from; how often a batch is mixed


class GDumbConfig(OptimiserConfig):
    """Fields of GDumb."""

    lr: PositiveFloat = Field(0.05, description="highest step size of the offline learner")
    passes: PositiveInt = Field(
        256, description="passes over memory each time that the offline learner is asked"
    )
    augment: bool = Field(
        True,
        description="crop and mirror stored images and mix them by CutMix, as published for "
        "photographs; false where left and right differ, as in writing",
    )


class GDumb(HeadLearner[GDumbConfig]):
    """GDumb: an online sampler with an offline learner, trained on memory when it is asked.

    Sampler: with C classes met so far, this one included, and k = floor(memory / C), an example is
    stored if its class is new or holds fewer than k. If memory is full, a random example of the
    largest class gives way. So a class keeps its first examples.

    Learner: nothing is trained in the stream. The first answer after a step trains a copy of
    network and head, as they were before anything was learned, by 256 passes over memory:
    SGD with momentum in batches of 16, a softmax over all classes seen, a step size that falls
    along cosines which restart and double in length. The copy is dropped at the next step.

    Compare it with offline methods: an audit prints its passes over memory.

    Reference: Prabhu et al., "GDumb: A Simple Approach that Questions Our Progress in Continual
    Learning", ECCV 2020.
    """

    Config = GDumbConfig

    def build_state(self, seed: int) -> None:
        """Network and head stay as they begin; what is trained is derived from them and memory."""
        super().build_state(seed)
        self._trained: Teacher | None = None

    # The sampler

    def learn(self, batch: Batch) -> StepInfo:
        """Offer each example to memory; nothing is trained."""
        x, y, task_idx = self.begin_step(batch)
        # At every step, also where memory stays: what an audit counts may not depend on whether
        # the run was interrupted in between.
        self._trained = None
        self.update_memory(x, y, task_idx)
        return self.end_step(0.0)

    def update_memory(self, x: Tensor, y: Tensor, task_idx: Tensor) -> None:
        """Store the examples one after the other, as far as their classes have room."""
        columns: list[int] = y.tolist()
        before = self.class_table.seen - torch.bincount(y.cpu(), minlength=len(self.class_table))
        met = set(before.nonzero().flatten().tolist())
        for i, column in enumerate(columns):
            slot = self.slot_for(column, met)
            met.add(column)
            one = slice(i, i + 1)
            self.memory.write(slot, x[one], y[one], task_idx[one])

    def slot_for(self, column: int, met: set[int]) -> Tensor:
        """The slot ``[1]`` of an example after classes ``met``, or none ``[0]``."""
        memory, stored = self.memory, self.memory.counts
        share = memory.capacity // len(met | {column})
        if memory.capacity == 0 or (column in met and stored[column] >= share):
            return torch.empty(0, dtype=torch.int64)
        if memory.size < memory.capacity:
            return torch.tensor([memory.size])
        largest = max(range(len(self.class_table)), key=stored.__getitem__)
        own = (memory.y == largest).nonzero().flatten()
        return own[torch.randint(len(own), (1,), generator=self.generator)]

    # The learner

    def trained(self) -> Teacher:
        """Network and head trained on memory as it is."""
        if self._trained is None:
            self._trained = self.train_anew()
        return self._trained

    def train_anew(self) -> Teacher:
        """Train copies of network and head; the learner's own generator is read, not moved."""
        generator = torch.Generator()
        generator.set_state(self.generator.get_state())
        # Answers are asked without gradient; a network's own dropout draws globally.
        with torch.inference_mode(False), torch.enable_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**31, (1,), generator=generator)))
            network, head = copy.deepcopy(self.network).train(), copy.deepcopy(self.head)
            weights = [p for m in (network, head) for p in m.parameters() if p.requires_grad]
            optimiser = torch.optim.SGD(
                weights, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY, foreach=True
            )
            for number in range(self.config.passes if self.memory.size else 0):
                optimiser.param_groups[0]["lr"] = self.step_size(number)
                order = torch.randperm(self.memory.size, generator=generator)
                for slots in torch.split(order, BATCH):
                    optimiser.zero_grad()
                    self.loss_of(slots, network, head, generator).backward()  # type: ignore[no-untyped-call]  # as in torch
                    nn.utils.clip_grad_norm_(weights, LARGEST_GRADIENT)
                    optimiser.step()
            if not all_finite(weights):
                raise self._diverged("the weights are")
        return Teacher(network, head)

    def loss_of(
        self, slots: Tensor, network: nn.Module, head: GrowingLinear, generator: torch.Generator
    ) -> Tensor:
        """Mean cross entropy over all classes seen of some stored examples, augmented."""
        slots = slots.to(self.device)
        x, y = self.memory.x[slots], self.memory.y[slots]
        other, share = torch.arange(len(y)), 1.0
        if self.config.augment and x.ndim == 4:
            x = crop_and_mirror(x, generator)
            x, other, share = cutmix(x, generator)
        logits = head(network(x))
        mask = (self.class_table.seen > 0).to(self.device)
        terms = share * masked_cross_entropy(logits, y, mask)
        if share < 1:
            terms = terms + (1 - share) * masked_cross_entropy(logits, y[other], mask)
        loss = terms.mean()
        if not math.isfinite(loss.item()):
            raise self._diverged("the loss is")
        return loss

    def step_size(self, number: int) -> float:
        """The step size of a pass; a number that the weights' precision has."""
        highest = self.optimiser.lr
        if highest > torch.finfo(self.dtype).max:
            raise Diverged(f"lr {highest:g} is beyond all {self.dtype} numbers: try a smaller lr")
        return highest * annealed(number)

    def _diverged(self, what: str) -> Diverged:
        return Diverged(
            f"{what} not finite in training on memory after step {self.steps}: try a smaller lr"
        )

    # Predictions and state

    def scores(self, x: Tensor) -> Tensor:
        """Raw logits of the trained network, ``[B, C]``."""
        raw: Tensor = self.predicting_head()(self._embedded(x))
        return raw

    def representation(self, x: Tensor, task: Task | None = None) -> Tensor:
        """Embeddings of the trained network."""
        del task
        return self._embedded(self.validate_inputs(x, "x"))

    @torch.no_grad()
    def _embedded(self, x: Tensor) -> Tensor:
        return map_in_chunks(self.predicting_network(), x)

    def predicting_head(self) -> GrowingLinear:
        """The trained head."""
        return self.trained().head

    def predicting_network(self) -> nn.Module:
        """The trained network."""
        return self.trained().network

    def memory_usage(self) -> MemoryUsage:
        """The memory, and the trained copy of network and head, whether there is one just now."""
        held = super().memory_usage()
        modules = (self.network, self.head)
        copied = sum(t.nbytes for m in modules for t in (*m.parameters(), *m.buffers()))
        return MemoryUsage(held.examples, {**held.bytes, "network copy": copied})

    def load_state_dict(self, state: State) -> None:
        """See ``Learner``."""
        super().load_state_dict(state)
        self._trained = None


def annealed(number: int) -> float:
    """The share of the highest step size that pass ``number`` takes: cosines of 1, 2, 4 passes ...

    >>> [round(annealed(number), 3) for number in range(6)]
    [0.1, 1.0, 1.0, 0.505, 1.0, 0.855]
    """
    if number == 0:
        return WARM_UP
    length = 1 << (number.bit_length() - 1)  # cycles begin at pass 1, 2, 4, ...
    height = (1 + math.cos(math.pi * (number - length) / length)) / 2
    return LOWEST + (1 - LOWEST) * height


def crop_and_mirror(x: Tensor, generator: torch.Generator) -> Tensor:
    """Each image ``[B, C, H, W]`` shifted by up to four pixels, with zeros; half are mirrored."""
    count, _, height, width = x.shape
    padded = F.pad(x, (PADDING,) * 4)
    begin = torch.randint(2 * PADDING + 1, (2, count), generator=generator).to(x.device)
    mirrored = (torch.rand(count, generator=generator) < 0.5).to(x.device)
    rows = begin[0, :, None] + torch.arange(height, device=x.device)
    columns = torch.arange(width, device=x.device).expand(count, -1)
    columns = begin[1, :, None] + torch.where(mirrored[:, None], columns.flip(1), columns)
    image = torch.arange(count, device=x.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[image, rows[:, :, None], columns[:, None]].permute(0, 3, 1, 2)


def cutmix(x: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, float]:
    """Half the time, one box of every image ``[B, C, H, W]`` is taken from another image.

    Returns:
        The images, which image each has its box from ``[B]``, and the share that is its own.
    """
    chance, own, *centre = torch.rand(4, generator=generator, dtype=torch.float64).tolist()
    other = torch.randperm(len(x), generator=generator)
    if chance >= MIXED:
        return x, other, 1.0
    height, width = x.shape[2:]
    (top, bottom), (left, right) = (
        _span(size, place, math.sqrt(1 - own))
        for size, place in zip((height, width), centre, strict=True)
    )
    x = x.clone()
    x[:, :, top:bottom, left:right] = x[other.to(x.device), :, top:bottom, left:right]
    return x, other, 1 - (bottom - top) * (right - left) / (height * width)


def _span(size: int, place: float, share: float) -> tuple[int, int]:
    """Begin and end of a part of ``size`` pixels around a place in [0, 1), cut at the borders."""
    middle, length = int(place * size), int(share * size)
    return max(0, middle - length // 2), min(size, middle + length // 2)
