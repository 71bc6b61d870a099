"""Score settings on held-out training images, run by run, with the passes that they made."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deepccg.experiment import resolve
from deepccg.records import RunDirectory, summary
from deepccg.sweep import Job, Outcome, run_jobs

SEEDS = (0, 1)


def score(
    settings: Sequence[Mapping[str, Any]],
    *,
    out: Path,
    data_dir: Path | None,
    jobs: int | None = None,
    seeds: Sequence[int] = SEEDS,
) -> list[dict[str, Any]]:
    """Both accuracies of each seed, a fraction, and passes of the network per example in training.

    One backward counts as two passes. Finished runs are read back. A run that opened the test part
    ends the program; one that failed is told and has no scores.
    """
    todo = [Job(resolve(each), seed) for each in settings for seed in seeds]
    outcomes = iter(run_jobs(todo, out=out, data_dir=data_dir, workers=jobs))
    return [_scores([next(outcomes) for _ in seeds]) for _ in settings]


def _scores(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    found: dict[str, Any] = {"task": {}, "class": {}}
    passes = []
    for outcome in outcomes:
        if outcome.status == "failed":
            return {"error": outcome.error}
        run = RunDirectory(outcome.directory)
        audit, scores = run.audit(), summary(run.evaluations())
        if audit is None or audit["test"]["opened"]:
            raise SystemExit(f"{run.path} opened the test part, or was not audited")
        learning = audit["passes"]["learning"]
        made = learning["forward_images"] + 2 * learning["backward_images"]
        passes.append(made / audit["reads"]["examples"])
        for scenario in ("task", "class"):
            found[scenario][outcome.job.seed] = scores[f"{scenario}_accuracy"]
    return found | {"passes": round(sum(passes) / len(passes), 1)}
