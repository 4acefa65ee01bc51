"""faiss and torch in one process, in either order, and in a forked one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ragx

WORK = """
import numpy as np
vectors = np.random.default_rng(0).normal(size=(400, 8)).astype(np.float32)
faiss.Kmeans(8, 4, niter=2, verbose=False).train(vectors)
assert torch.nn.Linear(64, 64)(torch.ones(32, 64)).shape == (32, 64)
index = faiss.IndexFlatIP(8); index.add(vectors)
assert (index.search(vectors[:30], 3)[1] >= 0).all()
"""
FORK = """
import multiprocessing
import numpy as np
from ragx.retriever.index import VectorIndex
vectors = np.random.default_rng(0).normal(size=(5000, 8)).astype(np.float32)
index = VectorIndex.build(vectors)
expected = index.search(vectors[:50], 3)[0].tolist()
def ask(_): return index.search(vectors[:50], 3)[0].tolist()
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map_async(ask, range(4)).get(200) == [expected] * 4
"""


def run(script: str) -> subprocess.CompletedProcess[str]:
    threads = {**os.environ, "OMP_NUM_THREADS": "4"}  # with one there is nothing to clash
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, env=threads)


@pytest.mark.parametrize(
    "imports",
    [
        "import torch\nimport faiss",
        "import faiss\nimport torch",
        "from ragx.retriever.native import faiss\nimport torch",
    ],
)
def test_both_work_in_either_order(imports: str) -> None:
    result = run(imports + WORK)
    assert result.returncode == 0, result.stderr


def test_search_in_a_forked_worker_ends() -> None:
    result = run(FORK)
    assert result.returncode == 0, result.stderr


def test_only_one_module_imports_faiss() -> None:
    package = Path(ragx.__file__).parent
    importing = re.compile(r"^\s*(import faiss|from faiss)", re.MULTILINE)
    found = [
        file.relative_to(package).as_posix()
        for file in package.rglob("*.py")
        if importing.search(file.read_text("utf-8"))
    ]
    assert found == ["retriever/native.py"]
