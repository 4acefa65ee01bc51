"""Our side: `RagModel` around the random weights, through the entry points that training and decoding use."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from ragx.decoding import fast, thorough, token_beam
from ragx.decoding.settings import DecodingSettings
from ragx.experiments.benchmarks import sizes
from ragx.experiments.benchmarks.batches import Batch, FixedBatch
from ragx.experiments.benchmarks.sizes import Setup
from ragx.generator.inputs import IGNORED, GeneratorInputs
from ragx.generator.likelihood import likelihood
from ragx.generator.seq2seq import Seq2SeqGenerator
from ragx.losses import prior, rag_sequence, rag_token
from ragx.model import RagModel
from ragx.retriever.query_encoder import QueryEncoder
from ragx.retriever.tower import Tower
from ragx.training.optim import build_optimizer

DECODERS = {"token_beam": token_beam.decode, "thorough": thorough.decode, "fast": fast.decode}
MARGINALIZE = {"rag_sequence": rag_sequence.marginalize, "rag_token": rag_token.marginalize}
LEARNING_RATE = 1e-5


class Ours:
    """The model and what a benchmark asks of it."""

    def __init__(self, setup: Setup) -> None:
        generator_tokenizer, query_tokenizer = sizes.tokenizers(setup)
        tower = Tower(sizes.bi_encoder_half(setup), query_tokenizer, pooling="cls", max_length=256)
        self.setup = setup
        self.model = RagModel(
            kind=setup.kind,
            generator=Seq2SeqGenerator(
                sizes.generator(setup), generator_tokenizer, max_length=setup.max_input_length
            ).eval(),
            query_encoder=QueryEncoder(tower),
            n_docs=setup.n_docs,
        ).to(setup.device)

    @property
    def parts(self) -> dict[str, nn.Module]:
        """The two transformers, by the names that their gradients get."""
        assert self.model.query_encoder is not None
        return {"generator": self.model.generator.model, "query_encoder": self.model.query_encoder.tower.model}

    def optimizer(self) -> torch.optim.Optimizer:
        """The one our training uses."""
        return build_optimizer(self.model, generator_lr=LEARNING_RATE, query_encoder_lr=LEARNING_RATE)

    def nll(self, batch: Batch) -> Tensor:
        """-log p(y|x), (B,), with its graph."""
        if not isinstance(batch, FixedBatch):
            return self.model(batch.queries, batch.answers, retrieved=batch.retrieved).nll
        assert self.model.query_encoder is not None
        query_embeds = self.model.query_encoder(batch.query_ids, torch.ones_like(batch.query_ids))
        with torch.autocast(query_embeds.device.type, enabled=False):
            doc_scores = torch.einsum("bd,bkd->bk", query_embeds.float(), batch.doc_embeds.float())
        rows = len(batch.context_ids)
        inputs = GeneratorInputs(batch.context_ids, torch.ones_like(batch.context_ids), [(0, 0)] * rows, [0] * rows)
        doc_logprobs = prior.doc_logprobs(doc_scores)
        kind, generator = self.setup.kind, self.model.generator
        return likelihood(kind, generator, inputs, batch.labels, doc_logprobs, at_once=0, label_smoothing=0.0).nll

    @torch.no_grad()
    def answers(self, batch: Batch, *, decoder: str, settings: DecodingSettings) -> list[tuple[int, ...]]:
        """The best answer of each query, without start token."""
        encoded, doc_logprobs = self._read(batch)
        found = DECODERS[decoder](self.model.generator, encoded, doc_logprobs, settings=settings)
        return [hypotheses[0].token_ids for hypotheses in found]

    @torch.no_grad()
    def score(self, batch: Batch, answers: list[tuple[int, ...]]) -> Tensor:
        """log p(y|x) of given answers, (B,), teacher-forced."""
        encoded, doc_logprobs = self._read(batch)
        rows = [torch.tensor(ids) for ids in answers]
        labels = pad_sequence(rows, batch_first=True, padding_value=IGNORED)
        return self._logprobs(encoded, labels.to(doc_logprobs.device), doc_logprobs)

    def _read(self, batch: Batch) -> tuple[Any, Tensor]:
        generator = self.model.generator
        if isinstance(batch, FixedBatch):
            ids, mask = batch.context_ids, torch.ones_like(batch.context_ids)
            doc_scores = batch.doc_scores
        else:
            inputs = generator.inputs.build(batch.queries, batch.passages)
            ids, mask = inputs.input_ids, inputs.attention_mask
            doc_scores = torch.from_numpy(batch.doc_scores).to(self.setup.device)
        return generator.encode(ids, mask), prior.doc_logprobs(doc_scores)

    def _logprobs(self, encoded: Any, labels: Tensor, doc_logprobs: Tensor) -> Tensor:
        n_queries, n_docs = doc_logprobs.shape
        flat = labels.repeat_interleave(n_docs, dim=0)
        tokens = self.model.generator.token_logprobs(encoded, flat, torch.arange(len(flat)))
        return MARGINALIZE[self.setup.kind](tokens.view(n_queries, n_docs, -1), doc_logprobs)
