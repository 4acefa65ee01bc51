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
import torch
import numpy as np
from torch.utils.data import DataLoader
from ragx.retriever.index import VectorIndex
vectors = np.random.default_rng(0).normal(size=(3000, 8)).astype(np.float32)
indexes = [VectorIndex.build(vectors, kind=kind) for kind in ("flat", "torch", "sq")]
def ask(number): return [index.search(vectors[number : number + 1], 3)[0].tolist() for index in indexes]
torch.set_num_threads(4)
expected = [ask(number) for number in range(50)]
for index in indexes: index.search(vectors, 3)  # all threads have worked in the parent
how = dict(num_workers=2, multiprocessing_context="fork", timeout=60)
loader = DataLoader(range(50), batch_size=None, collate_fn=ask, **how)
assert list(loader) == expected
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
    """FAULTS C13: a k-means and a linear layer in one fresh process, whichever library came first."""
    result = run(imports + WORK)
    assert result.returncode == 0, result.stderr


def test_search_in_a_forked_worker_ends() -> None:
    """FAULTS C14: two DataLoader workers search 50 queries, each within 60 s, and find what the parent found."""
    result = run(FORK)
    assert result.returncode == 0, result.stderr


def test_only_one_module_imports_faiss() -> None:
    """FAULTS C13: one fixed place, one order."""
    package = Path(ragx.__file__).parent
    importing = re.compile(r"^\s*(import faiss|from faiss)", re.MULTILINE)
    found = [
        file.relative_to(package).as_posix()
        for file in package.rglob("*.py")
        if importing.search(file.read_text("utf-8"))
    ]
    assert found == ["retriever/native.py"]
