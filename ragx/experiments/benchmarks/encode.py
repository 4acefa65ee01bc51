"""Work `encode`: passages a second of corpus encoding (section 2.2), the same encoder and vectors.

The encoder is a checkpoint (`encoder`), or random weights of the preset under a tokenizer trained on the passages.

ours   PassageEncoder.encode: passages of like length share a batch, which is padded to its longest, and the last layer
       computes the token that is read alone
peer   batches in corpus order, each padded to 256 tokens or the encoder's fewer positions, as DPR's
       generate_dense_embeddings does
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ragx.build_retriever import weights
from ragx.errors import RagxError
from ragx.experiments.benchmarks import sizes
from ragx.experiments.benchmarks.cell import Cell
from ragx.experiments.benchmarks.options import Benchmark
from ragx.experiments.benchmarks.setups import setup
from ragx.experiments.benchmarks.sizes import Setup
from ragx.experiments.benchmarks.texts import Texts, cut, read_passages
from ragx.experiments.benchmarks.worker import DTYPES, Side
from ragx.records import Passage
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.retriever.tower import Tower

PADDED_TO = 256


@dataclass(frozen=True)
class _Task:
    """One cell; the tower is that of a checkpoint, or of `setup` where there is none."""

    checkpoint: str | None
    setup: Setup | None
    passages: Sequence[Passage]
    batch_size: int
    dtype: str
    device: str

    def tower(self) -> Tower:
        """The same weights and tokenizer on both sides."""
        if self.setup is None:
            return Tower.from_pretrained(str(self.checkpoint), role="passage")
        _, tokenizer = sizes.tokenizers(self.setup)
        half = sizes.bi_encoder_half(self.setup, passages=True)
        return Tower(half, tokenizer, pooling="cls", max_length=PADDED_TO)


def cells(config: Benchmark, folder: Path) -> Iterator[Cell]:
    """One cell per batch size over `corpus_size` passages, taken evenly from the whole corpus for their lengths.

    Raises:
        RagxError: there are fewer.
    """
    checkpoint = None if config.encoder is None else weights(config.encoder, "passage_encoder")
    if checkpoint is None:
        texts = Texts(config, folder)
        found: Sequence[Passage] = texts.passages
        model = setup(config, kind="rag_token", n_docs=1, tokenizers=texts.tokenizers)
    else:
        found, model = list(cut(read_passages(config, folder), words=config.words)), None
    count = config.corpus_size or len(found)
    if len(found) < count:
        raise RagxError(f"corpus_size must be at most the {len(found)} passages, got {count}. Lower it.")
    passages = [found[number * len(found) // count] for number in range(count)]
    for batch_size in config.batch_sizes:
        task = _Task(checkpoint, model, passages, batch_size, config.dtype, config.device)
        row = {"encoder": config.encoder or config.preset, "passages": len(passages), "batch_size": batch_size}
        yield Cell(row, partial(_Ours, task), partial(_Peer, task), items=len(passages))


class _Encode(Side):
    def __init__(self, task: _Task) -> None:
        self.task, self.tower = task, task.tower().to(task.device)
        self.encoder = PassageEncoder(self.tower)

    def encode(self) -> Tensor:
        """Vectors (N, D), on the CPU."""
        raise NotImplementedError

    def step(self, number: int) -> None:
        self.encode()

    def check(self) -> dict[str, Tensor]:
        return {"vectors": self.encode()}

    def cast(self) -> None:
        self.tower.to(DTYPES[self.task.dtype])


class _Ours(_Encode):
    def encode(self) -> Tensor:
        return torch.from_numpy(self.encoder.encode(self.task.passages, batch_size=self.task.batch_size))


class _Peer(_Encode):
    @torch.inference_mode()
    def encode(self) -> Tensor:
        size, passages = self.task.batch_size, self.task.passages
        return torch.cat([self._vectors(passages[start : start + size]) for start in range(0, len(passages), size)])

    def _vectors(self, passages: Sequence[Passage]) -> Tensor:
        tokens: Any = self.tower.tokenizer(
            [passage.title for passage in passages],
            [passage.text for passage in passages],
            truncation=True,
            max_length=self.tower.max_length,
            padding="max_length",
            return_tensors="pt",
        ).to(self.tower.device)
        return self.tower(tokens["input_ids"], tokens["attention_mask"]).cpu()
