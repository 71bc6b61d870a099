"""Methods with a linear head."""

import copy
import math
from collections.abc import Callable

from torch import Tensor, nn

from deepccg.core import Batch, State, StateMismatch, Task, make_generator
from deepccg.methods.base import ConfigT, NetworkLearner
from deepccg.methods.parts import GeneratorPart, ModulePart, Part
from deepccg.networks import GrowingLinear


class HeadLearner(NetworkLearner[ConfigT]):
    """A network with one shared linear head whose rows grow with the classes."""

    def set_up(self, seed: int) -> None:
        """The head, with a row for each class known already."""
        super().set_up(seed)
        self.head = GrowingLinear(self.dim).to(self.device, self.dtype)
        self.head_generator = make_generator(seed, "head")
        self.head.grow(len(self.outputs), self.head_generator)

    def receive(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """As ``NetworkLearner.receive``; the head grows rows for new classes."""
        received = super().receive(batch)
        self.head.grow(len(self.outputs), self.head_generator)
        return received

    def _matching_parts(self, state: State) -> dict[str, State]:
        found = super()._matching_parts(state)
        rows = {len(value) for value in found["head"].tensors.values()}
        classes = len(found["outputs"].meta["classes"])
        if rows != {classes}:
            raise StateMismatch(f"the state's head has {sorted(rows)} rows for {classes} classes")
        return found

    def modules(self) -> list[nn.Module]:
        """Network and head."""
        return [self.network, self.head]

    def logits(self, x: Tensor) -> Tensor:
        """Raw logits with gradient, ``[B, C]``."""
        if not self.network.training:
            self.network.train()
        raw: Tensor = self.head(self.network(x))
        return raw

    def scores(self, x: Tensor) -> Tensor:
        """Raw logits without gradient, ``[B, C]``."""
        raw: Tensor = self.head(self.embed(x))
        return raw

    def frozen(self, mask: Tensor, task: Task | None) -> Callable[[Tensor], Tensor]:
        """A copy of the head that predicts."""
        del task
        head = copy.deepcopy(self.predicting_head())
        return lambda z: head(z).masked_fill(~mask, -math.inf)

    def predicting_head(self) -> GrowingLinear:
        """The head whose scores are the predictions."""
        return self.head

    def parts(self) -> dict[str, Part]:
        """Network, head, and the generator that draws new rows."""
        return {
            **super().parts(),
            "head": ModulePart("head", self.head, grows=True),
            "head_generator": GeneratorPart(self.head_generator),
        }
