"""Grids: exactly the combinations, each once, under the names that ``deepccg run`` gives."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepccg.core import InputError
from deepccg.experiment import resolve
from deepccg.sweep import Grid, Job, load_grid, shard_of

METHODS = ("er", "sgd", "deepccg")


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "grid.toml"
    path.write_text(text)
    return path


def test_the_product_of_all_axes(tmp_path: Path) -> None:
    grid = load_grid(
        written(
            tmp_path,
            """
            methods = ["er", "sgd"]
            datasets = "digits"
            streams = ["disjoint", "shifting-window"]
            scenarios = ["task", "class"]
            memory = [50, 100]
            seeds = "0,2-3"

            [fields]
            method.lr = [0.1, 0.03]
            "network.layers" = [[32], [64, 64]]

            [settings]
            stream.examples_per_class = 20
            """,
        )
    )
    jobs = grid.jobs()
    wanted = set()
    for method, stream, scenario, memory, seed, lr, hidden in itertools.product(
        ("er", "sgd"), ("disjoint", "shifting-window"), ("task", "class"), (50, 100), (0, 2, 3),
        (0.1, 0.03), ([32], [64, 64]),
    ):  # fmt: skip
        config = resolve(
            {
                "method": {"name": method, "lr": lr},
                "dataset": "digits",
                "stream": {"kind": stream, "examples_per_class": 20},
                "scenario": scenario,
                "memory": memory,
                "network": {"layers": hidden},
                "seed": seed,
            }
        )
        wanted.add((config.name(), config.seed, config.model_dump_json()))
    assert len(wanted) == 2 * 2 * 2 * 2 * 3 * 2 * 2
    assert {(j.config.name(), j.seed, j.config.model_dump_json()) for j in jobs} == wanted
    assert len(jobs) == len(wanted)
    assert [job.seed for job in jobs] == sorted(job.seed for job in jobs)
    assert jobs[0].name == f"{jobs[0].config.name()}/seed-0"


def test_unset_fields_come_from_the_preset(tmp_path: Path) -> None:
    (job,) = load_grid(written(tmp_path, "")).jobs()
    assert job.config == resolve({})
    jobs = Grid(methods=["deepccg"], datasets=["cifar10"], scenarios=["task", "class"]).jobs()
    each = [
        resolve({"method": "deepccg", "dataset": "cifar10", "scenario": scenario})
        for scenario in ("task", "class")
    ]
    assert [job.config for job in jobs] == each
    (joint,) = Grid(methods="sgd", streams=["joint"]).jobs()
    assert joint.config.stream.joint == "tasks"


def test_sub_grids_are_united(tmp_path: Path) -> None:
    jobs = load_grid(
        written(
            tmp_path,
            """
            methods = ["er", "sgd"]
            seeds = [0, 1]
            settings.stream.examples_per_class = 20

            [[grid]]
            memory = [50]

            [[grid]]
            methods = "deepccg"
            fields."method.selector" = ["lasso", "greedy"]

            [[grid]]
            methods = "er"  # which the first part has
            memory = 50
            settings.stream.batch_size = 10  # and this is what it is anyway
            """,
        )
    ).jobs()
    assert [(job.config.method.name, job.config.memory, job.seed) for job in jobs] == [
        (method, memory, seed)
        for seed in (0, 1)
        for method, memory in (("er", 50), ("sgd", 50), ("deepccg", None), ("deepccg", None))
    ]
    assert {job.config.stream.examples_per_class for job in jobs} == {20}


axis = st.lists(st.sampled_from(METHODS), min_size=1, max_size=4)


@given(
    methods=axis,
    memory=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    seeds=st.lists(st.integers(0, 5), min_size=1, max_size=4),
    parts=st.integers(1, 7),
)
def test_each_job_is_there_once_and_in_one_shard(
    methods: list[str], memory: list[int], seeds: list[int], parts: int
) -> None:
    jobs = Grid(methods=methods, memory=memory, seeds=seeds).jobs()
    assert len(jobs) == len(set(methods)) * len(set(memory)) * len(set(seeds))
    split = [shard_of(jobs, f"{part}/{parts}") for part in range(1, parts + 1)]
    assert sorted(job.name for part in split for job in part) == sorted(job.name for job in jobs)
    sizes = {len(part) for part in split}
    assert max(sizes) - min(sizes) <= 1
    assert split == [shard_of(jobs, f"{part}/{parts}") for part in range(1, parts + 1)]


def test_a_shard_is_a_mixture() -> None:
    jobs = Grid(methods=["er", "sgd"], seeds=range(50)).jobs()
    methods = [job.config.method.name for job in shard_of(jobs, "1/2")]
    assert 10 < methods.count("er") < 40


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("methods = 3", "grid.toml: methods should be a valid tuple; got 3"),
        ("method = 'er'", "grid.toml: method is not a field; did you mean methods?"),
        ("seeds = 'x'", "grid.toml: seeds: seeds x: write for example 0, 0-2 or 0,3,5"),
        ("seeds = [0.5]", "grid.toml: seeds should be a valid integer"),
        ("fields.method.lr = 0.1", "fields: method.lr should have a list of values; got 0.1"),
        ("fields.method.lr = []", "fields: method.lr should have a list of values; got []"),
        ("settings.seed = 1", "settings: seed has its own axis: write seeds = [...]"),
        ("settings.method.name = 'a:B'", "method.name has its own axis: write methods"),
        ("methods = ['evil:Code']", "names code to import: if you trust it, add --method evil"),
        ("[[grid]]\nmethods = 'a:B'", "names code to import"),
        ("[[grid]]\nseed = 3", "grid.toml: seed is not a field; did you mean seeds?"),
        ("grid = 3", "grid.toml: write each part of a grid as a [[grid]] table"),
        ("a = ", "grid.toml is not valid TOML"),
    ],
)
def test_a_bad_file_is_rejected_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        load_grid(written(tmp_path, text))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        ({"methods": ["nothing"]}, "unknown method 'nothing'"),
        ({"scenarios": ["both"]}, "scenario should be"),
        (
            {"memory": [1], "memory_per_class": [1]},
            "memory_per_class or memory_bytes: one of them",
        ),
        ({"fields": {"method.learning_rate": [1]}}, "method.learning_rate is not a field"),
        ({"memory": [-1]}, "memory should be"),
        ({"seeds": [-1]}, "seed should be at least 0; got -1"),
        ({"seeds": range(400), "memory": range(1, 400)}, "the grid has 159,600 runs; at most"),
    ],
)
def test_a_bad_value_is_rejected_before_any_run(grid: dict[str, object], said: str) -> None:
    with pytest.raises(InputError) as refused:
        Grid(**grid).jobs()
    assert said in str(refused.value)


@pytest.mark.parametrize("part", ["0/3", "4/3", "1/0", "1", "a/b", "-1/3", "1/3/5", ""])
def test_a_bad_shard_is_refused(part: str) -> None:
    with pytest.raises(InputError, match="write for example 2/10"):
        shard_of([], part)


def test_the_seed_of_a_job_replaces_that_of_its_config() -> None:
    job = Job(resolve({"seed": 1}), 3)
    assert (job.seed, job.config.seed) == (3, 3)
    assert job.config == resolve({"seed": 3})
