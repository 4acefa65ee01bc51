"""One step of bi-encoder training: a batch in, updated towers and a row of metrics.jsonl out.

    loss  =  mean over the batch's questions of  -log p(their passage)        over the passages of all processes

Each process embeds its share, receives the others' vectors and computes the loss of the whole batch, in which only its
own vectors carry a gradient. So the sum of the processes' gradients is that of one process with the whole batch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.optim import Optimizer

from ragx.data.retriever_examples import Context, RetrieverExample
from ragx.errors import TrainingError
from ragx.retriever.tower import Tower
from ragx.training.bi_encoder import in_batch_nll
from ragx.training.bi_encoder_batches import ContrastiveBatch, Golds, draw
from ragx.training.bi_encoder_evaluation import gathered
from ragx.training.bi_encoder_model import BiEncoder
from ragx.training.bi_encoder_settings import BiEncoderSettings
from ragx.training.optim import Schedule
from ragx.training.step import seed_step


class ContrastiveStepper:
    """Runs optimizer steps on a prepared bi-encoder.

    Args:
        accelerator: of the run.
        source: the bi-encoder, whose tokenizers make ids.
        model: the same as `accelerator.prepare` returned it.
        optimizer, schedule, settings: of the run.
        golds: of all training questions.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        *,
        source: BiEncoder,
        model: nn.Module,
        optimizer: Optimizer,
        schedule: Schedule,
        settings: BiEncoderSettings,
        golds: Golds,
    ) -> None:
        self.accelerator, self.source, self.model, self.optimizer = accelerator, source, model, optimizer
        self.schedule, self.settings, self.golds = schedule, settings, golds

    def run(self, step: int, examples: Sequence[RetrieverExample]) -> dict[str, Any]:
        """Does 1-based `step` on the examples of all processes; returns its row of metrics.jsonl.

        Raises:
            TrainingError: a loss or gradient that is not finite; the weights are as they were.
        """
        started = time.perf_counter()
        s, accelerator = self.settings, self.accelerator
        counts = {"hard_negatives": s.hard_negatives, "negatives": s.negatives}
        batch = draw(examples, seed=s.seed, step=step, counts=counts, random_positive=s.random_positive)
        false_negatives = batch.false_negatives(self.golds).to(accelerator.device)
        rates = self.schedule.apply(step - 1)
        seed_step(s.seed, step, accelerator.process_index)
        self.model.train()
        query_embeds, passage_embeds = self._embed(batch)
        loss = in_batch_nll(query_embeds, passage_embeds, false_negatives=false_negatives)
        accelerator.backward(loss * accelerator.num_processes)  # the processes' gradients are averaged
        norm, value = self._clip(), float(loss.detach())
        if not (math.isfinite(norm) and math.isfinite(value)):
            raise TrainingError(
                f"loss and gradients must be finite, got loss {value:.4g} and gradient norm {norm:.4g} at step "
                f"{step}. Lower learning_rate, lengthen the warm-up, or use fp32."
            )
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        seconds = time.perf_counter() - started
        return {
            "step": step,
            "loss": value,
            "correct": _correct(query_embeds, passage_embeds, false_negatives),
            **{f"lr/{group}": rate for group, rate in rates.items()},
            "grad_norm": norm,
            "examples": len(examples),
            "passages": len(passage_embeds),
            "false_negatives": int(false_negatives.sum()),
            "examples_per_second": len(examples) / seconds,
            "seconds": seconds,
        }

    def _clip(self) -> float:
        parameters = [p for group in self.source.groups().values() for p in group.values() if p.grad is not None]
        return float(nn.utils.clip_grad_norm_(parameters, self.settings.max_grad_norm or math.inf))

    def _embed(self, batch: ContrastiveBatch) -> tuple[Tensor, Tensor]:
        """q(x) (B, D) and d(z) (P, D) of the whole batch, in its order; those of this process's share with gradient."""
        accelerator, query, passage = self.accelerator, self.source.query_encoder, self.source.passage_encoder
        shares = batch.shares(accelerator.num_processes)
        mine = shares[accelerator.process_index]
        ids = _tokenize(passage, mine.passages)
        queries, passages = self.model(query.pad(query.tokenize(mine.queries)), passage.pad(ids))
        count, counts = len(mine.queries), [len(share.queries) for share in shares]
        query_embeds = gathered(queries, counts, accelerator)
        positives = gathered(passages[:count], counts, accelerator)
        sizes = [len(share.passages) - len(share.queries) for share in shares]
        if not any(sizes):
            return query_embeds, positives
        return query_embeds, torch.cat([positives, gathered(passages[count:], sizes, accelerator)])


def _tokenize(tower: Tower, contexts: Sequence[Context]) -> list[list[int]]:
    return tower.tokenize([context.title for context in contexts], [context.text for context in contexts])


@torch.no_grad()
def _correct(query_embeds: Tensor, passage_embeds: Tensor, false_negatives: Tensor) -> float:
    """Share of questions whose own passage has the highest score."""
    scores = (query_embeds.float() @ passage_embeds.float().T).masked_fill(false_negatives, -math.inf)
    own = torch.arange(len(scores), device=scores.device)
    return float((scores.argmax(1) == own).float().mean())
