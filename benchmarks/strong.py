"""How the presets `strong` was chosen: everybody with the same passes and bytes.

CIFAR-10, disjoint tasks. Half of the training images are the stream, the other half is scored, of
500 of each class; no test image is opened. The budget is the number of passes of the network per
example in training (one backward counts as two), that of DeepCCG's `default`; the memory is the
paper's. Class-incrementally there are nine ways to train for every method, then, with the best of
them, the same four ways to predict; task-incrementally four ways.

Run it: ``python benchmarks/strong.py --data-dir DATA --methods er,scr``. Finished runs are read
back. What was found is in ``benchmarks/tuning/strong.json``; ``--table`` prints it.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from held_out import score

from deepccg.records import write_atomically

FOUND = Path(__file__).parent / "tuning" / "strong.json"
COMMON = {
    "dataset": "cifar10",
    "stream.examples_per_class": 1000,
    "evaluation.validation": 0.5,
    "evaluation.every": "end",
}
Point = Mapping[str, Any]  # fields of the method


def ways(
    recipes: Sequence[tuple[int, int, bool]], rates: Sequence[float], **fields: Sequence[Any]
) -> list[Point]:
    """Every combination of (steps, replays, cropped), step size and one further field."""
    name, values = next(iter(fields.items()), ("", (None,)))
    return [
        {"repeats": steps, "replay": replay, "augment": crop, "lr": lr}
        | ({name: value} if name else {})
        for steps, replay, crop in recipes
        for lr in rates
        for value in values
    ]


def plain(*recipes: tuple[int, int]) -> list[Point]:
    """Recipes (steps, replays) with images as they are."""
    return ways([(*recipe, False) for recipe in recipes], [0.1])


def cropped(*recipes: tuple[int, int], lr: Sequence[float] = (0.1, 0.03)) -> list[Point]:
    """Recipes (steps, replays) with images cropped and mirrored."""
    return ways([(*recipe, True) for recipe in recipes], lr)


# Gradients through the means, of a sample beside the replay or of the replay itself.
SAMPLED = {"posterior": "sampled", "mean_gradient": True}
LEFT_OUT = {"posterior": "leave-one-out", "mean_gradient": True}
ALL_SEEN = {"train_mask": "seen", "replay_mask": "seen"}


def also(points: Sequence[Point], **fields: Any) -> list[Point]:
    """Points with further fields."""
    return [{**point, **fields} for point in points]


ONE = {
    "er": plain((1, 66), (2, 28)) + cropped((1, 66), (2, 28), (3, 15)) + cropped((4, 9), lr=[0.1]),
    "er-ace": plain((1, 66), (2, 28))
    + cropped((1, 66), (2, 28), (3, 15))
    + cropped((4, 9), lr=[0.1]),
    "derpp": plain((1, 33), (2, 14))
    + cropped((1, 33), (2, 14), (3, 8))
    + cropped((4, 4), lr=[0.1]),
    "icarl": plain((1, 29), (2, 10))
    + cropped((1, 29), (2, 10), lr=[0.1, 0.03, 0.01])
    + cropped((3, 4), lr=[0.1]),
    "scr": ways([(1, 28, False), (2, 9, False)], [0.1, 0.03], temperature=[0.07, 0.2])
    + ways([(3, 3, False)], [0.1], temperature=[0.07]),
    "pcr": ways([(1, 28, False), (2, 9, False)], [0.1, 0.03], temperature=[0.09, 0.2])
    + ways([(3, 3, False)], [0.1], temperature=[0.09]),
    "deepccg": [
        *plain((1, 10)),
        *cropped((1, 10), lr=[0.1]),
        *also(cropped((2, 10), lr=[0.1]), **SAMPLED, replay_mask="task"),
        *also(cropped((1, 40), lr=[0.1]), **SAMPLED),
        *also(cropped((2, 40)), **LEFT_OUT, **ALL_SEEN),
        *also(cropped((2, 40), lr=[0.1]), **LEFT_OUT),
        *also(cropped((1, 80), lr=[0.1]), **LEFT_OUT, **ALL_SEEN, sample=8),
        *also(cropped((2, 30), lr=[0.1]), **LEFT_OUT, **ALL_SEEN, sample=3),
    ],
}
GAUSSIAN = {"readout": "gaussian"}
# With 10 images per class, which DeepCCG has to divide between replay and classifier.
TASK = {
    "er": [*cropped((4, 9), (3, 15), (2, 28), lr=[0.1]), cropped((4, 9))[0] | GAUSSIAN],
    "er-ace": [*cropped((4, 9), (3, 15), (2, 28), lr=[0.1]), cropped((3, 15))[0] | GAUSSIAN],
    "derpp": [*plain((2, 14)), *cropped((2, 14)), plain((2, 14))[0] | GAUSSIAN],
    "icarl": [*plain((1, 29), (2, 10)), *cropped((2, 10), (3, 4), lr=[0.1])],
    "scr": ways([(1, 28, False), (2, 9, False)], [0.1, 0.03], temperature=[0.07]),
    "pcr": ways([(1, 28, False), (2, 9, False)], [0.1, 0.03], temperature=[0.09]),
    "deepccg": [
        *plain((1, 10)),
        *also(cropped((2, 10), lr=[0.1]), **SAMPLED, replay_mask="task"),
        *also(cropped((2, 40), lr=[0.1]), **LEFT_OUT, **ALL_SEEN),
        *also(cropped((2, 40), lr=[0.1]), **LEFT_OUT, replay_mask="task"),
    ],
}
PREDICTED: list[Point] = [
    {"readout": readout, "views": views} for readout in ("own", "gaussian") for views in (1, 10)
]
SEARCHES = {"class": ONE, "task": TASK}


def main() -> None:
    """Search, method by method, or print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--methods", default=",".join(ONE))
    parser.add_argument("--scenario", choices=list(SEARCHES), default="class")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--found", type=Path, default=FOUND, help="where the scores go")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table:
        print(table(json.loads(options.found.read_text(encoding="utf-8"))))
        return
    for method in options.methods.split(","):
        points = search(method, SEARCHES[options.scenario][method], options)
        found = json.loads(options.found.read_text()) if options.found.exists() else {}
        found.setdefault(options.scenario, {})[method] = points
        write_atomically(options.found, (json.dumps(found, indent=1) + "\n").encode())


def search(
    method: str, points: Sequence[Point], options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Score the ways to train, then the ways to predict with the best of them."""
    trained = trials(method, points, options)
    if options.scenario == "task":
        return trained
    best = max(trained, key=accuracy)
    return trained + trials(method, [best["point"] | way for way in PREDICTED[1:]], options)


def trials(
    method: str, points: Sequence[Point], options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Every point with its scores."""
    runs = [
        {
            "method.name": method,
            "scenario": options.scenario,
            **COMMON,
            **{f"method.{k}": v for k, v in point.items()},
        }
        for point in points
    ]
    scores = score(runs, out=options.out, data_dir=options.data_dir, jobs=options.jobs)
    return [{"point": dict(point), **each} for point, each in zip(points, scores, strict=True)]


def accuracy(trial: Mapping[str, Any], scenario: str = "class") -> float:
    """Mean over seeds; that of a failed run is 0."""
    return mean(trial[scenario].values()) if scenario in trial else 0.0


def table(found: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]) -> str:
    """Every point, the best of each method in bold."""
    lines = []
    for scenario, methods in found.items():
        lines += ["", f"| {scenario}-incremental | | accuracy | passes |", "|---|---|---:|---:|"]
        for method, points in methods.items():
            best = max(accuracy(point, scenario) for point in points)
            lines += [_line(method, point, scenario, best) for point in points]
    return "\n".join(lines)


def _line(method: str, trial: Mapping[str, Any], scenario: str, best: float) -> str:
    point = ", ".join(f"{name}={value}" for name, value in trial["point"].items())
    if "error" in trial:
        return f"| {method} | {point} | failed | |"
    mark = "**" if accuracy(trial, scenario) == best else ""
    each = ", ".join(f"{100 * value:.1f}" for value in trial[scenario].values())
    text = f"{mark}{100 * accuracy(trial, scenario):.1f}{mark} ({each})"
    return f"| {method} | {point} | {text} | {trial['passes']} |"


if __name__ == "__main__":
    main()
