"""The whole experiment: dumps and positions in, retrieval, answers and stale citations by date out (section 4.5).

One decision: positions that kept their holder are asked as well. What falls on them too when the other dump answers is
not due to a change of leaders, and their stale citations show how often only the words around a fact have changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ragx.data.corpus import write_passages
from ragx.data.factbook import DUMPS, Factbook
from ragx.data.tasks import write_examples
from ragx.errors import ConfigError
from ragx.experiments.dumps.accuracy import accuracy
from ragx.experiments.dumps.answers import answer
from ragx.experiments.dumps.groups import groups_of
from ragx.experiments.dumps.retrieval import retrieval
from ragx.experiments.dumps.stale import stale_citations
from ragx.records import Example, Passage
from ragx.schema_dumps import HotSwapDumps


def hot_swap_dumps(config: HotSwapDumps, folder: Path) -> dict[str, Any]:
    """Indexes, asks, answers and audits what is not done yet; passages, questions and predictions stay in `folder`.

    Returns:
        {"leaders": {edition: date}, "n": {group: questions}, "retrieval": {encoders: {edition: {group: {k: metric}}}},
        "models": {kind: {"checkpoints": n, "groups": as `accuracy`, "stale": as `stale_citations`}}}.

    Raises:
        ConfigError: `config.directory` lacks a file.
        DataError: the files in it.
        RagxError: an index or a checkpoint that does not fit.
    """
    passages, questions = _read(config.directory)
    for edition in passages:
        write_passages(folder / "passages" / f"{edition}.jsonl", passages[edition])
        write_examples(folder / "questions" / f"{edition}.jsonl", questions[edition])
    found: dict[str, Any] = {
        "leaders": {dump.edition: dump.leaders for dump in DUMPS},
        "n": {group: len(ids) for group, ids in groups_of(questions).items()},
        "retrieval": dict(retrieval(config, passages, questions)),
        "models": {},
    }
    for kind, files in answer(config, folder, questions).items():
        found["models"][kind] = {
            "checkpoints": len(next(iter(files.values()))),
            "groups": accuracy(files, questions, ks=config.success_at, seed=config.seed),
            "stale": stale_citations(files, folder, questions, seed=config.seed),
        }
    return found


def _read(directory: str) -> tuple[dict[str, list[Passage]], dict[str, list[Example]]]:
    """Passages and questions of both dumps, by edition."""
    try:
        books = [Factbook(directory, dump) for dump in DUMPS]
        questions = {book.dump.edition: book.questions() for book in books}
    except (FileNotFoundError, NotADirectoryError) as error:
        missing = Path(str(error.filename)).name
        raise ConfigError(
            [
                f"directory must hold the two dumps and the positions, got {directory} without {missing}. "
                "Give the folder of leaders.csv, leaders_unchanged.csv and factbook_passages_<year>.tsv, packed or not."
            ]
        ) from error
    return {book.dump.edition: book.passages for book in books}, questions
