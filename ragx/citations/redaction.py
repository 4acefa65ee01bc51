"""What a reader may not see does not reach any output file.

    key    ->  restricted:<salted digest>        title, address, text, quote  ->  nothing
    claim  ->  [redacted], where only restricted evidence stands behind it

One decision: the reader of the report is the principal of the request. That something was cited without permission is
shown and counted; what it says, and what it is called, is not.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Sequence
from typing import Any

from ragx.citations.audit import Audited, ClaimResult
from ragx.citations.evidence import Evidence, EvidenceStore
from ragx.records import PassageKey

REDACTED = "[redacted]"


class Redaction:
    """What must not be shown of one question.

    Args:
        audited: the question.
        store: the corpus.
        salt: of the digests; not written anywhere.
    """

    def __init__(self, audited: Audited, store: EvidenceStore, *, salt: bytes) -> None:
        self._salt = salt
        self._store = store
        self._principal = audited.trace.principal
        trace = audited.trace
        named: set[PassageKey] = set()
        if store.restricted:
            named |= {row.key for row in trace.retrieved} | {row.key for row in trace.packed}
            named |= {row.key for row in trace.dropped}
            named |= {result.key for result in audited.citations if result.key is not None}
        self._restricted = {key for key in named if self._hides(store.get(key))}
        self._hides_claim = {
            result.citation.claim_id for result in audited.citations if result.key in self._restricted
        } - {claim.claim.claim_id for claim in audited.claims if claim.covered}
        self._words = sorted(_words(audited, store, self._restricted), key=lambda word: (-len(word), word))

    def restricted(self, key: PassageKey | None) -> bool:
        """Whether this passage is not for the reader."""
        return key in self._restricted

    def shows(self, evidence: Evidence | None) -> bool:
        """Whether there is something to show, and the reader may see it."""
        return evidence is not None and not self._hides(evidence)

    def key(self, key: Any) -> Any:
        """The identity as it may be written down."""
        if isinstance(key, PassageKey):
            return f"restricted:{self._digest(key)}" if key in self._restricted else list(key)
        return self.text(key) if isinstance(key, str) else key

    def items(self, items: Sequence[object]) -> list[object]:
        """Details of a finding."""
        return [
            self.items(item) if isinstance(item, tuple) and not isinstance(item, PassageKey) else self.key(item)
            for item in items
        ]

    def text(self, text: str) -> str:
        """`text` without what restricted passages are called or say."""
        for word in self._words:
            text = text.replace(word, REDACTED)
        return text

    def claim(self, claim: ClaimResult) -> str:
        """The text of a claim as it may be shown."""
        return REDACTED if claim.claim.claim_id in self._hides_claim else self.text(claim.claim.text)

    def answer(self, audited: Audited) -> str:
        """The answer as it may be shown; all of it hidden where a hidden claim has no place in it."""
        hidden = [claim.claim for claim in audited.claims if claim.claim.claim_id in self._hides_claim]
        if any(claim.span is None for claim in hidden):
            return REDACTED
        text = audited.trace.answer.text
        for start, end in sorted((claim.span for claim in hidden if claim.span is not None), reverse=True):
            text = text[:start] + REDACTED + text[end:]
        return self.text(text)

    @property
    def hides_answer(self) -> bool:
        """Whether any of the answer is hidden, so that its tokens are not shown."""
        return bool(self._hides_claim or self._words)

    def _hides(self, evidence: Evidence | None) -> bool:
        if evidence is None:
            return False
        parent = self._store.get(evidence.parent) if evidence.parent is not None else None
        return not all(item.visible_to(self._principal) for item in (evidence, parent) if item is not None)

    def _digest(self, key: PassageKey) -> str:
        return hmac.new(self._salt, json.dumps(list(key)).encode(), hashlib.sha256).hexdigest()[:16]


def salt_of(store_texts: Iterable[str]) -> bytes:
    """A salt that only somebody who holds the restricted texts can work out: it depends on all of them."""
    digest = hashlib.blake2b(person=b"ragx-redaction")
    for text in sorted(store_texts):
        digest.update(hashlib.blake2b(text.encode()).digest())
    return digest.digest()


def _words(audited: Audited, store: EvidenceStore, restricted: set[PassageKey]) -> set[str]:
    words: set[str] = set()
    for key in restricted:
        evidence = store.get(key)
        if evidence is not None:
            words |= {evidence.passage.title, evidence.passage.text, evidence.uri}
    words |= {r.citation.quote or "" for r in audited.citations if r.key in restricted}
    return {word for word in words if word.strip()}
