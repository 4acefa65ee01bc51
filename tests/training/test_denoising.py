"""Text infilling and cloze: the noise is what the BART paper says, and the loss is over the right tokens."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
import torch

from ragx.generator.inputs import IGNORED, InputBuilder
from ragx.generator.seq2seq import Seq2SeqGenerator
from ragx.records import Passage
from ragx.training.denoising import by_length, cloze_loss, infill, infilling_loss, permute_sentences
from ragx.training.vocabulary import byte_level_bpe

MASK = -7


def test_infilling_keeps_the_order_of_what_is_left_and_masks_about_a_third() -> None:
    kept_share = []
    for seed in range(200):
        ids = list(range(60))
        noised = infill(ids, np.random.default_rng(seed), mask_token_id=MASK)
        left = [i for i in noised if i != MASK]
        assert left == sorted(left) and set(left) <= set(ids)
        assert noised != ids and MASK in noised
        assert all(a != MASK or b != MASK for a, b in pairwise(noised))
        kept_share.append(len(left) / len(ids))
    assert 0.68 < float(np.mean(kept_share)) < 0.85


@pytest.mark.parametrize("length", [0, 1, 2, 5])
def test_infilling_short_texts_ends(length: int) -> None:
    noised = infill(range(length), np.random.default_rng(0), mask_token_id=MASK)
    assert len(noised) <= length + 1


def test_sentences_are_permuted_and_none_is_lost() -> None:
    text = "One is here. Two is there! Is three? Four."
    seen = {permute_sentences(text, np.random.default_rng(seed)) for seed in range(40)}
    assert len(seen) > 10
    assert all(sorted(t.split()) == sorted(text.split()) for t in seen)


@pytest.fixture(scope="module")
def generator() -> Seq2SeqGenerator:
    from transformers import BartConfig, BartForConditionalGeneration

    tokenizer = byte_level_bpe(["Ada led Peru from May 1990 to June 1995."] * 3, size=300, max_length=64)
    torch.manual_seed(0)
    config = BartConfig(vocab_size=len(tokenizer), d_model=16, encoder_layers=1, decoder_layers=1, dropout=0.0,
                        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16,
                        max_position_embeddings=64, decoder_start_token_id=2, forced_eos_token_id=None)  # fmt: skip
    return Seq2SeqGenerator(BartForConditionalGeneration(config), tokenizer, max_length=64)


def test_cloze_loss_is_cross_entropy_of_the_span_and_eos(generator: Seq2SeqGenerator) -> None:
    inputs = InputBuilder(generator.tokenizer, max_length=64, read_special_tokens=True)
    passage = Passage("s", "1", "0", "Ada", "Ada led Peru.")
    loss = cloze_loss(generator, inputs, [("<mask> led Peru.", "Ada", passage)], max_length=8)
    built = inputs.build(["<mask> led Peru."], [[passage]])
    assert (built.input_ids == generator.tokenizer.mask_token_id).sum() == 1
    labels = inputs.labels(["Ada"], max_length=8)
    theirs = generator.model(input_ids=built.input_ids, attention_mask=built.attention_mask, labels=labels).loss
    assert loss.item() == pytest.approx(theirs.item(), abs=1e-5)
    assert labels[0, -1] == generator.eos_token_id and IGNORED not in labels


def test_infilling_loss_falls_when_it_is_trained_on(generator: Seq2SeqGenerator) -> None:
    texts = ["Ada led Peru from May 1990 to June 1995."] * 4
    optimizer = torch.optim.Adam(generator.parameters(), lr=1e-2)
    first = infilling_loss(generator, texts, np.random.default_rng(0)).item()
    for step in range(30):
        optimizer.zero_grad()
        infilling_loss(generator, texts, np.random.default_rng(step)).backward()
        optimizer.step()
    assert infilling_loss(generator, texts, np.random.default_rng(0)).item() < 0.6 * first


def test_batches_by_length_hold_every_row_once() -> None:
    rows = [("q", "a", Passage("s", "1", str(i), "t", "x" * i)) for i in range(12)]
    batches = by_length(random.Random(0), rows, 4)
    assert sorted(len(row[2].text) for batch in batches for row in batch) == list(range(12))
    assert all(max(len(r[2].text) for r in b) - min(len(r[2].text) for r in b) == 3 for b in batches)
