"""The notebooks as they lie in the repository: written with ragx, run from top to bottom, kept with what they showed.

That they still run is tested by nbmake, which executes each of them.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
EXPECTED = {"two_likelihoods", "hot_swap", "citation_audit", "reading_a_sweep"}
NO_PICTURE = {"citation_audit"}


def code_cells(path: Path) -> list[dict[str, Any]]:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_there_is_a_notebook_for_each_topic() -> None:
    assert {path.stem for path in NOTEBOOKS} == EXPECTED


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_imports_ragx_and_defines_nothing(path: Path) -> None:
    trees = [ast.parse("".join(cell["source"])) for cell in code_cells(path)]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    defined = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    assert defined == []
    named = [node for node in nodes if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda)]
    assert named == []
    assert any(isinstance(node, ast.ImportFrom) and str(node.module).startswith("ragx") for node in nodes)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_was_run_once_from_top_to_bottom_and_shows_it(path: Path) -> None:
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert len(outputs) >= len(cells) // 2
    assert [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"] == []
    assert any("image/png" in output.get("data", {}) for output in outputs) or path.stem in NO_PICTURE
    texts = json.dumps(outputs)
    assert "/home/" not in texts and "/tmp/" not in texts  # nothing of the machine that ran it
