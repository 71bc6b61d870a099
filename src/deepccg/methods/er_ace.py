"""ER with asymmetric cross entropy: new examples see their task, replayed ones all classes."""

import torch
from pydantic import Field
from torch import Tensor

from deepccg.core import Batch, StepInfo
from deepccg.learners.class_table import ReplayMask
from deepccg.learners.heads import HeadLearner, ReplayConfig, masked_cross_entropy
from deepccg.learners.optimiser import ReplayReduction, reduce_replay
from deepccg.methods.er import replay_step


class ERACEConfig(ReplayConfig):
    """Fields of ER-ACE."""

    reduction: ReplayReduction = Field(
        "means",
        description="over batch and replay together: mean or sum; means: mean of each, added",
    )
    replay_mask: ReplayMask = "seen"
    present_only: bool = Field(
        False,
        description="of the train_mask, keep the classes present in the batch, as the original "
        "does; without task identifiers this alone makes the method differ from er",
    )


class ERACE(HeadLearner[ERACEConfig]):
    """ER-ACE: theta <- theta - lr grad [ mean_B CE over C_t + mean_R CE over S_t ].

    C_t are the classes of the batch's task t, S_t all classes seen: an incoming example never
    pushes down a class of another task, while replayed examples are told apart from every class.
    Replay draw and reservoir are ER's, and so is the linear head.

    Reference: Caccia et al., "New Insights on Reducing Abrupt Representation Change in Online
    Continual Learning", ICLR 2022; the row "ER-ACE" of Lee & Storkey, AISTATS 2024, Table 1.
    """

    Config = ERACEConfig

    def learn(self, batch: Batch) -> StepInfo:
        """Replay from memory, one step on batch and replay, then offer the batch to memory."""
        return replay_step(self, batch)

    def loss(self, x: Tensor, y: Tensor, task_idx: Tensor, replay: Tensor) -> Tensor:
        """Asymmetric cross entropy of batch and replay in one forward: the masks differ."""
        masks = self.masks(task_idx, replay)
        if self.config.present_only:
            present = torch.zeros_like(masks[0]).index_fill(0, y, True)
            masks = torch.cat([masks[: len(y)] & present, masks[len(y) :]])
        logits = self.logits_with_replay(x, replay)
        terms = masked_cross_entropy(logits, self.replay_labels(y, replay), masks)
        return reduce_replay(terms, len(y), self.config.reduction)
