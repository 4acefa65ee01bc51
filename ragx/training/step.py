"""One optimizer step (section 2.4): micro-batches in, one row of metrics out.

    gradient  =  d/dw  ( sum over the batch of -log p(y|x) ) / N        N: examples, or target tokens, of the batch

Each micro-batch of each process adds its sum over the same N, so the gradient does not depend on how the batch was cut.
The host waits for the device once, for the numbers of the row, before the weights change: what is not finite never
reaches them.
"""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import Tensor, nn

from ragx.data.collate import split
from ragx.errors import TrainingError
from ragx.records import Example
from ragx.training.optim import Schedule, gradient_norms, without_gradient
from ragx.training.settings import TrainingSettings
from ragx.training.watch import CollapseWatch, prior_entropy

logger = logging.getLogger(__name__)
MOST_SKIPPED = 30  # overflows in a row; fp16 loss scaling starts at 2**16 and halves with each


def seed_step(seed: int, step: int, process: int) -> None:
    """Seeds Python, NumPy and torch for one step, so that no random state has to be stored to resume."""
    digest = hashlib.sha256(f"{seed} {step} {process}".encode()).digest()
    set_seed(int.from_bytes(digest[:4], "big"))


class Stepper:
    """Runs optimizer steps on a prepared model.

    Args:
        accelerator: of the run.
        model, optimizer: as `accelerator.prepare` returned them.
        schedule: sets the learning rates.
        groups: trainable parameters by group and name.
        settings: of the run.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        *,
        model: nn.Module,
        optimizer: Any,
        schedule: Schedule,
        groups: dict[str, dict[str, nn.Parameter]],
        settings: TrainingSettings,
    ) -> None:
        self.accelerator, self.model, self.optimizer = accelerator, model, optimizer
        self.schedule, self.groups, self.settings = schedule, groups, settings
        self.skipped_steps = 0
        self._skipped_in_a_row = 0
        self._checked = False
        self._watch = CollapseWatch()

    def run(self, step: int, batch: Sequence[Example]) -> dict[str, Any]:
        """Does 1-based `step` on the whole batch of all processes; returns its row of metrics.jsonl.

        Raises:
            TrainingError: a loss or gradient that is not finite (in fp16: too many in a row), or a group of parameters
                that the loss does not reach.
        """
        started = time.perf_counter()
        rates = self.schedule.apply(step - 1)
        outputs = self._backward(step, batch)
        self._require_reached()
        totals = self.accelerator.reduce(_totals(outputs), reduction="sum")
        norms = self._scale_and_clip(totals, len(batch))
        nll, tokens, entropy, *norm_values = torch.cat([totals, norms.to(totals)]).tolist()
        count = len(batch) if self.settings.reduction == "mean_sequence" else tokens
        self._update(step, batch, outputs, finite=all(map(math.isfinite, [nll, *norm_values])))
        seconds = time.perf_counter() - started
        row = {"step": step, "loss": nll / count, "reduction": self.settings.reduction}
        row |= {f"lr/{group}": rate for group, rate in rates.items()}
        row |= {f"grad_norm/{group}": value for group, value in zip(self.groups, norm_values, strict=True)}
        row |= self._retrieval(batch, outputs, entropy / len(batch))
        return row | {
            "tokens": int(tokens),
            "examples": len(batch),
            "tokens_per_second": tokens / seconds,
            "examples_per_second": len(batch) / seconds,
            "seconds": seconds,
            "skipped_steps": self.skipped_steps,
        }

    @property
    def last_was_skipped(self) -> bool:
        """Whether the last step overflowed in fp16 and left the weights as they were."""
        return self._skipped_in_a_row > 0

    def _backward(self, step: int, batch: Sequence[Example]) -> list[Any]:
        world, parts = self.accelerator.num_processes, self.settings.gradient_accumulation
        process = self.accelerator.process_index
        seed_step(self.settings.seed, step, process)
        self.model.train()
        shares = split(range(len(batch)), world * parts)[process * parts : (process + 1) * parts]
        outputs = []
        for number, share in enumerate(shares):
            examples = [batch[index] for index in share]
            # Gradients of several processes are averaged, once, in the backward pass of the last micro-batch.
            context = nullcontext() if number == parts - 1 else self.accelerator.no_sync(self.model)
            with context:
                output = self.model([e.query for e in examples], [e.answers[0] for e in examples])
                self.accelerator.backward(output.nll.sum() * (world / len(batch)))
            outputs.append(_Kept(output, len(examples)))
        return outputs

    def _scale_and_clip(self, totals: Tensor, n_examples: int) -> Tensor:
        """Makes the gradient that of the chosen mean and clips it; returns the norms (groups,) from before clipping."""
        self.accelerator.unscale_gradients(self.optimizer)
        parameters = [p for group in self.groups.values() for p in group.values() if p.grad is not None]
        if self.settings.reduction == "mean_token":
            for parameter in parameters:
                parameter.grad.mul_(n_examples / totals[1])  # type: ignore[union-attr]
        norms = torch.stack([norm.to(totals.device) for norm in gradient_norms(self.groups).values()])
        if self.settings.max_grad_norm > 0:
            nn.utils.clip_grads_with_norm_(parameters, self.settings.max_grad_norm, norms.norm())
        return norms

    def _update(self, step: int, batch: Sequence[Example], outputs: Sequence[_Kept], *, finite: bool) -> None:
        if finite:
            self.optimizer.step()
            self._skipped_in_a_row = 0
        elif self.accelerator.scaler is None or self._skipped_in_a_row >= MOST_SKIPPED:
            raise TrainingError(self._blame(step, batch, outputs))
        else:
            self.accelerator.scaler.update()  # lowers the loss scale; the weights stay
            self.skipped_steps += 1
            self._skipped_in_a_row += 1
            logger.warning("step %d overflowed in fp16 and is skipped (%d so far)", step, self.skipped_steps)
        self.optimizer.zero_grad(set_to_none=True)

    def _blame(self, step: int, batch: Sequence[Example], outputs: Sequence[_Kept]) -> str:
        nll = torch.cat([output.nll for output in outputs])
        start = len(batch) * self.accelerator.process_index // self.accelerator.num_processes
        wrong = [batch[start + index].id for index in (~nll.isfinite()).nonzero().flatten().tolist()]
        where = f"of examples {', '.join(wrong[:5])}" if wrong else "in the backward pass"
        return (
            f"loss and gradients must be finite, got a value {where} at step {step} that is not. "
            "The weights were left as they were. Lower the learning rate, lengthen the warm-up, or use bf16 or fp32."
        )

    def _require_reached(self) -> None:
        """After the first backward pass: did the loss reach each group?"""
        if self._checked:
            return
        self._checked = True
        for group, names in without_gradient(self.groups).items():
            if len(names) == len(self.groups[group]):
                raise TrainingError(
                    f"{group} must receive a gradient, got none for any of its {len(names)} parameters. "
                    "The loss does not depend on it: freeze it if that is meant, else look for a detach."
                )
            if names:
                logger.warning("%d parameters of %s get no gradient, e.g. %s", len(names), group, ", ".join(names[:3]))
        for group, norm in gradient_norms(self.groups).items():
            if float(norm) == 0:
                logger.warning("the gradient of %s is exactly 0 (with n_docs=1 the prior is 1 whatever q(x) is)", group)

    def _retrieval(self, batch: Sequence[Example], outputs: Sequence[_Kept], entropy: float) -> dict[str, Any]:
        if outputs[0].top_rows is None:
            return {}
        top = torch.cat([output.top_rows for output in outputs if output.top_rows is not None])
        if self.accelerator.num_processes > 1:
            top = top.to(self.accelerator.device)
            top = self.accelerator.gather(self.accelerator.pad_across_processes(top, pad_index=-1))
        rows = [row for row in top.tolist() if row >= 0]
        queries = [example.query for example in batch]
        self._watch.add(queries, rows)
        return {"distinct_top1": len(set(rows)), "queries": len(set(queries)), "prior_entropy": entropy}


class _Kept:
    """What of a forward pass outlives its graph: nll (B,), summed prior entropy (), tokens, top-1 rows (B,) or None."""

    def __init__(self, output: Any, n_examples: int) -> None:
        self.nll: Tensor = output.nll.detach().float()
        self.n_tokens: int | Tensor = output.n_tokens
        self.entropy = self.nll.new_zeros(())
        self.top_rows: Tensor | None = None
        if output.doc_logprobs is not None:
            self.entropy = prior_entropy(output.doc_logprobs).sum()
        if output.retrieved is not None:
            self.top_rows = torch.as_tensor(output.retrieved.rows[:, 0])


def _totals(outputs: Sequence[_Kept]) -> Tensor:
    """Sums over this process's share, (3,): nll, target tokens, prior entropy."""
    nll = torch.stack([output.nll.sum() for output in outputs]).sum()
    entropy = torch.stack([output.entropy for output in outputs]).sum()
    tokens = nll.new_tensor(0.0) + sum(output.n_tokens for output in outputs)
    return torch.stack([nll, tokens, entropy])
