"""``deepccg fit``: one run in parallel, here or on a cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from deepccg.cli.options import (
    FIELD,
    OF_PRESET,
    SEEDS_HELP,
    STREAM_HELP,
    AddressOption,
    DataDirOption,
    EngineOption,
    OutOption,
    RetriesOption,
    check_data_dir,
    how,
    what,
    where,
)
from deepccg.cli.progress import exit_interrupted
from deepccg.cli.run import configurations, print_results

if TYPE_CHECKING:
    from deepccg.experiment import RunConfig, RunResult


def fit(
    dataset: Annotated[str | None, what(help="As in `deepccg run`.", show_default="digits")] = None,
    stream: Annotated[str | None, what(help=STREAM_HELP, show_default="disjoint")] = None,
    scenario: Annotated[
        str | None, what(help="task or class: whose preset is taken.", show_default="task")
    ] = None,
    method: Annotated[str, what(help="ccg, or its controls ncm, slda and randumb.")] = "ccg",
    seeds: Annotated[str | None, what(help=SEEDS_HELP, show_default="0")] = None,
    memory_bytes: Annotated[
        int | None, what(help="What the learner may keep.", show_default=OF_PRESET)
    ] = None,
    validation: Annotated[
        float | None,
        what(
            help="Hold out this share of the training data and score on it.",
            show_default="score on the test set",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        what(
            "--set",
            metavar=FIELD,
            help="Any field, for example network.filters=200.",
            show_default=OF_PRESET,
        ),
    ] = None,
    shards: Annotated[
        int | None, how(help="Parts of the stream.", show_default="one for each processor")
    ] = None,
    retries: RetriesOption = 1,
    engine: EngineOption = "local",
    address: AddressOption = None,
    data_dir: DataDirOption = None,
    out: OutOption = Path("runs"),
    as_json: Annotated[
        bool, where("--json", help="One JSON object on stdout; progress on stderr.")
    ] = False,
) -> None:
    """Learn a stream in parallel, with a method whose statistics add up, and print the results.

    The run is the one of `deepccg run --eval-every end`, equal to it but for rounding. If it was
    interrupted it continues when the same command is given again.

    **Example:** `deepccg fit --dataset cifar10 --data-dir DATA --engine ray --shards 8`
    """
    from deepccg.experiment import Interrupted
    from deepccg.sweep import fit as fit_shards

    flags = {
        "dataset": dataset,
        "stream.kind": stream,
        "scenario": scenario,
        "memory_bytes": memory_bytes,
        "evaluation.validation": validation,
    }
    configs = configurations(flags, method, seeds, settings)
    check_data_dir(data_dir)

    def fit_one(config: "RunConfig") -> "RunResult":
        return fit_shards(
            config,
            out=out,
            data_dir=data_dir,
            shards=shards,
            engine=engine,
            address=address,
            retries=retries,
        )

    try:
        results = [[fit_one(config) for config in each] for each in configs]
    except Interrupted as stop:
        exit_interrupted("Stopped and saved. The same command continues.", stop.signal)
    print_results(results, as_json)
