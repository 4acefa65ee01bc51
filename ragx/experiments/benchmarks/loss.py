"""Work `loss`: LM head and loss, forward and backward, without the transformer before it (sections 2.1 and 2.3).

    ours   linear_token_logprobs, then marginalize: the logits are never held
    peer   LM head, its bias, then get_nll over (B, K, T, V) logits

Both get the same decoder states (B, K, T, D) of the T positions of the peer's labels. The last position has no target:
ours is told so by -100, the peer by a pad token.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from ragx.experiments.benchmarks.cell import Cell
from ragx.experiments.benchmarks.options import Benchmark
from ragx.experiments.benchmarks.ours import MARGINALIZE
from ragx.experiments.benchmarks.peer import Peer
from ragx.experiments.benchmarks.setups import products
from ragx.experiments.benchmarks.sizes import EOS, Setup
from ragx.experiments.benchmarks.worker import DTYPES, Side
from ragx.generator.inputs import IGNORED
from ragx.losses import prior
from ragx.losses.token_logprobs import linear_token_logprobs


@dataclass(frozen=True)
class _Task:
    setup: Setup
    batch_size: int
    target_length: int
    dtype: str


def cells(config: Benchmark) -> Iterator[Cell]:
    """One cell per kind, n_docs and batch size."""
    for setup, batch_size in products(config):
        task = _Task(setup, batch_size, config.target_length, config.dtype)
        settings = {"kind": setup.kind, "n_docs": setup.n_docs, "batch_size": batch_size}
        yield Cell(settings, partial(_Ours, task), partial(_Peer, task))


class _LossSide(Side):
    """States, scores, labels and the LM head, all but the labels with a gradient."""

    def __init__(self, task: _Task) -> None:
        setup = task.setup
        self.task, self.dtype = task, torch.float32
        numbers = torch.Generator().manual_seed(setup.seed + 3)
        shape = (task.batch_size, setup.n_docs, task.target_length, setup.size.d_model)
        self.states = torch.randn(shape, generator=numbers).to(setup.device).requires_grad_()
        self.doc_scores = torch.randn(shape[:2], generator=numbers).to(setup.device).requires_grad_()
        labels = torch.randint(10, setup.size.vocab_size, (shape[0], shape[2]), generator=numbers)
        labels[:, 0], labels[:, -1] = EOS, EOS
        self.labels = labels.to(setup.device)
        weight = torch.randn(setup.size.vocab_size, setup.size.d_model, generator=numbers) * 0.05
        self.weight = nn.Parameter(weight.to(setup.device))

    def nll(self) -> Tensor:
        """-log p(y|x), (B,)."""
        raise NotImplementedError

    def step(self, number: int) -> None:
        for tensor in (self.states, self.doc_scores, self.weight):
            tensor.grad = None
        with torch.autocast(self.states.device.type, DTYPES["bf16"], enabled=self.dtype != torch.float32):
            loss = self.nll().sum()
        loss.backward()

    def check(self) -> dict[str, Tensor]:
        nll = self.nll()
        nll.sum().backward()
        found = {"nll": nll}
        for name in ("states", "doc_scores", "weight"):
            tensor = getattr(self, name)
            assert tensor.grad is not None
            found[f"gradient/{name}/"], tensor.grad = tensor.grad, None
        return found

    def cast(self) -> None:
        self.dtype = DTYPES[self.task.dtype]


class _Ours(_LossSide):
    def __init__(self, task: _Task) -> None:
        super().__init__(task)
        self.bias = torch.zeros(task.setup.size.vocab_size, device=task.setup.device)
        targets = torch.cat([self.labels[:, 1:], torch.full_like(self.labels[:, :1], IGNORED)], 1)
        self.targets = targets.unsqueeze(1).expand(self.states.shape[:3]).reshape(-1)

    def nll(self) -> Tensor:
        tokens = linear_token_logprobs(self.states.flatten(0, 2), self.weight, self.bias, self.targets)
        doc_logprobs = prior.doc_logprobs(self.doc_scores)
        return -MARGINALIZE[self.task.setup.kind](tokens.view(self.states.shape[:3]), doc_logprobs)


class _Peer(_LossSide):
    def __init__(self, task: _Task) -> None:
        super().__init__(task)
        # Only its LM head and its loss are used: one layer is enough of a model.
        size = replace(task.setup.size, layers=1, query_layers=1)
        self.peer = Peer(replace(task.setup, size=size)).model
        self.peer.rag.generator.lm_head.weight = self.weight

    def nll(self) -> Tensor:
        generator, n_docs = self.peer.rag.generator, self.task.setup.n_docs
        logits = generator.lm_head(self.states.flatten(0, 1)) + generator.final_logits_bias
        return self.peer.get_nll(logits, self.doc_scores, self.labels, n_docs=n_docs)
