"""A label is one token, and then both likelihoods are one model."""

from __future__ import annotations

import pytest

from ragx.data.labels import require_one_token
from ragx.errors import ConfigError

VOCABULARY = {"true": [5], "false": [6], "unknown": [7, 8], "True": [5]}


def test_words_of_several_tokens_are_refused_together() -> None:
    require_one_token({"SUPPORTS": "true", "REFUTES": "false"}, tokens=VOCABULARY.__getitem__)
    require_one_token({}, tokens=VOCABULARY.__getitem__)
    with pytest.raises(ConfigError, match="data.labels.REFUTES must be one token of the generator, got 'unknown' as 2"):
        require_one_token({"SUPPORTS": "true", "REFUTES": "unknown"}, tokens=VOCABULARY.__getitem__)
    with pytest.raises(ConfigError, match="data.labels must be different tokens"):
        require_one_token({"SUPPORTS": "true", "REFUTES": "True"}, tokens=VOCABULARY.__getitem__)
