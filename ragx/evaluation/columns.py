"""Section 4: which figures each task is scored by, as one column of scores a figure.

    open_qa               exact match, F1                       table 1
    regex_qa              match with a pattern                  table 1, CuratedTREC
    abstractive_qa        BLEU-1, ROUGE-L, distinct trigrams    tables 2 and 5
    question_generation   BLEU-1, Q-BLEU-1, distinct trigrams   tables 2 and 5, figure 2
    fact_verification     label accuracy                        table 2
    all                   the ranking, by passage and by title  section 4.4

A column holds, for each question, a score whose mean is the figure, or counts whose sums make the figure; None where
there is nothing to score. So each figure, its interval and a paired difference come from the same rows. Names with a
dot are tables: `success_at.5`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ragx.evaluation.answerability import q_bleu_1
from ragx.evaluation.answers import exact_match, f1, has_answer
from ragx.evaluation.diversity import distinct_shares
from ragx.evaluation.generation import bleu_1, bleu_counts, rouge_l, rouge_lsum
from ragx.evaluation.mixture import two_passages
from ragx.evaluation.patterns import found_in, regex_match
from ragx.evaluation.retrieval import Ranking, check_ranking, r_precision, rank_scores, title_key
from ragx.evaluation.significance import Statistic, ratio
from ragx.records import Example, Prediction

Pair = tuple[Prediction, Example]
Row = float | tuple[float, ...] | None
SHORT_ANSWERS = ("open_qa", "regex_qa")


@dataclass(frozen=True, slots=True)
class Column:
    """One figure, question by question.

    Attributes:
        rows: a score, a row of counts, or None.
        statistic: of summed counts; None where the figure is the mean of the scores.
    """

    rows: Sequence[Row]
    statistic: Statistic | None = None


Score = Callable[[str, tuple[str, ...]], float | None]


def _exact(text: str, answers: tuple[str, ...]) -> float:
    return exact_match(prediction=text, answers=answers)


def _f1(text: str, answers: tuple[str, ...]) -> float:
    return f1(prediction=text, answers=answers)


_MEANS: dict[str, dict[str, Score]] = {
    "open_qa": {"exact_match": _exact, "f1": _f1},
    "regex_qa": {"regex_match": lambda text, patterns: regex_match(prediction=text, patterns=patterns)},
    "abstractive_qa": {
        "rouge_l": lambda text, answers: rouge_l(prediction=text, references=answers),
        "rouge_lsum": lambda text, answers: rouge_lsum(prediction=text, references=answers),
        "f1": _f1,
    },
    "question_generation": {"q_bleu_1": lambda text, answers: q_bleu_1(prediction=text, references=answers)},
    "fact_verification": {"label_accuracy": _exact},
}
GENERATED = ("abstractive_qa", "question_generation")


def columns(pairs: Sequence[Pair], *, task: str, ks: Sequence[int]) -> dict[str, Column]:
    """Every figure of a task over predictions with their examples.

    Raises:
        RagxError: passages that do not come best first, or a pattern that is none.
    """
    found = {name: Column([score(p.answer, e.answers) for p, e in pairs]) for name, score in _MEANS[task].items()}
    if task in GENERATED:
        counts = [bleu_counts(prediction=p.answer, references=e.answers) for p, e in pairs]
        found["bleu_1"] = Column(counts, bleu_1)
        found["distinct_trigrams"] = _diversity([p.answer for p, _ in pairs])
        found["gold_distinct_trigrams"] = _diversity([e.answers[0] for _, e in pairs])
        found["two_passages"] = Column([_mixed(p) for p, _ in pairs])
    return found | _retrieved(pairs, ks) | _evidence(pairs, task, ks, correct=next(iter(found.values())))


def _diversity(texts: Sequence[str]) -> Column:
    """Distinct of all trigrams; table 5 has those of the references beside those of each model."""
    return Column([row if row[1] else None for row in distinct_shares(texts)], ratio)


def _mixed(prediction: Prediction) -> float | None:
    """Figure 2, of RAG-Token alone."""
    tokens = prediction.tokens
    if tokens is None or prediction.provenance.get("kind") != "rag_token":
        return None
    return two_passages([passage.prior for passage in prediction.passages], tokens.logprobs)


def _retrieved(pairs: Sequence[Pair], ks: Sequence[int]) -> dict[str, Column]:
    """The ranking, by passage and by title."""
    for prediction, _ in pairs:
        check_ranking([passage.doc_score for passage in prediction.passages])
    titles = {p.id: [title_key(passage.title) for passage in p.passages] for p, _ in pairs}
    sets = {e.id: [[title_key(title) for title in s] for s in e.gold_titles] for _, e in pairs}
    passages = {p.id: Ranking([passage.key for passage in p.passages], e.gold) for p, e in pairs}
    articles = {key: Ranking(titles[key], [title for s in sets[key] for title in s]) for key in titles}
    found: dict[str, Column] = {}
    for prefix, rankings in (("", passages), ("title_", articles)):
        scores = rank_scores(rankings, ks)
        for name in [f"{kind}.{k}" for kind in ("success_at", "recall_at", "precision_at", "ndcg_at") for k in ks]:
            found[prefix + name] = Column([scores[key][name] for key in rankings])
        found[f"{prefix}mrr"] = Column([scores[key]["mrr"] for key in rankings])
    found["r_precision"] = Column([r_precision(ranked=titles[key], gold_sets=sets[key]) for key in titles])
    return found


def _evidence(pairs: Sequence[Pair], task: str, ks: Sequence[int], *, correct: Column) -> dict[str, Column]:
    """Whether the answer stands in what was retrieved and read, and whether a cited passage holds it."""
    cited = [float(any(c.support == "full" for c in p.citations)) if p.passages else None for p, _ in pairs]
    found = {"cited_full": Column(cited)}
    if task not in SHORT_ANSWERS:
        return found
    patterns = task == "regex_qa"
    held = [[_holds(passage.text, e, patterns) for passage in p.passages[: max(ks)]] for p, e in pairs]
    for k in ks:
        found[f"answer_success_at.{k}"] = Column([_any(row[:k]) if len(row) >= k else None for row in held])
    read = [[_holds(f"{z.title}\n{z.text[slice(*z.visible)]}", e, patterns) for z in p.passages] for p, e in pairs]
    unread = [bool(row) and _any(row) == 0.0 for row in read]
    rows = [score if alone else None for score, alone in zip(correct.rows, unread, strict=True)]
    return found | {"correct_without_evidence": Column(rows)}


def _holds(text: str, example: Example, patterns: bool) -> bool | None:
    return found_in(text=text, patterns=example.answers) if patterns else has_answer(text, example.answers)


def _any(held: Sequence[bool | None]) -> float | None:
    """Whether one holds; None where none is known to and one is unknown."""
    if any(held):
        return 1.0
    return None if None in held else 0.0
