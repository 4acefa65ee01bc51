"""Which decoders of section 2.5 search for the answer that a model kind finds most probable.

rag_sequence  thorough, fast          rag_token  token_beam, greedy          closed_book  greedy, token_beam
any           closed_set, where the answers that may be given are known
"""

from __future__ import annotations

from collections.abc import Sequence

from ragx.decoding import closed_set, fast, greedy, thorough, token_beam
from ragx.decoding.batch import Decode
from ragx.errors import ConfigError

CLOSED_SET = "closed_set"
DECODERS: dict[str, dict[str, Decode]] = {
    "rag_sequence": {"thorough": thorough.decode, "fast": fast.decode},
    "rag_token": {"token_beam": token_beam.decode, "greedy": greedy.decode},
    "closed_book": {"greedy": greedy.decode, "token_beam": token_beam.decode},
}


def choose(kind: str, decoder: str, *, answers: Sequence[Sequence[int]] = ()) -> Decode:
    """The decoder of this name for a model kind.

    Args:
        answers: token ids of the answers that `closed_set` ranks.

    Raises:
        ConfigError: a decoder that does not fit the kind, answers for another one, or none for `closed_set`.
    """
    if decoder not in (CLOSED_SET, *DECODERS[kind]):
        fitting = ", ".join([*DECODERS[kind], CLOSED_SET])
        raise ConfigError([f"decoder must be one of {fitting} for {kind}, got {decoder!r}."])
    require_labels(decoder, len(answers))
    if decoder == CLOSED_SET:
        # Without passages there is one row of probability one, and both likelihoods are the same.
        return closed_set.among(answers, likelihood=kind if kind in closed_set.LIKELIHOODS else "rag_sequence")
    return DECODERS[kind][decoder]


def require_labels(decoder: str | None, count: int) -> None:
    """Raises ConfigError unless a closed set of answers is given for `closed_set` and for it alone."""
    if (decoder == CLOSED_SET) != (count > 0):
        problem = f"labels must be given with decoder {CLOSED_SET} and with no other, got {count} with {decoder}"
        raise ConfigError([f"{problem}. Name the answers to choose from, or another decoder."])
