"""``deepccg tune``: choose a method's fields on held-out training data."""

from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from deepccg.cli.options import (
    FIELD,
    OF_PRESET,
    AddressOption,
    DataDirOption,
    EngineOption,
    JobsOption,
    OutOption,
    command_line,
    how,
    names,
    what,
    where,
)
from deepccg.cli.progress import run_all

if TYPE_CHECKING:
    from deepccg.tune import Tuned


def tune(
    method: Annotated[str, what(help="A name from `deepccg methods`.")],
    space: Annotated[
        list[str],
        what(
            metavar="FIELD=VALUES",
            help="A field and its values, FIELD=V1,V2,..., or a range, FIELD=log:LOW:HIGH "
            "(also lin, int; :N at the end for a grid of N). May be given several times.",
        ),
    ],
    dataset: Annotated[str, what(help="As in `deepccg run`.")] = "digits",
    stream: Annotated[
        str, what(help="As in `deepccg run`, or several with commas: a search for each.")
    ] = "disjoint",
    scenario: Annotated[
        str, what(help="task, class, or both with a comma: a search for each, by that accuracy.")
    ] = "task",
    settings: Annotated[
        list[str] | None,
        what(
            "--set",
            metavar=FIELD,
            help="Any other field, the same in all runs.",
            show_default=OF_PRESET,
        ),
    ] = None,
    search: Annotated[str, how(help="grid or optuna.")] = "grid",
    trials: Annotated[int | None, how(help="Points that optuna tries.")] = None,
    together: Annotated[int, how(min=1, help="Points that optuna tries at a time.")] = 1,
    seeds: Annotated[str, how(help="A point's score is the mean of these.")] = "0-1",
    validation: Annotated[
        float,
        how(
            help="The share of the training data that is held out to score on. "
            "The test set is never opened."
        ),
    ] = 0.1,
    jobs: JobsOption = None,
    engine: EngineOption = "local",
    address: AddressOption = None,
    data_dir: DataDirOption = None,
    out: OutOption = Path("runs"),
    write: Annotated[
        Path | None,
        where(
            help="The preset file; all trials go next to it as JSON.",
            show_default="tuned-METHOD.toml",
        ),
    ] = None,
) -> None:
    """Choose a method's fields by accuracy on held-out training data, and write a preset.

    The same command again continues a search that was interrupted: finished runs are read back.

    **Example:** `deepccg tune --method ewc --space strength=0.1,1,10,100 --dataset cifar10
    --stream disjoint,shifting-window --data-dir DATA`, then `deepccg run --preset tuned-ewc.toml`
    """
    from deepccg.cli.run import assignment
    from deepccg.experiment import learner_class, parse_seeds
    from deepccg.records import write_atomically
    from deepccg.tune import check_fixed, check_settings, parse_axis, preset_text, trials_json
    from deepccg.tune import tune as search_for

    axes = [parse_axis(text, learner_class(method).Config) for text in space]
    run = partial(run_all, out=out, data_dir=data_dir, workers=jobs, engine=engine, address=address)
    fixed = dict(assignment(text) for text in settings or [])
    check_fixed(fixed)
    searches = [
        {"method.name": method, "dataset": dataset, **fixed, "stream.kind": kind, "scenario": each}
        for kind, each in product(names(stream), names(scenario))
    ]
    for common in searches:  # all, before the first search starts
        check_settings(common)
    found = []
    for common in searches:
        tuned = search_for(
            common,
            axes,
            run,
            seeds=parse_seeds(seeds),
            validation=validation,
            search=search,
            trials=trials,
            together=together,
        )
        Console().print(_table(tuned, validation))
        found.append(tuned)
    options = {
        "method": method,
        "space": space,
        "set": settings,
        "dataset": dataset,
        "stream": stream,
        "scenario": scenario,
        "search": search,
        "trials": trials or None,
        "together": together if together > 1 else None,
        "seeds": seeds,
        "validation": validation,
    }
    command = command_line("deepccg", "tune", options=options)  # wherever data and runs are
    target = write or Path(f"tuned-{method}.toml")
    trials_file = target.with_suffix(".json")
    preset = preset_text(found, command)
    write_atomically(trials_file, trials_json(found, command).encode())
    write_atomically(target, preset.encode())
    typer.echo(
        f"Written: {target}, for `deepccg run --preset {target}`, and {trials_file}", err=True
    )


def _table(tuned: "Tuned", validation: float) -> Table:
    from deepccg.report import percent
    from deepccg.tune import point_text

    settings: dict[str, Any] = dict(tuned.settings)
    title = ("method.name", "dataset", "stream.kind", "scenario")
    table = Table(
        "",  # the mark of the chosen point, which no colour is needed to see
        "Point",
        title=", ".join(str(settings[field]) for field in title),
        box=box.SIMPLE_HEAD,
        caption=f"Percent, mean ± standard error over seeds, on {validation:g} of the training "
        f"data, held out. *: chosen.",
        caption_justify="left",
    )
    table.add_column(f"{str(settings['scenario']).capitalize()}-incremental acc.", justify="right")
    for trial in tuned.trials:
        mark, style = ("*", "bold") if trial is tuned.best else ("", "")
        score = f"failed: {trial.errors[0]}" if trial.errors else percent(trial.accuracy)
        table.add_row(mark, Text(point_text(trial), style), Text(score, style))
    return table
