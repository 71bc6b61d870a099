"""Augmentation: what comes out is a crop or its mirror image, and where it goes in."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from recipe_world import REPLAYING, SHAPE, batch, make, queries, trained
from scipy import stats

from deepccg.core import Batch, InputError, make_generator
from deepccg.gaussian import class_posterior
from deepccg.learners.augment import crop_and_mirror
from deepccg.methods import METHODS


def crops(image: np.ndarray) -> dict[bytes, tuple[int, int, bool]]:
    """Every crop of an image with a reflected border of 4, and its mirror image."""
    padded = np.pad(image, ((0, 0), (4, 4), (4, 4)), mode="reflect")
    height, width = image.shape[1:]
    found = {}
    for top in range(9):
        for left in range(9):
            crop = padded[:, top : top + height, left : left + width]
            found[crop.tobytes()] = (top, left, False)
            found[np.ascontiguousarray(crop[:, :, ::-1]).tobytes()] = (top, left, True)
    return found


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float64])
@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 5, 11)])
def test_every_output_is_a_crop_of_its_own_image(dtype, shape):
    x = torch.randint(256, (40, *shape), generator=make_generator(0, "x")).to(dtype)
    before, out = x.clone(), crop_and_mirror(x, make_generator(1, "crops"))
    assert (out.dtype, out.shape) == (x.dtype, x.shape)
    assert torch.equal(x, before)
    for image, crop in zip(x.numpy(), out.numpy(), strict=True):
        assert crop.tobytes() in crops(image)


def test_every_crop_is_equally_likely():
    image = torch.randint(256, (1, 1, 12, 12), generator=make_generator(0, "x")).to(torch.uint8)
    known = crops(image[0].numpy())
    assert len(known) == 9 * 9 * 2
    out = crop_and_mirror(image.expand(16200, -1, -1, -1), make_generator(2, "crops"))
    drawn = [list(known.values()).index(known[one.tobytes()]) for one in out.numpy()]
    counts = np.bincount(drawn, minlength=162)
    assert stats.chisquare(counts).pvalue > 1e-4
    assert stats.chisquare(counts[:81] + counts[81:]).pvalue > 1e-4


def test_the_generator_alone_decides():
    x = queries()
    one, same = (crop_and_mirror(x, make_generator(3, "crops")) for _ in range(2))
    assert torch.equal(one, same)
    assert not torch.equal(one, crop_and_mirror(x, make_generator(4, "crops")))


class Watching(torch.nn.Module):
    """A network that notes what it is given in training and otherwise."""

    def __init__(self, network):
        super().__init__()
        self.network, self.dim = network, network.dim
        self.seen: list[bytes] = []

    def forward(self, x):
        self.seen += [image.numpy().tobytes() for image in x]
        return self.network(x)


CONTRASTING = ("pcr", "scr")  # add views of their own to each step
SAMPLED = {"posterior": "sampled", "sample": 2}
LEFT_OUT = {"posterior": "leave-one-out", "sample": 2, "mean_gradient": True}
FIELDS = {
    "deepccg": ({"mean_gradient": True}, {"mean_gradient": False}, SAMPLED, LEFT_OUT),
    "er": ({"repeats": 3},),
}


@pytest.mark.parametrize(
    ("name", "fields"),
    [(n, f) for n in REPLAYING if n not in CONTRASTING for f in FIELDS.get(n, ({},))],
    ids=str,
)
def test_a_step_embeds_crops_and_the_memory_keeps_images(name, fields):
    network = Watching(make("er").network)
    kind = METHODS[name]
    learner = kind(network, kind.Config(augment=True, **fields), memory=10, seed=0)
    known: dict[bytes, bytes] = {}
    plain: set[bytes] = set()
    for step in range(9):
        for image in batch(step).x.numpy():
            known |= dict.fromkeys(crops(image), image.tobytes())
            plain.add(image.tobytes())
        network.seen.clear()
        learner.learn(batch(step))
        assert set(network.seen) <= known.keys()
    assert {x.numpy().tobytes() for x in learner.memory.x} <= plain
    moved = [image for image in network.seen if image not in plain]
    selecting = ("gss", "infogs", "icarl", "deepccg-standard-head")  # embed images as they are, too
    assert len(moved) > (0.3 if name in selecting else 0.9) * len(network.seen)
    network.seen.clear()
    learner.predict(queries())
    assert set(network.seen) <= plain | {x.numpy().tobytes() for x in queries()}


def test_replay_and_batch_of_er_are_drawn_crops():
    """The loss of a step, from the crops that the generator draws after the replay."""
    learner = trained("er", 9, augment=True, replay=4)
    generator = torch.Generator()
    generator.set_state(learner.generator.get_state())
    slots = torch.randperm(learner.memory.size, generator=generator)[:4]
    one, memory = batch(9), learner.memory
    inputs = crop_and_mirror(torch.cat([one.x, memory.x[slots]]), generator)
    logits = learner.head(learner.network(inputs)).detach()
    columns = torch.tensor([learner.classes.index(label) for label in one.y.tolist()])
    labels, tasks = torch.cat([columns, memory.y[slots]]), [2] * 5 + memory.task[slots].tolist()
    own = {1: [0, 1], 2: [2, 3]}
    terms = [
        F.cross_entropy(row[own[task]], torch.tensor(own[task].index(int(label))))
        for row, label, task in zip(logits, labels, tasks, strict=True)
    ]
    assert learner.learn(one).loss == pytest.approx(float(torch.stack(terms).mean()), rel=1e-12)


def test_means_by_crops_of_a_sample_are_right_on_average():
    """Over crops and over draws of what to embed, though the caches are of other crops."""
    learner = trained("deepccg", 10, augment=True, replay_mask="task", lr=0.5, **SAMPLED)
    one, memory = batch(10), learner.memory
    x, y, task_idx = learner.begin_step(one)
    replay, _ = learner.sample_replay(task_idx, y, y)
    slots = learner.context_slots(learner.masks(task_idx, replay), replay, y)
    drawn = []
    for _ in range(800):
        _, context = learner.embed_step(x, replay, slots)
        drawn.append(class_posterior(context.z.detach(), memory.y[slots], 4).mean)
    views = [crops(image) for image in memory.x[slots].numpy()]
    shown = [np.frombuffer(crop, np.uint8).reshape(SHAPE) for view in views for crop in view]
    z = learner.embed(torch.from_numpy(np.stack(shown)))
    each = torch.stack([part.mean(dim=0) for part in z.split([len(view) for view in views])])
    truth = class_posterior(each, memory.y[slots], 4).mean
    means = torch.stack(drawn)
    assert float(means.std(dim=0).max()) > 0
    miss = (means.mean(dim=0) - truth).abs()
    assert bool((miss <= 5 * means.std(dim=0) / 800**0.5 + 1e-9).all())


def test_what_it_does_not_go_with_is_refused():
    learner = make("er", augment=True)
    bad = Batch(torch.zeros(2, 1, 4, 9), torch.tensor([0, 1]))
    with pytest.raises(InputError, match=r"^augment needs images of at least 5 .* at false$"):
        learner.learn(bad)
    assert SHAPE[1] >= 5
