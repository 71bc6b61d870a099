"""Experience replay with a reservoir memory."""

from deepccg.core import Batch, StepInfo
from deepccg.learners.heads import HeadLearner, ReplayConfig, ReplayConfigT


class ERConfig(ReplayConfig):
    """Fields of ER-reservoir."""


class ER(HeadLearner[ERConfig]):
    """ER-reservoir: theta <- theta - lr grad mean over B and R of CE(x, y), each with its own mask.

    R is drawn uniformly without replacement from the memory as it was before the batch; the memory
    is a reservoir over all examples (Vitter's algorithm R).

    Reference: Chaudhry et al., "On Tiny Episodic Memories in Continual Learning", 2019; the row
    "ER-reservoir" of Lee & Storkey, AISTATS 2024, Table 1.
    """

    Config = ERConfig

    def learn(self, batch: Batch) -> StepInfo:
        """Replay from memory, one step on batch and replay, then offer the batch to memory."""
        return replay_step(self, batch)


def replay_step(learner: HeadLearner[ReplayConfigT], batch: Batch) -> StepInfo:
    """One step of experience replay; methods differ in their loss and in what they store."""
    x, y, task_idx = learner.begin_step(batch)
    for _ in learner.repeats():
        replay = learner.draw_replay()
        loss = learner.optimise(learner.loss(x, y, task_idx, replay))
    learner.update_memory(x, y, task_idx)
    return learner.end_step(loss, len(replay))
