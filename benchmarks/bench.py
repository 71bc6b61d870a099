"""What a step costs: `make bench` writes bench.json and the tables and plot of docs/performance.md.

Everything is measured against something else in the same minute: a round runs a few steps of each
contestant in turn, ratios are taken within a round, and the median over the rounds is reported with
its quartiles. CPU time is the process's own, so a busy machine spoils it less than wall time.

Usage: python benchmarks/bench.py [--threads 1 2] [--rounds 9] [--methods er deepccg]
       [--parts steps size] [--quick]
"""

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from bench_tables import with_quartiles, write_tables
from competitors import (
    PER_TASK,
    Setting,
    Step,
    build_learner,
    counting,
    images,
    learner_step,
    reference_step,
)
from cost_plot import plot_cost
from reference import ONE_BY_ONE, ResNet

from deepccg.core import Learner, TestSet
from deepccg.evaluation import evaluate
from deepccg.methods import METHODS
from deepccg.networks.build import IMAGES

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "bench.json"
MODES = {  # name in the plot: method and its fields
    "ER": ("er", {}),
    "DeepCCG, exact": ("deepccg", {"posterior": "exact"}),
    "DeepCCG, grouped": ("deepccg", {"posterior": "grouped"}),
    "DeepCCG, lazy": ("deepccg", {"posterior": "lazy"}),
    # The preset of CIFAR-100 and MiniImageNet: gradients through the means.
    "DeepCCG, lazy, through": ("deepccg", {"posterior": "lazy", "mean_gradient": True}),
}
SIZES = [Setting(10, 10), Setting(), Setting(1000, 10), Setting(100, 30), Setting(100, 100)]
LARGE = Setting(1000, 30)

Times = dict[str, list[float]]


def alternate(competitors: Mapping[str, Step], rounds: int, steps: int) -> tuple[Times, Times]:
    """CPU and wall seconds per step of each contestant, one number per round."""
    for step in competitors.values():
        step()
    cpu: Times = {name: [] for name in competitors}
    wall: Times = {name: [] for name in competitors}
    for number in range(rounds):
        order = list(competitors)
        for name in order if number % 2 == 0 else reversed(order):
            wall_start, cpu_start = time.perf_counter(), time.process_time()
            for _ in range(steps):
                competitors[name]()
            cpu[name].append((time.process_time() - cpu_start) / steps)
            wall[name].append((time.perf_counter() - wall_start) / steps)
    return cpu, wall


def spread(values: list[float]) -> list[float]:
    """Median and quartiles."""
    if len(values) < 2:
        return [values[0]] * 3
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return [middle, low, high]


def ratios(above: list[float], below: list[float]) -> list[float]:
    return spread([a / b for a, b in zip(above, below, strict=True)])


def steps_of_methods(names: list[str], rounds: int, steps: int) -> dict[str, dict[str, object]]:
    """Every method against its references and against ER."""
    setting = Setting()
    learners = {name: build_learner(name, setting) for name in dict.fromkeys(["er", *names])}
    competitors = {name: learner_step(each, setting) for name, each in learners.items()}
    competitors |= {f"{name} reference": reference_step(name, setting) for name in learners}
    competitors |= {
        f"{name} one by one": reference_step(name, setting, one_by_one=True)
        for name in ONE_BY_ONE
        if name in learners
    }
    cpu, wall = alternate(competitors, rounds, steps)
    # Threads that wait for each other use CPU time for nothing: with several, the clock counts.
    time_of = cpu if torch.get_num_threads() == 1 else wall
    found: dict[str, dict[str, object]] = {}
    for name in learners:
        with counting() as counter:
            for _ in range(4):
                competitors[name]()
        row: dict[str, object] = {
            "ms": [1e3 * value for value in spread(time_of[name])],
            "steps per second": [1 / value for value in spread(wall[name])],
            "times the reference": ratios(time_of[f"{name} reference"], time_of[name]),
            "cost in ER steps": ratios(time_of[name], time_of["er"]),
            "passes": counter.passes / 4,
            "images": counter.images / 4,
            "images with gradient": counter.with_gradient / 4,
        }
        if name in ONE_BY_ONE:
            row["times one by one"] = ratios(time_of[f"{name} one by one"], time_of[name])
        found[name] = row
    return found


def cost_by_size(rounds: int, steps: int) -> list[dict[str, object]]:
    """ER and DeepCCG's modes at each number of classes and of stored examples."""
    rows: list[dict[str, object]] = []
    for size in SIZES:
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
    """The lazy posterior's cost with 1,000 classes over that with 100, in turn."""
    name, fields = MODES["DeepCCG, lazy"]
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


def peak_memory(name: str, size: Setting, fields: Mapping[str, object]) -> float:
    """MiB resident at most, of a process that builds the learner and takes three steps."""
    request = json.dumps([name, size.classes, size.per_class, dict(fields)])
    command = [sys.executable, __file__, "--peak-memory", request]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def measure_own_memory(request: str) -> None:
    name, classes, per_class, fields = json.loads(request)
    torch.set_num_threads(1)
    size = Setting(classes, per_class)
    step = learner_step(build_learner(name, size, **fields), size)
    for _ in range(3):
        step()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def two_at_once(steps: int) -> float:
    """Wall time of two processes side by side over that of one alone; both single-threaded."""
    command = [sys.executable, __file__, "--just-steps", str(steps)]

    def lasts(count: int) -> float:
        running = [
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)
        ]
        return max(float(process.communicate()[0]) for process in running)

    return statistics.median(lasts(2) / lasts(1) for _ in range(3))


def just_steps(steps: int) -> None:
    torch.set_num_threads(1)
    step = learner_step(build_learner("er", Setting()), Setting())
    step()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    print(time.perf_counter() - start)


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


def show(rows: Mapping[str, Mapping[str, object]], threads: int) -> None:
    print(f"\n{threads} torch thread{'s' * (threads > 1)}: median (quartiles) over the rounds")
    print(
        f"{'method':<23}{'ms a step':>24}{'times reference':>20}"
        f"{'ER steps':>20}{'passes':>8}{'images':>8}"
    )
    for name, row in rows.items():
        print(
            f"{name:<23}{with_quartiles(row['ms'], 1):>24}"
            f"{with_quartiles(row['times the reference']):>20}"
            f"{with_quartiles(row['cost in ER steps']):>20}"
            f"{row['passes']:>8.1f}{row['images']:>8.1f}"
        )
        if "times one by one" in row:
            print(f"{'':<23}{with_quartiles(row['times one by one'])} times as fast as one by one")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=3, help="of each contestant in a round")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--images", type=int, default=10_000, help="scored in the evaluation")
    parser.add_argument("--quick", action="store_true", help="three rounds, 500 images")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--peak-memory", help=argparse.SUPPRESS)
    parser.add_argument("--just-steps", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    given = arguments()
    if given.peak_memory:
        return measure_own_memory(given.peak_memory)
    if given.just_steps:
        return just_steps(given.just_steps)
    if given.quick:
        given.rounds, given.steps, given.images = 3, 1, 500
    torch.set_num_threads(1)
    for part in given.parts:
        for key, value in PARTS[part](given).items():
            keep(given.out, key, value)
    return None


def keep(path: Path, key: str, value: object) -> None:
    """Write one part's numbers; those of other parts stay."""
    found = json.loads(path.read_text()) if path.exists() else {}
    found["machine"] = {
        "torch": torch.__version__,
        "processor": platform.machine(),
        "capability": torch.backends.cpu.get_cpu_capability(),
    }
    found[key] = value
    path.write_text(json.dumps(found, indent=1) + "\n")
    if path == RESULTS:
        write_tables(found, HERE.parent / "docs" / "performance.md")
    print(f"{key}: written to {path.name}", flush=True)


def steps_part(given: argparse.Namespace) -> dict[str, object]:
    found: dict[str, object] = {}
    for threads in given.threads:
        torch.set_num_threads(threads)
        rows = steps_of_methods(given.methods, given.rounds, given.steps)
        show(rows, threads)
        found[f"steps, {threads} threads"] = rows
    torch.set_num_threads(1)
    return found


def size_part(given: argparse.Namespace) -> dict[str, object]:
    rows = cost_by_size(given.rounds, given.steps)
    if given.out == RESULTS:
        plot_cost(rows, HERE.parent / "docs" / "images" / "cost.png")
    growth = growth_with_classes(given.rounds, 2 * given.steps)
    return {"cost by size": rows, "lazy, 1000 classes over 100": growth}


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
