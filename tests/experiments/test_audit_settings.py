"""What code asks of an audit is what the YAML asks, key by key."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from ragx import config
from ragx.experiments.audit_settings import audit_settings
from ragx.schema_audit import AuditCitations

CONFIGS = str(Path(__file__).parents[2] / "configs")


def test_the_settings_are_those_of_the_yaml(tmp_path: Path) -> None:
    predictions, questions = tmp_path / "p.jsonl", tmp_path / "q.jsonl"
    given = [f"predictions={predictions}", "corpus=[world_leaders:2016-12]", f"gold={questions}"]
    for path in (predictions, questions):
        path.write_text("")
    with initialize_config_dir(CONFIGS, version_base="1.3"):
        raw = compose("audit_citations", overrides=given)
    by_hand = audit_settings(predictions, corpus=["world_leaders:2016-12"], gold=questions)
    assert asdict(by_hand) == asdict(config.resolve(raw, AuditCitations))


def test_what_is_named_differs_and_what_is_unknown_is_refused() -> None:
    assert audit_settings("p", corpus=[], gold=None, judge="frozen").judge == "frozen"
    with pytest.raises(TypeError, match="no_such_key"):
        audit_settings("p", corpus=[], gold=None, no_such_key=1)
