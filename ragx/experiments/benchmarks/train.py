"""Works `train` and `train_text`: whole training steps (section 2.4).

    query encoder, doc_scores, generator, loss, backward, AdamW

`train` reads token ids of a fixed length, so nothing is padded on either side. `train_text` reads real questions and
passages: the peer pads each input to `max_input_length` as its RagRetriever does, ours trims the batch and remembers
tokenized passages (every passage has been read once before a step is timed). In bf16 both run under autocast over
float32 weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from ragx.experiments.benchmarks.batches import Batch, fixed_batch
from ragx.experiments.benchmarks.cell import Cell
from ragx.experiments.benchmarks.options import Benchmark
from ragx.experiments.benchmarks.ours import Ours
from ragx.experiments.benchmarks.peer import Peer
from ragx.experiments.benchmarks.setups import lengths, products
from ragx.experiments.benchmarks.sizes import Setup
from ragx.experiments.benchmarks.texts import Texts
from ragx.experiments.benchmarks.worker import DTYPES, Side

Batches = Callable[[], Sequence[Batch]]


def cells(config: Benchmark) -> Iterator[Cell]:
    """Fixed lengths: one cell per kind, n_docs and batch size."""
    for setup, batch_size in products(config):
        read = partial(_fixed, setup, batch_size, config)
        yield _cell(config, setup, batch_size, read, utilisation=config.device.startswith("cuda"))


def text_cells(config: Benchmark, texts: Texts) -> Iterator[Cell]:
    """Real texts: one cell per kind, n_docs and batch size."""
    for setup, batch_size in products(config, tokenizers=texts.tokenizers):
        batches = texts.batches(n_docs=setup.n_docs, batch_size=batch_size)
        # The operations that the peer spends on padding are no measure of what a step needs.
        yield _cell(config, setup, batch_size, partial(list, batches), utilisation=False)


def _fixed(setup: Setup, batch_size: int, config: Benchmark) -> list[Batch]:
    return [fixed_batch(setup, batch_size=batch_size, lengths=lengths(config))]


def _cell(config: Benchmark, setup: Setup, batch_size: int, read: Batches, *, utilisation: bool) -> Cell:
    settings = {"kind": setup.kind, "n_docs": setup.n_docs, "batch_size": batch_size}
    ours = partial(TrainSide, Ours, setup, read, config.dtype)
    peer = partial(TrainSide, Peer, setup, read, config.dtype)
    return Cell(settings, ours, peer, utilisation=utilisation)


class TrainSide(Side):
    """A model with its optimizer, over one or several batches."""

    def __init__(self, make: Callable[[Setup], Any], setup: Setup, read: Batches, dtype: str) -> None:
        self.stack, self.batches = make(setup), read()
        self.n_batches = len(self.batches)
        self.optimizer: torch.optim.Optimizer = self.stack.optimizer()
        self.device, self.dtype, self._timed = torch.device(setup.device), torch.float32, DTYPES[dtype]
        for part in self.stack.parts.values():
            part.train()

    def step(self, number: int) -> None:
        """One training step on a batch."""
        self.optimizer.zero_grad(set_to_none=True)  # here, so that gradients count as held between steps
        self._backward(number)
        self.optimizer.step()

    def check(self) -> dict[str, Tensor]:
        """-log p(y|x) of every batch, and all gradients of the first."""
        with torch.no_grad():
            found = {f"nll of batch {n}": self.stack.nll(batch) for n, batch in enumerate(self.batches)}
        # The retriever's gradient is prior minus posterior: where they are close, float32 rounds most of it away, on
        # either side in its own way. Gradients are compared in float64.
        for part in self.stack.parts.values():
            part.double()
        self._backward(0)
        for part, module in self.stack.parts.items():
            for name, parameter in module.named_parameters():
                if parameter.grad is not None:
                    found[f"gradient of {part}/{name}"] = parameter.grad.float()
        self.optimizer.zero_grad(set_to_none=True)
        for part in self.stack.parts.values():
            part.float()
        return found

    def cast(self) -> None:
        """Autocast from now on, where that is asked for."""
        self.dtype = self._timed

    def flops(self) -> int:
        """Operations of forward and backward; the optimizer's are few."""
        counter = FlopCounterMode(display=False)
        with counter:
            self._backward(0)
        self.optimizer.zero_grad(set_to_none=True)
        return int(counter.get_total_flops())

    def _backward(self, number: int) -> Tensor:
        batch = self.batches[number % self.n_batches]
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32):
            nll: Tensor = self.stack.nll(batch)
        nll.mean().backward()
        return nll.detach()
