"""Notebooks as pages, with the outputs that are stored in them: nothing is executed."""

import json
from typing import Any

from docutils import nodes
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.application import Sphinx


def notebook_markdown(text: str) -> str:
    r"""Return a notebook as Markdown: its texts, its code, and what each cell printed or drew.

    >>> cells = [{"cell_type": "markdown", "source": ["# Title"]},
    ...          {"cell_type": "code", "source": "1 + 1", "outputs": [
    ...              {"output_type": "execute_result", "data": {"text/plain": ["2"]}}]}]
    >>> notebook_markdown(json.dumps({"cells": cells})).splitlines()
    ['# Title', '', '````python', '1 + 1', '````', '', '````text', '2', '````']
    """
    blocks: list[str] = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            blocks.append(f"{source}\n")
        elif cell["cell_type"] == "code" and source:
            blocks.append(_fenced("python", source))
            blocks += [_output(output) for output in cell["outputs"]]
    return "\n".join(filter(None, blocks))


def _output(output: dict[str, Any]) -> str:
    """Return a picture as a picture and everything else as text; errors belong to no page."""
    if output["output_type"] == "error":
        raise ValueError(f"a cell of a notebook ended with {output['ename']}: {output['evalue']}")
    data = output.get("data", {})
    if png := data.get("image/png"):
        return f"![output](data:image/png;base64,{''.join(''.join(png).split())})\n"
    text = "".join(output.get("text") or data.get("text/plain") or "")
    return _fenced("text", text.rstrip("\n")) if text else ""


def _fenced(language: str, text: str) -> str:
    return f"````{language}\n{text}\n````\n"


class NotebookParser(MystParser):
    """Parses a notebook as the Markdown it stands for."""

    supported = ("ipynb",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """Fill the document from the text of a notebook file."""
        super().parse(notebook_markdown(inputstring), document)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the file ending and its parser."""
    app.add_source_suffix(".ipynb", "ipynb")
    app.add_source_parser(NotebookParser)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
