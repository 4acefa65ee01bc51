"""How good p(z|x) is by itself (DPR, table 2): success@k of a retriever on questions with gold passages, no generator.

    {"success_at": {"1": {value, n, n_null, ci95}, ...}, "recall_at": ..., "mrr": ..., "n_docs": ..., "index": ...}

Where the index is approximate, `index_recall_at` says how much of what an exact one finds for these very questions it
finds. Where a cross-encoder reranks, the same figures stand for the ranking `before` it, and `lift` is the paired
difference after - before with its interval and p-value.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from functools import partial
from typing import Any

import torch
from tqdm import tqdm

from ragx.errors import ConfigError, RagxError
from ragx.evaluation.retrieval import Ranking, rank_scores
from ragx.evaluation.significance import aggregate, paired_bootstrap
from ragx.filters import PassageFilter, question_filters
from ragx.protocols import Retriever
from ragx.records import Example
from ragx.retriever.by_question import by_filter, retrieve_by_question
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.given import GivenRetriever
from ragx.retriever.kinds import EXACT
from ragx.retriever.query_encoder import QueryEncoder
from ragx.retriever.recall import QUERIES, K
from ragx.retriever.reranker import RerankedRetriever

Scores = dict[str, dict[str, float | None]]


def evaluate_retrieval(
    retriever: Retriever,
    examples: Sequence[Example],
    *,
    query_encoder: QueryEncoder | None = None,
    ks: Sequence[int] = (1, 5, 20),
    batch_size: int = 64,
    filtered_by: Sequence[str] = (),
    index_recall: int = QUERIES,
    seed: int = 0,
) -> dict[str, Any]:
    """The metrics of `retriever`, each with its 95% bootstrap interval over questions.

    Args:
        examples: with gold keys; those without count as not scored.
        query_encoder: q(x), where the retriever searches by vectors.
        ks: of success@k and recall@k; the largest is how many passages are retrieved.
        filtered_by: what each question's own row restricts, see `ragx.filters`.
        index_recall: of how many questions, the first ones, the exact ten are searched too; over a large index that
            takes seconds each.
        seed: of the bootstrap.

    Raises:
        ConfigError: the index holds fewer passages than the largest of `ks`.
        RagxError: no example, no gold passage known for any, or all of them of other versions than what is found.
    """
    if not any(example.gold for example in examples):
        raise RagxError(f"examples must name gold passages, got none in {len(examples)}. Add `gold` to the questions")
    _require_enough(retriever, max(ks))
    filters = question_filters(examples, filtered_by)
    search = partial(
        _scores,
        examples=examples,
        query_encoder=query_encoder,
        ks=ks,
        batch_size=batch_size,
        index_recall=index_recall,
    )
    after = search(retriever, filters=filters)
    found = {**_table(after, seed=seed), "n_docs": max(ks), "index": retriever.fingerprint}
    if isinstance(retriever, RerankedRetriever):
        before = search(retriever.retriever, filters=filters)
        found["before"] = _table(before, seed=seed)
        found["lift"] = _lift(after, before, seed=seed)
    return found


def _scores(
    retriever: Retriever,
    *,
    examples: Sequence[Example],
    filters: Sequence[PassageFilter | None],
    query_encoder: QueryEncoder | None,
    ks: Sequence[int],
    batch_size: int,
    index_recall: int,
) -> Scores:
    """By question id, the score of each metric."""
    rankings: dict[str, Ranking] = {}
    versions: set[str] = set()
    index_recalls: dict[str, float] = {}
    for start in tqdm(range(0, len(examples), batch_size), desc="retrieving", disable=None):
        batch = examples[start : start + batch_size]
        queries = [example.query for example in batch]
        embeds = None
        if query_encoder is not None:
            with torch.inference_mode():
                embeds = query_encoder.embed(queries)
            some = batch[: max(0, index_recall - start)]
            if some and isinstance(retriever, DenseRetriever) and retriever.manifest.kind not in EXACT:
                shares = retriever.index_recall(embeds[: len(some)].float().cpu().numpy())
                index_recalls |= zip((example.id for example in some), shares.tolist(), strict=True)
        for only, places in by_filter(filters[start : start + batch_size]).items():
            asked = {} if embeds is None else {"query_embeds": embeds[torch.tensor(places)]}
            found = retrieve_by_question(retriever, [queries[p] for p in places], max(ks), filters=only, **asked)
            for place, row in zip(places, found.passages, strict=True):
                rankings[batch[place].id] = Ranking([passage.key for passage in row], batch[place].gold)
                versions |= {passage.key.version for passage in row}
    _require_one_version(examples, versions)
    scores = rank_scores(rankings, ks)
    if index_recalls:
        for key, found_at in scores.items():
            found_at[f"index_recall_at.{K}"] = index_recalls.get(key)
    return scores


def _require_enough(retriever: Retriever, k: int) -> None:
    """Says in the words of the caller what the search would say of `n_docs`."""
    inside = getattr(retriever, "retriever", retriever)
    # Each question has its own number of given passages, and their retriever names the question.
    if isinstance(inside, GivenRetriever) or not isinstance(inside, Sized) or k <= len(inside):
        return
    advice = f"Give success_at=[1,{len(inside)}], or an index of more"
    raise ConfigError([f"success_at must be at most the {len(inside)} passages of the index, got {k}. {advice}."])


def _require_one_version(examples: Sequence[Example], found: set[str]) -> None:
    """Refuses gold passages of versions that were never found: every figure would be 0 and mean nothing."""
    asked = {key.version for example in examples for key in example.gold}
    if not asked & found:
        raise RagxError(
            f"gold passages must be of a version that the index holds, got {', '.join(sorted(asked))} beside "
            f"{', '.join(sorted(found))}. Give data.passages=FILE that the index was built from"
        )


def _table(scores: Scores, *, seed: int) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name in next(iter(scores.values())):
        measure, _, k = name.partition(".")
        metric = aggregate((row[name] for row in scores.values()), seed=seed).to_json()
        if k:
            table.setdefault(measure, {})[k] = metric
        else:
            table[measure] = metric
    return table


def _lift(after: Scores, before: Scores, *, seed: int) -> dict[str, Any]:
    lift: dict[str, Any] = {}
    for name in next(iter(after.values())):
        pairs = {key: (row[name], before[key][name]) for key, row in after.items()}
        both = {key: (a, b) for key, (a, b) in pairs.items() if a is not None and b is not None}
        first, second = ({key: pair[place] for key, pair in both.items()} for place in (0, 1))
        lift[name] = paired_bootstrap(first, second, seed=seed).to_json()
    return lift
