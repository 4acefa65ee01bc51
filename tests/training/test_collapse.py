"""Figures of prior and posterior by hand, and what sets off the two warnings: a collapsing run, a healthy one."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from ragx.training.collapse import STEPS, WINDOW, CollapseWatch, IgnoredWatch, posterior_figures, prior_entropy

N_DOCS = 5


def run(steps: int, *, closes: bool) -> Iterator[dict[str, Any]]:
    """Rows of a run whose KL falls to 0, because passages stop mattering, or because prior and posterior close in."""
    for step in range(1, steps + 1):
        share = step / steps
        entropy = math.log(N_DOCS) * ((1 - share) ** 2 if closes else min(1.0, 0.6 + share))
        yield {
            "step": step,
            "kl_posterior_prior": 0.4 * math.exp(-8 * share),
            "posterior_entropy": entropy,
            "grad_norm/query_encoder": 0.3 * math.exp(-8 * share),
        }


def warned(rows: Iterator[dict[str, Any]], caplog: pytest.LogCaptureFixture, *, n_docs: int = N_DOCS) -> list[str]:
    watch = IgnoredWatch(n_docs=n_docs)
    with caplog.at_level(logging.WARNING):
        for row in rows:
            watch.add(row)
    return [record.getMessage() for record in caplog.records]


def test_a_run_whose_passages_stop_mattering_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    (message,) = warned(run(400, closes=False), caplog)
    assert "the retriever no longer matters" in message and f"Over {STEPS} steps" in message
    # The mean KL of steps s-49..s falls below .01 where .4 exp(-s/50) (e - 1) < .01.
    assert message.startswith(f"step {math.ceil(50 * math.log(0.4 * (math.e - 1) / 0.01))}:")
    assert "of at most 1.61, gradient of the query encoder" in message


def test_a_run_that_ends_sure_of_its_passage_is_healthy(caplog: pytest.LogCaptureFixture) -> None:
    assert not warned(run(400, closes=True), caplog)


def test_an_open_posterior_with_a_prior_that_disagrees_is_healthy(caplog: pytest.LogCaptureFixture) -> None:
    assert not warned(({**row, "kl_posterior_prior": 0.02} for row in run(400, closes=False)), caplog)


@pytest.mark.parametrize(("n_docs", "rows"), [(1, 400), (N_DOCS, STEPS - 1)])
def test_one_passage_or_too_few_steps_say_nothing(n_docs: int, rows: int, caplog: pytest.LogCaptureFixture) -> None:
    ignored = ({**row, "kl_posterior_prior": 0.0, "posterior_entropy": 1.6} for row in run(rows, closes=False))
    assert not warned(ignored, caplog, n_docs=n_docs)


# Means over 50 steps of real trainings on the embedded base: KL, posterior entropy, n_docs. Of the healthy ones those
# with the smallest KL or the most open posterior among 3 seeds of each kind.
HEALTHY = {
    "rag_sequence, the end": (0.103, 0.159, 5),
    "rag_token, the end": (0.052, 0.203, 5),
    "rag_token, the beginning": (0.340, 0.606, 5),
    "frozen": (0.529, 0.367, 5),
    "clues, rag_token": (0.185, 0.599, 3),
    "clues, rag_sequence": (0.308, 0.101, 3),
}
IGNORED = {"claims at chance, step 65": (0.0036, 0.802, 3), "claims at chance, step 95": (0.0005, 0.806, 3)}


@pytest.mark.parametrize(("name", "expected"), [*((n, 0) for n in HEALTHY), *((n, 1) for n in IGNORED)])
def test_real_trainings_are_told_apart(name: str, expected: int, caplog: pytest.LogCaptureFixture) -> None:
    divergence, entropy, n_docs = {**HEALTHY, **IGNORED}[name]
    row = {"kl_posterior_prior": divergence, "posterior_entropy": entropy}
    rows = ({"step": step, **row} for step in range(1, 2 * STEPS))
    assert len(warned(rows, caplog, n_docs=n_docs)) == expected


def test_rows_without_retrieval_say_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert not warned(({"step": step} for step in range(1, 400)), caplog)


def test_rag_sequence_figures_by_hand() -> None:
    """Prior (1/2, 1/4, 1/4) and p(y|x,z) = (1/4, 1/2, 1/2): an even posterior."""
    prior = torch.tensor([[0.5, 0.25, 0.25]]).log()
    tokens = torch.tensor([[[0.5, 0.5], [1.0, 0.5], [0.5, 1.0]]]).log()
    entropy, divergence = posterior_figures("rag_sequence", tokens, prior)
    assert entropy.item() == pytest.approx(math.log(3), abs=1e-6)
    expected = (math.log((1 / 3) / 0.5) + 2 * math.log((1 / 3) / 0.25)) / 3
    assert divergence.item() == pytest.approx(expected, abs=1e-6)


def test_rag_token_figures_are_means_over_the_tokens_and_leave_padding_out() -> None:
    """Token 1 makes (1/2, 1/2) of the prior into (3/4, 1/4), token 2 leaves it; the third place is padding."""
    prior = torch.tensor([[0.5, 0.5]]).log()
    tokens = torch.tensor([[[0.6, 0.3, 1.0], [0.2, 0.3, 1.0]]]).log()
    entropy, divergence = posterior_figures("rag_token", tokens, prior)
    first = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert entropy.item() == pytest.approx((first + math.log(2)) / 2, abs=1e-6)
    assert divergence.item() == pytest.approx((math.log(2) - first) / 2, abs=1e-6)


@pytest.mark.parametrize("kind", ["rag_sequence", "rag_token"])
def test_a_passage_that_is_masked_adds_nothing(kind: str) -> None:
    tokens = torch.tensor([[[0.6, 0.3], [0.2, 0.3], [0.9, 0.9]]]).log()
    masked = posterior_figures(kind, tokens, torch.tensor([[0.5, 0.5, 0.0]]).log())
    without = posterior_figures(kind, tokens[:, :2], torch.tensor([[0.5, 0.5]]).log())
    torch.testing.assert_close(masked, without)


def test_passages_that_say_the_same_leave_the_prior_as_it_is() -> None:
    prior = torch.tensor([[0.7, 0.2, 0.1]]).log()
    for kind in ("rag_sequence", "rag_token"):
        entropy, divergence = posterior_figures(kind, torch.full((1, 3, 4), -0.3), prior)
        torch.testing.assert_close(entropy, prior_entropy(prior))
        assert 0.0 <= divergence.item() < 1e-6


def test_collapse_is_told_once_and_repeated_questions_are_no_collapse(caplog: pytest.LogCaptureFixture) -> None:
    watch = CollapseWatch()
    watch.add(["same"] * WINDOW, [3] * WINDOW)
    assert "collapsed" not in caplog.text
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            watch.add([f"question {number}" for number in range(WINDOW)], [3] * WINDOW)
    assert caplog.text.count(f"{WINDOW} different queries got only 1 different top-1 passages") == 1


@pytest.mark.parametrize(
    ("name", "distinct", "expected"),
    [("dpr-nano, untrained", 220, 0), ("dpr-nano, learned", 232, 0), ("query_encoder_lr 0.1, step 32", 18, 1)],
)
def test_real_query_encoders_are_told_apart(
    name: str, distinct: int, expected: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Of 256 training questions on the embedded base, each got as many different top-1 passages."""
    rows = [number % distinct for number in range(WINDOW)]
    CollapseWatch().add([f"question {number}" for number in range(WINDOW)], rows)
    assert len(caplog.records) == expected, name
