"""What a step costs: prints the tables of docs/performance.md, and writes them if asked.

Usage: python benchmarks/bench.py [--quick | --full] [--parts steps size] [--methods er deepccg]
       [--threads 1 2] [--write]

`make bench` takes less than ten minutes on two cores. With --full there are more rounds, all sizes
and all test images; --write keeps these in bench.json, and the tables and the plot in docs.
"""

import argparse
import json
import platform
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from bench_tables import GROWTH, SIZE, sections, write_tables
from competitors import (
    PER_TASK,
    SHAPE,
    Setting,
    build_learner,
    counting,
    images,
    learner_step,
    reference_step,
)
from cost_plot import plot_cost
from interleaved import (
    PEAK,
    Step,
    alternate,
    operations_per_image,
    peak_step,
    ratios,
    share_of_peak,
    spread,
)
from own_process import peak_memory, two_at_once
from reference import ONE_BY_ONE, REFERENCES, ResNet

from deepccg.core import Learner, TestSet
from deepccg.evaluation import evaluate
from deepccg.networks.build import IMAGES

HERE = Path(__file__).resolve().parent
RESULTS, DOCS = HERE / "bench.json", HERE.parent / "docs"
MODES = {  # name in the plot: method and its fields
    "ER": ("er", {}),
    "DeepCCG, exact": ("deepccg", {"posterior": "exact"}),
    "DeepCCG, sampled": ("deepccg", {"posterior": "sampled"}),
    # The preset of CIFAR-100 and MiniImageNet: gradients through the means.
    "DeepCCG, sampled, through": ("deepccg", {"posterior": "sampled", "mean_gradient": True}),
    # That of the preset `strong`, of ten classes.
    "DeepCCG, leave one out": (
        "deepccg",
        {"posterior": "leave-one-out", "mean_gradient": True, "replay": 40},
    ),
}
SIZES = [Setting(10, 10), Setting(), Setting(1000, 10), Setting(100, 30)]
FULL_SIZES = [*SIZES, Setting(100, 100)]
LARGE = Setting(1000, 30)


def steps_of_methods(names: list[str], rounds: int, steps: int) -> dict[str, dict[str, object]]:
    """Every method against its references, against ER and against the machine."""
    setting = Setting()
    learners = {name: build_learner(name, setting) for name in dict.fromkeys(["er", *names])}
    competitors = {name: learner_step(each, setting) for name, each in learners.items()}
    competitors |= {f"{name} reference": reference_step(name, setting) for name in learners}
    competitors |= {
        f"{name} one by one": reference_step(name, setting, one_by_one=True)
        for name in ONE_BY_ONE
        if name in learners
    }
    competitors[PEAK] = peak_step()
    forward, backward = operations_per_image(SHAPE)
    cpu, wall = alternate(competitors, rounds, steps)
    # Threads that wait for each other use CPU time for nothing: with several, the clock counts.
    time_of = cpu if torch.get_num_threads() == 1 else wall
    found: dict[str, dict[str, object]] = {}
    for name in learners:
        with counting() as counter:
            for _ in range(4):
                competitors[name]()
        operations = (counter.images * forward + counter.with_gradient * backward) / 4
        row: dict[str, object] = {
            "ms": [1e3 * value for value in spread(time_of[name])],
            "steps per second": [1 / value for value in spread(wall[name])],
            "times the reference": ratios(time_of[f"{name} reference"], time_of[name]),
            "cost in ER steps": ratios(time_of[name], time_of["er"]),
            "share of peak": share_of_peak(operations, time_of[name], time_of[PEAK]),
            "passes": counter.passes / 4,
            "images": counter.images / 4,
            "images with gradient": counter.with_gradient / 4,
        }
        if name in ONE_BY_ONE:
            row["times one by one"] = ratios(time_of[f"{name} one by one"], time_of[name])
        found[name] = row
    return found


def cost_by_size(sizes: list[Setting], rounds: int, steps: int) -> list[dict[str, object]]:
    """ER and DeepCCG's modes at each number of classes and of stored examples."""
    rows: list[dict[str, object]] = []
    for size in sizes:
        learners = {
            label: build_learner(name, size, **fields) for label, (name, fields) in MODES.items()
        }
        competitors = {label: learner_step(each, size) for label, each in learners.items()}
        cpu, _ = alternate(competitors, rounds, steps)
        for label, step in competitors.items():
            with counting() as counter:
                for _ in range(4):
                    step()
            rows.append(
                {
                    "mode": label,
                    "classes": size.classes,
                    "per class": size.per_class,
                    "cpu ms": [1e3 * value for value in spread(cpu[label])],
                    "cost in ER steps": ratios(cpu[label], cpu["ER"]),
                    "images": counter.images / 4,
                }
            )
    return rows


def growth_with_classes(rounds: int, steps: int) -> list[float]:
    """The sampled posterior's cost with 1,000 classes over that with 100, in turn."""
    name, fields = MODES["DeepCCG, sampled, through"]
    competitors = {
        size.classes: learner_step(build_learner(name, size, **fields), size)
        for size in (Setting(100, 10), Setting(1000, 10))
    }
    cpu, _ = alternate({str(classes): step for classes, step in competitors.items()}, rounds, steps)
    return ratios(cpu["1000"], cpu["100"])


def evaluation(names: list[str], count: int) -> dict[str, float]:
    """Scoring images under all tasks, in units of a bare forward of the same network over them."""
    setting = Setting()
    x, y = images(count, "test"), torch.arange(count) % setting.classes
    test = TestSet(x, y, tuple(setting.tasks))
    last = len(setting.tasks) - 1

    def bare(learner: Learner) -> None:
        with torch.no_grad():
            for chunk in torch.split(x, 500):
                for part in torch.split(chunk, IMAGES):
                    learner.network(part)

    found = {}
    for name in names:
        learner = build_learner(name, setting)
        competitors: dict[str, Step] = {
            "evaluate": lambda it=learner: evaluate(
                it, test, step=1, examples=1, task=last, final=True
            ),
            "bare": lambda it=learner: bare(it),
        }
        cpu, _ = alternate(competitors, 3, 1)
        found[name] = ratios(cpu["evaluate"], cpu["bare"])[0]
    return found


def forwards(rounds: int) -> dict[str, list[float]]:
    """CPU milliseconds per image of each network, without gradient, as many at a time as a step."""
    x = images(IMAGES, "forward")
    networks = {
        "reference": ResNet(),
        "torch": build_learner("sgd", Setting(PER_TASK, 1)).network,
    }
    networks["native"] = networks["torch"]
    competitors: dict[str, Step] = {}
    for label, network in networks.items():

        def forward(network: torch.nn.Module = network, native: bool = label == "native") -> None:
            for module in network.modules():
                if "native" in vars(module):
                    module.native = native
            with torch.no_grad():
                network(x)

        competitors[label] = forward
    cpu, _ = alternate(competitors, rounds, 2)
    return {label: [1e3 * t / len(x) for t in spread(times)] for label, times in cpu.items()}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, help="how often each contestant has its turn")
    parser.add_argument("--methods", nargs="+", default=list(REFERENCES), choices=list(REFERENCES))
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="3 rounds of one step")
    length.add_argument("--full", action="store_true", help="9 rounds, all sizes and test images")
    parser.add_argument("--write", action="store_true", help="keep the numbers of --full in docs")
    given = parser.parse_args()
    if given.write and not (given.full and set(given.methods) == set(REFERENCES)):
        parser.error("--write replaces whole tables: give --full and leave out --methods")
    rounds, given.steps, given.images = (
        (3, 1, 500) if given.quick else (9, 3, 10_000) if given.full else (5, 2, 500)
    )
    given.rounds = given.rounds or rounds
    given.sizes = FULL_SIZES if given.full else SIZES
    return given


def main() -> None:
    given = arguments()
    torch.set_num_threads(1)
    for part in given.parts:
        found = PARTS[part](given)
        for title, table in sections(found).items():
            print(f"\n{title}\n\n{table}", flush=True)
        if given.write:
            keep(found)


def keep(part: Mapping[str, object]) -> None:
    """Write one part's numbers, tables and plot; those of other parts stay."""
    found = json.loads(RESULTS.read_text())
    found["machine"] = {
        "torch": torch.__version__,
        "processor": platform.machine(),
        "capability": torch.backends.cpu.get_cpu_capability(),
    }
    found |= part
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    write_tables(found, DOCS / "performance.md")
    if SIZE in part:
        plot_cost(found[SIZE], DOCS / "images" / "cost.png")
    print(f"\nwritten to {RESULTS.name} and docs/performance.md", flush=True)


def steps_part(given: argparse.Namespace) -> dict[str, object]:
    found: dict[str, object] = {}
    for threads in given.threads:
        torch.set_num_threads(threads)
        rows = steps_of_methods(given.methods, given.rounds, given.steps)
        found[f"steps, {threads} threads"] = rows
    torch.set_num_threads(1)
    return found


def size_part(given: argparse.Namespace) -> dict[str, object]:
    growth = growth_with_classes(given.rounds, 2 * given.steps)
    return {SIZE: cost_by_size(given.sizes, given.rounds, given.steps), GROWTH: growth}


def memory_part(given: argparse.Namespace) -> dict[str, object]:
    large = {label: peak_memory(name, LARGE, fields) for label, (name, fields) in MODES.items()}
    return {
        "peak MiB": {name: peak_memory(name, Setting(), {}) for name in given.methods},
        f"peak MiB, {LARGE.classes} classes of {LARGE.per_class}": large,
    }


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, object]]] = {
    "steps": steps_part,
    "forward": lambda given: {"forward ms per image": forwards(given.rounds)},
    "size": size_part,
    "evaluation": lambda given: {"evaluation in forwards": evaluation(given.methods, given.images)},
    "memory": memory_part,
    "pair": lambda _: {"two processes over one": two_at_once(40)},
}


if __name__ == "__main__":
    main()
