"""Real texts: questions with the passages that BM25 finds for them, and tokenizers trained on both.

Passages are cut in pieces of 100 words as the paper's are (section 3), blanks are made single and titles lose their
quotation marks, as the peer does it. A passage that does not fit the longest question within `max_input_length` is left
out: there the peer cuts the question and ours the passage, and results could not be equal. Tokenizers of a pretrained
model would have to be downloaded; ones trained on the passages have as many tokens a word.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from ragx import atomic, build
from ragx.data.chunking import chunk_words
from ragx.errors import DataError, RagxError
from ragx.experiments.benchmarks.batches import TextBatch
from ragx.experiments.benchmarks.options import Benchmark
from ragx.experiments.benchmarks.sizes import PRESETS, QUERY_SPECIAL, SPECIAL, Size
from ragx.records import Example, Passage
from ragx.retriever.bm25 import BM25Retriever
from ragx.schema import DataConfig


class Texts:
    """The texts of one benchmark.

    Args:
        config: names questions and passages, and how many of them are read.
        folder: gets `tokenizers/` and the BM25 index.
    """

    def __init__(self, config: Benchmark, folder: Path) -> None:
        self.config, self.tokenizers = config, str(folder / "tokenizers")
        self._size = PRESETS[config.preset]
        needed = max(config.batch_sizes) * config.batches
        asked = build.examples(config.questions, require_answers=False)
        examples = [_clean(example) for example in asked if example.answers][:needed]
        if len(examples) < needed:
            raise RagxError(
                f"questions must hold {needed} with answers (batch_sizes x batches), got {len(examples)}. "
                "Lower batches or batch_sizes."
            )
        pieces = list(cut(read_passages(config, folder), words=config.words))
        texts = [f"{p.title} / {p.text}" for p in pieces] + [f"{e.query} {e.answers[0]}" for e in examples]
        tokenizer = train_tokenizers(texts, Path(self.tokenizers), size=self._size)
        self.examples = examples
        self.passages = _fitting(pieces, examples, tokenizer, room=config.max_input_length)
        most = max(config.n_docs)
        bm25 = BM25Retriever.build(self.passages, folder / "bm25", edition="benchmark")
        retrieved = bm25.retrieve([example.query for example in examples], most)
        self._found, self._scores = retrieved.passages, retrieved.doc_scores
        numbers = np.random.default_rng(config.seed)
        # Scores of about one standard deviation against a query vector of layer-normed length sqrt(D).
        shape = (*self._scores.shape, self._size.query_d_model)
        self._embeds = (numbers.standard_normal(shape) / self._size.query_d_model**0.5).astype(np.float32)

    def batches(self, *, n_docs: int, batch_size: int) -> list[TextBatch]:
        """The inputs of one cell."""
        return list(self._batches(n_docs, batch_size))

    def _batches(self, n_docs: int, batch_size: int) -> Iterator[TextBatch]:
        for start in range(0, batch_size * self.config.batches, batch_size):
            rows = slice(start, start + batch_size)
            scores = self._scores[rows, :n_docs]
            yield TextBatch(
                queries=[example.query for example in self.examples[rows]],
                answers=[example.answers[0] for example in self.examples[rows]],
                passages=[found[:n_docs] for found in self._found[rows]],
                doc_embeds=self._embeds[rows, :n_docs],
                doc_scores=((scores - scores.mean()) / (scores.std() + 1e-6)).astype(np.float32),
            )


def read_passages(config: Benchmark, folder: Path) -> list[Passage]:
    """The passages that the config names; with `plain_tsv` every quotation mark in the file is a letter."""
    source = config.passages
    if config.plain_tsv:
        source = str(folder / "passages.jsonl")
        _as_jsonl(Path(config.passages), Path(source))
    return build.passages(DataConfig(passages=source, edition=None))


def _as_jsonl(table: Path, target: Path) -> None:
    """Rewrites a table whose fields are what stands between tabs; `read_passages` then checks the rows."""
    opened = gzip.open if table.suffix == ".gz" else open
    with opened(table, "rt", encoding="utf-8", newline="\n") as lines, atomic.open_file(target) as out:
        header = next(lines, "").rstrip("\n").split("\t")
        for number, line in enumerate(lines, start=2):
            fields = line.rstrip("\n").split("\t")
            if len(fields) != len(header):
                raise DataError(f"row must have {len(header)} fields, got {len(fields)}.", path=table, line=number)
            out.write(json.dumps(dict(zip(header, fields, strict=True)), ensure_ascii=False) + "\n")


def cut(passages: Iterable[Passage], *, words: int) -> Iterator[Passage]:
    """Passages of at most `words` words with single blanks, each with a title."""
    for passage in passages:
        title = " ".join((passage.title or passage.source).strip('"').split())
        text = " ".join(passage.text.split())
        for number, (start, end) in enumerate(chunk_words(text, size=words)):
            chunk = f"{passage.chunk}.{number}"
            yield replace(passage, title=title, text=text[start:end], chunk=chunk, span=None, sha256="")


def train_tokenizers(texts: Sequence[str], folder: Path, *, size: Size) -> Any:
    """Writes a byte-level BPE (BART's kind) and an uncased WordPiece (BERT's kind); returns the first."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=size.vocab_size, special_tokens=list(SPECIAL.values()), initial_alphabet=alphabet,
            show_progress=False,
        ),
    )  # fmt: skip
    bpe.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    pieces = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    pieces.normalizer, pieces.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    pieces.decoder = decoders.WordPiece()
    pieces.train_from_iterator(
        texts,
        trainers.WordPieceTrainer(
            vocab_size=size.query_vocab_size, special_tokens=list(QUERY_SPECIAL.values()), show_progress=False,
            limit_alphabet=size.query_vocab_size // 4,
        ),
    )  # fmt: skip
    pieces.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    generator = PreTrainedTokenizerFast(tokenizer_object=bpe, model_max_length=1024, **SPECIAL)
    generator.save_pretrained(folder / "generator")
    query = PreTrainedTokenizerFast(tokenizer_object=pieces, model_max_length=512, **QUERY_SPECIAL)
    query.save_pretrained(folder / "query_encoder")
    return generator


def _clean(example: Example) -> Example:
    return replace(example, query=" ".join(example.query.split()), answers=(" ".join(example.answers[0].split()),))


def _fitting(passages: Sequence[Passage], examples: Sequence[Example], tokenizer: Any, *, room: int) -> list[Passage]:
    longest = max(map(len, tokenizer([f" // {example.query}" for example in examples])["input_ids"]))
    lengths = map(len, tokenizer([f"{p.title} / {p.text}" for p in passages])["input_ids"])
    return [passage for passage, length in zip(passages, lengths, strict=True) if length + longest <= room]
