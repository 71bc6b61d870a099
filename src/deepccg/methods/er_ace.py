"""ER with asymmetric cross entropy: new examples see their task, replayed ones all classes."""

import torch
from pydantic import Field
from torch import Tensor

from deepccg.learners.classes import Mask
from deepccg.learners.losses import ReplayReduction, masked_cross_entropy, reduce_replay
from deepccg.methods.er import ER, ERConfig


class ERACEConfig(ERConfig):
    """Fields of ER-ACE."""

    reduction: ReplayReduction = Field(
        "means",
        description="over batch and replay together: mean or sum; means: mean of each, added",
    )
    replay_mask: Mask = Field(
        "seen", description="classes a replayed example is compared with: its own task, seen or all"
    )
    present_only: bool = Field(
        False,
        description="of the train_mask, keep the classes present in the batch, as the original "
        "does; without task identifiers this alone makes the method differ from er",
    )


class ERACE(ER):
    """ER-ACE: theta <- theta - lr grad [ mean_B CE over C_t + mean_R CE over S_t ].

    C_t are the classes of the batch's task t, S_t all classes seen: an incoming example never
    pushes down a class of another task, while replayed examples are told apart from every class.
    Replay draw and reservoir are ER's, and so is the linear head.

    Reference: Caccia et al., "New Insights on Reducing Abrupt Representation Change in Online
    Continual Learning", ICLR 2022; the row "ER-ACE" of Lee & Storkey, AISTATS 2024, Table 1.
    """

    Config = ERACEConfig
    config: ERACEConfig

    def loss(self, x: Tensor, y: Tensor, rows: Tensor, replay: Tensor) -> Tensor:
        """Asymmetric cross entropy of batch and replay in one forward."""
        if not self.config.present_only:
            return super().loss(x, y, rows, replay)  # the masks make the asymmetry
        inputs = torch.cat([x, self.memory.x[replay]]) if len(replay) else x
        labels = torch.cat([y, self.memory.y[replay]])
        masks = self.masks(rows, replay)
        masks[: len(y)] &= torch.zeros_like(masks[0]).index_fill(0, y, True)
        terms = masked_cross_entropy(self.logits(inputs), labels, masks)
        return reduce_replay(terms, len(y), self.config.reduction)
