"""Appendix F: an empty passage beside the K that were found, for questions that no passage helps.

    p(z|x)  =  softmax over K + 1 of  [ q(x)·d(z_1), ..., q(x)·d(z_K), n(x) ]

    bias        n(x) = b                              embedding   n(x) = q(x)·e
    network     n(x) = v·tanh(W q(x) + c) + b

The generator reads the question with an empty title and text. Nothing else differs: both likelihoods, their gradients
and the decoders have one row more, the last. The paper found no improvement and left it out; so is it here by default.

One decision: n(x) starts at the score of the last passage found, on average over a few questions. Scores of a
bi-encoder lie near 100; from 0 the null document would have probability e^-100 and no gradient, ever.

Shapes: B queries, K passages, D embedding size.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ragx.errors import CheckpointError, ConfigError, ShapeError
from ragx.records import Passage

NULL_KINDS = ("bias", "embedding", "network")
NULL = Passage(source="null", version="-", chunk="0", title="", text="")
HIDDEN = 64
_CONFIG, _WEIGHTS = "config.json", "model.safetensors"


class NullDocument(nn.Module):
    """n(x), the logit of the null document.

    Args:
        kind: one of `NULL_KINDS`.
        embedding_size: D; not needed for `bias`, which therefore goes with a retriever that has no query encoder.
    """

    started: Tensor

    def __init__(self, kind: str, *, embedding_size: int | None = None) -> None:
        super().__init__()
        if kind not in NULL_KINDS:
            raise ConfigError([f"model.null_document must be one of {', '.join(NULL_KINDS)}, got {kind!r}."])
        if kind != "bias" and embedding_size is None:
            raise ConfigError(
                [f"model.null_document must be bias without a query encoder, got {kind!r}. Or retrieve with vectors."]
            )
        self.kind, self.embedding_size = kind, embedding_size
        self.register_buffer("started", torch.zeros(1, dtype=torch.bool))
        if kind != "embedding":
            self.bias = nn.Parameter(torch.zeros(1))
        if embedding_size is not None and kind == "embedding":
            # Times sqrt(D), so that a step moves the logit about as far as it does of the other two.
            self.embedding = nn.Parameter(torch.zeros(embedding_size))
        if embedding_size is not None and kind == "network":
            self.hidden = nn.Linear(embedding_size, HIDDEN)
            self.output = nn.Linear(HIDDEN, 1, bias=False)
            bound, same = embedding_size**-0.5, torch.Generator().manual_seed(0)  # in every process
            nn.init.uniform_(self.hidden.weight, -bound, bound, generator=same)
            nn.init.zeros_(self.hidden.bias)
            nn.init.zeros_(self.output.weight)

    def logits(self, query_embeds: Tensor | None, *, queries: int) -> Tensor:
        """n(x), (B,) float32.

        Args:
            query_embeds: (B, D) q(x); `bias` does not look at it.
            queries: B.

        Raises:
            ShapeError: no `query_embeds` for a kind that needs them.
        """
        if self.kind == "bias":
            return self.bias.float().expand(queries)
        if query_embeds is None:
            raise ShapeError(
                f"query_embeds must be given for a null document of kind {self.kind}, got None. Use bias with a "
                "retriever that has no query encoder."
            )
        with torch.autocast(query_embeds.device.type, enabled=False):  # bfloat16 would blur the prior
            queries_in = query_embeds.float()
            if self.kind == "embedding":
                found: Tensor = queries_in @ (self.embedding.float() / self.embedding.numel() ** 0.5)
                return found
            inner = torch.tanh(nn.functional.linear(queries_in, self.hidden.weight.float(), self.hidden.bias.float()))
            return nn.functional.linear(inner, self.output.weight.float()).squeeze(1) + self.bias.float()

    def forward(self, doc_scores: Tensor, query_embeds: Tensor | None) -> Tensor:
        """doc_scores (B, K) with the null document's logit behind them, (B, K + 1) float32."""
        logits = self.logits(query_embeds, queries=len(doc_scores)).to(doc_scores.device)
        return torch.cat([doc_scores.float(), logits.unsqueeze(1)], dim=1)

    @torch.no_grad()
    def start(self, doc_scores: Tensor, query_embeds: Tensor | None) -> None:
        """Sets n(x) to the lowest of the K scores (B, K), on average over B queries; once, later calls do nothing."""
        if bool(self.started):
            return
        level = doc_scores.float().amin(1).mean()
        if self.kind == "embedding":
            assert query_embeds is not None  # or this module would not have been built
            middle = query_embeds.float().mean(0).to(self.embedding.device)
            self.embedding.copy_(middle * (level / (middle @ middle)) * self.embedding.numel() ** 0.5)
        else:
            self.bias.fill_(float(level))
        self.started.fill_(True)

    def save_pretrained(self, directory: str | Path) -> None:
        """Writes config.json and model.safetensors."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        config = {"kind": self.kind, "embedding_size": self.embedding_size}
        (directory / _CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        save_file({name: value.contiguous() for name, value in self.state_dict().items()}, directory / _WEIGHTS)

    @classmethod
    def from_pretrained(cls, directory: str | Path) -> NullDocument:
        """What `save_pretrained` wrote.

        Raises:
            CheckpointError: a file that is missing or does not fit.
        """
        directory = Path(directory)
        try:
            config: dict[str, Any] = json.loads((directory / _CONFIG).read_text(encoding="utf-8"))
            found = cls(config["kind"], embedding_size=config["embedding_size"])
            found.load_state_dict(load_file(directory / _WEIGHTS))
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
            raise CheckpointError(
                f"{directory} must hold config.json and model.safetensors of a null document, got: {error}. "
                "Copy the checkpoint again, whole."
            ) from error
        return found.eval()
