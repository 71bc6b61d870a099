"""Runs on every kind of stream: each method runs or is refused in one line; names stay."""

import pytest

from deepccg.core import InputError
from deepccg.experiment import RunConfig, resolve, run
from deepccg.methods import METHODS
from deepccg.records import accuracy_matrix, forgetting
from deepccg.streams import SCHEDULES, TASK_FREE, load_dataset

QUICK = {"dataset": "digits", "stream.examples_per_class": 6, "memory": 20, "evaluation.images": 30}
NEED_TASKS = {"ewc", "packnet", "agem"}


@pytest.mark.slow_for_most
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["blurry", "domain"])
def test_every_method_runs_or_is_refused_in_one_line(tmp_path, kind: str, method: str) -> None:
    settings = {**QUICK, "stream": kind, "method": method, "directory": tmp_path / "run"}
    settings |= {"stream.domains": 2} if kind == "domain" else {}
    settings |= {"method.passes": 2} if method == "gdumb" else {}
    settings["evaluation.every"] = "end"
    if kind in TASK_FREE and method in NEED_TASKS:
        with pytest.raises(InputError, match=f"{method} needs to know where tasks end") as caught:
            run(**settings)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "run").exists()
        return
    result = run(**settings)
    assert result.audit["passed"]
    assert result.evaluations[-1].images == 30
    assert len(result.evaluations[-1].tasks) == (2 if kind == "domain" else 5)


def test_a_gem_runs_without_tasks_where_it_draws_from_all_of_memory() -> None:
    settings = {"stream": "gaussian", "method": "agem"}
    with pytest.raises(InputError, match="of a gaussian stream come without tasks"):
        resolve(settings)
    assert resolve({**settings, "method.reference_from": "all"}).stream.kind == "gaussian"
    with pytest.raises(InputError, match="come without tasks"):
        resolve({**settings, "method": "ewc"})


def test_domains_have_an_accuracy_each_and_forgetting_is_over_domains(tmp_path) -> None:
    result = run(
        directory=tmp_path / "run",
        stream={"kind": "domain", "domains": 3, "appearance": "permutation", "imbalance": 3},
        method="sgd",
    )
    images = len(load_dataset("digits").test)
    final = result.evaluations[-1]
    assert [score.images for score in final.tasks] == [images] * 3
    assert (final.images, final.of_images) == (3 * images, 3 * images)
    matrix = accuracy_matrix(result.evaluations, "class")
    assert matrix.shape == (3, 3)
    by_hand = ((matrix[:2, 0].max() - matrix[2, 0]) + (matrix[1, 1] - matrix[2, 1])) / 2
    assert forgetting(result.evaluations, "class") == pytest.approx(by_hand)
    assert matrix[0, 0] > 0.5  # it learned; another permutation hides that
    assert matrix[0, 0] > matrix[2, 0] + 0.1


def test_a_validation_part_is_shown_in_every_domain_too(tmp_path) -> None:
    settings = {"stream": "domain", "evaluation.validation": 0.2, "method": "ncm"}
    result = run(directory=tmp_path / "run", **settings)
    assert result.evaluations[-1].images == 5 * 280
    assert result.audit["test"]["opened"] is False


@pytest.mark.parametrize("kind", SCHEDULES)
def test_fields_that_are_not_set_do_not_change_names(kind: str) -> None:
    config = resolve({"stream": kind, "method": "ncm"})
    plain = config.model_dump(mode="json", exclude_none=True)
    assert RunConfig.model_validate(plain).name() == config.name()
    imbalanced = {"kind": kind, "imbalance": 2}
    assert resolve({"stream": imbalanced, "method": "ncm"}).name() != config.name()


def test_the_names_of_earlier_runs_are_the_same() -> None:
    assert resolve({"method": "ncm"}).name() == "digits-disjoint-task-ncm-default-a75bf58b"
    window = {"method": "ncm", "stream": "shifting-window"}
    assert resolve(window).name() == "digits-shifting-window-task-ncm-default-98db04a7"


@pytest.mark.parametrize(
    ("stream", "says"),
    [
        ({"kind": "blurry", "blur": 1}, "stream.blur should be less than 1"),
        ({"kind": "gaussian", "spread": 0}, "stream.spread should be greater than 0"),
        ({"kind": "domain", "domains": 1}, "stream.domains should be greater than or equal to 2"),
        ({"kind": "domain", "appearance": "noise"}, "stream.appearance should be 'rotation' or"),
        ({"imbalance": 0.5}, "stream.imbalance should be greater than or equal to 1"),
        ({"blur": 0.1}, "a disjoint stream has no blur: that is for blurry"),
        ({"kind": "domain", "classes_per_task": 2}, "a domain stream has no classes_per_task"),
    ],
)
def test_bad_values_are_one_line(stream: dict, says: str) -> None:
    with pytest.raises(InputError) as caught:
        resolve({"stream": stream})
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
