"""DPR's validation (Karpukhin et al. 2020, appendix): the rank of the gold passage in a pool of all dev passages.

    average_rank  =  mean of the rank (1 is best)        success@k  =  share of questions with rank <= k

The pool holds each passage once: golds of all dev questions, and `eval_negatives` of each kind that they bring along.
Cheap beside encoding a corpus, and closer to retrieval than the loss of a batch (DPR chooses its checkpoint by it).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from ragx.data.retriever_examples import Context, RetrieverExample
from ragx.retriever.tower import Tower
from ragx.training.bi_encoder import gold_ranks
from ragx.training.bi_encoder_batches import names
from ragx.training.bi_encoder_model import BiEncoder

SUCCESS_AT = (1, 5, 20, 100)


class Pool:
    """The passages of dev questions, each once, and which of them answer which question."""

    def __init__(self, examples: Sequence[RetrieverExample], *, negatives: int) -> None:
        self.queries = [example.query for example in examples]
        self.contexts: list[Context] = []
        self._place: dict[tuple[str, ...], int] = {}
        golds: list[list[int]] = []
        for example in examples:
            golds.append([self._add(context) for context in example.positives])
            for context in (*example.hard_negatives[:negatives], *example.negatives[:negatives]):
                self._add(context)
        self.gold = torch.zeros(len(examples), len(self.contexts), dtype=torch.bool)
        for row, places in enumerate(golds):
            self.gold[row, places] = True

    def _add(self, context: Context) -> int:
        known = names(context)
        place = next((self._place[name] for name in known if name in self._place), len(self.contexts))
        if place == len(self.contexts):
            self.contexts.append(context)
        self._place |= dict.fromkeys(known, place)
        return place


def evaluate(model: BiEncoder, pool: Pool, *, batch_size: int, accelerator: Accelerator) -> dict[str, float]:
    """`average_rank`, `mrr`, `success@k` and the size of the `pool`, on all processes, which share the work."""
    model.eval()
    query, passage = model.query_encoder, model.passage_encoder
    with torch.no_grad(), accelerator.autocast():
        query_ids = query.tokenize(pool.queries)
        passage_ids = passage.tokenize([c.title for c in pool.contexts], [c.text for c in pool.contexts])
        query_embeds = _embed(query, query_ids, batch_size=batch_size, accelerator=accelerator)
        pool_embeds = _embed(passage, passage_ids, batch_size=batch_size, accelerator=accelerator)
    ranks = gold_ranks(query_embeds, pool_embeds, pool.gold)
    figures = {"average_rank": float(ranks.mean()), "mrr": float((1 / ranks).mean()), "pool": float(len(pool.contexts))}
    return figures | {f"success@{k}": float((ranks <= k).double().mean()) for k in SUCCESS_AT}


def gathered(own: Tensor, sizes: Sequence[int], accelerator: Accelerator) -> Tensor:
    """Rows of all processes in the order of the processes; this one's keep their gradient.

    Args:
        own: (rows, D) of this process.
        sizes: how many rows each process has.
    """
    if accelerator.num_processes == 1:
        return own
    most = max(sizes)
    padded = nn.functional.pad(own.detach(), (0, 0, 0, most - len(own)))
    rows = accelerator.gather(padded.contiguous())
    parts = [part[:size] for part, size in zip(rows.split(most), sizes, strict=True)]
    parts[accelerator.process_index] = own
    return torch.cat(parts)


def _embed(tower: Tower, token_ids: Sequence[list[int]], *, batch_size: int, accelerator: Accelerator) -> Tensor:
    """Vectors (N, D) on the CPU: each process embeds every so-many-th text, those of like length together."""
    processes = accelerator.num_processes
    order = sorted(range(len(token_ids)), key=lambda row: -len(token_ids[row]))
    shares = [order[process::processes] for process in range(processes)]
    mine = shares[accelerator.process_index]
    vectors = [torch.empty(0, tower.embedding_size, device=tower.device)]
    for start in range(0, len(mine), batch_size):
        vectors.append(tower(*tower.pad([token_ids[row] for row in mine[start : start + batch_size]])).float())
    rows = gathered(torch.cat(vectors), [len(share) for share in shares], accelerator)
    embeds = torch.empty_like(rows, device="cpu")
    embeds[[row for share in shares for row in share]] = rows.cpu()
    return embeds
