"""Every CORE row of the checklist (CITATIONS A) is named in a test, by its id."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
CORE = [
    *(f"A1.{i}" for i in range(1, 5)),
    *(f"A2.{i}" for i in range(1, 5)),
    *(f"A3.{i}" for i in range(1, 4)),
    *(f"A4.{i}" for i in range(1, 4)),
    *(f"R{i}" for i in (*range(1, 16), 17, 18, 19, 22, 23, 24, 25)),
    *(f"DS{i}" for i in range(1, 12)),
    *(f"F{i}" for i in (*range(1, 27), 29, 30)),
    *(f"E{i}" for i in range(1, 12)),
]
CASES = [
    f"D{i:02d}"
    for i in (*range(1, 11), 12, 13, 14, *range(16, 21), 22, 23, 25, 26, 27, 29, *range(31, 35), *range(37, 41))
]
# Rows whose test stands under another name.
ELSEWHERE = {
    "A2.2": "test_a_cost_that_is_no_count_is_refused",
    "A2.3": "test_the_cost_is_that_of_the_serialised_chunk",
}


def sources() -> str:
    files = [path for path in TESTS.rglob("test_*.py") if path.name != Path(__file__).name]
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def missing(rows: list[str], text: str) -> list[str]:
    """Rows whose id stands nowhere, neither as a word nor as `def test_<id>_`."""
    words = set(re.findall(r"(?<![\w.])[A-Z]+\d+(?:\.\d+)?", text))
    tests = set(re.findall(r"def (test_\w+)\(", text))
    begun = {name.split("_")[1] for name in tests}
    return [r for r in rows if r not in words and r.lower() not in begun and ELSEWHERE.get(r) not in tests]


def test_rows() -> None:
    assert missing(CORE, sources()) == []


def test_cases() -> None:
    assert missing(CASES, sources()) == []


def test_a_row_that_is_named_nowhere_is_found() -> None:
    assert missing(["R77", "R1"], "R1, but not R770") == ["R77"]
