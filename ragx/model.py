"""Section 2: retriever and generator as one model, trained end to end through the passages as a latent variable.

    p(y|x)  =  sum over the n_docs best passages z of  p(z|x) p(y|x,z)       `losses.rag_sequence`, or `rag_token`

The phases are methods and run in this order: retrieve, expand, encode, decode, marginalize. The closed-book baseline
is the same generator without passages. Gradients reach the query encoder through doc_scores alone; the passage
vectors come from a frozen index, unless `passage_encoder` is set (`training.live_refresh`, beyond the paper).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ragx.decoding.batch import AllowedTokens
from ragx.decoding.choice import choose
from ragx.decoding.plain import grouped
from ragx.decoding.settings import DecodingSettings
from ragx.errors import ConfigError, ShapeError
from ragx.generator.answered import Answered, collect, labels_of_best
from ragx.generator.inputs import GeneratorInputs
from ragx.generator.likelihood import RagOutput, likelihood, marginalize
from ragx.generator.prepared import Prepared, Tokens, check_found, count_tokens, doc_scores_of, moved, padded
from ragx.generator.pretrained import PretrainedGenerator
from ragx.losses import prior
from ragx.losses.token_logprobs import check_labels
from ragx.protocols import Filters, Retriever
from ragx.records import Retrieved
from ragx.retriever.by_question import retrieve_by_question
from ragx.retriever.null_document import NULL, NullDocument
from ragx.retriever.query_encoder import QueryEncoder
from ragx.retriever.trained_passage_encoder import TrainedPassageEncoder

MODEL_KINDS = ("rag_sequence", "rag_token", "closed_book")
CLOSED_BOOK = "closed_book"


class RagModel(nn.Module):
    """RAG-Sequence, RAG-Token, or the same generator alone.

    Args:
        kind: one of `MODEL_KINDS`.
        generator: p(y|x,z).
        query_encoder: q(x); not needed with a retriever that scores by itself (BM25).
        retriever: finds passages; may be None where the caller brings them.
        n_docs: passages a query when a call does not say.
        max_target_length: tokens of a training target, EOS included; longer answers are cut.
        passages_at_once: of each query, read together in `forward`; 0 reads all. Changes memory and time, no gradient.
    """

    def __init__(
        self,
        *,
        kind: str,
        generator: PretrainedGenerator,
        query_encoder: QueryEncoder | None = None,
        retriever: Retriever | None = None,
        n_docs: int = 5,
        max_target_length: int = 32,
        passages_at_once: int = 0,
    ) -> None:
        super().__init__()
        problems = []
        if kind not in MODEL_KINDS:
            problems.append(f"model.kind must be one of {', '.join(MODEL_KINDS)}, got {kind!r}.")
        if kind == CLOSED_BOOK and (query_encoder is not None or retriever is not None):
            problems.append("model.kind must be a RAG kind with a retriever, got 'closed_book'. Leave that out.")
        if n_docs < 1:
            problems.append(f"model.n_docs must be >= 1, got {n_docs}.")
        if problems:
            raise ConfigError(problems)
        self.kind = kind
        self.generator = generator
        self.query_encoder = query_encoder
        self.retriever = retriever
        self.n_docs = n_docs
        self.max_target_length = max_target_length
        self.passages_at_once = passages_at_once
        self.passage_encoder: TrainedPassageEncoder | None = None
        self.null_document: NullDocument | None = None  # with it every query has one row more, the last
        self.filtered_by: tuple[str, ...] = ()  # what each question's own row restricts, see `ragx.filters`
        self._query_encoder_is_frozen = False
        self.train(generator.training)  # loaded parts are in eval mode, a new module would claim to train

    @property
    def freeze_query_encoder(self) -> bool:
        """Whether the query encoder stands still (the paper's ablation of section 4.5): no gradient and no dropout."""
        return self._query_encoder_is_frozen

    @freeze_query_encoder.setter
    def freeze_query_encoder(self, frozen: bool) -> None:
        if self.query_encoder is not None:
            self._query_encoder_is_frozen = frozen
            self.query_encoder.requires_grad_(not frozen)
            self.train(self.training)
        elif frozen:
            raise ConfigError(["model.freeze_query_encoder must be false without a query encoder, got true."])

    def train(self, mode: bool = True) -> RagModel:
        """As `nn.Module.train`, but a frozen query encoder keeps to eval mode."""
        super().train(mode)
        if self.query_encoder is not None and self.freeze_query_encoder:
            self.query_encoder.eval()
        return self

    @property
    def searches_ahead(self) -> bool:
        """Whether a search need not wait for the step before it: q(x) stands still, or the retriever needs none."""
        still = self.query_encoder is None or self.freeze_query_encoder
        return self.retriever is not None and still and self.passage_encoder is None

    def prepare(
        self,
        queries: Sequence[str],
        answers: Sequence[str],
        *,
        n_docs: int | None = None,
        retrieved: Retrieved | None = None,
        filters: Filters = None,
    ) -> Prepared:
        """The host's work of a batch, which another thread may do while a step runs; arguments as for `forward`."""
        if len(queries) != len(answers) or not queries:
            raise ShapeError(f"answers must be one a query ({len(queries)}, at least 1), got {len(answers)}.")
        labels = self.generator.inputs.labels(answers, max_length=self.max_target_length)
        check_labels(labels, self.generator.vocab_size)
        if self.kind == CLOSED_BOOK:
            return Prepared(labels, count_tokens(labels), retrieved=retrieved, inputs=self.expand(queries, None))
        query_ids, tokens, doc_scores = self.generator.inputs.ask(queries), None, None
        if self.query_encoder is not None:
            tower = self.query_encoder.tower
            tokens = padded(tower.tokenize(queries), pad_token_id=tower.tokenizer.pad_token_id)
        if retrieved is None and self.searches_ahead:
            retrieved, doc_scores = self.retrieve(queries, n_docs=n_docs, tokens=tokens, within=filters)
        inputs = None if retrieved is None else self.expand(queries, retrieved, query_ids=query_ids)
        return Prepared(labels, count_tokens(labels), query_ids, tokens, retrieved, doc_scores, inputs, filters)

    def forward(
        self,
        queries: Sequence[str],
        answers: Sequence[str],
        *,
        n_docs: int | None = None,
        retrieved: Retrieved | None = None,
        prepared: Prepared | None = None,
        label_smoothing: float = 0.0,
    ) -> RagOutput:
        """The loss of B queries with one target each.

        Args:
            n_docs: passages a query; default as constructed. With `retrieved` its own number counts.
            retrieved: passages to read in place of a search.
            prepared: what `prepare` returned for the same arguments.
            label_smoothing: e of `losses.label_smoothing`, in [0, 1).

        Raises:
            ShapeError: batches of unequal length, passages for a closed-book model, or a query that does not fit.
        """
        prepared = prepared or self.prepare(queries, answers, n_docs=n_docs, retrieved=retrieved)
        retrieved, doc_scores = prepared.retrieved, prepared.doc_scores
        if doc_scores is None or self.null_document is not None:  # found ahead, its logit has no gradient
            retrieved, doc_scores = self._read(queries, retrieved, n_docs=n_docs, ready=prepared)
        inputs = prepared.inputs or self.expand(queries, retrieved, query_ids=prepared.query_ids)
        device = self.generator.device
        doc_logprobs = None if doc_scores is None else prior.doc_logprobs(moved(doc_scores, device))
        found = likelihood(
            self.kind,
            self.generator,
            inputs,
            moved(prepared.labels, device),
            doc_logprobs,
            at_once=self.passages_at_once,
            label_smoothing=label_smoothing,
        )
        return RagOutput(
            **vars(found),
            loss=found.smoothed_nll.mean(),
            doc_logprobs=doc_logprobs,
            doc_scores=doc_scores,
            retrieved=retrieved,
            n_tokens=prepared.n_tokens,
            cut_tokens=sum(inputs.cut_tokens),
        )

    def retrieve(
        self, queries: Sequence[str], *, n_docs: int | None = None, tokens: Tokens | None = None, within: Filters = None
    ) -> tuple[Retrieved, Tensor]:
        """The passages of B queries and their scores (B, K) float32, with a gradient to the query encoder.

        K is `n_docs`, or how many passages the retriever's filter leaves where those are fewer.

        Args:
            n_docs: passages a query; default as constructed.
            tokens: of the queries, see `Prepared`; None tokenizes them.
            within: what may be searched: a filter for all queries, or one for each.

        Raises:
            ConfigError, ShapeError: no retriever, `n_docs` below 1, or not as many passages for each query.
        """
        n_docs = self.n_docs if n_docs is None else n_docs
        if self.retriever is None:
            raise ConfigError([f"model.retriever must be set to retrieve, got None ({self.kind}). Pass `retrieved`."])
        if n_docs < 1:
            raise ConfigError([f"n_docs must be >= 1, got {n_docs}."])
        query_embeds = None if self.query_encoder is None else self._embed(queries, tokens)
        found = retrieve_by_question(self.retriever, queries, n_docs, query_embeds=query_embeds, filters=within)
        check_found(found, queries=len(queries), n_docs=n_docs)
        return found, self._scores(found, query_embeds)

    def expand(
        self, queries: Sequence[str], retrieved: Retrieved | None, *, query_ids: Sequence[Sequence[int]] | None = None
    ) -> GeneratorInputs:
        """Generator inputs of R = B*K rows, or of B rows for `closed_book`; `query_ids` as `Prepared` has them."""
        passages = None if retrieved is None else retrieved.passages
        if passages is not None and self.null_document is not None:
            passages = [[*row, NULL] for row in passages]
        return self.generator.inputs.build(queries, passages, query_ids=query_ids)

    def encode(self, inputs: GeneratorInputs) -> Any:
        """What the generator makes of R rows."""
        return self.generator.encode(inputs.input_ids, inputs.attention_mask)

    def decode(self, encoded: Any, labels: Tensor) -> Tensor:
        """log p(y_i|x,z,y_<i), (B, K, T), of labels (B, T) under each passage."""
        return self.generator.target_logprobs(encoded, labels, n_docs=len(encoded) // len(labels))

    def marginalize(self, token_logprobs: Tensor, doc_logprobs: Tensor | None) -> Tensor:
        """log p(y|x), (B,): the passages are summed out as the model kind has it."""
        return marginalize(self.kind, token_logprobs, doc_logprobs)

    @torch.no_grad()
    def generate(
        self,
        queries: Sequence[str],
        *,
        decoder: str,
        settings: DecodingSettings,
        n_docs: int | None = None,
        retrieved: Retrieved | None = None,
        labels: Sequence[str] = (),
        allowed: AllowedTokens | None = None,
        seeds: Sequence[int] = (),
    ) -> list[Answered]:
        """Answers B queries in eval mode, whatever mode the model is in.

        Args:
            decoder: one of `DECODERS[kind]`, or `closed_set`.
            retrieved: passages to read in place of a search.
            labels: the answers that `closed_set` chooses from, such as FEVER's labels; scored as training scores them.
            allowed: which tokens may come next, given the question, the passage and what was said.
            seeds: one a query, for sampling.

        Raises:
            ConfigError: the decoder does not fit the model kind, or `labels` the decoder.
        """
        targets = self.generator.inputs.targets(labels, max_length=self.max_target_length)
        decode = choose(self.kind, decoder, answers=targets)
        training = self.training
        self.eval()
        try:
            retrieved, doc_scores = self._read(queries, retrieved, n_docs=n_docs)
            inputs = self.expand(queries, retrieved)
            encoded = self.encode(inputs)
            if doc_scores is None:  # one row a query, of probability one
                doc_scores = torch.zeros(len(queries), 1, device=self.generator.device)
            doc_logprobs = prior.doc_logprobs(doc_scores)
            found = decode(self.generator, encoded, doc_logprobs, settings=settings, allowed=allowed, seeds=seeds)
            best = labels_of_best(found).repeat_interleave(doc_logprobs.shape[1], dim=0)
            tokens = grouped(self.generator).token_logprobs(encoded, best, torch.arange(len(best)))
            scored = (doc_scores, doc_logprobs, tokens.view(*doc_logprobs.shape, -1))
        finally:
            self.train(training)
        return collect(queries, retrieved, inputs, found=found, scored=scored, builder=self.generator.inputs)

    def _embed(self, queries: Sequence[str], tokens: Tokens | None) -> Tensor:
        assert self.query_encoder is not None
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.freeze_query_encoder):
            if tokens is None:
                return self.query_encoder.embed(queries)
            return self.query_encoder(*(moved(tensor, self.query_encoder.device) for tensor in tokens))

    def _scores(self, retrieved: Retrieved, query_embeds: Tensor | None) -> Tensor:
        scores = doc_scores_of(retrieved, query_embeds, device=self.generator.device, encode=self.passage_encoder)
        return scores if self.null_document is None else self.null_document(scores, query_embeds)

    def _read(
        self, queries: Sequence[str], retrieved: Retrieved | None, *, n_docs: int | None, ready: Prepared | None = None
    ) -> tuple[Retrieved | None, Tensor | None]:
        """What is read and its doc_scores (B, K): found, or brought by the caller; nothing for `closed_book`."""
        if self.kind == CLOSED_BOOK:
            if retrieved is not None:
                raise ShapeError("retrieved must be None for closed_book, got passages. Use a RAG kind to read them.")
            return None, None
        tokens, filters = (None, None) if ready is None else (ready.tokens, ready.filters)
        if retrieved is None:
            return self.retrieve(queries, n_docs=n_docs, tokens=tokens, within=filters)
        learned = self.query_encoder is not None and retrieved.doc_embeds is not None
        return retrieved, self._scores(retrieved, self._embed(queries, tokens) if learned else None)
