"""A fit in shards is the run of one process: in processes, on a cluster, killed and continued."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepccg.core import InputError, State
from deepccg.experiment import Interrupted, RunResult, load, resolve, resume, run
from deepccg.experiment.shard import Shard
from deepccg.learners.state_file import load_state
from deepccg.records import RunDirectory
from deepccg.streams import from_arrays, load_dataset
from deepccg.sweep import ShardFailed, fit
from deepccg.sweep.engine import Event, Finished, Started
from deepccg.sweep.job import JobSpec, execute
from deepccg.sweep.shards import merge_in_tree, split

FIELDS: dict[str, Any] = {"stream.examples_per_class": 60, "evaluation.images": 100}
# Fitted to the first 100 inputs, or as many as can wait; double precision: see odd_learners.
OWN: dict[str, Any] = {"network.kind": "fourier", "network.features": 20}
FIRST, STEPS = 6, 60  # until the features are fitted, as 50 examples can wait; in all
PATIENCE = 120.0  # seconds; a machine may be busy


def odd(name: str, **settings: Any) -> dict[str, Any]:
    return {**FIELDS, **OWN, "method": f"odd_learners:{name}", **settings}


def alone(directory: Path, settings: dict[str, Any]) -> RunResult:
    """The same in one process."""
    return run(directory=directory, **{**settings, "evaluation.every": "end"})


def assert_equal(fitted: RunResult, single: RunResult, tolerance: float = 1e-6) -> None:
    """The same files, and the same learner but for rounding."""
    for name in ("config.toml", "audit.json", "environment.json"):
        assert (fitted.directory / name).read_bytes() == (single.directory / name).read_bytes()
    assert fitted.evaluations == single.evaluations
    assert not (fitted.directory / "shards").exists()
    (state, about), (wanted, known) = (
        load_state(RunDirectory(each.directory).checkpoint_path) for each in (fitted, single)
    )
    assert {**about, "records": 0} == {**known, "records": 0}  # one process also notes its loss
    assert state.meta == wanted.meta  # steps, and how many examples of each class were seen
    assert_close(state, wanted, tolerance)
    x = torch.from_numpy(load_dataset("digits").test.x)
    reread = load(fitted.directory, learner=type(fitted.learner))
    for learner in (fitted.learner, reread):
        apart = learner.predict_proba(x) - single.learner.predict_proba(x)
        assert apart.abs().max() < tolerance


def assert_close(state: State, wanted: State, tolerance: float) -> None:
    assert state.tensors.keys() == wanted.tensors.keys()
    for name, tensor in wanted.tensors.items():
        size = float(tensor.double().abs().max()) if tensor.numel() else 0.0
        apart = (state.tensors[name].double() - tensor.double()).abs()
        assert tensor.numel() == 0 or float(apart.max()) <= tolerance * size, name


class InlineEngine:
    """Does shards in this process, the last first; may die after some of them."""

    def __init__(self, dies_after: int | None = None) -> None:
        self.specs: list[JobSpec] = []
        self.events: deque[Event] = deque()
        self.left = dies_after

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, spec: JobSpec) -> None:
        self.specs.append(JobSpec(**json.loads(json.dumps(vars(spec)))))

    def next_event(self, seconds: float) -> Event | None:
        del seconds
        if not self.events:
            if self.left == 0:
                raise RuntimeError("the program dies")
            self.left = None if self.left is None else self.left - 1
            spec = self.specs.pop()
            result = execute(spec, lambda *_: None, lambda: False)
            self.events += [Started(spec.name), Finished(spec.name, result)]
        return self.events.popleft()

    def stop(self) -> None:
        pass


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunResult]:
    """``fit`` without processes of its own."""

    def call(dies_after: int | None = None, **options: Any) -> RunResult:
        engine = InlineEngine(dies_after)
        monkeypatch.setattr("deepccg.sweep.shards.build_engine", lambda *_: engine)
        return fit(progress=False, **options)

    return call


@pytest.mark.parametrize("shards", [1, 3, 1000])
def test_a_fit_equals_one_process(
    inline: Callable[..., RunResult], tmp_path: Path, shards: int
) -> None:
    settings = odd("DoubleCCG")
    fitted = inline(out=tmp_path / "out", shards=shards, **settings)
    assert_equal(fitted, alone(tmp_path / "alone", settings))


@pytest.mark.parametrize(
    "settings",
    [
        odd("DoubleCCG", **{"evaluation.validation": 0.2, "evaluation.images": None}),
        odd("DoubleCCG", **{"stream": "joint", "stream.epochs": 2}),
        odd("DoubleCCG", **{"method.prior_strength": "marginal-likelihood", "seed": 3}),
        odd("DoubleCCG", **{"method.class_prior": "observed", "stream": "shifting-window"}),
        odd("DoubleCCG", **{"memory": 100, "stream.examples_per_class": 9}),  # all 90 wait
        {**FIELDS, "method": "ncm"},
    ],
    ids=["validation", "joint", "marginal", "window", "never fitted", "ncm"],
)
def test_any_stream_and_fields_can_be_fitted(
    inline: Callable[..., RunResult], tmp_path: Path, settings: dict[str, Any]
) -> None:
    fitted = inline(out=tmp_path / "out", shards=3, **settings)
    assert_equal(fitted, alone(tmp_path / "alone", settings))


@pytest.mark.parametrize("method", ["ccg", "slda", "randumb"])
def test_single_precision_stores_the_same_statistics(
    inline: Callable[..., RunResult], tmp_path: Path, method: str
) -> None:
    """One unit in the last place of a scatter is more in a prediction, where the prior is weak."""
    settings = {**FIELDS, "method": method}
    fitted = inline(out=tmp_path / "out", shards=4, **settings)
    single = alone(tmp_path / "alone", settings)
    assert fitted.evaluations == single.evaluations
    assert fitted.audit == single.audit
    assert_close(fitted.learner.state_dict(), single.learner.state_dict(), 1e-6)


def test_a_finished_run_is_read_back_by_either(
    inline: Callable[..., RunResult], tmp_path: Path
) -> None:
    fitted = inline(out=tmp_path, shards=2, **FIELDS)
    assert fitted.config.method.name == "ccg"
    before = {file: file.stat().st_mtime_ns for file in fitted.directory.iterdir()}
    assert resume(fitted.directory).evaluations == fitted.evaluations
    again = inline(0, out=tmp_path, shards=5, **FIELDS)  # no shard is learned
    assert again.directory == alone(fitted.directory, {**FIELDS, "method": "ccg"}).directory
    assert {file: file.stat().st_mtime_ns for file in fitted.directory.iterdir()} == before


@pytest.mark.parametrize(("after", "shards"), [(0, 3), (1, 3), (2, 3), (2, 2)])
def test_a_program_that_died_continues(
    inline: Callable[..., RunResult], tmp_path: Path, after: int, shards: int
) -> None:
    """With the same shards, or with others."""
    settings = odd("DoubleCCG")
    with pytest.raises(RuntimeError, match="the program dies"):
        inline(after, out=tmp_path / "out", shards=3, **settings)
    done = list((tmp_path / "out").rglob("shards/*/checkpoint.safetensors"))
    assert len(done) == after
    for each in done[1:]:
        each.write_bytes(b"damaged")  # is begun again
    fitted = inline(out=tmp_path / "out", shards=shards, **settings)
    assert_equal(fitted, alone(tmp_path / "alone", settings))


def test_one_process_finishes_what_a_fit_has_begun(
    inline: Callable[..., RunResult], tmp_path: Path
) -> None:
    settings = {**FIELDS, "method": "ccg"}
    with pytest.raises(RuntimeError, match="the program dies"):
        inline(1, out=tmp_path / "out", shards=3, **settings)
    (begun,) = (tmp_path / "out").rglob("config.toml")
    finished = resume(begun.parent)
    single = alone(tmp_path / "alone", settings)
    state, wanted = finished.learner.state_dict(), single.learner.state_dict()
    assert state.meta == wanted.meta
    assert_close(state, wanted, 0.0)


def test_shards_of_other_data_or_of_a_disk_that_is_not_shared_are_refused(
    inline: Callable[..., RunResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, digits = odd("DoubleCCG"), load_dataset("digits")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("deepccg.experiment.shard.save_state", lambda *_: None)
        with pytest.raises(InputError, match="on a disk that all machines share"):
            inline(out=tmp_path, shards=2, **settings)
    with pytest.raises(InputError, match=r"nowhere is not here: --out has to be on a disk"):
        Shard(RunDirectory(tmp_path / "nowhere"), 0, 5).learn(
            resolve(settings), load_dataset("digits")
        )
    own = digits.train
    data = from_arrays(own.x[:, 0, ::-1], own.y, own.x[:, 0], own.y, name="digits")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("deepccg.sweep.job.load_dataset", lambda *_, **__: data)
        with pytest.raises(ShardFailed, match=r"2 of 2 shards failed.* every machine needs"):
            inline(out=tmp_path, shards=2, **settings)
    assert inline(out=tmp_path, shards=2, **settings).learner.steps == STEPS


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"method": "er"}, "er cannot be fitted in shards.* choose one of ccg, ncm, slda, randumb"),
        ({"method.half_lives": [50.0]}, "forget cannot be fitted in shards: set method.half_lives"),
        ({"shards": 0}, "at least 1 shard; got 0"),
        ({"retries": -1}, "retries should be at least 0"),
        ({"engine": "cloud"}, "engine should be local or ray"),
        ({"address": "10.0.0.1:6379"}, "address is for the engine ray"),
        ({"checkpoint_every": "often"}, "checkpoint_every takes a number"),
        ({"evaluation.shift_images": 5}, "shift_images needs every step in order"),
        ({"dataset": "cifar10"}, "cifar10"),
        ({"method.prior_strength": 0.0}, "method.prior_strength should be"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    tmp_path: Path, options: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match=said) as refused:
        fit(out=tmp_path / "out", data_dir=tmp_path, **options)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "out").exists()


@given(st.integers(0, 50), st.integers(1, 300), st.integers(1, 400))
def test_a_split_is_even_and_complete(first: int, steps: int, shards: int) -> None:
    parts = split(RunDirectory(Path("run")), first, first + steps, shards)
    covered = [step for part in parts for step in range(part.first, part.stop)]
    assert covered == list(range(first, first + steps))
    lengths = {part.stop - part.first for part in parts}
    assert max(lengths) - min(lengths) <= 1
    assert len(parts) == min(shards, steps)


class Tree:
    """Notes what it is merged from, in order, and how deep the tree is."""

    alive = most = 0

    def __init__(self, number: int) -> None:
        self.numbers, self.depth = [number], 0
        Tree.alive += 1
        Tree.most = max(Tree.most, Tree.alive)

    def merge(self, other: "Tree") -> None:
        self.numbers += other.numbers
        self.depth = 1 + max(self.depth, other.depth)
        Tree.alive -= 1


@given(st.integers(1, 200))
def test_learners_merge_in_order_in_a_flat_tree(count: int) -> None:
    Tree.alive = Tree.most = 0
    first = Tree(0)
    merge_in_tree(first if number == 0 else Tree(number) for number in range(count))
    assert first.numbers == list(range(count))
    assert first.depth <= count.bit_length()
    assert Tree.most <= count.bit_length() + 1


# With processes that import torch, and clusters.


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, None], ids=["continued", "begun again"])
def test_a_shard_whose_process_is_killed_counts_once(tmp_path: Path, every: int | None) -> None:
    settings = odd("KilledOnceCCG")
    fitted = fit(out=tmp_path / "out", shards=3, checkpoint_every=every, **settings)
    assert (tmp_path / "was-killed").exists()  # else it is killed below, and this process with it
    assert_equal(fitted, alone(tmp_path / "alone", settings))


@pytest.mark.slow
def test_a_shard_that_fails_is_one_line_and_leaves_the_others(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The second of three has the task with the bug."""
    settings = odd("BrokenCCG")
    with pytest.raises(ShardFailed, match=r"1 of 3 shards failed, .*/shards/.*ZeroDivision") as bad:
        fit(out=tmp_path, shards=3, retries=0, **settings)
    assert "\n" not in str(bad.value)
    assert "odd_learners.py" in next(tmp_path.rglob("shards/*/log.txt")).read_text()
    assert len(list(tmp_path.rglob("shards/*/checkpoint.safetensors"))) == 2
    assert "2 of 3 shards done, 1 failed" in capfd.readouterr().err


@pytest.mark.slow
def test_ctrl_c_saves_every_shard_and_the_same_call_continues(
    tmp_path: Path, ctrl_c: Callable[..., AbstractContextManager[None]]
) -> None:
    settings, out = odd("SlowCCG"), tmp_path / "out"
    options: dict[str, Any] = {"out": out, "shards": 2, "checkpoint_every": 1, "progress": False}

    def learning() -> bool:
        return len(list(out.rglob("shards/*/checkpoint.safetensors"))) == 2

    with ctrl_c(learning), pytest.raises(Interrupted) as stopped:
        fit(**options, **settings)
    assert (stopped.value.step, stopped.value.steps) == (FIRST, STEPS)
    for path in out.rglob("shards/*/checkpoint.safetensors"):
        first, stop = map(int, path.parent.name.split("-"))
        assert first < load_state(path)[1]["position"] < stop
    assert_equal(fit(**options, **settings), alone(tmp_path / "alone", settings))


PROGRAM = """
import json, sys
from deepccg.sweep import fit
fit(**json.loads(sys.argv[1]))
"""


@pytest.mark.slow
def test_a_program_killed_while_its_shards_learn_continues(tmp_path: Path) -> None:
    settings, out = odd("SlowCCG"), tmp_path / "out"
    options: dict[str, Any] = {"out": str(out), "shards": 2, "checkpoint_every": 1, **settings}
    path = os.pathsep.join(filter(None, sys.path))
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, json.dumps(options)], env=os.environ | {"PYTHONPATH": path}
    )
    until = time.monotonic() + PATIENCE
    while len(list(out.rglob("shards/*/checkpoint.safetensors"))) < 2:
        assert time.monotonic() < until, "timed out"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    fitted = fit(**{**options, "out": out})
    assert_equal(fitted, alone(tmp_path / "alone", settings))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_cluster_of_two_nodes_equals_one_process_even_if_a_worker_is_killed(
    cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = odd("KilledOnceCCG")
    fitted = fit(
        out=tmp_path / "out", shards=4, engine="ray", address=cluster, progress=False, **settings
    )
    assert (tmp_path / "was-killed").exists()  # else it is killed below, and this process with it
    assert capsys.readouterr().out == ""
    assert_equal(fitted, alone(tmp_path / "alone", settings))
