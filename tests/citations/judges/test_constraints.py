"""The veto of the constraint judge (CITATIONS D27, F16, F17, R24): what must not pass for full support."""

from __future__ import annotations

import pytest

from ragx.citations.judges.constraints import ConstraintJudge, names_of
from ragx.records import Passage


def passage(text: str, title: str = "") -> Passage:
    return Passage("s", "v1", "a", title, text)


def judged(claim: str, *texts: str) -> str:
    return ConstraintJudge().judge(claim, [passage(text) for text in texts])


@pytest.mark.parametrize(
    ("claim", "text", "label"),
    [
        ("Turnout was 87% in the city.", "Turnout was 85% in the city.", "contradict"),
        ("Turnout was 87% in the city.", "Turnout was 87 percent in the city.", "not_judged"),
        ("It sold 4523000 copies.", "It sold 4,523,000 copies.", "not_judged"),
        ("It opened in 1976.", "Serial 19760 was made there.", "none"),
        ("The ratio is 3.0 to 1.", "The ratio is 3 to 1.", "not_judged"),
        ("住宿限额为 750 元。", "住宿限额为 750 美元。", "contradict"),
        ("住宿限额为 750 元。", "金额单位为元/间夜。\n住宿限额为 750。", "not_judged"),
        ("住宿限额为 750 元。", "住宿限额为 750。", "none"),
        ("住宿限额为 750 元。", "住宿限额为 600 元。", "contradict"),
        ("It starts on 2026-01-01.", "自 2026年1月1日 起生效。", "not_judged"),
        ("It starts on 2026-01-01.", "The lease starts on January 2, 2026.", "contradict"),
        ("She was born in 1953.", "Born September 29, 1953 in Ohio.", "not_judged"),
        ("It starts on 2026-01-01.", "The rest of it is silent about days.", "none"),
        ("The lease does not allow pets.", "The lease allows pets.", "contradict"),
        ("The lease allows pets.", "The lease does not allow pets.", "contradict"),
        ("The lease does not allow pets.", "The lease doesn't allow pets.", "not_judged"),
        ("The winner was Ann.", "The winner read the Annual report.", "none"),
        ("The winner was Ann.", "Ann's book was the winner.", "not_judged"),
        ("1. The lease allows pets.", "The lease allows pets.", "not_judged"),
    ],
)
def test_d27(claim: str, text: str, label: str) -> None:
    assert judged(claim, text) == label


def test_what_is_exact_may_come_from_several_passages() -> None:
    claim = "The limit rose from 600 yuan to 750 yuan."
    assert judged(claim, "The limit was 600 yuan.") == "contradict"
    assert judged(claim, "The limit was 600 yuan.", "The limit is 750 yuan.") == "not_judged"


def test_it_never_says_full_and_judges_nothing_without_passages() -> None:
    assert judged("The lease allows pets.", "The lease allows pets.") == "not_judged"
    assert judged("In 1976.") == "not_judged"


def test_another_number_elsewhere_is_absence_not_contradiction() -> None:
    assert judged("The tower has 45 floors.", "A bridge of 300 meters crosses the river.") == "none"


def test_a_title_counts_and_a_gazetteer_adds_names() -> None:
    claim = "Walter Law moved to 纽约 early."
    assert ConstraintJudge().judge(claim, [passage("Law sold carpets.", "Walter Law")]) == "not_judged"
    strict = ConstraintJudge(names=["纽约"])
    assert strict.judge(claim, [passage("Walter Law sold carpets.")]) == "none"
    assert strict.judge(claim, [passage("Walter Law 到 纽约。")]) == "not_judged"


def test_capitalized_words_can_be_left_out() -> None:
    lenient = ConstraintJudge(capitalized=False)
    assert lenient.judge("The winner was Ann.", [passage("The winner read the Annual report.")]) == "not_judged"


def test_names_are_runs_inside_sentences_and_quotations() -> None:
    assert names_of('The song "Got My Mind" is by Rudy Clark. Researchers met Ann.') == [
        "Got My Mind",
        "Rudy Clark",
        "Ann",
    ]
    assert names_of("Note: Turn it on. • Choose one") == []
