"""What a Retriever, a Generator and a Judge offer; modules above depend on these, never on one another.

A generator that reads several sequences against one passage cheaply may say so: it then also is a `GroupingGenerator`,
and the decoders use its `grouped` in place of `begin`, `next_logprobs` and `reorder`. Results are the same.

Letters in shapes: B queries, K n_docs, R = B*K rows (row b*K + k is passage k of query b), N sequences, T target
length, V vocabulary, D embedding size; U units of G rows each, with M sequences, C candidates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from ragx.filters import PassageFilter
from ragx.records import Passage, Retrieved

Filters = PassageFilter | Sequence[PassageFilter | None] | None
"""What may be searched: the same for all queries of a call, or a filter for each of them."""


@runtime_checkable
class Retriever(Protocol):
    """p(z|x), section 2.2: finds passages; never trained itself, its query encoder is part of the model."""

    @property
    def fingerprint(self) -> str:
        """Identifies index, passages and encoder together."""
        ...

    def retrieve(
        self,
        queries: Sequence[str],
        n_docs: int,
        *,
        query_embeds: Tensor | None = None,
        passage_filter: PassageFilter | None = None,
    ) -> Retrieved:
        """The `n_docs` best passages of each of B queries; all that are allowed where those are fewer.

        Args:
            query_embeds: q(x), (B, D), any device and dtype, for a retriever that searches by vectors; no gradient is
                kept.
            passage_filter: what it keeps out is never searched; it narrows a filter that the retriever itself has.

        Raises:
            ConfigError: `n_docs` below 1 or beyond the corpus, or no passage allowed.
            ShapeError: no query, or `query_embeds` missing where they are searched by, of another shape, or not finite.
        """
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


class Reading(Protocol):
    """U units that each read G rows with M sequences, one token further at every `feed`; changed in place.

    All G rows of a unit read the same sequences. The number of sequences may change from step to step.
    """

    def feed(self, token_ids: Tensor, parents: Tensor) -> None:
        """Sequence m of a unit becomes its old sequence `parents[m]` and one more token; both (U, M).

        The first call feeds the start token to one sequence a unit, with `parents` zero.
        """
        ...

    def keep(self, units: Tensor) -> None:
        """Goes on with the units of `units` (U',) alone, in this order, which is ascending."""
        ...

    def continuations(self, log_weights: Tensor, logprobs: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """log of p(y_<i) sum_g w_g p(y_i|g,y_<i) for every next token, some units at a time.

        A probability below e^-80 of a unit's best may come out as larger than it is, though no larger than that, so
        that tokens are ranked by these values and reported by `read`.

        Args:
            log_weights: (U, G) log w_g.
            logprobs: (U, M) log p(y_<i).

        Yields:
            Which units, and their values (units, M, V) float32, free to be written to until the next is asked for.
        """
        ...

    def read(self, parents: Tensor, token_ids: Tensor) -> Tensor:
        """log p(token|g,y_<i), (U, C, G) float32, of the tokens (U, C) after the sequences `parents` (U, C)."""
        ...


class Grouped(Protocol):
    """Decoding in which the sequences that read one row share all that depends on the row alone."""

    def begin(self, encoded: Any, rows: Tensor) -> Reading:
        """U units with nothing fed, each reading its G rows of `encoded`; `rows` is (U, G)."""
        ...

    def token_logprobs(self, encoded: Any, labels: Tensor, rows: Tensor) -> Tensor:
        """As `Generator.token_logprobs`, without a gradient; equal prefixes read against one row are read once."""
        ...


@runtime_checkable
class GroupingGenerator(Generator, Protocol):
    """A generator that may have a faster way to decode."""

    @property
    def grouped(self) -> Grouped | None:
        """The faster way; None where this generator, as it is now, has none."""
        ...


@runtime_checkable
class Judge(Protocol):
    """Does a passage support a claim? One of full, partial, none, contradict, not_judged."""

    @property
    def id(self) -> str:
        """Names the judge in every verdict."""
        ...

    def judge(self, claim: str, passages: Sequence[Passage]) -> str:
        """The support that `passages` together lend to `claim`."""
        ...


@runtime_checkable
class ScoringJudge(Judge, Protocol):
    """A judge that also says how sure it is, for curves over thresholds."""

    def score(self, claim: str, passages: Sequence[Passage]) -> float | None:
        """Between 0 and 1, higher for more support; None where the label is not_judged."""
        ...
