"""Can what was cited be looked up: a passage identity against a corpus.

    unknown_source -> unknown_version -> unknown_chunk -> hash_missing -> hash_mismatch -> resolved

One decision: the text is hashed again whenever it is looked up. A digest that was never recorded is `hash_missing`,
which is not a pass; the same source and chunk number in another edition is `unknown_version`, never the same evidence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ragx.errors import RagxError
from ragx.records import Passage, PassageKey, text_sha256


@dataclass(frozen=True, slots=True)
class Resolution:
    """The outcome of one look-up.

    Attributes:
        status: `resolved`, or the first thing that is wrong: `malformed`, `unknown_source`, `unknown_version`,
            `unknown_chunk`, `hash_missing`, `hash_mismatch`.
        passage: what the corpus holds under the key, also where its hash differs; None where it holds nothing.
    """

    status: str
    passage: Passage | None

    @property
    def resolved(self) -> bool:
        """Whether the passage is there with the very text that was recorded."""
        return self.status == "resolved"


class EvidenceStore:
    """The passages of one or several editions, by identity.

    Raises:
        RagxError: two passages share an identity.
    """

    def __init__(self, passages: Iterable[Passage]) -> None:
        self._passages: dict[PassageKey, Passage] = {}
        self._versions: dict[str, set[str]] = {}
        for passage in passages:
            if passage.key in self._passages:
                raise RagxError(
                    f"passages must differ in (source, version, chunk), got {tuple(passage.key)} twice. "
                    "Remove one or give it another version"
                )
            self._passages[passage.key] = passage
            self._versions.setdefault(passage.source, set()).add(passage.version)

    def __len__(self) -> int:
        return len(self._passages)

    def resolve(self, key: Any, *, sha256: str | None = None) -> Resolution:
        """Looks up one identity.

        Args:
            key: (source, version, chunk); anything else is `malformed`, not an exception.
            sha256: the digest recorded with the answer; "" is a record without one. None checks only that the corpus
                agrees with itself.
        """
        if not isinstance(key, list | tuple) or len(key) != 3 or not all(isinstance(x, str) and x for x in key):
            return Resolution("malformed", None)
        key = PassageKey(*key)
        versions = self._versions.get(key.source)
        if versions is None:
            return Resolution("unknown_source", None)
        if key.version not in versions:
            return Resolution("unknown_version", None)
        passage = self._passages.get(key)
        if passage is None:
            return Resolution("unknown_chunk", None)
        if not passage.sha256 or sha256 == "":
            return Resolution("hash_missing", passage)
        found = text_sha256(passage.text)
        if found != passage.sha256 or sha256 not in (None, found):
            return Resolution("hash_mismatch", passage)
        return Resolution("resolved", passage)
