"""Answers from a closed set, such as FEVER's labels (section 2.5; section 3.4 of the paper): nothing is searched.

    p(y|x) of every answer of the set, and the best of them

Every answer is read under every passage, teacher forced, the whole batch in one forward pass. Answers of one token
share the one state of the decoder they need, so a passage costs one decoder step whatever the number of labels. An
answer without EOS is a prefix: its probability is that of beginning so.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ragx.decoding.batch import Answers, Batch, Decode, decoder
from ragx.decoding.beams import END
from ragx.decoding.candidates import check_numbers
from ragx.decoding.hypotheses import Pool, ranked, ranked_by_marginal
from ragx.errors import ConfigError
from ragx.losses import rag_token
from ragx.losses.posterior import rag_token_posterior

LIKELIHOODS = ("rag_sequence", "rag_token")


def among(answers: Sequence[Sequence[int]], *, likelihood: str) -> Decode:
    """A decoder that ranks these answers by the likelihood named; `num_return_sequences` of them come back.

    Rules on lengths and tokens, `allowed` and `num_beams` have no say: the set is the rule.

    Args:
        answers: token ids of each, EOS included where the answer ends.
        likelihood: one of `LIKELIHOODS`; for answers of one token both are the same.

    Raises:
        ConfigError: no answer, an empty or a doubled one, or an unknown likelihood.
    """
    labels = [tuple(int(token) for token in answer) for answer in answers]
    problems = []
    if likelihood not in LIKELIHOODS:
        problems.append(f"likelihood must be one of {', '.join(LIKELIHOODS)}, got {likelihood!r}.")
    if not labels or not all(labels) or len(set(labels)) < len(labels):
        problems.append(f"answers must be one or more, none of them empty or doubled, got {labels}.")
    if problems:
        raise ConfigError(problems)

    @decoder
    def decode(batch: Batch) -> Answers:
        """Every answer of the set under every passage; `produced_by` names every passage not masked."""
        batch.refuse_sampling("a closed set")
        return _decode(batch, labels, likelihood)

    return decode


def _decode(batch: Batch, labels: list[tuple[int, ...]], likelihood: str) -> Answers:
    (n_questions, n_docs), device = batch.doc_logprobs.shape, batch.doc_logprobs.device
    table = torch.full((len(labels), max(map(len, labels))), END, device=device)
    for row, label in zip(table, labels, strict=True):
        row[: len(label)] = torch.tensor(label)
    read = batch.doc_logprobs > -torch.inf
    logprobs = _score(batch, table, read.flatten().nonzero().squeeze(1)).view(n_questions, n_docs, *table.shape)
    logprobs = logprobs.transpose(1, 2).flatten(0, 1)  # (B * answers, K, T)
    questions = torch.arange(n_questions, device=device).repeat_interleave(len(labels))
    by_passage = logprobs.sum(2).masked_fill(~read[questions], -torch.inf)
    pool = Pool(questions, table.repeat(n_questions, 1), by_passage, read[questions])
    if likelihood == "rag_sequence":
        return ranked_by_marginal(batch, pool)
    prior, real = batch.doc_logprobs[questions], (pool.token_ids != END).unsqueeze(1)
    posterior = (rag_token_posterior(logprobs, prior) * real).sum(2) / real.sum(2)
    return ranked(batch, pool, rag_token.marginalize(logprobs, prior), posterior)


def _score(batch: Batch, table: Tensor, rows: Tensor) -> Tensor:
    """log p of every answer under every row of the batch, (B*K, answers, T); 0 for rows that are not in `rows`."""
    n_answers, longest = table.shape
    logprobs = torch.zeros(batch.doc_logprobs.numel(), n_answers, longest, device=table.device)
    at_once = batch.settings.units_at_once(sequences_per_unit=n_answers)
    for part in rows.split(at_once):
        scored = batch.reader.token_logprobs(
            batch.encoded, table.repeat(len(part), 1), part.repeat_interleave(n_answers)
        )
        logprobs[part] = scored.view(len(part), n_answers, longest)
    check_numbers(logprobs)
    return logprobs
