"""Every test of this folder goes both ways: over the plain protocol, and over the grouped one."""

from __future__ import annotations

import pytest

from tests.toy.table_lm import TableLM


@pytest.fixture(params=[False, True], ids=["plain", "grouped"], autouse=True)
def shares(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the toy worlds of this test offer the grouped way."""
    monkeypatch.setattr(TableLM, "shares", request.param)
    return bool(request.param)
