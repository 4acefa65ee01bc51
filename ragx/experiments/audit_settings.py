"""An audit asked for by code: the settings of configs/audit_citations.yaml, for callers that have no config."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ragx.schema_audit import AuditCitations


def audit_settings(
    predictions: str | Path, *, corpus: Sequence[str | Path], gold: str | Path | None, **others: Any
) -> AuditCitations:
    """What `run_audit` takes.

    Args:
        predictions, corpus, gold: files, or names in the embedded knowledge base.
        others: fields of `AuditCitations` that are not to be as usual.
    """
    usual: dict[str, Any] = {
        "judge": "composite",
        "nli": None,
        "nli_labels": [],
        "claims": "auto",
        "task": "",
        "judge_packed": True,
        "trec_per_sentence": "best",
        "lenient": False,
        "strict": False,
        "require_nonempty": False,
        "workers": 1,
        "report_questions": 200,
        "redaction_salt": None,
        "seed": 0,
        "compare_with": None,
        "swapped": None,
        "output": None,
    }
    return AuditCitations(
        predictions=str(predictions),
        corpus=[str(source) for source in corpus],
        gold=None if gold is None else str(gold),
        **{**usual, **others},
    )
