"""Commands and programs in forked processes, to which something may happen: a kill, a full disk.

The process that forks has imported the package and the data once, so that a short run takes a
fraction of a second. Run as a script, this file is such a process and takes orders on its standard
input, one JSON object a line; `benchmarks/torture.py` forks by itself.
"""

import errno
import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

QUICK = ("--set", "stream.examples_per_class=20", "--checkpoint-every", "1", "--out", "out")
SHORTER = {"gdumb": {"method.passes": 4}}  # the published 256 would take most of the tests' time
CALLS = ("write", "fsync", "replace")  # of the module os: all that changes a run directory


@dataclass(frozen=True)
class Moment:
    """When something happens, and what.

    Args:
        call: The how-many-th low-level call it happens in, from 0.
        seconds: Or the time after which the process is killed from outside.
        act: ``kill``, ``INT``, ``TERM``, ``INT twice`` or ``full``.
        part: How much of a write was done by then; a rename is done from a half on.
    """

    call: int | None = None
    seconds: float | None = None
    act: str = "kill"
    part: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """What a command left behind.

    Args:
        status: Its exit status; negative for the signal that ended it.
        out: What it printed.
        err: And on standard error.
        calls: One letter for each low-level call: ``c`` in a checkpoint, ``.`` elsewhere; only
            of a process that ended by itself.
    """

    status: int
    out: str
    err: str
    calls: str


def fork(
    work: list[str] | str,
    place: str,
    moment: Moment | None = None,
    environment: dict[str, str] | None = None,
) -> Outcome:
    """Run ``deepccg`` with these arguments, or a program, in a process of its own.

    Args:
        work: The arguments, or the program's text.
        place: The directory it runs in.
        moment: When something happens to it.
        environment: All its variables; those of this process if not given.
    """
    with tempfile.TemporaryDirectory() as scratch:
        files = {name: Path(scratch) / name for name in ("out", "err", "calls")}
        for file in files.values():
            file.touch()
        began = time.monotonic()
        pid = os.fork()
        if pid == 0:
            if environment is not None:
                os.environ.clear()
                os.environ.update(environment)
            _child(work, place, moment, files)
        if moment is not None and moment.seconds is not None:
            time.sleep(max(0.0, moment.seconds - (time.monotonic() - began)))
            os.kill(pid, signal.SIGKILL)  # until it is waited for the number is its own
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        texts = {name: file.read_text(encoding="utf-8") for name, file in files.items()}
        return Outcome(status, **texts)


def _child(
    work: list[str] | str, place: str, moment: Moment | None, files: dict[str, Path]
) -> None:
    """Never returns; nothing of the parent's is flushed or cleaned up."""
    status = 70
    try:
        from deepccg.cli import main
        from deepccg.sweep import progress

        progress.LINE_SECONDS = float("inf")  # nothing depends on how busy the machine is
        os.chdir(place)
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(files[name], os.O_WRONLY), number)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        calls = Calls(moment)
        try:
            if isinstance(work, str):
                sys.argv = ["-c"]
                exec(work, {"__name__": "__main__"})  # noqa: S102  (a test's own program)
            else:
                sys.argv = ["deepccg", *work]
                main()
            status = 0
        except SystemExit as left:
            status = int(left.code or 0)
        except Exception:  # noqa: BLE001  (said as Python itself would)
            traceback.print_exc()
            status = 1
        files["calls"].write_text(calls.seen)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


class Calls:
    """Stands before the low-level calls, counts them, and lets something happen in one."""

    def __init__(self, moment: Moment | None) -> None:
        from deepccg.experiment import writer

        self.seen = ""
        self._moment = moment
        self._full = False
        self._saving = False
        for name in CALLS:
            setattr(os, name, self._watched(name, getattr(os, name)))
        save = writer.save_state

        def watched_save(*arguments: Any) -> None:
            self._saving = True
            save(*arguments)
            self._saving = False

        writer.save_state = watched_save

    def _watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any) -> Any:
            number = len(self.seen)
            self.seen += "c" if self._saving else "."
            if self._full:
                raise OSError(errno.ENOSPC, "No space left on device")
            if self._moment is not None and number == self._moment.call:
                return self._happen(self._moment, name, call, arguments)
            return call(*arguments)

        return watched

    def _happen(
        self, moment: Moment, name: str, call: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> Any:
        if moment.act in ("kill", "full"):
            if name == "write":
                descriptor, content = arguments
                call(descriptor, content[: int(moment.part * len(content))])
            elif name == "replace" and moment.act == "kill" and moment.part >= 0.5:
                call(*arguments)
            if moment.act == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            self._full = True
            raise OSError(errno.ENOSPC, "No space left on device")
        wanted, _, again = moment.act.partition(" ")
        for _ in range(2 if again else 1):
            os.kill(os.getpid(), signal.Signals[f"SIG{wanted}"])
        return call(*arguments)


def fingerprint(directory: Path) -> dict[str, str]:
    """A hash of each file that holds a part of the run.

    Two depend on kills only: the last checkpoint but one, and the empty lock file that a process
    killed after its last checkpoint leaves, as reading a finished run takes no lock. Of the times,
    only whose they are.
    """
    files = {file.name: file.read_bytes() for file in sorted(directory.iterdir())}
    if "timing.json" in files:
        files["timing.json"] = b"%d steps" % json.loads(files["timing.json"])["steps"]
    files.pop("previous.safetensors", None)
    if files.get(".lock") == b"":
        del files[".lock"]
    return {name: hashlib.blake2b(content).hexdigest() for name, content in files.items()}


def cut_in_a_checkpoint(directory: Path) -> bool:
    """Whether a checkpoint was being written when the process died."""
    names = {file.name for file in directory.iterdir()} if directory.is_dir() else set()
    renamed = "previous.safetensors" in names and "checkpoint.safetensors" not in names
    return renamed or any(name.startswith(".checkpoint.safetensors.") for name in names)


@dataclass(frozen=True)
class Whole:
    """A run to which nothing happened."""

    files: dict[str, str]
    out: str
    calls: str
    seconds: float


@dataclass
class Figures:
    """What a series of kills came to."""

    kills: int = 0
    in_a_checkpoint: int = 0
    from_previous: int = 0
    mismatches: int = 0


Forks = Callable[..., Outcome]  # as fork


def command_of(method: str) -> list[str]:
    """The words of a short run."""
    fields = SHORTER.get(method, {}).items()
    return [
        "run",
        "--method",
        method,
        *QUICK,
        *(w for k, v in fields for w in ("--set", f"{k}={v}")),
    ]


def whole_run(forks: Forks, method: str, place: Path) -> Whole:
    """What a method leaves and prints when nothing happens."""
    began = time.monotonic()
    done = forks(command_of(method), str(place), None)
    assert done.status == 0, done.err
    return Whole(fingerprint(run_in(place)), done.out, done.calls, time.monotonic() - began)


def run_in(place: Path) -> Path:
    """The run directory that the quick command makes."""
    (found,) = (place / "out").glob("*/seed-0")
    return found


def killed_and_continued(
    forks: Forks, method: str, place: Path, moments: list[Moment], whole: Whole, figures: Figures
) -> None:
    """Kill a run at each of the moments, continue it, and compare everything that it leaves."""
    command = command_of(method)
    for moment in moments:
        done = forks(command, str(place), moment)
        found = list((place / "out").glob("*/seed-0"))
        figures.from_previous += done.err.count("taking the previous checkpoint")
        if done.status == -signal.SIGKILL:
            figures.kills += 1
            figures.in_a_checkpoint += any(map(cut_in_a_checkpoint, found))
        if found and (found[0] / "config.toml").exists():
            command = ["resume", str(found[0].relative_to(place)), "--checkpoint-every", "1"]
    done = forks(command, str(place), None)
    figures.from_previous += done.err.count("taking the previous checkpoint")
    same = (done.status, done.out) == (0, whole.out) and fingerprint(run_in(place)) == whole.files
    figures.mismatches += not same


def random_moment(whole: Whole, rng: random.Random) -> Moment:
    """Half of the kills in a low-level call of a checkpoint, the others anywhere."""
    inside = [number for number, letter in enumerate(whole.calls) if letter == "c"]
    kind = rng.random()
    if kind < 0.5:
        return Moment(call=rng.choice(inside), part=rng.random())
    if kind < 0.75:
        return Moment(call=rng.randrange(len(whole.calls)), part=rng.random())
    return Moment(seconds=rng.uniform(0, whole.seconds))


def prepare() -> None:
    """Import everything a run imports; work with torch is left to the children."""
    import torch
    import torch._dynamo  # which torch.func imports when it is first used

    import deepccg.cli
    import deepccg.estimator
    import deepccg.experiment
    import deepccg.report
    from deepccg.streams import load_dataset

    assert all((deepccg.cli, deepccg.estimator, deepccg.experiment, deepccg.report))
    torch.set_num_threads(1)
    assert len(load_dataset("digits").train)  # read once


def serve() -> None:
    """Take orders until there are none."""
    prepare()
    for line in sys.stdin:
        order = json.loads(line)
        moment = Moment(**order["moment"]) if order["moment"] else None
        done = fork(order["work"], order["place"], moment, order["environment"])
        sys.stdout.write(json.dumps(asdict(done)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
