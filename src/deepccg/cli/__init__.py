"""The command line: parse, call one function, print.

Commands import what they need when they run, so that ``--help`` answers at once.
"""

import contextlib
import errno
import io
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any, NoReturn

import typer
from typer.exceptions import TyperException

from deepccg.cli.archive import archive
from deepccg.cli.command import Command, Group
from deepccg.cli.fit import fit
from deepccg.cli.predict import predict
from deepccg.cli.report import demo, report
from deepccg.cli.reproduce import reproduce
from deepccg.cli.resume import resume
from deepccg.cli.run import run
from deepccg.cli.show import data, methods, stream, version
from deepccg.cli.sweep import GRID_EXAMPLE, sweep
from deepccg.cli.tune import tune

app = typer.Typer(
    name="deepccg",
    cls=Group,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Learn a classifier online from a changing stream. "
    "Try: `deepccg run --method deepccg,er,sgd --dataset digits --seeds 0-2`",
)
EPILOGS = {"sweep": GRID_EXAMPLE}
_LEARN = (run, resume, sweep, fit, reproduce, tune)
_SHOW = (report, archive, demo, methods, data, stream, predict, version)
for command in _LEARN + _SHOW:
    app.command(cls=Command, epilog=EPILOGS.get(command.__name__))(command)


@app.callback()
def options(
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
) -> None:
    """Options of every command."""
    if debug:
        os.environ["DEEPCCG_DEBUG"] = "1"


def main() -> None:
    """Run the program; an error a user can act on is one line and exit status 2."""
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):  # a file's name may not be UTF-8
            output.reconfigure(errors="backslashreplace")
    try:
        with warnings.catch_warnings(), _progress_of_decoding():
            warnings.showwarning = _warn
            sys.exit(app(standalone_mode=False))
    except TyperException as error:  # a wrong option, argument or command
        message = getattr(error, "format_message", error.__str__)()
        if not message:  # no arguments: the help has been shown
            sys.exit(2)
        help_path = getattr(getattr(error, "ctx", None), "command_path", "deepccg")
        _refuse(f"{' '.join(str(message).split()).rstrip('.')}. Try `{help_path} --help`.")
    except typer.Abort:
        sys.exit(130)
    except (ValueError, RuntimeError) as error:
        from deepccg.core import DeepCCGError
        from deepccg.records import RecordError

        if os.environ.get("DEEPCCG_DEBUG") or not isinstance(error, DeepCCGError | RecordError):
            raise
        _refuse(str(error))
    except OSError as error:  # a place that cannot be read or written
        if os.environ.get("DEEPCCG_DEBUG"):
            raise
        # Every file that is written is named; what has no name then is where this prints to.
        nameless = "standard output: " if error.errno == errno.ENOSPC else ""
        place = nameless if error.filename is None else f"{error.filename}: "
        _refuse(f"{place}{error.strerror or error}")


class _ToStandardError(logging.Handler):
    """Prints messages above a progress bar, if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        typer.echo(record.getMessage(), err=True)


@contextlib.contextmanager
def _progress_of_decoding() -> Iterator[None]:
    """Show what a data set says while it is decoded, which may take a minute at its first use."""
    logger, handler = logging.getLogger("deepccg.streams"), _ToStandardError()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _refuse(message: str) -> NoReturn:
    line = "".join(c if c.isprintable() else " " for c in message)
    typer.secho(f"Error: {line}", fg=typer.colors.RED, err=True)
    sys.exit(2)


def _warn(message: Warning | str, *_where: Any, **_how: Any) -> None:
    typer.secho(f"Warning: {' '.join(str(message).split())}", fg=typer.colors.YELLOW, err=True)
