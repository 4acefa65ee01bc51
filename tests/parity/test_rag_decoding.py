"""Answers of imported checkpoints beside transformers' `generate`: equal token for token, and where not, why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    RagSequenceForGeneration,
    RagTokenForGeneration,
)

from ragx.decoding.beam import DecodingSettings
from ragx.model import RagModel
from ragx.records import Hypothesis, Passage, Retrieved
from ragx.training.rag_checkpoint import import_rag
from tests.parity.published import (
    N_DOCS,
    PAD,
    QUERIES,
    found,
    peer_inputs,
    peer_nll,
    write_peer,
)

MAX_LENGTH = 12
Case = tuple[Any, RagModel, dict[str, Tensor], Retrieved]


@pytest.fixture(scope="module")
def cases(
    tokenizers: tuple[Any, Any], tiny_passages: list[Passage], tmp_path_factory: pytest.TempPathFactory
) -> list[Case]:
    """Four random RAG-Token checkpoints, loaded on both sides, with inputs of three questions."""
    loaded = []
    for seed in range(4):
        folder = tmp_path_factory.mktemp("case")
        write_peer(folder, "rag_token", tokenizers, seed=seed)
        peer, model, retrieved = RagTokenForGeneration.from_pretrained(folder), import_rag(folder), found(tiny_passages)
        loaded.append((peer, model, peer_inputs(peer, model, QUERIES, retrieved), retrieved))
    return loaded


def without_start(row: Tensor) -> tuple[int, ...]:
    """Generated ids as ours are: no start token, nothing after EOS."""
    ids = row.tolist()[1:]
    return tuple(ids[: ids.index(2) + 1] if 2 in ids else ids)


def peer_answers(case: Case, **options: Any) -> list[tuple[int, ...]]:
    """transformers counts the start token in max_length, and ignores max_new_tokens here."""
    peer, _, inputs, _ = case
    return [
        without_start(row) for row in peer.generate(**inputs, do_sample=False, max_length=MAX_LENGTH + 1, **options)
    ]


def our_best(case: Case, decoder: str, **options: Any) -> list[Hypothesis]:
    _, model, _, retrieved = case
    settings = DecodingSettings(max_length=MAX_LENGTH, **options)
    return [a.hypotheses[0] for a in model.generate(QUERIES, decoder=decoder, settings=settings, retrieved=retrieved)]


def test_greedy_answers_are_equal_token_for_token(cases: list[Case]) -> None:
    theirs = [answer for case in cases for answer in peer_answers(case, num_beams=1)]
    assert [best.token_ids for case in cases for best in our_best(case, "greedy")] == theirs
    assert len(set(theirs)) >= 8 and len({len(answer) for answer in theirs}) >= 4  # not all alike


@pytest.mark.parametrize("num_beams", [2, 3, 4])
@pytest.mark.parametrize(("length_penalty", "early_stopping"), [(0.0, False), (1.0, "never")])
def test_beam_answers_are_equal_token_for_token(
    cases: list[Case], num_beams: int, length_penalty: float, early_stopping: Any
) -> None:
    settings = {"num_beams": num_beams, "length_penalty": length_penalty}
    for case in cases:
        theirs = peer_answers(case, early_stopping=early_stopping, **settings)
        assert [best.token_ids for best in our_best(case, "token_beam", **settings)] == theirs


def test_with_its_defaults_the_peer_stops_before_the_best_answer(cases: list[Case]) -> None:
    """length_penalty 1 and early_stopping False: it bounds a running beam by its score at the present length, though
    a longer answer may divide the same sum by more. Ours never stops while a better score can be had."""
    differ = 0
    for case in cases:
        peer, _, inputs, _ = case
        theirs = peer_answers(case, num_beams=2, length_penalty=1.0, early_stopping=False)
        for b, best in enumerate(our_best(case, "token_beam", num_beams=2, length_penalty=1.0)):
            if best.token_ids != theirs[b]:
                differ += 1
                row = {name: rows.view(len(QUERIES), -1, *rows.shape[1:])[b] for name, rows in inputs.items()}
                row["doc_scores"] = inputs["doc_scores"][b : b + 1]
                score = -peer_nll(peer, row, torch.tensor([[2, *theirs[b]]])).item() / len(theirs[b])
                assert best.logprob / len(best.token_ids) > score + 1e-4
    assert 0 < differ < len(cases) * len(QUERIES)


def test_thorough_answers_are_equal_where_nothing_is_padded(
    tokenizers: tuple[Any, Any], tiny_passages: list[Passage], tmp_path: Path
) -> None:
    """transformers' RAG-Sequence decodes without an attention mask, so that padding changes its answers, and loses the
    prior of answers of one token. Ours are the same whatever the padding."""
    words = tiny_passages[0].text.split()
    turned = [replace(tiny_passages[0], text=" ".join(words[k:] + words[:k])) for k in range(N_DOCS)]
    retrieved = replace(found(tiny_passages, rows=1), passages=[turned])
    settings = DecodingSettings(num_beams=3, min_length=2, max_length=MAX_LENGTH)
    changed = 0
    for seed in range(4):
        folder = tmp_path / str(seed)
        write_peer(folder, "rag_sequence", tokenizers, seed=seed)
        peer, model = RagSequenceForGeneration.from_pretrained(folder), import_rag(folder)
        (answer,) = model.generate(QUERIES[:1], decoder="thorough", settings=settings, retrieved=retrieved)
        inputs = peer_inputs(peer, model, QUERIES[:1], retrieved)
        assert inputs["context_attention_mask"].all()
        theirs = peer_thorough(peer, inputs)
        assert answer.hypotheses[0].token_ids == theirs
        for name, value in (("context_input_ids", PAD), ("context_attention_mask", 0)):
            inputs[name] = torch.nn.functional.pad(inputs[name], (0, 40), value=value)
        changed += peer_thorough(peer, inputs) != theirs
    assert changed > 0


def peer_thorough(peer: Any, inputs: dict[str, Tensor]) -> tuple[int, ...]:
    options = {"num_beams": 3, "num_return_sequences": 1, "length_penalty": 0.0, "min_length": 2}
    return without_start(peer.generate(**inputs, do_sample=False, max_length=MAX_LENGTH + 1, **options)[0])
