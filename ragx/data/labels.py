"""Section 3.4: a label of FEVER is one target token, so that RAG-Sequence and RAG-Token are the same model of it.

    T = 1:   sum_z p(z|x) p(y_1 | x, z)       in both

Decoded with `max_length` 1 an answer is the label alone. In training EOS follows it, and the two models differ in how
they weigh p(EOS | x, z, label).

One decision: whether a word is one token depends on the generator; it is asked before anything is trained or decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ragx.errors import ConfigError


def require_one_token(labels: Mapping[str, str], *, tokens: Callable[[str], Sequence[int]]) -> None:
    """Refuses label words that the generator cuts in several tokens, or that begin alike as far as it can tell.

    Args:
        labels: the target word of each label.
        tokens: the ids of a word, without special tokens.

    Raises:
        ConfigError: every such label.
    """
    cut = {label: list(tokens(word)) for label, word in labels.items()}
    problems = [
        f"data.labels.{label} must be one token of the generator, got {labels[label]!r} as {len(ids)}. Name another."
        for label, ids in cut.items()
        if len(ids) != 1
    ]
    alone = [ids[0] for ids in cut.values() if len(ids) == 1]
    if len(set(alone)) < len(alone):
        problems.append(f"data.labels must be different tokens, got {dict(labels)}. Name other words.")
    if problems:
        raise ConfigError(problems)
