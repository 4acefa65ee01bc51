"""What is refused before the first job of a sweep, and what a preset may say of a key that the command line pins."""

from __future__ import annotations

from itertools import product

import pytest

from ragx.errors import ConfigError
from ragx.experiments.ablations_checks import axes_of, check_baseline, check_metrics, telling


def grid(**axes: str) -> list[dict[str, str]]:
    """The jobs of a sweep; `__` stands for a dot."""
    keys = [key.replace("__", ".") for key in axes]
    return [dict(zip(keys, row, strict=True)) for row in product(*(values.split(",") for values in axes.values()))]


def test_axes_are_what_differs_the_seed_apart() -> None:
    jobs = grid(model__n_docs="2,3", training__steps="9", experiment__seed="0,1")
    assert axes_of(jobs) == {"model.n_docs": ["2", "3"]}


@pytest.mark.parametrize(
    ("baseline", "problems"),
    [
        ({"a.x": "1"}, []),
        ({"a.x": "1", "b": "no"}, []),  # pinned: it is the same in all arms
        ({}, []),
        ({"a.x": "9", "a.z": "1"}, [
            "ablation.baseline must give a.x one of 1, 2, got 9. Name a value of the sweep.",
            "ablation.baseline must name swept keys, got a.z=1. Swept: a.x=1,2.",
        ]),
        ({"b": "no"}, ["ablation.baseline must name a key with several values, got b=no. Swept: a.x=1,2."]),
        ({"experiment.seed": "0"}, ["ablation.baseline must name swept keys, got experiment.seed=0. Swept: a.x=1,2."]),
    ],
)  # fmt: skip
def test_a_baseline_is_one_of_the_arms(baseline: dict[str, str], problems: list[str]) -> None:
    jobs = grid(a__x="1,2", b="yes", experiment__seed="0,1")
    if not problems:
        check_baseline(baseline, jobs)
        return
    with pytest.raises(ConfigError, match=r"ablation\.baseline must") as refused:
        check_baseline(baseline, jobs)
    assert list(refused.value.problems) == problems


def test_a_preset_of_which_all_is_pinned_has_nothing_to_compare() -> None:
    check_baseline({"a.x": "1"}, grid(a__x="2", experiment__seed="0,1"))
    with pytest.raises(ConfigError, match=r"must name swept keys, got a.y=1. Swept: nothing."):
        check_baseline({"a.y": "1"}, grid(a__x="2"))


def test_figures_depend_on_the_task_and_on_success_at() -> None:
    check_metrics(["exact_match", "answer_success_at.5"], task="open_qa", ks=[1, 5])
    check_metrics(["bleu_1", "success_at.2"], task="question_generation", ks=[2])
    with pytest.raises(ConfigError, match=r"task=open_qa with ablation.success_at=\[1, 2\], got answer_success_at.5\."):
        check_metrics(["exact_match", "answer_success_at.5"], task="open_qa", ks=[1, 2])
    with pytest.raises(ConfigError, match=r"got bleu_1, f2\. Known: exact_match, f1, success_at.1,"):
        check_metrics(["bleu_1", "f1", "f2"], task="open_qa", ks=[1])


def test_one_job_is_looked_at_for_each_choice_that_can_change_the_figures() -> None:
    jobs = [[f"model.n_docs={n}", f"data={d}", f"experiment.seed={s}"] for n in (2, 3) for d in "ab" for s in (0, 1)]
    assert telling(jobs) == [jobs[0], jobs[2]]
    assert telling([["data.task=a", "x.y=1"], ["data.task=b", "x.y=1"]]) == [
        ["data.task=a", "x.y=1"], ["data.task=b", "x.y=1"],
    ]  # fmt: skip
