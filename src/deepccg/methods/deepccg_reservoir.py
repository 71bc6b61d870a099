"""The paper's ablation of the selection: DeepCCG on ER's memory."""

from torch import Tensor

from deepccg.memory import offer_to_reservoir
from deepccg.methods.deepccg import Belief, ClassConditional
from deepccg.methods.deepccg_config import ClassConditionalConfig
from deepccg.methods.selection import Embedded


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
