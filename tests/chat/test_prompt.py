"""What a chat model is shown: numbered whole passages under one budget."""

from __future__ import annotations

import pytest

from ragx.chat.prompt import UNKNOWN, PromptSettings, messages, serialise
from ragx.errors import ConfigError, RagxError
from ragx.records import Passage

PASSAGES = [Passage("a", "1", "0", "Peru", "x" * 100), Passage("b", "1", "0", "Chile", "y" * 900),
            Passage("c", "1", "0", "Ghana", "z" * 50)]  # fmt: skip


def test_passages_are_numbered_in_their_order_and_the_question_comes_last() -> None:
    (system, user), selection = messages("Who?", PASSAGES, settings=PromptSettings())
    assert (
        user["content"] == f"[1] Peru\n{'x' * 100}\n\n[2] Chile\n{'y' * 900}\n\n[3] Ghana\n{'z' * 50}\n\nQuestion: Who?"
    )
    assert UNKNOWN in system["content"] and "short phrase" in system["content"]
    assert [row.ref for row in selection.packed] == [1, 2, 3] and selection.dropped == ()


def test_a_passage_that_does_not_fit_is_left_out_whole_and_numbers_are_given_after() -> None:
    settings = PromptSettings(window=1200, reserve=100)
    (_, user), selection = messages("Who?", PASSAGES, settings=settings)
    assert user["content"] == f"[1] Peru\n{'x' * 100}\n\n[2] Ghana\n{'z' * 50}\n\nQuestion: Who?"
    assert [(row.ref, row.key.source) for row in selection.packed] == [(1, "a"), (2, "c")]
    assert [(row.key.source, row.reason) for row in selection.dropped] == [("b", "over_budget")]
    budget = selection.budget
    assert budget is not None and budget.window == 1200
    spent = sum(len(serialise(row.ref, p)) for row, p in zip(selection.packed, (PASSAGES[0], PASSAGES[2]), strict=True))
    assert budget.remaining == budget.budget - spent


def test_the_whole_prompt_and_the_reserve_fit_the_window() -> None:
    for window in range(900, 2400, 137):
        chat, _ = messages("Who?", PASSAGES, settings=PromptSettings(window=window, reserve=100))
        assert sum(len(message["content"]) for message in chat) + 100 <= window


def test_without_passages_nothing_is_said_of_them() -> None:
    (system, user), selection = messages("Who?", [], settings=PromptSettings(style="long"))
    assert user["content"] == "Question: Who?" and "passages alone" not in system["content"]
    assert "sentences" in system["content"] and selection.packed == ()


def test_bad_settings_are_named() -> None:
    with pytest.raises(ConfigError, match=r"prompt.style must be one of short, long, got 'terse'"):
        PromptSettings(style="terse")
    with pytest.raises(ConfigError, match=r"prompt.reserve must be >= 0 and below prompt.window 50, got 50"):
        PromptSettings(window=50, reserve=50)
    with pytest.raises(RagxError, match=r"window must be >= fixed \+ reserve"):
        messages("Who?" * 100, PASSAGES, settings=PromptSettings(window=400, reserve=10))
