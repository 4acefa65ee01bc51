"""What a Retriever, a Generator and a Judge offer; modules above depend on these, never on one another.

Letters in shapes: B queries, K n_docs, R = B*K rows (row b*K + k is passage k of query b), N sequences, T target
length, V vocabulary, D embedding size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from ragx.records import Passage, Retrieved


@runtime_checkable
class Retriever(Protocol):
    """p(z|x), section 2.2: finds passages; never trained itself, its query encoder is part of the model."""

    @property
    def fingerprint(self) -> str:
        """Identifies index, passages and encoder together."""
        ...

    def retrieve(self, queries: Sequence[str], n_docs: int, *, query_embeds: Tensor | None = None) -> Retrieved:
        """The `n_docs` best passages of each of B queries; `query_embeds` (B, D) for a dense retriever."""
        ...


@runtime_checkable
class Generator(Protocol):
    """p(y_i|x,z,y_<i), section 2.3: any sequence model that reads one passage with the query at a time.

    `encode` is called once per (query, passage) row; everything else names rows of what it returned. All
    log-probabilities are float32 whatever the model's dtype.
    """

    vocab_size: int
    pad_token_id: int
    eos_token_id: int
    decoder_start_token_id: int

    def encode(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        """Encodes (R, S) inputs; the result is opaque and belongs to this generator."""
        ...

    def token_logprobs(self, encoded: Any, labels: Tensor, rows: Tensor) -> Tensor:
        """Teacher-forced log p(y_i|x,z,y_<i), (N, T): sequence n against row `rows[n]`; 0 where labels are -100."""
        ...

    def begin(self, encoded: Any, rows: Tensor) -> Any:
        """A decoding state of N sequences, sequence n against row `rows[n]`, nothing generated yet."""
        ...

    def next_logprobs(self, state: Any, token_ids: Tensor) -> tuple[Tensor, Any]:
        """Feeds one token (N,) to each sequence; returns (N, V) log-probabilities of the next and the new state."""
        ...

    def reorder(self, state: Any, index: Tensor) -> Any:
        """The state whose sequence m is the old sequence `index[m]` (M,): gathers, repeats or drops."""
        ...


@runtime_checkable
class Judge(Protocol):
    """Does a passage support a claim? One of full, partial, none, contradict, not_judged."""

    id: str

    def judge(self, claim: str, passages: Sequence[Passage]) -> str:
        """The support that `passages` together lend to `claim`."""
        ...
