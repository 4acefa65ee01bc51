"""Is the evidence among what was retrieved (sections 4.1 and 4.4; DPR, table 2; KILT).

    success@k      any gold passage among the first k; DPR and the RAG paper say "top-k accuracy"
    recall@k       the share of the gold passages among the first k
    precision@k    the share of the first k that is gold
    MRR, nDCG@k    by the rank of the first, and of all gold passages
    R-precision    the share of the R titles of a gold set among the first R titles, the best set (KILT)

All but the last come from ir-measures, with TREC's names: what DPR papers often call recall@k is success@k here. They
hold of passages, known by (source, version, chunk), and of titles (the paper's 71% and 90% of FEVER's articles). An
item listed twice counts once, where it stands first, and its later places count as misses. One decision: fewer than k
passages is not a miss but unknown (None), so success@10 is never read off five passages.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import ir_measures

from ragx import kilt
from ragx.errors import RagxError

_QUOTED = re.compile(r'\s*["“](.*)["”]\s*', re.DOTALL)
_AT_K = {"success_at": "Success", "recall_at": "R", "precision_at": "P", "ndcg_at": "nDCG"}


@dataclass(frozen=True, slots=True)
class Ranking:
    """What was retrieved for one question, best first, and what should have been.

    Attributes:
        ranked: passages by their identity, or titles.
        gold: the same of those that hold the answer, in any order; empty where unknown.
    """

    ranked: Sequence[Hashable]
    gold: Sequence[Hashable]


def rank_scores(rankings: Mapping[str, Ranking], ks: Sequence[int]) -> dict[str, dict[str, float | None]]:
    """By question, the scores `success_at.1`, `recall_at.1`, `precision_at.1`, `ndcg_at.1` for each k, and `mrr`.

    None where no gold is known, nothing or fewer than k were retrieved.

    Raises:
        RagxError: a k below 1.
    """
    if min(ks, default=1) < 1:
        raise RagxError(f"k must be >= 1, got {min(ks)}. It counts passages from the best")
    known = {key: ranking for key, ranking in rankings.items() if ranking.gold and ranking.ranked}
    measures = {ir_measures.RR: "mrr"}
    for name, measure in _AT_K.items():
        measures.update({getattr(ir_measures, measure) @ k: f"{name}.{k}" for k in ks})
    found: dict[str, dict[str, float | None]] = {key: dict.fromkeys(measures.values()) for key in rankings}
    if known:
        qrels = [ir_measures.Qrel(key, name, 1) for key, r in known.items() for name in _names(r.gold, r.gold)]
        run = [
            ir_measures.ScoredDoc(key, name, float(-rank))
            for key, r in known.items()
            for rank, name in enumerate(_names(r.ranked, r.gold))
        ]
        for metric in ir_measures.iter_calc(list(measures), qrels, run):
            k = metric.measure.params.get("cutoff", 0)
            if k <= len(known[metric.query_id].ranked):
                found[metric.query_id][measures[metric.measure]] = float(metric.value)
    return found


def _names(items: Sequence[Hashable], gold: Sequence[Hashable]) -> Iterator[str]:
    """A name for each place: the same for the same gold item, another for whatever is not gold or was listed before."""
    rows = {item: f"gold {row}" for row, item in enumerate(dict.fromkeys(gold))}
    for place, item in enumerate(items):
        yield rows.pop(item, f"other {place}")


def r_precision(*, ranked: Sequence[str], gold_sets: Sequence[Sequence[str]]) -> float | None:
    """KILT's R-precision over titles, the best over the sets of titles that support an answer; None without any."""
    return kilt.r_precision(ranked, [frozenset(gold) for gold in gold_sets if gold]) if ranked else None


def title_key(title: str) -> str:
    """What titles are compared by: NFC, blanks for underscores, single blanks, without quotation marks around them."""
    plain = " ".join(unicodedata.normalize("NFC", title).replace("_", " ").split())
    quoted = _QUOTED.fullmatch(plain)
    return quoted[1].strip() if quoted else plain


def check_ranking(scores: Sequence[float]) -> None:
    """Refuses scores that are not best first: a list read in the wrong direction scores low without an error.

    Raises:
        RagxError: a score is larger than the one before it.
    """
    for rank in range(1, len(scores)):
        if not scores[rank] <= scores[rank - 1]:
            raise RagxError(
                f"doc_scores must not rise with the rank, got {scores[rank - 1]} then {scores[rank]} at "
                f"rank {rank + 1}. Write the passages best first"
            )
