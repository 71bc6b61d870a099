"""ER with a memory of examples that are new and yet can be learned."""

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor, nn

from deepccg.core import Batch, StepInfo
from deepccg.gaussian.linear_regression import LinearModel, fit_linear_model
from deepccg.learners.heads import HeadLearner, ReplayConfig
from deepccg.learners.state import Column


class InfoGSConfig(ReplayConfig):
    """Fields of InfoGS."""

    learnability: NonNegativeFloat = Field(
        1.0, description="weight of learnability beside surprise: more avoids outliers"
    )
    noise: PositiveFloat = Field(0.1, description="noise variance of the one-hot targets")
    prior: PositiveFloat = Field(
        1.0, description="prior variance of an output for an embedding with mean square 1"
    )


class InfoGS(HeadLearner[InfoGSConfig]):
    """InfoGS: ER whose memory is chosen by a Bayesian linear model on the embeddings.

    The one-hot target of an example with embedding z is modelled as t = W^T z / sqrt(D) + noise
    with a Gaussian prior on W, given the stored examples M. The criterion of an example i is

        -log p(t_i | M without i) + eta log p(t_i | M and i),

    its surprise plus eta times its learnability. While there is room every example is stored. Then
    each new one in turn takes the place of the stored one with the lowest criterion, if its own is
    higher; the model follows by rank-one updates.

    Embeddings of stored examples are kept as the column ``feature`` of the memory: taken when the
    example is stored, and again, after the step, whenever it is replayed.

    Reference: Sun et al., "Information-theoretic Online Memory Selection for Continual Learning",
    ICLR 2022, of which the text was not at hand; discussed by Lee & Storkey, AISTATS 2024.
    """

    Config = InfoGSConfig

    def learn(self, batch: Batch) -> StepInfo:
        """ER's step on batch and replay; then examples compete for the memory."""
        x, y, task_idx = self.begin_step(batch)
        for _ in self.repeats():
            replay = self.draw_replay()
            loss = self.optimise(self.loss(x, y, task_idx, replay))
        if self.memory.capacity > 0:
            self.store(x, y, task_idx, self.refresh(x, replay))
        return self.end_step(loss, len(replay))

    def store(self, x: Tensor, y: Tensor, task_idx: Tensor, features: Tensor) -> None:
        """Store what there is room for; the others compete, one by one."""
        room = min(len(y), self.memory.capacity - self.memory.size)
        self.memory.append(x[:room], y[:room], task_idx[:room], feature=features[:room])
        if room == len(y):
            return
        owner = self.compete(features[room:], y[room:])
        slots = (owner >= self.memory.size).nonzero().flatten()
        new = owner[slots] - self.memory.size + room
        self.memory.write(slots, x[new], y[new], task_idx[new], feature=features[new])

    def extra_columns(self, classes: int) -> dict[str, Column]:
        """The embedding."""
        del classes
        return {"feature": ((self.dim,), self.dtype)}

    def refresh(self, x: Tensor, replayed: Tensor) -> Tensor:
        """Embed the batch, ``[B, D]``, and in the same pass the slots ``replayed``."""
        features = self.embed(self.with_stored(x, replayed))
        if len(replayed):
            self.memory["feature"][replayed] = features[len(x) :]
        return features[: len(x)]

    def compete(self, features: Tensor, y: Tensor) -> Tensor:
        """Who owns each slot after the new examples: a position among stored ones, then new."""
        size = self.memory.size
        model = self.model(
            torch.cat([self.memory["feature"], features]), torch.cat([self.memory.y, y]), size
        )
        owner = torch.arange(size, device=self.device)
        for new in range(size, size + len(y)):
            criterion = self.criterion(model)
            slot = int(criterion[owner].argmin())
            old = int(owner[slot])
            if bool(criterion[new] > criterion[old]):
                model = model.removing(old).adding(new)
                owner[slot] = new
        return owner

    def model(self, features: Tensor, y: Tensor, known: int) -> LinearModel:
        """The linear model of all classes seen, fitted to the first ``known`` examples."""
        scaled = features.double() / self.dim**0.5
        seen = (self.class_table.seen > 0).to(self.device)
        targets = nn.functional.one_hot(y, len(self.class_table))[:, seen].double()
        fitted = torch.arange(len(y), device=self.device) < known
        return fit_linear_model(scaled, targets, fitted, self.config.noise, self.config.prior)

    def criterion(self, model: LinearModel) -> Tensor:
        """Surprise and weighted learnability of every example, ``[N]``."""
        return model.surprise() + self.config.learnability * model.learnability()
