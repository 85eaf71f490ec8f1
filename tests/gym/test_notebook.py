"""The notebook of problems and scores reproduces its stored outputs."""

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "examples" / "problems_and_scores.ipynb"


def shown(notebook: nbformat.NotebookNode) -> list[tuple[str, list[Any]]]:
    """Return each code cell's joined printed text and its result."""
    return [
        (
            "".join(output.get("text", "") for output in cell.outputs),
            [output["data"] for output in cell.outputs if "data" in output],
        )
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.processes
async def test_the_notebook_reproduces_its_stored_outputs(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    stored = shown(notebook)
    assert sum(bool(text or given) for text, given in stored) >= 6
    client = NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}
    )
    await client.async_execute()
    assert shown(notebook) == stored
