"""How the generator is pretrained (section 2.3): BART's text infilling (Lewis et al. 2020a) and salient-span cloze.

    infilling   spans of Poisson(3) tokens, 30% of a text, each replaced by one <mask>; sentences in another order;
                for every second text; the target is the text as it was
    cloze       "title / text // a sentence with <mask>"  ->  the name or date that was masked (as REALM and T5 did)

The cloze sentence says a fact of the passage in other words, so that the answer has to be found and copied.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ragx.generator.inputs import IGNORED, InputBuilder
from ragx.generator.seq2seq import Seq2SeqGenerator
from ragx.records import Passage

MASKED_SHARE = 0.3
MEAN_SPAN = 3.0


def infill(token_ids: Sequence[int], rng: np.random.Generator, *, mask_token_id: int) -> list[int]:
    """`token_ids` with about 30% of them in spans that became one mask token each.

    Span lengths are Poisson(3); a span of length 0 inserts a mask (section 2.2 of the BART paper). Spans never touch.
    """
    ids = list(token_ids)
    room = round(MASKED_SHARE * len(ids))
    taken = np.zeros(len(ids) + 1, dtype=bool)
    spans: list[tuple[int, int]] = []
    while room > 0:
        length = min(int(rng.poisson(MEAN_SPAN)), room)
        start = int(rng.integers(0, len(ids) - length + 1))
        room -= max(length, 1)  # an insertion uses up room as well, so that the loop ends
        if taken[max(0, start - 1) : start + length + 1].any():
            continue
        taken[start : start + max(length, 1)] = True
        spans.append((start, start + length))
    for start, end in sorted(spans, reverse=True):
        ids[start:end] = [mask_token_id]
    return ids


def permute_sentences(text: str, rng: np.random.Generator) -> str:
    """The sentences of `text` in a random order."""
    sentences = re.split(r"(?<=[.!?])\s+", text)
    return " ".join(sentences[i] for i in rng.permutation(len(sentences)))


def infilling_loss(generator: Seq2SeqGenerator, texts: Sequence[str], rng: np.random.Generator) -> Tensor:
    """Mean negative log-likelihood per token of the texts given their noised forms; scalar, nats."""
    tokenizer = generator.tokenizer
    targets = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    shuffled = [permute_sentences(text, rng) if i % 2 else text for i, text in enumerate(texts)]
    noised = tokenizer(shuffled, add_special_tokens=False)["input_ids"]
    frame = [tokenizer.bos_token_id], [tokenizer.eos_token_id]
    inputs = [[*frame[0], *infill(ids, rng, mask_token_id=tokenizer.mask_token_id), *frame[1]] for ids in noised]
    input_ids = _pad(inputs, tokenizer.pad_token_id)
    labels = _pad([[*ids, *frame[1]] for ids in targets], IGNORED)
    return _loss(generator, input_ids, (input_ids != tokenizer.pad_token_id).long(), labels)


def cloze_loss(
    generator: Seq2SeqGenerator, inputs: InputBuilder, rows: Sequence[tuple[str, str, Passage]], *, max_length: int
) -> Tensor:
    """Mean negative log-likelihood per token of masked spans; scalar, nats.

    Args:
        inputs: a builder that reads `<mask>` in a sentence as the mask token (`read_special_tokens=True`).
        rows: (sentence with `<mask>`, the span, the passage to read).
        max_length: tokens of a span at most, EOS included.
    """
    built = inputs.build([sentence for sentence, _, _ in rows], [[passage] for _, _, passage in rows])
    labels = inputs.labels([answer for _, answer, _ in rows], max_length=max_length)
    return _loss(generator, built.input_ids, built.attention_mask, labels)


def by_length(rng: random.Random, rows: Sequence[tuple[str, str, Passage]], batch_size: int) -> list[list]:
    """Cuts a pool of rows into batches of like length, in random order; padding shrinks, the mixture stays."""
    ordered = sorted(rows, key=lambda row: len(row[0]) + len(row[2].title) + len(row[2].text))
    batches = [ordered[i : i + batch_size] for i in range(0, len(ordered), batch_size)]
    rng.shuffle(batches)
    return batches


def _loss(generator: Seq2SeqGenerator, input_ids: Tensor, attention_mask: Tensor, labels: Tensor) -> Tensor:
    encoded = generator.encode(input_ids, attention_mask)
    logprobs = generator.token_logprobs(encoded, labels, torch.arange(len(labels)))
    return -logprobs.sum() / (labels != IGNORED).sum()


def _pad(rows: Sequence[Sequence[int]], value: int) -> Tensor:
    padded = torch.full((len(rows), max(map(len, rows))), value)
    for row, ids in zip(padded, rows, strict=True):
        row[: len(ids)] = torch.tensor(ids)
    return padded
