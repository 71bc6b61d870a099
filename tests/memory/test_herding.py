"""Herding against loops over its definition, and the properties that follow from it."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepccg.gaussian import Candidates
from deepccg.memory import herding, herding_places


@st.composite
def candidate_sets(draw):
    """Classes of different sizes, padded with rows that must not matter."""
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    longest = max(sizes) + draw(st.integers(0, 2))
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    z = torch.from_numpy(rng.normal(size=(len(sizes), longest, draw(st.integers(1, 4)))))
    real = torch.arange(longest) < torch.tensor(sizes)[:, None]
    target = (z * real[:, :, None]).sum(dim=1) / real.sum(dim=1, keepdim=True)
    quota = torch.tensor([draw(st.integers(0, 11)) for _ in sizes])
    return Candidates(z, real, torch.zeros_like(real), target, quota, torch.zeros(len(sizes)))


def with_quota(candidates, quota):
    return Candidates(**{**vars(candidates), "quota": torch.full_like(candidates.quota, quota)})


def herded(z, count):
    """Place by place: of those not picked yet, the one that brings the mean nearest."""
    mean, picked = z.mean(axis=0), []
    for k in range(1, min(count, len(z)) + 1):
        error = {
            i: np.linalg.norm(mean - (z[picked].sum(axis=0) + z[i]) / k)
            for i in range(len(z))
            if i not in picked
        }
        picked.append(min(error, key=error.get))
    return picked


def repeating(candidates):
    """Wrong: what was picked can be picked again."""
    keep = torch.zeros_like(candidates.real)
    centred = candidates.z - candidates.target[:, None]
    for k, quota in enumerate(candidates.quota.tolist()):
        total = torch.zeros_like(centred[k, 0])
        for _ in range(min(quota, int(candidates.real[k].sum()))):
            cost = (total + centred[k]).square().sum(dim=1)
            pick = cost.masked_fill(~candidates.real[k], torch.inf).argmin()
            keep[k, pick] = True
            total = total + centred[k, pick]
    return keep


def check_picks(select, candidates):
    keep = select(candidates)
    for k, quota in enumerate(candidates.quota.tolist()):
        own = candidates.z[k, candidates.real[k]].numpy()
        assert sorted(herded(own, quota)) == keep[k].nonzero().flatten().tolist()


@given(candidates=candidate_sets())
def test_keeps_what_the_definition_picks(candidates):
    check_picks(herding, candidates)


def test_picking_twice_is_told_apart():
    # The mean is 0.1: 0 is the nearest, and would be again.
    z = torch.tensor([[[0.0], [1.0], [-0.7]]], dtype=torch.float64)
    real = torch.ones(1, 3, dtype=torch.bool)
    candidates = Candidates(z, real, ~real, z.mean(dim=1), torch.tensor([2]), torch.zeros(1))
    check_picks(herding, candidates)
    with pytest.raises(AssertionError):
        check_picks(repeating, candidates)


@given(candidates=candidate_sets())
def test_first_places_do_not_depend_on_the_quota(candidates):
    length = candidates.z.shape[1]
    places = herding_places(with_quota(candidates, length))
    for quota in range(length):
        shorter = herding_places(with_quota(candidates, quota))
        assert torch.equal(shorter, places.where(places < quota, length))
        assert torch.equal(herding(with_quota(candidates, quota)), places < quota)


@given(candidates=candidate_sets(), more=st.integers(0, 3))
def test_each_candidate_is_picked_once(candidates, more):
    """A large quota takes all of a class, in some order; padding never."""
    length = candidates.z.shape[1]
    places = herding_places(with_quota(candidates, length + more))
    assert torch.equal(herding(with_quota(candidates, length + more)), candidates.real)
    for own, real in zip(places, candidates.real, strict=True):
        assert sorted(own[real].tolist()) == list(range(int(real.sum())))
        assert own[~real].tolist() == [length] * int((~real).sum())


def test_equal_candidates_are_all_picked_and_the_stored_stay():
    z = torch.ones(1, 4, 2)
    real = torch.ones(1, 4, dtype=torch.bool)
    stored = torch.tensor([[True, True, False, False]])
    candidates = Candidates(z, real, stored, z[:, 0], torch.tensor([2]), torch.zeros(1))
    assert torch.equal(herding(candidates), stored)
