"""What every learner inherits follows from ``classes`` and ``predict_logits`` alone."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from deepccg.core import Batch, Config, Learner, State, StepInfo, Task


class Fixed(Learner):
    """Knows labels 30, 10 and 20, and scores each by a number given in the input."""

    Config = Config

    def __init__(
        self,
        network: nn.Module,
        config: Config | None = None,
        *,
        memory: int = 0,
        classes: Sequence[int] = (30, 10, 20),
        seed: int = 0,
    ) -> None:
        self.made_with = (network, config, memory, seed)
        self.labels = tuple(classes)

    @property
    def classes(self) -> tuple[int, ...]:
        return self.labels

    def learn(self, batch: Batch) -> StepInfo:
        return StepInfo(loss=float(len(batch)))

    def predict_logits(self, x: Tensor, task: Task | None = None) -> Tensor:
        columns = self.columns(task)
        logits = torch.full((len(x), len(columns)), -torch.inf)
        logits[:, : len(self.labels)] = x
        outside = [task is not None and label not in task.classes for label in columns]
        return logits.masked_fill(torch.tensor(outside), -torch.inf)

    def state_dict(self) -> State:
        return State({}, {})

    def load_state_dict(self, state: State) -> None:
        self.loaded = state


X = torch.tensor([[0.0, 2.0, 1.0], [3.0, 1.0, 2.0]])


def test_columns_are_the_classes_then_what_only_the_task_names():
    learner = Fixed(nn.Identity())
    assert learner.columns() == (30, 10, 20)
    assert learner.columns(Task(0, (40, 10, 50))) == (30, 10, 20, 40, 50)
    assert learner.columns(Task(0, (20, 30))) == (30, 10, 20)


def test_predictions_are_labels_and_probabilities_a_softmax():
    learner = Fixed(nn.Identity())
    assert learner.predict(X).tolist() == [10, 30]
    assert learner.predict(X, Task(0, (20, 30))).tolist() == [20, 30]
    probabilities = learner.predict_proba(X, Task(0, (20, 30, 40)))
    assert probabilities.shape == (2, 4)
    assert bool((probabilities[:, [1, 3]] == 0).all())
    torch.testing.assert_close(probabilities[0, 2] / probabilities[0, 0], torch.tensor(1.0).exp())


def test_several_tasks_are_answered_in_order():
    learner = Fixed(nn.Identity())
    tasks = [None, Task(0, (20, 30)), None]
    answers = learner.predict_logits_each(X, tasks)
    for answer, task in zip(answers, tasks, strict=True):
        assert torch.equal(answer, learner.predict_logits(X, task))


def test_a_learner_that_promises_too_little_cannot_be_made():
    class Half(Learner):
        def learn(self, batch: Batch) -> StepInfo:
            return StepInfo(loss=float(len(batch)))

    with pytest.raises(TypeError, match="abstract"):
        Half(nn.Identity())
