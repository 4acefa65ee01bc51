"""Posteriors and gains computed again from a trace (CITATIONS D01-D04), and where tokens stand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch

from ragx.citations.attribution import attribute
from ragx.citations.emission import EmissionRule, emit
from ragx.citations.posteriors import entropy, span_gain, span_posterior, token_posterior, tokens_of
from ragx.citations.token_spans import token_spans
from ragx.citations.trace_records import TokenScores

PRIOR, ROWS = (0.6, 0.4), ((0.9, 0.1), (0.2, 0.8))


def scores(prior: Sequence[float] = PRIOR, rows: Sequence[Sequence[float]] = ROWS) -> TokenScores:
    spans = tuple((2 * j, 2 * j + 1) for j in range(len(rows[0])))
    return TokenScores("complete", tuple(map(math.log, prior)), tuple(tuple(map(math.log, r)) for r in rows), spans)


def approx(*values: float) -> object:
    return pytest.approx(values, abs=1e-6)


def test_d03_attribution_of_d01() -> None:
    """D01, D03, A1.1: both posteriors, their mean, the span, and both gains."""
    known = scores()
    by_token = token_posterior(known, kind="rag_token")
    assert by_token[0] == approx(0.870968, 0.129032)
    assert by_token[1] == approx(0.157895, 0.842105)
    assert by_token.mean(0) == approx(0.514431, 0.485569)
    assert span_posterior(known, [0, 1]) == approx(0.457627, 0.542373)
    assert span_gain(known, [0, 1], kind="rag_sequence") == approx(-0.304489, 0.270875)
    assert span_gain(known, [0, 1], kind="rag_token") == approx(0.386962, 0.962326)


def test_d03_emission() -> None:
    """RAG-Sequence cites z2; RAG-Token both, z2 first; token by token the one that it points to."""
    known, rule = scores(), EmissionRule()

    def cited(tokens: list[int], kind: str) -> tuple[int, ...]:
        gain = span_gain(known, tokens, kind=kind)
        assert gain is not None
        return emit(span_posterior(known, tokens).tolist(), gain, rule=rule)

    assert cited([0, 1], "rag_sequence") == (1,)
    assert cited([0, 1], "rag_token") == (1, 0)
    assert [cited([j], "rag_token") for j in (0, 1)] == [(0,), (1,)]


def test_the_gain_is_not_the_largest_posterior() -> None:
    """F26, R8: prior .9/.1 and likelihood .1/.8; the first passage has the posterior, the second the gain."""
    known = scores((0.9, 0.1), ((0.1,), (0.8,)))
    assert span_posterior(known, [0]) == approx(0.529412, 0.470588)
    gain = span_gain(known, [0], kind="rag_token")
    assert gain is not None and gain[0] == pytest.approx(-1.549, abs=1e-3) and gain[1] == pytest.approx(0.531, abs=1e-3)
    assert emit([0.529412, 0.470588], gain, rule=EmissionRule()) == (1,)


@pytest.mark.parametrize(
    ("answer", "mixture"),
    [((0.8, 0.7, 0.2), 0.675), ((0.15, 0.25, 0.05), 0.17), ((0.01, 0.01, 0.3), 0.0535)],
)
def test_e5_rag_sequence_worked_example(answer: tuple[float, ...], mixture: float) -> None:
    """E5, E7, D04: .5/.35/.15; the posterior's denominator is the probability."""
    prior = (0.5, 0.35, 0.15)
    found = span_posterior(scores(prior, [(p,) for p in answer]), [0])
    assert found == approx(*(pi * p / mixture for pi, p in zip(prior, answer, strict=True)))


def test_e6_rag_token_worked_example() -> None:
    """E6: .45/.4/.15; "Hemingway" .865, "wrote" .705."""
    prior, rows = (0.45, 0.4, 0.15), ((0.9, 0.8), (0.85, 0.75), (0.8, 0.3))
    by_token = token_posterior(scores(prior, rows), kind="rag_token")
    assert by_token[0] == approx(*(pi * r[0] / 0.865 for pi, r in zip(prior, rows, strict=True)))
    assert by_token[1] == approx(*(pi * r[1] / 0.705 for pi, r in zip(prior, rows, strict=True)))


def test_e8_the_posterior_is_flat_after_the_first_token_of_a_title() -> None:
    """E8: the span product still names the passage (.96), the mean over tokens does not (.54)."""
    third = 1 / 3
    known = scores((third,) * 3, ((0.02, 0.5, 0.5), (0.96, 0.5, 0.5), (0.02, 0.5, 0.5)))
    assert token_posterior(known, kind="rag_token").mean(0)[1] == pytest.approx(0.542, abs=1e-3)
    assert span_posterior(known, [0, 1, 2])[1] == pytest.approx(0.96)


def test_the_running_posterior_of_rag_sequence_ends_at_the_whole_answer() -> None:
    rows = token_posterior(scores(), kind="rag_sequence")
    assert rows[0] == approx(0.870968, 0.129032) and rows[1] == approx(0.457627, 0.542373)


@pytest.mark.parametrize("kind", ["rag_sequence", "rag_token"])
@pytest.mark.parametrize("seed", range(5))
def test_agrees_with_the_attribution_of_the_model(kind: str, seed: int) -> None:
    """Two implementations, one in NumPy and one in torch."""
    generator = torch.Generator().manual_seed(seed)
    logp = torch.randn(4, 6, generator=generator, dtype=torch.float64).log_softmax(0)
    prior = torch.randn(4, generator=generator, dtype=torch.float64).log_softmax(0)
    known = TokenScores("complete", tuple(prior.tolist()), tuple(map(tuple, logp.tolist())), ((0, 1),) * 6)
    result = attribute(logp, prior, kind=kind)
    assert span_posterior(known, range(6)) == pytest.approx(result.doc_posterior, abs=1e-9)
    assert span_gain(known, range(6), kind=kind) == pytest.approx(result.gain, abs=1e-9)


def test_d31_one_passage() -> None:
    known = scores((1.0,), ((0.9, 0.1),))
    assert span_gain(known, [0], kind="rag_token") is None and span_posterior(known, [0]) == approx(1.0)
    assert entropy([1.0]) is None


def test_entropy_is_a_share_of_the_largest() -> None:
    assert entropy([0.25] * 4) == pytest.approx(1.0) and entropy([1.0, 0.0]) == 0.0


@pytest.mark.parametrize(
    ("status", "kind", "tokens"),
    [("complete", "rag_token", [1]), ("complete", "rag_sequence", [0, 1]), ("offsets_unreliable", "rag_token", [0, 1])],
)
def test_which_tokens_a_claim_is_attributed_by(status: str, kind: str, tokens: list[int]) -> None:
    known = TokenScores(status, (0.0,), ((0.0, 0.0),), ((0, 4), (5, 9)))
    assert tokens_of(known, (5, 9), kind=kind) == tokens


PIECES = {1: " New", 2: " York", 3: "\u00e9"}


def decode(ids: Sequence[int]) -> str:
    """Two bytes of one character are 8 and 9; the first alone shows as a replacement character."""
    text = "".join(PIECES.get(i, "") or ("\ufffd" if i == 8 else "") for i in ids)
    return text.replace("\ufffd", "\u00e9", 1).strip() if 9 in ids else text.strip()


def test_token_spans_leave_out_white_space() -> None:
    assert token_spans([1, 2], "New York", decode=decode) == ((0, 3), (4, 8))


def test_pieces_of_one_character_share_its_span() -> None:
    assert token_spans([1, 8, 9, 2], "New\u00e9 York", decode=decode) == ((0, 3), (3, 4), (3, 4), (5, 9))


def test_ids_that_do_not_give_the_text_have_no_spans() -> None:
    assert token_spans([1, 2], "Old York", decode=decode) is None
    assert token_spans([], "", decode=decode) == ()
