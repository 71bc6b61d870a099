"""Execute the notebooks of docs/tutorials, and store in them what their cells print and draw.

Run it: ``make tutorials``. Nothing of Jupyter is needed: a notebook is JSON, its cells are Python.
"""

import ast
import base64
import contextlib
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from matplotlib import pyplot as plt

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"


def main() -> None:
    """Execute all of them, each in an empty directory."""
    torch.set_num_threads(1)  # the same numbers on every machine, as far as that goes
    for path in sorted(TUTORIALS.glob("*.ipynb")):
        notebook = read(path)
        with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
            execute(notebook)
        text = json.dumps(notebook, indent=1, ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf-8")
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


def read(path: Path) -> dict[str, Any]:
    """Return a notebook as it is stored."""
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def execute(notebook: dict[str, Any]) -> dict[str, Any]:
    """Run the code cells in their order, as a fresh kernel would; return their namespace.

    The outputs of the notebook are replaced by what the cells printed, drew and ended with.
    """
    mpl.use("Agg")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, start=1):
        cell["execution_count"] = number
        cell["outputs"] = outputs(run_cell("".join(cell["source"]), namespace), number)
    return namespace


def run_cell(source: str, namespace: dict[str, Any]) -> tuple[str, object]:
    """Run one cell; return what it printed and the value of its last line, if this has one."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) and not source.endswith(";") else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), "<cell>", "exec"), namespace)  # noqa: S102
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), namespace)  # noqa: S307
    return printed.getvalue(), value


def outputs(found: tuple[str, object], number: int) -> list[dict[str, Any]]:
    """What a cell left, in the notebook format: its figures are closed."""
    printed, value = found
    made: list[dict[str, Any]] = []
    if printed:
        made.append({"name": "stdout", "output_type": "stream", "text": printed.splitlines(True)})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(True)}
        made.append({"data": data, "execution_count": number, "metadata": {},
                     "output_type": "execute_result"})  # fmt: skip
    for figure in map(plt.figure, plt.get_fignums()):
        drawn = io.BytesIO()
        figure.savefig(
            drawn, format="png", dpi=70, bbox_inches="tight", metadata={"Software": None}
        )
        data = {"image/png": base64.b64encode(drawn.getvalue()).decode()}
        made.append({"data": data, "metadata": {}, "output_type": "display_data"})
    plt.close("all")
    return made


if __name__ == "__main__":
    main()
