"""The peer: transformers' RagSequenceForGeneration and RagTokenForGeneration around the same random weights.

It is called as its documentation says, with what it needs to be right. Its labels are decoder inputs, of which the
first is never scored, so they begin with the start token. Its real texts go through RagRetriever's own tokenization,
which pads every input to `max_combined_length`. Since transformers 5.2 RAG-Sequence decodes without an attention mask;
`with_mask` gives it one, or its answers would depend on the padding.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import Tensor, nn

from ragx.decoding.settings import DecodingSettings
from ragx.errors import RagxError
from ragx.experiments.benchmarks import sizes
from ragx.experiments.benchmarks.batches import Batch, FixedBatch, TextBatch
from ragx.experiments.benchmarks.ours import LEARNING_RATE
from ragx.experiments.benchmarks.sizes import EOS, PAD, Setup

CLASSES = {"rag_sequence": "RagSequenceForGeneration", "rag_token": "RagTokenForGeneration"}
MAX_TARGET = 32


def peer_class(kind: str) -> Any:
    """transformers' class of a model kind.

    Raises:
        RagxError: this version of transformers does not have it.
    """
    found = getattr(transformers, CLASSES[kind], None)
    if found is None:
        raise RagxError(
            f"transformers must offer {CLASSES[kind]}, the peer of {kind}, got version {transformers.__version__} "
            "without it. Install a release that has it, such as 5.24."
        )
    return found


class Peer:
    """The model and what a benchmark asks of it; `with_mask` matters to RAG-Sequence's `answers` alone."""

    def __init__(self, setup: Setup, *, with_mask: bool = False) -> None:
        query_encoder, generator = sizes.bi_encoder_half(setup), sizes.generator(setup)
        config = transformers.RagConfig.from_question_encoder_generator_configs(
            query_encoder.config, generator.config, n_docs=setup.n_docs, reduce_loss=False,
            retrieval_vector_size=setup.size.query_d_model, max_combined_length=setup.max_input_length,
        )  # fmt: skip
        self.setup = setup
        self.model = peer_class(setup.kind)(config, question_encoder=query_encoder, generator=generator).eval()
        self.model.to(setup.device)
        if with_mask and setup.kind == "rag_sequence":
            _give_mask(self.model.generator)
        self._tokenizer, self._query_tokenizer = sizes.tokenizers(setup)
        self._retriever = transformers.RagRetriever(
            config, self._query_tokenizer, self._tokenizer, index=_NoIndex(), init_retrieval=False
        )

    @property
    def parts(self) -> dict[str, nn.Module]:
        """The two transformers, by the names that their gradients get."""
        return {"generator": self.model.rag.generator, "query_encoder": self.model.rag.question_encoder}

    def optimizer(self) -> torch.optim.Optimizer:
        """torch's AdamW with its defaults, as users of the peer have it."""
        return torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE)

    def nll(self, batch: Batch) -> Tensor:
        """-log p(y|x), (B,), with its graph."""
        inputs, labels, query = self._train_inputs(batch)
        query_embeds = self.model.question_encoder(**query)[0]
        doc_embeds = torch.as_tensor(batch.doc_embeds, device=self.setup.device).to(query_embeds)
        doc_scores = torch.bmm(query_embeds.unsqueeze(1), doc_embeds.transpose(1, 2)).squeeze(1)
        start = labels.new_full((len(labels), 1), EOS)
        return self.model(**inputs, doc_scores=doc_scores, labels=torch.cat([start, labels], 1)).loss

    @torch.no_grad()
    def answers(self, batch: Batch, *, decoder: str, settings: DecodingSettings) -> list[tuple[int, ...]]:
        """The best answer of each query, without start token; `decoder` has no say, the class has one."""
        found = self.model.generate(
            **self._inputs(batch),
            doc_scores=torch.as_tensor(batch.doc_scores, device=self.setup.device, dtype=self.model.dtype),
            num_beams=settings.num_beams,
            max_length=settings.max_length + 1,  # the start token counts; RAG-Token ignores max_new_tokens
            min_length=settings.min_length,
            length_penalty=settings.length_penalty,
            early_stopping=settings.early_stopping,
            do_sample=False,
        )
        return [_without_start(row) for row in found.tolist()]

    def _inputs(self, batch: Batch) -> dict[str, Tensor]:
        if isinstance(batch, FixedBatch):
            ids, mask = batch.context_ids, torch.ones_like(batch.context_ids)
        else:
            docs = [{"title": [p.title for p in row], "text": [p.text for p in row]} for row in batch.passages]
            # It would decode the questions from the query encoder's ids; given as they are, they keep their case.
            ids, mask = self._retriever.postprocess_docs(
                docs, batch.queries, prefix=None, n_docs=self.setup.n_docs, return_tensors="pt"
            )
        device = self.setup.device
        return {"context_input_ids": ids.to(device), "context_attention_mask": mask.to(device)}

    def _train_inputs(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor, dict[str, Tensor]]:
        """Generator inputs, labels (B, T) padded with PAD, and the query encoder's inputs."""
        inputs = self._inputs(batch)
        if isinstance(batch, FixedBatch):
            query = {"input_ids": batch.query_ids, "attention_mask": torch.ones_like(batch.query_ids)}
            return inputs, batch.labels, query
        return inputs, *self._tokenized(batch)

    def _tokenized(self, batch: TextBatch) -> tuple[Tensor, dict[str, Tensor]]:
        target = self._tokenizer(
            batch.answers, padding=True, truncation=True, max_length=MAX_TARGET + 1, return_tensors="pt"
        )
        query = self._query_tokenizer(
            batch.queries, padding=True, truncation=True, max_length=256, return_tensors="pt"
        ).to(self.setup.device)
        names = ("input_ids", "attention_mask")
        return target["input_ids"][:, 1:].to(self.setup.device), {name: query[name] for name in names}


class _NoIndex:
    """Stands where RagRetriever wants an index; its tokenization needs none."""


def _give_mask(generator: Any) -> None:
    plain = generator.generate

    def masked(input_ids: Tensor, **options: Any) -> Any:
        return plain(input_ids, **{**options, "attention_mask": input_ids.ne(PAD).long()})

    generator.generate = masked


def _without_start(ids: list[int]) -> tuple[int, ...]:
    """Generated ids as ours are: no start token, nothing behind EOS."""
    said = ids[1:]
    return tuple(said[: said.index(EOS) + 1] if EOS in said else said)
