"""The paper's ablations of DeepCCG: its classifier on ER's memory, and ER's head on its memory."""

from typing import Self

import torch
from pydantic import model_validator
from torch import Tensor

from deepccg.core import Batch, StepInfo
from deepccg.learners.heads import HeadLearner, ReplayConfig
from deepccg.learners.memory_selection import (
    Selection,
    SelectionConfig,
    StepEmbeddings,
    embed_candidates,
)
from deepccg.memory import offer_to_reservoir
from deepccg.methods.deepccg import DeepCCG, GaussianConfig


class DeepCCGReservoir(DeepCCG):
    """DeepCCG-reservoir: DeepCCG's classifier and loss; memory is one reservoir over all examples.

    Nothing balances the classes: each stored set is a uniformly random subset of everything seen
    (Vitter's algorithm R, as in ER-reservoir), so a class holds as many examples as its share of
    the stream gives it, and a rare one may hold none. It is then never predicted.

    Reference: the row "DeepCCG-reservoir" of the ablation of Lee & Storkey, AISTATS 2024.
    """

    Config = GaussianConfig
    config: GaussianConfig  # type: ignore[assignment]  # nothing is selected: no fields for it

    def build_selection(self) -> None:
        """Nothing is selected."""

    def reselected_classes(self, y: Tensor) -> Tensor:
        """What is stored depends on no embedding."""
        return y[:0]

    @torch.no_grad()
    def update_memory(
        self, x: Tensor, y: Tensor, task_idx: Tensor, z: StepEmbeddings, scale: Tensor
    ) -> None:
        """Offer the batch to the reservoir, whose counter is the number of examples seen."""
        del scale
        extras = {} if self.cache is None else self.cache.update(z)
        seen = int(self.class_table.seen.sum()) - len(y)
        offer_to_reservoir(self.memory, x, y, task_idx, seen, self.generator, None, **extras)


class DeepCCGStandardHeadConfig(SelectionConfig, ReplayConfig):
    """Fields of DeepCCG-standardHead: ER's, and those of DeepCCG's selection."""

    @model_validator(mode="after")
    def _counts_no_errors(self) -> Self:
        if self.renewal == "errors":
            raise ValueError("renewal=errors is for deepccg alone: give a number from 0 to 1")
        return self


class DeepCCGStandardHead(HeadLearner[DeepCCGStandardHeadConfig]):
    """DeepCCG-standardHead: a linear head trained with ER's loss; memory by DeepCCG's selection.

    Each step is ER's: one gradient step on the cross entropy of batch and replay. Then each class
    of the batch keeps the examples whose mean embedding is nearest the mean of all of it
    (Lee & Storkey, Eqs. 10, 12), measured under the network the step began with.

    Reference: the row "DeepCCG-standardHead" of the ablation of Lee & Storkey, AISTATS 2024.
    """

    Config = DeepCCGStandardHeadConfig

    def build_state(self, seed: int) -> None:
        """The head, and the selection of the memory."""
        super().build_state(seed)
        self.selection = Selection(self.config, self.memory, self.class_table, self.generator)

    def learn(self, batch: Batch) -> StepInfo:
        """ER's step on batch and replay; the memory is reselected before the network moves."""
        x, y, task_idx = self.begin_step(batch)
        gradients: list[Tensor] = []
        for repeat in self.repeats():
            if repeat:  # the last step waits for the memory
                self.apply_gradients(gradients)
            replay = self.draw_replay()
            loss = self.loss(x, y, task_idx, replay)
            gradients = self.gradients(loss)
        self.update_memory(x, y, task_idx)
        self.apply_gradients(gradients)
        return self.end_step(float(loss.detach()), len(replay))

    def update_memory(self, x: Tensor, y: Tensor, task_idx: Tensor) -> None:
        """Reselect the memory of the batch's classes under the present network."""
        self.selection.reselect(x, y, task_idx, lambda index: embed_candidates(self, index, x))
