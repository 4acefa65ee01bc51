"""Section 2.3: what the generator reads, "title / text // query", and what it is asked to say.

    input(x, z)  =  BOS  title / text // query  EOS          labels(y)  =  y EOS

Only passage text is ever cut: a title or a query that does not fit is an error. The query comes from the user's string,
never from the ids of another tokenizer, so that case, accents and blanks arrive letter by letter. What was cut is
counted, and the part of the text that did reach the generator is recorded in code points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ragx.errors import ShapeError
from ragx.generator.passage_tokens import PassageCache
from ragx.generator.template import Template
from ragx.records import Passage

DEFAULT_TEMPLATE = "{title} / {text} // {query}"
IGNORED = -100
REMEMBERED_PASSAGES = 20_000


@dataclass(frozen=True)
class GeneratorInputs:
    """Generator inputs of R = B*K rows; row b*K + k is passage k of query b (K = 1 without passages).

    Attributes:
        input_ids, attention_mask: (R, S) int64, padded on the right to the longest row.
        visible: per row, code points [start, end) of the passage text that is in the input; (0, 0) without a passage.
        cut_tokens: per row, how many tokens of the passage text did not fit.
    """

    input_ids: Tensor
    attention_mask: Tensor
    visible: list[tuple[int, int]]
    cut_tokens: list[int]


class InputBuilder:
    """Builds generator inputs and labels from text, with the generator's own tokenizer.

    Args:
        tokenizer: a fast Hugging Face tokenizer (its offsets tell which tokens are passage text).
        max_length: the most tokens of one input, special tokens included.
        template: holds {text} and {query} once each, {title} at most once, {query} first or last.
        bos_in_labels: start labels with BOS, as the published BART and RAG checkpoints were trained. Off by default:
            labels are then exactly what decoding produces, the answer and EOS.
        separator: what ends every input in place of what the tokenizer puts behind a text: a decoder-only model goes on
            from there. None for an encoder, which reads that ending.
        read_special_tokens: read "<mask>" or "</s>" inside a text as the token of that name, as a denoising task needs.
            Off by default: no passage or query can put a control token into the input.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        max_length: int = 256,
        template: str = DEFAULT_TEMPLATE,
        bos_in_labels: bool = False,
        separator: str | None = None,
        read_special_tokens: bool = False,
    ) -> None:
        if not tokenizer.is_fast:
            raise ShapeError("tokenizer must be a fast one, got a slow one. Load it with AutoTokenizer.")
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.template = template
        self.bos_in_labels = bos_in_labels
        self.separator = separator
        self.read_special_tokens = read_special_tokens
        self.vocab_size = len(tokenizer)  # a generator whose embedding is larger raises it
        self._template = Template.parse(template)
        self._passages = PassageCache(
            lambda texts: self._tokenize(texts, offsets=True), self._template, size=REMEMBERED_PASSAGES
        )

    def ask(self, queries: Sequence[str]) -> list[list[int]]:
        """The ids of the queries' part of the template, for `build`: what can be done before passages are known."""
        ids: list[list[int]] = self._tokenize([self._template.ask(query) for query in queries])["input_ids"]
        return ids

    def build(
        self,
        queries: Sequence[str],
        passages: Sequence[Sequence[Passage]] | None,
        *,
        query_ids: Sequence[Sequence[int]] | None = None,
    ) -> GeneratorInputs:
        """Inputs of B queries with K passages each, or of the queries alone (`passages=None`, closed book).

        Args:
            query_ids: what `ask` returned for the same queries; None asks again.

        Raises:
            ShapeError: unequal numbers of passages, or a title and query that leave `max_length` no room.
        """
        if passages is None:
            return self._build_closed_book(queries)
        _require_rectangle(queries, passages)
        prefix, suffix = self._special_tokens()
        query_ids = self.ask(queries) if query_ids is None else query_ids
        tokens = iter(self._passages.take([passage for row in passages for passage in row]))
        rows: list[np.ndarray] = []
        visible: list[tuple[int, int]] = []
        cut_tokens: list[int] = []
        for query, ids, row in zip(queries, query_ids, passages, strict=True):
            for passage in row:
                tokenized = next(tokens)
                room = self.max_length - len(prefix) - len(suffix) - len(ids) - tokenized.n_fixed
                self._require_room(room, query, passage.title)
                passage_ids, span, cut = tokenized.kept(room)
                middle = (ids, passage_ids) if self._template.query_first else (passage_ids, ids)
                rows.append(np.concatenate([prefix, *middle, suffix]))
                visible.append(span)
                cut_tokens.append(cut)
        return self._pad(rows, visible, cut_tokens)

    def labels(self, answers: Sequence[str], *, max_length: int) -> Tensor:
        """Labels (B, T) of the answers: their tokens and EOS, -100 at padding; T is at most `max_length`, EOS kept."""
        rows = self.targets(answers, max_length=max_length)
        labels = torch.full((len(rows), max(map(len, rows))), IGNORED)
        for row, ids in zip(labels, rows, strict=True):
            row[: len(ids)] = torch.tensor(ids)
        return labels

    def targets(self, answers: Sequence[str], *, max_length: int) -> list[list[int]]:
        """As `labels`, without padding."""
        head = [self.tokenizer.bos_token_id] if self.bos_in_labels else []
        room = max_length - len(head) - 1
        if room < 0:
            raise ShapeError(f"max_length must be at least {len(head) + 1}, got {max_length}. EOS needs its place.")
        encoded = self._tokenize(list(answers))["input_ids"] if answers else []
        return [[*head, *ids[:room], self.tokenizer.eos_token_id] for ids in encoded]

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of generated ids, without special tokens and outer blanks; ignored labels (-100) are skipped.

        Raises:
            ShapeError: an id beyond the vocabulary, as another tokenizer's would be.
        """
        ids = [int(i) for i in token_ids if i != IGNORED]
        wrong = [i for i in ids if not 0 <= i < self.vocab_size]
        if wrong:
            raise ShapeError(
                f"token_ids must be in [0, {self.vocab_size}), got {wrong[0]}. "
                "Decode with the generator's own tokenizer."
            )
        text: str = self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text.strip()

    def _build_closed_book(self, queries: Sequence[str]) -> GeneratorInputs:
        prefix, suffix = self._special_tokens()
        rows = [np.concatenate([prefix, ids, suffix]) for ids in self._tokenize(list(queries))["input_ids"]]
        for query, row in zip(queries, rows, strict=True):
            self._require_room(self.max_length - len(row), query)
        return self._pad(rows, [(0, 0)] * len(rows), [0] * len(rows))

    def _tokenize(self, texts: list[str], *, offsets: bool = False) -> Any:
        return self.tokenizer(
            texts,
            add_special_tokens=False,
            return_attention_mask=False,
            return_offsets_mapping=offsets,
            split_special_tokens=not self.read_special_tokens,
            verbose=False,
        )

    def _special_tokens(self) -> tuple[np.ndarray, np.ndarray]:
        """What stands before and after a text; asked each time, since mBART's tokenizer changes its language."""
        bare, full = self._tokenize(["a"])["input_ids"][0], self.tokenizer("a")["input_ids"]
        for start in range(len(full) - len(bare) + 1):
            if full[start : start + len(bare)] == bare:
                ending = full[start + len(bare) :]
                if self.separator is not None:
                    ending = self._tokenize([self.separator])["input_ids"][0]
                return np.asarray(full[:start], dtype=np.int64), np.asarray(ending, dtype=np.int64)
        raise ShapeError(f"tokenizer must only add tokens around a text, got {full} for {bare}. Use a seq2seq one.")

    def _require_room(self, room: int, query: str, title: str | None = None) -> None:
        if room < 0:
            what = "the query" if title is None else f"the query and the title {title!r}"
            raise ShapeError(
                f"max_length must hold {what} with their special tokens ({self.max_length - room} tokens), "
                f"got {self.max_length} for the query {query[:80]!r}. Raise max_length or shorten the query."
            )

    def _pad(self, rows: list[np.ndarray], visible: list[tuple[int, int]], cut_tokens: list[int]) -> GeneratorInputs:
        width = max(map(len, rows))
        input_ids = np.full((len(rows), width), self.tokenizer.pad_token_id, dtype=np.int64)
        attention_mask = np.zeros((len(rows), width), dtype=np.int64)
        for i, row in enumerate(rows):
            input_ids[i, : len(row)] = row
            attention_mask[i, : len(row)] = 1
        return GeneratorInputs(torch.from_numpy(input_ids), torch.from_numpy(attention_mask), visible, cut_tokens)


def _require_rectangle(queries: Sequence[str], passages: Sequence[Sequence[Passage]]) -> None:
    if len(passages) != len(queries):
        raise ShapeError(f"passages must hold one list a query ({len(queries)}), got {len(passages)}.")
    counts = sorted({len(row) for row in passages})
    if len(counts) != 1 or counts[0] == 0:
        raise ShapeError(f"passages must be equally many (at least 1) for every query, got {counts}.")
