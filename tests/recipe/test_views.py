"""Predictions averaged over views, against a loop over images and views."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from recipe_world import REPLAYING, SHAPE, assert_same_state, batch, make, queries, trained
from torch import Tensor

from deepccg.core import Batch, InputError
from deepccg.learners.views import VIEWS

PLACES = [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (0, 2), (0, -2), (2, 0), (-2, 0)]


def moved(image: np.ndarray, down: int, right: int, mode: str = "reflect") -> np.ndarray:
    """A window of the padded image."""
    padded = np.pad(image, ((0, 0), (2, 2), (2, 2)), mode=mode)
    top, left = 2 - down, 2 - right
    return padded[:, top : top + SHAPE[1], left : left + SHAPE[2]]


def view(image: np.ndarray, number: int, mode: str = "reflect") -> np.ndarray:
    place = moved(image, *PLACES[number // 2], mode)
    return place[:, :, ::-1] if number % 2 else place


def looped(network, x: Tensor, views: int, mode: str = "reflect") -> Tensor:
    """Mean embeddings, one image and one view at a time, ``[B, D]``."""
    rows = []
    for image in x.numpy():
        seen = [np.ascontiguousarray(view(image, number, mode)) for number in range(views)]
        rows.append(sum(network(torch.from_numpy(one)[None])[0] for one in seen) / views)
    return torch.stack(rows).detach()


def class_means(z: Tensor, y: Tensor, classes: int) -> Tensor:
    return torch.stack([z[y == c].mean(dim=0) for c in range(classes)])


def test_the_list_of_views_is_what_it_says():
    x = torch.randint(256, (3, *SHAPE), dtype=torch.uint8)
    for number, each in enumerate(VIEWS):
        expected = np.stack([view(image, number) for image in x.numpy()])
        assert np.array_equal(each.of(x).numpy(), expected)
    assert len(VIEWS) == 2 * len(PLACES) == len(set(VIEWS))


@pytest.mark.parametrize("views", [2, 5, 10, 18])
@pytest.mark.parametrize("name", ["deepccg", "deepccg-reservoir"])
@pytest.mark.parametrize("normalise", [False, True])
def test_gaussian_classifiers_average_stored_images_and_queries(name, views, normalise):
    fields = {"embedding_scale": 1.5, "normalise": normalise}
    learner, x = trained(name, views=views, **fields), queries()
    assert learner.predict_logits(x).shape == (9, 4)
    memory, network = learner.memory, learner.network

    def probabilities(mode: str = "reflect", queried: int = views, each: bool = False) -> Tensor:
        def shaped(x: Tensor, views: int) -> Tensor:
            if each:  # wrong: unit length first, then the mean
                of_each = [looped(network, VIEWS[n].of(x), 1) for n in range(views)]
                return sum(F.normalize(z, dim=1) for z in of_each) / views
            z = looped(network, x, views, mode)
            return F.normalize(z, dim=1) if normalise else z

        means = class_means(shaped(memory.x, views), memory.y, 4)
        variance = 1 + 4 / memory.size
        distance = (shaped(x, queried)[:, None] - means).square().sum(dim=2)
        return torch.softmax(-0.5 * 1.5**2 * distance / variance, dim=1)

    found = learner.predict_proba(x)
    torch.testing.assert_close(found, probabilities(), rtol=1e-9, atol=1e-12)
    wrong = [probabilities(queried=1)]
    wrong += [probabilities(mode="constant")] if views > 2 else []
    wrong += [probabilities(each=True)] if normalise else []
    for other in wrong:
        assert (found - other).abs().max() > 1e-6


@pytest.mark.parametrize("views", [2, 10])
def test_icarl_averages_before_it_normalises(views):
    learner, x = trained("icarl", views=views), queries()
    memory, network = learner.memory, learner.network

    def features(x: Tensor) -> Tensor:
        return F.normalize(looped(network, x, views), dim=1)

    means = F.normalize(class_means(features(memory.x), memory.y, 4), dim=1)
    expected = -(features(x)[:, None] - means).square().sum(dim=2)
    torch.testing.assert_close(learner.predict_logits(x), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "name",
    [n for n in REPLAYING if not n.startswith(("deepccg", "icarl", "pcr", "protocl", "scr"))],
)
def test_heads_average_logits(name):
    learner, x, views = trained(name, views=10), queries(), 10
    network, head = learner.predicting_network(), learner.predicting_head()
    each = [head(looped(network, VIEWS[n].of(x), 1)) for n in range(views)]
    expected = torch.stack(each).mean(dim=0).detach()
    torch.testing.assert_close(learner.predict_logits(x), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", REPLAYING)
def test_training_does_not_see_them(name):
    plain, viewing = make(name), make(name, views=7)
    for step in range(9):
        assert plain.learn(batch(step)) == viewing.learn(batch(step))
        viewing.predict(queries())
        viewing.classifier()(viewing.representation(queries()))
        plain.predict(queries())
    assert_same_state(plain, viewing)
    apart = plain.predict_logits(queries()) - viewing.predict_logits(queries())
    assert apart.nan_to_num().abs().max() > 1e-6  # a class without exemplar has -inf in both


@pytest.mark.parametrize("name", REPLAYING)
def test_embedding_and_classifier_agree(name):
    learner, x = trained(name, views=10), queries()
    for task in (None, batch(0).task, batch(6).task):
        expected = learner.predict_logits(x, task)
        torch.testing.assert_close(
            learner.classifier(task)(learner.representation(x, task)), expected
        )
    module = learner.inference_module()
    found, expected = module(x).log_softmax(dim=1), learner.predict_logits(x).log_softmax(dim=1)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", REPLAYING)
def test_predictions_after_loading_are_the_same(name):
    learner, x = trained(name, views=10), queries()
    other = make(name, seed=5, views=10)
    other.load_state_dict(learner.state_dict())
    assert torch.equal(other.predict_logits(x), learner.predict_logits(x))


def test_one_view_is_no_option():
    learner = trained("deepccg", views=1)
    assert_same_state(learner, trained("deepccg"))
    assert torch.equal(
        learner.predict_logits(queries()), trained("deepccg").predict_logits(queries())
    )


@pytest.mark.parametrize("shape", [(8,), (1, 2, 9)])
def test_other_inputs_are_refused_and_change_nothing(shape):
    learner = make("er", views=10)
    before = learner.state_dict()
    bad = Batch(torch.zeros(2, *shape), torch.tensor([0, 1]))
    with pytest.raises(
        InputError, match=r"^views needs images of at least 3 pixels a side, .* leave views at 1$"
    ):
        learner.learn(bad)
    assert learner.state_dict().meta == before.meta
