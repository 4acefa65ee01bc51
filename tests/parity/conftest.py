"""A published checkpoint of each kind, written once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.parity.published import PEERS, write_peer


@pytest.fixture(scope="session")
def tokenizers(byte_level_tokenizer: Any, uncased_tokenizer: Any) -> tuple[Any, Any]:
    """Of the generator and of the question encoder."""
    return byte_level_tokenizer, uncased_tokenizer


@pytest.fixture(scope="session")
def published(tokenizers: tuple[Any, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of each kind; tests only read them."""
    folders = {kind: tmp_path_factory.mktemp("peers") / kind for kind in PEERS}
    for kind, folder in folders.items():
        write_peer(folder, kind, tokenizers)
    return folders
