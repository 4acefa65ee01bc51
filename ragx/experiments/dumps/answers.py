"""What trained models answer from each dump to the questions of each date, as predictions files.

One decision: several checkpoints of one kind are seeds of one model, whatever folders they lie in. Every file records
the hash of weights and index, so that what differs between two files of a checkpoint is the index alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ragx import build
from ragx.experiments.dumps.groups import Questions
from ragx.experiments.dumps.retrieval import index_of, name_of
from ragx.experiments.predict import predict_to_file
from ragx.schema_dumps import HotSwapDumps
from ragx.training.checkpoint import load_checkpoint

Cell = tuple[str, str]
"""(edition of the index, edition of the questions)."""
Files = Mapping[Cell, Sequence[Path]]
"""The predictions files of one kind of model, one a checkpoint."""


def answer(config: HotSwapDumps, folder: Path, questions: Questions) -> dict[str, dict[Cell, list[Path]]]:
    """By kind of model the predictions of all checkpoints of it, under `folder`/predictions.

    A run that was killed goes on where it stopped, and what is whole is kept.

    Raises:
        CheckpointError: no checkpoint of a model that retrieves.
        IndexMismatchError: one whose passage encoder is not that of `config.retriever`.
        RagxError: predictions that are there are of another model, index or setting.
    """
    indexes = {edition: index_of(config, name_of(config.retriever), edition) for edition in questions}
    files: dict[str, dict[Cell, list[Path]]] = {}
    for number, checkpoint in enumerate(config.models):
        retriever = build.dense_retriever(config.retriever, directory=str(next(iter(indexes.values()))))
        model = load_checkpoint(checkpoint, retriever=retriever).to(build.device(config.decoding.device))
        for index, directory in indexes.items():
            retriever.swap(directory)
            for asked, examples in questions.items():
                path = predict_to_file(
                    model,
                    examples,
                    folder / "predictions" / f"{number}.{model.kind}" / f"index-{index}.questions-{asked}.jsonl",
                    decoder=build.decoder(config.decoding.decoder, model.kind),
                    settings=config.decoding.settings(),
                    batch_size=config.decoding.batch_size,
                    provenance={"edition": index, "questions": asked},
                )
                files.setdefault(model.kind, {}).setdefault((index, asked), []).append(path)
    return files
