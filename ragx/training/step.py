"""One optimizer step (section 2.4): micro-batches in, one row of metrics out.

    gradient  =  d/dw  ( sum over the batch of -log p(y|x) ) / N        N: examples, or target tokens, of the batch

Each micro-batch of each process adds its sum over the same N, so the gradient does not depend on how the batch was cut.
Of itself the host waits for the device twice: for q(x), which the search needs, and for the numbers of the row, which
are looked at before the weights change: what is not finite never reaches them.
"""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from ragx.data.collate import split
from ragx.errors import TrainingError
from ragx.filters import question_filters
from ragx.generator.prepared import Prepared, moved
from ragx.model import RagModel
from ragx.records import Example
from ragx.training.collapse import CollapseWatch, IgnoredWatch, posterior_figures, prior_entropy
from ragx.training.optim import Schedule, gradient_norms, trainable, without_gradient
from ragx.training.settings import TrainingSettings
from ragx.training.sharding import local

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
        model, optimizer: as `accelerator.prepare` returned them, or a model sharded by `sharding`.
        source: the model that was wrapped or sharded, whose tokenizers and retriever prepare batches.
        schedule: sets the learning rates.
        settings: of the run.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        *,
        model: nn.Module,
        source: RagModel,
        optimizer: Any,
        schedule: Schedule,
        settings: TrainingSettings,
    ) -> None:
        self.accelerator, self.model, self.source, self.optimizer = accelerator, model, source, optimizer
        self.schedule, self.settings = schedule, settings
        self.groups = trainable(accelerator.unwrap_model(model))
        self.skipped_steps = 0
        self._skipped_in_a_row = 0
        self._checked = False
        self._watch, self._ignored = CollapseWatch(), IgnoredWatch(n_docs=source.n_docs)

    def prepare(self, batch: Sequence[Example]) -> list[Prepared]:
        """What the host can do for this process's micro-batches of a batch before their step, in any thread."""
        with self.accelerator.autocast(), torch.no_grad():
            return [
                self.source.prepare(
                    [e.query for e in share],
                    [e.answers[0] for e in share],
                    filters=question_filters(share, self.source.filtered_by),
                )
                for share in self._shares(batch)
            ]

    def run(self, step: int, batch: Sequence[Example], prepared: Sequence[Prepared] | None = None) -> dict[str, Any]:
        """Does 1-based `step` on the whole batch of all processes; returns its row of metrics.jsonl.

        Args:
            prepared: what `prepare` returned for the batch; None prepares now.

        Raises:
            TrainingError: a loss or gradient that is not finite (in fp16: too many in a row), a group of parameters
                that the loss does not reach, or a batch that does not fit the memory.
        """
        started = time.perf_counter()
        rates = self.schedule.apply(step - 1)
        outputs = self._backward(step, batch, self.prepare(batch) if prepared is None else prepared)
        self._require_reached()
        totals = self.accelerator.reduce(_totals(outputs), reduction="sum")
        norms = self._scale_and_clip(totals, len(batch))
        top_rows = self._top_rows(outputs, len(batch))
        # The one look at the device: double precision holds row numbers of any index.
        values = torch.cat([totals.double(), norms.to(totals).double(), top_rows.to(totals.device).double()]).tolist()
        loss, nll, tokens, *retrieval = values[: len(totals)]
        norm_values = values[len(totals) : len(totals) + len(norms)]
        rows = [int(row) for row in values[len(totals) + len(norms) :] if row >= 0]
        count = len(batch) if self.settings.reduction == "mean_sequence" else tokens
        self._update(step, batch, outputs, finite=all(map(math.isfinite, [loss, *norm_values])))
        seconds = time.perf_counter() - started
        row = {"step": step, "loss": loss / count, "reduction": self.settings.reduction}
        row |= {"nll": nll / count} if self.settings.label_smoothing > 0 else {}
        row |= {f"lr/{group}": rate for group, rate in rates.items()}
        row |= {f"grad_norm/{group}": value for group, value in zip(self.groups, norm_values, strict=True)}
        row |= self._retrieval(batch, rows, [total / len(batch) for total in retrieval])
        self._ignored.add(row)
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

    def _shares(self, batch: Sequence[Example]) -> list[list[Example]]:
        """This process's micro-batches."""
        parts, process = self.settings.gradient_accumulation, self.accelerator.process_index
        shares = split(range(len(batch)), self.accelerator.num_processes * parts)
        return [[batch[index] for index in share] for share in shares[process * parts : (process + 1) * parts]]

    def _backward(self, step: int, batch: Sequence[Example], prepared: Sequence[Prepared]) -> list[_Kept]:
        weight = self.accelerator.num_processes / len(batch)  # processes are averaged
        seed_step(self.settings.seed, step, self.accelerator.process_index)
        self.model.train()
        shares, outputs = self._shares(batch), []
        for number, (share, host_work) in enumerate(zip(shares, prepared, strict=True)):
            queries, answers = [e.query for e in share], [e.answers[0] for e in share]
            with self._synchronized(last=number == len(shares) - 1), self._naming_memory(len(share)):
                output = self.model(queries, answers, prepared=host_work, label_smoothing=self.settings.label_smoothing)
                self.accelerator.backward(output.smoothed_nll.sum() * weight)
            outputs.append(_Kept(self.source.kind, output))
        return outputs

    def _synchronized(self, *, last: bool) -> AbstractContextManager[Any]:
        """Gradients of several processes are averaged once, in the backward pass of the last micro-batch."""
        if isinstance(self.model, FSDPModule):
            self.model.set_requires_gradient_sync(last)
            return self.accelerator.autocast()
        return nullcontext() if last else self.accelerator.no_sync(self.model)

    @contextmanager
    def _naming_memory(self, n_examples: int) -> Iterator[None]:
        """Says what takes the memory where there is not enough of it."""
        try:
            yield
        except RuntimeError as error:
            if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
                raise
            at_once = self.source.passages_at_once or self.source.n_docs
            raise TrainingError(
                f"a micro-batch must fit the memory, got {n_examples} examples with {at_once} of n_docs="
                f"{self.source.n_docs} passages at once, inputs of up to {self.source.generator.inputs.max_length} "
                "tokens. Lower training.passages_at_once, raise training.gradient_accumulation, or set "
                f"training.gradient_checkpointing. {str(error).splitlines()[0]}"
            ) from error

    def _scale_and_clip(self, totals: Tensor, n_examples: int) -> Tensor:
        """Makes the gradient that of the chosen mean and clips it; returns the norms (groups,) from before clipping."""
        self.accelerator.unscale_gradients(self.optimizer)
        parameters = [p for group in self.groups.values() for p in group.values() if p.grad is not None]
        gradients = [local(p.grad) for p in parameters]  # type: ignore[arg-type]
        if self.settings.reduction == "mean_token":
            torch._foreach_mul_(gradients, n_examples / totals[2])
        norms = torch.stack([norm.to(totals.device) for norm in gradient_norms(self.groups).values()])
        if self.settings.max_grad_norm > 0:
            torch._foreach_mul_(gradients, (self.settings.max_grad_norm / (norms.norm() + 1e-6)).clamp(max=1.0))
        return norms

    def _top_rows(self, outputs: Sequence[_Kept], n_examples: int) -> Tensor:
        """Top-1 rows of all processes, -1 where there is none (the batch does not divide evenly, or no retrieval)."""
        found = [output.top_rows for output in outputs if output.top_rows is not None]
        mine = torch.cat(found) if found else torch.empty(0, dtype=torch.int64)
        if self.accelerator.num_processes == 1 or not found:
            return mine
        most = -(-n_examples // self.accelerator.num_processes)
        padded = nn.functional.pad(mine, (0, most - len(mine)), value=-1)
        gathered: Tensor = self.accelerator.gather(moved(padded, self.accelerator.device))
        return gathered

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
        nll = torch.cat([output.loss for output in outputs])
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

    def _retrieval(self, batch: Sequence[Example], rows: Sequence[int], means: Sequence[float]) -> dict[str, Any]:
        if not rows:
            return {}
        queries = [example.query for example in batch]
        self._watch.add(queries, rows)
        counts = {"distinct_top1": len(set(rows)), "queries": len(set(queries))}
        return counts | dict(zip(("prior_entropy", "posterior_entropy", "kl_posterior_prior"), means, strict=True))


class _Kept:
    """What of a forward pass outlives its graph: loss and nll (B,), tokens, top-1 rows (B,), figures of the prior.

    `retrieval` (3,) sums prior entropy, posterior entropy and KL over the queries, 0 without retrieval.
    """

    def __init__(self, kind: str, output: Any) -> None:
        self.loss: Tensor = output.smoothed_nll.detach().float()
        self.nll: Tensor = output.nll.detach().float()
        self.n_tokens: int = output.n_tokens
        self.retrieval = self.nll.new_zeros(3)
        self.top_rows: Tensor | None = None
        if output.doc_logprobs is not None:
            entropy, divergence = posterior_figures(kind, output.token_logprobs, output.doc_logprobs)
            figures = (prior_entropy(output.doc_logprobs), entropy, divergence)
            self.retrieval = torch.stack([figure.sum() for figure in figures])
        if output.retrieved is not None:
            self.top_rows = torch.as_tensor(output.retrieved.rows[:, 0])


def _totals(outputs: Sequence[_Kept]) -> Tensor:
    """Sums over this process's share, (6,): loss, nll, target tokens, prior and posterior entropy, KL."""
    loss, nll = (torch.cat(values).sum() for values in ([o.loss for o in outputs], [o.nll for o in outputs]))
    retrieval = torch.stack([output.retrieval for output in outputs]).sum(0)
    tokens = nll.new_full((), sum(output.n_tokens for output in outputs))  # filled on the device, not copied there
    return torch.cat([torch.stack([loss, nll, tokens]), retrieval])
