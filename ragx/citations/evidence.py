"""Can what was cited be looked up: a passage identity against the corpus.

    malformed -> unknown_source | unknown_version | unknown_chunk -> tombstoned -> hash_missing | hash_mismatch
    -> derived_only -> resolved

Two decisions. The text is hashed again when it is looked up: a digest recorded empty is `hash_missing`, which is not a
pass, and the same source and chunk in another edition is `unknown_version`, never the same evidence. And text that was
derived (an index card, a summary) is no evidence: it leads to its parent, whose exact text can be read.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ragx.dates import is_date, not_before, older
from ragx.errors import RagxError
from ragx.jsonl import Row
from ragx.records import Passage, PassageKey, text_sha256

KINDS = ("original", "derived")
_END_OF_TIME = "9999"


@dataclass(frozen=True, slots=True)
class Evidence:
    """A passage as the corpus holds it, with what an audit needs beyond the model's view of it.

    Attributes:
        passage: identity, title, text, span in its document, validity, acl.
        sha256: the digest recorded in the corpus; "" where it was recorded empty, None where none is kept there.
        kind: `original`, or `derived` (written about the source, not copied from it).
        parent: what a derived text was made from.
        supersedes: (source, version) that this version replaces.
        tombstone: why or when it was withdrawn.
        uri, lang, publisher, licence: of the source.
        place: where in the source, by name: page, section, start_line, end_line (lines count from 1).
        lineage: versions of parser, chunker, embedding, index.
    """

    passage: Passage
    sha256: str | None = None
    kind: str = "original"
    parent: PassageKey | None = None
    supersedes: tuple[str, str] | None = None
    tombstone: str | None = None
    uri: str = ""
    lang: str = ""
    publisher: str = ""
    licence: str = ""
    place: Mapping[str, Any] = field(default_factory=dict)
    lineage: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> PassageKey:
        """The identity."""
        return self.passage.key

    def visible_to(self, principal: Iterable[str]) -> bool:
        """Whether somebody with these names may see it; an empty acl is for everybody."""
        return not self.passage.acl or not set(self.passage.acl).isdisjoint(principal)

    @classmethod
    def from_row(cls, row: Row, passage: Passage) -> Evidence:
        """The evidence of a corpus line whose passage is already read.

        Raises:
            DataError: a field of the wrong kind.
        """
        values = row.values
        kind = values.get("kind") or "original"
        if kind not in KINDS:
            row.fail("kind", f"must be one of {list(KINDS)}, got {kind!r}. Use one of them")
        parent, supersedes, tombstone = (values.get(name) for name in ("parent", "supersedes", "tombstone"))
        if isinstance(supersedes, str):
            supersedes = [passage.source, supersedes]
        if supersedes is not None and (not isinstance(supersedes, list) or len(supersedes) != 2):
            row.fail("supersedes", f"must be a version or [source, version], got {supersedes!r}. Give one of the two")
        place = {name: values[name] for name in ("page", "section", "start_line", "end_line") if values.get(name)}
        return cls(
            passage=passage,
            sha256=None if values.get("sha256") is None else row.string("sha256", values["sha256"]),
            kind=kind,
            parent=None if parent is None else row.key("parent", parent),
            supersedes=None if supersedes is None else (str(supersedes[0]), str(supersedes[1])),
            tombstone=None if tombstone is None else row.text("tombstone", tombstone),
            place=place,
            lineage=values.get("lineage") or {},
            **{name: row.string(name, values.get(name) or "") for name in ("uri", "lang", "publisher", "licence")},
        )


@dataclass(frozen=True, slots=True)
class Resolution:
    """The outcome of one look-up.

    Attributes:
        status: `resolved`, or the first thing that is wrong.
        evidence: what the corpus holds under the key, also where something is wrong with it.
        original: where the exact text is: the evidence itself, or the parent of what is derived.
        verified: whether a digest recorded at another time agreed with the text.
    """

    status: str
    evidence: Evidence | None = None
    original: Evidence | None = None
    verified: bool = False

    @property
    def resolved(self) -> bool:
        """Whether the passage is there with the very text that was recorded."""
        return self.status == "resolved"


def is_identity(key: Any) -> bool:
    """Whether `key` is (source, version, chunk): three texts, not empty, in NFC, without control characters."""
    return (
        isinstance(key, list | tuple)
        and len(key) == 3
        and all(isinstance(part, str) and part.strip() for part in key)
        and all(unicodedata.is_normalized("NFC", part) and part.isprintable() for part in key)
    )


class EvidenceStore:
    """The passages of one or several editions, by identity.

    Attributes:
        restricted: whether any of them is not for everybody.

    Args:
        items: passages or evidence.

    Raises:
        RagxError: two of them share an identity.
    """

    def __init__(self, items: Iterable[Passage | Evidence]) -> None:
        self._items: dict[PassageKey, Evidence] = {}
        self._versions: dict[str, dict[str, set[str]]] = {}
        self._replaced: dict[tuple[str, str], list[Evidence]] = {}
        self.restricted = False
        self._currency: dict[tuple[PassageKey, str | None], str] = {}
        self._known: dict[PassageKey, Resolution] = {}
        self._recorded: dict[tuple[PassageKey, str], Resolution] = {}
        for item in items:
            evidence = Evidence(item, sha256=item.sha256) if isinstance(item, Passage) else item
            key = evidence.key
            self.restricted = self.restricted or bool(evidence.passage.acl)
            if key in self._items:
                raise RagxError(
                    f"passages must differ in (source, version, chunk), got {tuple(key)} twice. "
                    "Remove one or give it another version"
                )
            self._items[key] = evidence
            texts = self._versions.setdefault(key.source, {}).setdefault(key.version, set())
            texts.add(evidence.passage.text)
            if evidence.supersedes is not None:
                self._replaced.setdefault(evidence.supersedes, []).append(evidence)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Evidence]:
        return iter(self._items.values())

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def get(self, key: PassageKey) -> Evidence | None:
        """What the corpus holds under a key, unchecked."""
        return self._items.get(key)

    def resolve(self, key: Any, *, sha256: str | None = None) -> Resolution:
        """Looks up one identity.

        Args:
            key: (source, version, chunk); anything else is `malformed`, not an exception.
            sha256: the digest recorded with the answer; "" is a record without one, None no record.
        """
        known = self._known.get(key) if isinstance(key, PassageKey) else None
        if known is None:
            if not is_identity(key):
                return Resolution("malformed")
            key = PassageKey(*key)
            known = self._known.setdefault(key, self._resolve(key, None))
        if sha256 is None or known.evidence is None:
            return known
        if known.verified and sha256 == known.evidence.sha256:
            return known  # the corpus records this very digest, and its text agrees
        recorded = self._recorded.get((key, sha256))
        return recorded or self._recorded.setdefault((key, sha256), self._resolve(key, sha256))

    def _resolve(self, key: PassageKey, sha256: str | None) -> Resolution:
        versions = self._versions.get(key.source)
        if versions is None:
            return Resolution("unknown_source")
        if key.version not in versions:
            return Resolution("unknown_version")
        evidence = self._items.get(key)
        if evidence is None:
            return Resolution("unknown_chunk")
        if evidence.tombstone is not None:
            return Resolution("tombstoned", evidence)
        recorded = [digest.removeprefix("sha256:") for digest in (evidence.sha256, sha256) if digest is not None]
        if "" in recorded:
            return Resolution("hash_missing", evidence)
        found = text_sha256(evidence.passage.text)
        if any(digest != found for digest in recorded):
            return Resolution("hash_mismatch", evidence)
        if evidence.kind == "derived":
            return Resolution("derived_only", evidence, self._original(evidence), bool(recorded))
        return Resolution("resolved", evidence, evidence, bool(recorded))

    def currency(self, evidence: Evidence, as_of: str | None) -> str:
        """`current`, `stale` or `not_yet_valid` on the date of the request.

        Stale is what ended before, what another version replaced by then, and, where versions are dates (dumps) and no
        end is recorded, what a later dump no longer says in the same words. Without a date nothing is stale: what
        another version replaced is `superseded`, a remark.
        """
        asked = (evidence.key, as_of)
        if asked not in self._currency:
            self._currency[asked] = self._currency_of(evidence, as_of)
        return self._currency[asked]

    def _currency_of(self, evidence: Evidence, as_of: str | None) -> str:
        if as_of is None:
            return "superseded" if self._is_replaced(evidence, _END_OF_TIME) else "current"
        passage = evidence.passage
        if passage.valid_from is not None and older(as_of, passage.valid_from):
            return "not_yet_valid"
        if passage.valid_to is not None and older(passage.valid_to, as_of):
            return "stale"
        return "stale" if self._is_replaced(evidence, as_of) else "current"

    def _is_replaced(self, evidence: Evidence, as_of: str) -> bool:
        passage = evidence.passage
        for later in self._replaced.get((passage.source, passage.version), ()):
            if later.passage.valid_from is None or not_before(as_of, later.passage.valid_from):
                return True
        if passage.valid_to is not None or not is_date(passage.version):
            return False
        newer = (
            texts
            for version, texts in self._versions[passage.source].items()
            if is_date(version) and older(passage.version, version) and not_before(as_of, version)
        )
        return any(passage.text not in texts for texts in newer)

    def _original(self, evidence: Evidence) -> Evidence | None:
        """Where the exact text of what was derived is; None where no parent leads to one."""
        passed: set[PassageKey] = set()
        while evidence.kind == "derived":
            if evidence.parent is None or evidence.key in passed:
                return None
            passed.add(evidence.key)
            parent = self._items.get(evidence.parent)
            if parent is None:
                return None
            evidence = parent
        return evidence if self.resolve(evidence.key).resolved else None
