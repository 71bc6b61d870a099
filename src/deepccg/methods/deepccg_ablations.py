"""The paper's ablation of the classifier: ER's head and loss on DeepCCG's memory."""

from typing import Self

from pydantic import model_validator
from torch import Tensor

from deepccg.core import Batch, StepInfo
from deepccg.learners.selection import Embedded, Selection, SelectionConfig, embedded_now
from deepccg.memory import offer_to_reservoir
from deepccg.methods.deepccg import Belief, ClassConditional, ClassConditionalConfig
from deepccg.methods.er import ER, ERConfig


class DeepCCGReservoir(ClassConditional[ClassConditionalConfig]):
    """DeepCCG-reservoir: DeepCCG's classifier and loss; memory is one reservoir over all examples.

    Nothing balances the classes: each stored set is a uniformly random subset of everything seen
    (Vitter's algorithm R, as in ER-reservoir), so a class holds as many examples as its share of
    the stream gives it, and a rare one may hold none. It is then never predicted.

    Reference: the row "DeepCCG-reservoir" of the ablation of Lee & Storkey, AISTATS 2024.
    """

    Config = ClassConditionalConfig
    selects = False

    def remember(self, x: Tensor, y: Tensor, rows: Tensor, z: Embedded, belief: Belief) -> None:
        """Offer the batch to the reservoir, whose counter is the number of examples seen."""
        del belief
        extras = self.note_embeddings(z)
        before = int(self.outputs.seen.sum()) - len(y)
        offer_to_reservoir(
            self.memory,
            x,
            y,
            rows,
            seen=before,
            generator=self.generator,
            capacity=None,
            **extras,
        )


class DeepCCGStandardHeadConfig(SelectionConfig, ERConfig):
    """Fields of DeepCCG-standardHead: ER's, and those of DeepCCG's selection."""

    @model_validator(mode="after")
    def _counts_no_errors(self) -> Self:
        if self.renewal == "errors":
            raise ValueError("renewal=errors is for deepccg alone: give a number from 0 to 1")
        return self


class DeepCCGStandardHead(ER):
    """DeepCCG-standardHead: a linear head trained with ER's loss; memory by DeepCCG's selection.

    Each step is ER's: one gradient step on the cross entropy of batch and replay. Then each class
    of the batch keeps the examples whose mean embedding is nearest the mean of all of it
    (Lee & Storkey, Eqs. 10, 12), measured under the network the step began with.

    Reference: the row "DeepCCG-standardHead" of the ablation of Lee & Storkey, AISTATS 2024.
    """

    Config = DeepCCGStandardHeadConfig
    config: DeepCCGStandardHeadConfig

    def set_up(self, seed: int) -> None:
        """Head and memory of ER, and the selection."""
        super().set_up(seed)
        self.selection = Selection(self.config, self.memory, self.outputs, self.generator)

    def learn(self, batch: Batch) -> StepInfo:
        """ER's step on batch and replay; the memory is reselected before the network moves."""
        x, y, rows = self.receive(batch)
        replay = self.draw_replay()
        loss = self.loss(x, y, rows, replay)
        gradients = self.gradients(loss)
        self.remember(x, y, rows)
        self.step(gradients, self.config.lr)
        self.steps += 1
        return StepInfo(loss=float(loss.detach()), replayed=len(replay))

    def remember(self, x: Tensor, y: Tensor, rows: Tensor) -> None:
        """Reselect the memory of the batch's classes under the present network."""
        self.selection.reselect(
            x, y, rows, lambda index: embedded_now(index, self.memory, x, self.embed)
        )
