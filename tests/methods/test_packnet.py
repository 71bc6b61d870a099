"""PackNet: what an earlier task computes never changes again, and who owns which filter."""

import dataclasses

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from deepccg.core import Batch, InputError, Task, TaskRequired, TestSet
from deepccg.evaluation import evaluate
from deepccg.learners.heads import TaskHeads
from deepccg.methods.packnet import PackNet
from deepccg.methods.packnet_filters import FREE, claimed, filters_enabled
from deepccg.methods.sgd import SGD
from deepccg.networks import MLP, Flatten, SlimResNet18

BATCHES = 6
WINDOWS = tuple(Task(t, (t, t + 1, t + 2), BATCHES) for t in range(4))  # classes overlap


def mlp():
    torch.manual_seed(0)
    return MLP(5, (16, 12, 10)).double()


def resnet():
    torch.manual_seed(0)
    return SlimResNet18(width=4)


SHAPES = {mlp: (5,), resnet: (3, 16, 16)}


def draw(network, task, size, generator):
    """Fresh examples of a task for one of the networks."""
    shape = (size, *SHAPES[network])
    y = torch.tensor(task.classes)[torch.randint(3, (size,), generator=generator)]
    if network is mlp:
        x = torch.randn(shape, generator=generator, dtype=torch.float64)
        x[torch.arange(size), y % 5] += 3
    else:
        x = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    return Batch(x, y, task)


def stream(network, tasks=WINDOWS, batches=BATCHES, size=4):
    generator = torch.Generator().manual_seed(1)
    return [draw(network, task, size, generator) for task in tasks for _ in range(batches)]


def probe(network):
    return draw(network, WINDOWS[0], 7, torch.Generator().manual_seed(2)).x


def network_of(learner):
    return {name: p.detach().clone() for name, p in learner.network.named_parameters()}


def check_earlier_tasks_never_change(learner_class, network, **fields):
    """ClassTable of a task on fixed inputs, bit for bit, through all training on later tasks."""
    learner = learner_class(network(), PackNet.Config(lr=0.5, **fields))
    x = probe(network)
    promised: dict[Task, torch.Tensor] = {}
    batches = stream(network)
    for step, batch in enumerate(batches):
        if step and batches[step - 1].task != batch.task and fields.get("timing") != "end":
            finished = batches[step - 1].task  # its last step is done, its end not yet noticed
            promised[finished] = learner.predict_logits(x, finished)
        learner.learn(batch)
        if step and batches[step - 1].task != batch.task and fields.get("timing") == "end":
            finished = batches[step - 1].task  # has chosen its filters just now
            promised[finished] = learner.predict_logits(x, finished)
        for task, logits in promised.items():
            now = learner.predict_logits(x, task)[:, : logits.shape[1]]
            assert torch.equal(now, logits), f"task {task.id} changed at step {step}"
            assert bool(torch.isfinite(now[:, list(task.classes)]).all())
    assert len(promised) == len(WINDOWS) - 1


class MaskedBeforeNorm(PackNet):
    """A filter that is off still gives its norm's shift."""

    def filters_of(self, row):
        layers = [dataclasses.replace(layer, norm=None) for layer in self.packing.layers]
        return filters_enabled(layers, self.packing.active(row))


class MaskedAfterNorm(PackNet):
    """Filters that are off still enter a norm that couples them."""

    def filters_of(self, row):
        layers = [dataclasses.replace(x, layer=x.norm, norm=None) for x in self.packing.layers]
        return filters_enabled(layers, self.packing.active(row))


class OneHead(TaskHeads):
    """A class has one row, whatever the task."""

    def grow(self, _task, columns):
        super().grow(0, columns)

    def columns(self, _task):
        return super().columns(0)

    def logits(self, z, _task):
        return super().logits(z, 0)


class SharedHead(PackNet):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.heads = OneHead(self.heads.head, self.heads.generator)


class NormsMove(PackNet):
    """Freezes weights, but neither scales nor shifts."""

    def permitted(self, gradients):
        norms = {id(p) for layer in self.packing.layers for p in layer.norm.parameters()}
        pairs = zip(
            self.trainable_parameters(), gradients, super().permitted(gradients), strict=True
        )
        return [gradient if id(p) in norms else kept for p, gradient, kept in pairs]


class FreeStayOn(PackNet):
    """Predicts with the free filters, too."""

    def filters_of(self, row):
        on = zip(self.packing.active(row), self.packing.owners, strict=True)
        return filters_enabled(self.packing.layers, [own | (o == FREE) for own, o in on])


@pytest.mark.parametrize("network", [mlp, resnet])
@pytest.mark.parametrize("timing", ["half", "start", "end"])
def test_earlier_tasks_never_change(network, timing):
    check_earlier_tasks_never_change(PackNet, network, timing=timing)


@pytest.mark.parametrize("fields", [{"score": "l1"}, {"score": "taylor"}, {"share": 0.9}])
def test_earlier_tasks_never_change_whatever_is_kept(fields):
    check_earlier_tasks_never_change(PackNet, mlp, **fields)


@pytest.mark.parametrize(
    ("wrong", "network"),
    [
        (MaskedBeforeNorm, mlp),
        (MaskedBeforeNorm, resnet),
        (MaskedAfterNorm, mlp),
        (SharedHead, mlp),
        (SharedHead, resnet),
        (NormsMove, mlp),
        (NormsMove, resnet),
        (FreeStayOn, mlp),
    ],
)
def test_the_promise_has_teeth(wrong, network):
    with pytest.raises(AssertionError, match="changed at step"):
        check_earlier_tasks_never_change(wrong, network)


@pytest.mark.parametrize("network", [mlp, resnet])
def test_finished_tasks_do_not_see_free_filters(network):
    """Not even if these are broken."""
    learner = PackNet(network())
    for batch in stream(network, WINDOWS[:2]):
        learner.learn(batch)
    before = learner.predict_logits_each(probe(network), WINDOWS[:2])
    for layer, owner in zip(learner.packing.layers, learner.packing.owners, strict=True):
        assert bool((owner == FREE).any())
        for parameter in layer.parameters:
            parameter.data[owner == FREE] = float("nan")
    assert all(map(torch.equal, before, learner.predict_logits_each(probe(network), WINDOWS[:2])))


@pytest.mark.parametrize("network", [mlp, resnet])
def test_only_free_filters_move_then_only_the_chosen(network):
    learner = PackNet(network(), PackNet.Config(share=0.4))
    owners = [owner.clone() for owner in learner.packing.owners]
    for step, batch in enumerate(stream(network)):
        before = network_of(learner)
        learner.learn(batch)
        number, chosen = batch.task.id + 1, step % BATCHES >= BATCHES // 2
        for layer, owner, previous in zip(
            learner.packing.layers, learner.packing.owners, owners, strict=True
        ):
            assert torch.equal(owner[previous != FREE], previous[previous != FREE])
            free = int((previous == FREE).sum())
            gained = owner[(previous == FREE) & (owner != FREE)]
            expected = claimed(free, 0.4) if step % BATCHES == BATCHES // 2 else 0
            assert gained.tolist() == [number] * expected
            frozen = owner != number if chosen else owner != FREE
            if step % BATCHES == BATCHES // 2:
                frozen &= previous != FREE  # the others were drawn again at this step
            for name, parameter in learner.network.named_parameters():
                if any(parameter is own for own in layer.parameters):
                    assert torch.equal(parameter[frozen], before[name][frozen]), name
        assert any(not torch.equal(before[n], p) for n, p in network_of(learner).items())
        owners = [owner.clone() for owner in learner.packing.owners]


@pytest.mark.parametrize(
    ("width", "share", "out_at"),
    [(10, 0.1, 11), (10, 0.2, 9), (10, 0.3, 7), (10, 0.05, 11), (80, 0.1, 31), (80, 0.05, 49)],
)
def test_when_a_layer_runs_out(width, share, out_at):
    """The task that finds no free filter, counted by hand."""
    free, task = width, 1
    while free:
        free -= claimed(free, share)
        task += 1
    assert task == out_at


def test_without_free_filters_only_the_head_moves():
    learner = PackNet(mlp(), PackNet.Config(share=1.0))
    batches = stream(mlp)
    for batch in batches[:BATCHES]:
        learner.learn(batch)
    before = network_of(learner)
    for batch in batches[BATCHES:]:
        asked = learner.predict_logits(probe(mlp), batch.task)
        assert learner.learn(batch).extra == {"free_filters": 0.0}
        assert not torch.equal(asked, learner.predict_logits(probe(mlp), batch.task))
    assert all(torch.equal(before[name], p) for name, p in network_of(learner).items())


def test_a_task_that_comes_back_moves_its_head_only():
    learner = PackNet(mlp())
    a, b = stream(mlp, WINDOWS[:1]), stream(mlp, WINDOWS[1:2])
    for batch in a + b:
        learner.learn(batch)
    network, state = network_of(learner), learner.packing.owners
    owners = [owner.clone() for owner in state]
    ours, theirs = learner.predict_logits_each(probe(mlp), WINDOWS[:2])
    for batch in a:
        learner.learn(batch)
    assert all(torch.equal(network[name], p) for name, p in network_of(learner).items())
    assert all(map(torch.equal, owners, learner.packing.owners))
    after = learner.predict_logits_each(probe(mlp), WINDOWS[:2])
    assert not torch.equal(after[0], ours)
    assert torch.equal(after[1], theirs)


@pytest.mark.parametrize(
    ("timing", "batches", "owned"),
    [
        ("half", 6, [0, 0, 0, 1, 1, 1]),
        ("half", 5, [0, 0, 1, 1, 1]),
        ("half", 1, [1]),
        ("half", None, [1, 1]),
        ("start", 6, [1, 1]),
        ("end", 2, [0, 0]),
    ],
)
def test_when_a_task_chooses(timing, batches, owned):
    learner = PackNet(mlp(), PackNet.Config(timing=timing))
    task = Task(0, (0, 1, 2), batches)
    found = []
    for batch in stream(mlp, [task], len(owned)):
        learner.learn(batch)
        found.append(max(int(owner.max()) for owner in learner.packing.owners))
    assert found == owned
    learner.learn(stream(mlp, WINDOWS[1:2], 1)[0])  # a task that has not chosen does so at the end
    for owner in learner.packing.owners:
        assert int((owner == 1).sum()) == claimed(len(owner), 0.3)


@pytest.mark.parametrize("score", ["gamma", "l1", "taylor"])
def test_the_best_free_filters_are_kept_and_the_others_drawn_anew(score):
    """Scores written out; those of Taylor summed over the first phase from plain gradients."""
    learner = PackNet(mlp(), PackNet.Config(score=score, share=0.4, lr=0.3))
    batches = stream(mlp)
    learner.heads.grow(1, [0, 1, 2])  # as the first batch will
    head, layers = learner.heads.head, learner.packing.layers
    importance = [torch.zeros(layer.width).double() for layer in layers]
    for batch in batches[: BATCHES // 2]:
        weights = [layer.layer.weight for layer in layers]
        logits = learner.network(batch.x) @ head.weight.T + head.bias  # every filter is on
        loss = nn.functional.cross_entropy(logits, batch.y)
        gradients = torch.autograd.grad(loss, weights)
        for total, weight, gradient in zip(importance, weights, gradients, strict=True):
            total += (gradient * weight.detach()).abs().sum(dim=1)
        learner.learn(batch)
    before = network_of(learner)
    expected = {
        "gamma": [layer.norm.weight.detach().abs() for layer in layers],
        "l1": [layer.layer.weight.detach().abs().sum(dim=1) for layer in layers],
        "taylor": importance,
    }[score]
    learner.choose()
    after = network_of(learner)
    for layer, owner, worth in zip(layers, learner.packing.owners, expected, strict=True):
        kept = owner == 1
        assert int(kept.sum()) == round(0.4 * layer.width)
        assert float(worth[kept].min()) >= float(worth[~kept].max())
        weight = f"{layer.name}.weight"
        assert torch.equal(before[weight][kept], after[weight][kept])
        assert not bool((before[weight][~kept] == after[weight][~kept]).any())
        assert float(after[weight][~kept].abs().max()) <= layer.layer.in_features**-0.5
        assert bool((layer.norm.weight[~kept] == 1).all() and (layer.norm.bias[~kept] == 0).all())
    assert all(not bool(own.any()) for own in learner.packing.importance)


def test_one_task_that_has_not_chosen_is_sgd_bit_for_bit(world):
    task = Task(0, (0, 1, 2))
    packnet = PackNet(world.network(), PackNet.Config(timing="end"), seed=3)
    sgd = SGD(world.network(), seed=3)
    for _ in range(30):
        batch = world.batch([0, 1, 2, 1], task)
        assert packnet.learn(batch).loss == sgd.learn(batch).loss
    assert all(map(torch.equal, packnet.trainable_parameters(), sgd.trainable_parameters()))
    x = world.batch([0, 1, 2]).x
    assert torch.equal(packnet.predict_logits(x, task), sgd.predict_logits(x, task))


def test_it_stops_and_continues_in_the_first_phase():
    batches = stream(mlp)
    config = PackNet.Config(score="taylor")
    whole = PackNet(mlp(), config)
    for batch in batches[: BATCHES + 2]:
        whole.learn(batch)
    resumed = PackNet(MLP(5, (16, 12, 10)).double(), config, seed=5)
    resumed.load_state_dict(whole.state_dict())
    for batch in batches[BATCHES + 2 :]:
        assert whole.learn(batch) == resumed.learn(batch)
    for task in WINDOWS:
        logits = whole.predict_logits(probe(mlp), task)
        assert torch.equal(logits, resumed.predict_logits(probe(mlp), task))


def test_it_needs_a_task_to_predict():
    learner = PackNet(mlp())
    batches = stream(mlp, WINDOWS[:2])
    for batch in batches:
        learner.learn(batch)
    with pytest.raises(TaskRequired, match="say which one"):
        learner.predict(probe(mlp))
    with pytest.raises(TaskRequired):
        learner.predict_logits_each(probe(mlp), [WINDOWS[0], None])
    uniform = learner.predict_proba(probe(mlp), Task(8, (1, 2)))  # classes seen, but not together
    assert uniform[:, 1:3].eq(0.5).all()
    test = TestSet(torch.cat([b.x for b in batches]), torch.cat([b.y for b in batches]), WINDOWS)
    scored = evaluate(learner, test, step=12, examples=48, task=1, final=False)
    assert {score.class_correct for score in scored.tasks} == {None}
    assert scored.tasks[0].task_correct > scored.tasks[0].images / 2


def test_batches_without_a_task_are_one_task_more():
    learner = PackNet(mlp())
    generator = torch.Generator().manual_seed(0)
    for batch in stream(mlp, WINDOWS[:1]):
        learner.learn(batch)
    first = learner.predict_logits(probe(mlp), WINDOWS[0])
    for classes in ((7, 8, 0), (7, 8, 9)):
        batch = draw(mlp, Task(0, classes), 9, generator)
        learner.learn(dataclasses.replace(batch, task=None))
    logits = learner.predict_logits(probe(mlp))
    assert logits.shape == (7, len(learner.classes))
    assert bool(torch.isfinite(logits[:, [learner.classes.index(c) for c in (7, 8, 9)]]).all())
    assert torch.equal(learner.predict_logits(probe(mlp), WINDOWS[0])[:, :3], first)


def test_other_masks_and_pooled_batches_are_refused():
    with pytest.raises(ValidationError, match="train_mask"):
        PackNet.Config(train_mask="all")
    learner = PackNet(mlp())
    batch = stream(mlp)[0]
    pooled = Batch(batch.x, batch.y, tasks=(WINDOWS[0],) * len(batch))
    with pytest.raises(InputError, match="one task after the other"):
        learner.learn(pooled)
    assert learner.classes == ()


def test_a_fixed_embedding_has_heads_only():
    learner = PackNet(Flatten(5))
    for batch in stream(mlp):
        learner.learn(batch)
    assert learner.heads.columns(2) == [1, 2, 3]
    assert len(learner.heads.rows) == 12
    assert learner.memory_usage().bytes == {"examples": 0, "heads": 12 * 6 * 4, "filter owners": 0}
