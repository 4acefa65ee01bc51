"""How often answers cite what is out of date: an audit of every predictions file, from files alone.

    stale[index][questions]    citations whose passage the dump of the question's date no longer holds / all citations

One decision: a passage counts as held where the later dump has its very words somewhere in the same section. So a
citation is stale too where only other words of its passage have changed; the positions that kept their holder tell how
often that is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ragx.citations.statuses import OUT_OF_DATE
from ragx.evaluation.significance import aggregate_ratio
from ragx.experiments.audit import run_audit
from ragx.experiments.audit_settings import audit_settings
from ragx.experiments.dumps.answers import Files
from ragx.experiments.dumps.groups import Questions, groups_of, members
from ragx.jsonl import read_rows


def stale_citations(files: Files, folder: Path, questions: Questions, *, seed: int) -> dict[str, Any]:
    """{group: {index: {questions: metric}}}, summed over the checkpoints of a kind; audits are kept beside the answers.

    Args:
        files: of one kind of model.
        folder: has the passages and questions of every edition in `passages` and `questions`.
        seed: of the bootstrap over questions.
    """
    table: dict[str, Any] = {group: {} for group in groups_of(questions)}
    for (index, asked), paths in files.items():
        stale, cited = Counter[str](), Counter[str]()
        for path in paths:
            for name, is_stale in _citations(path, folder, questions, asked):
                cited[name] += 1
                stale[name] += is_stale
        for group, ids in groups_of(questions).items():
            pairs = [(stale[example.id], cited[example.id]) for example in members(questions[asked], ids)]
            table[group].setdefault(index, {})[asked] = aggregate_ratio(pairs, seed=seed).to_json()
    return table


def _citations(path: Path, folder: Path, questions: Questions, asked: str) -> Iterator[tuple[str, bool]]:
    """Of each citation in a predictions file the question and whether it is out of date; audits the file first."""
    audit = path.with_suffix(".audit")
    if not audit.exists():
        corpus = [folder / "passages" / f"{edition}.jsonl" for edition in questions]
        run_audit(audit_settings(path, corpus=corpus, gold=folder / "questions" / f"{asked}.jsonl"), audit)
    for row in read_rows(audit / "citations.jsonl"):
        if not row.values["duplicate"]:
            yield row.values["qid"], row.values["status"] in OUT_OF_DATE
