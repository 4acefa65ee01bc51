"""Looking up what was cited (CITATIONS D07, D23)."""

from __future__ import annotations

import pytest

from ragx.citations.evidence import EvidenceStore
from ragx.errors import RagxError
from ragx.records import Passage, text_sha256

V1 = Passage("A", "v1", "a", "Travel", "Lodging is limited to 600.")
V2 = Passage("A", "v2", "b", "Travel", "Lodging is limited to 750.")


@pytest.fixture
def store() -> EvidenceStore:
    return EvidenceStore([V1, V2])


@pytest.mark.parametrize(
    ("key", "status"),
    [
        (V1.key, "resolved"),
        (["A", "v1", "a"], "resolved"),
        (("B", "v1", "a"), "unknown_source"),
        (("A", "v3", "a"), "unknown_version"),
        (("A", "v2", "a"), "unknown_chunk"),
        ("Av1", "malformed"),
        (("A", "v1"), "malformed"),
        (("A", "v1", ""), "malformed"),
        (("A", "v1", 1), "malformed"),
        (None, "malformed"),
    ],
)
def test_statuses(store: EvidenceStore, key: object, status: str) -> None:
    assert store.resolve(key).status == status


def test_d07_another_version_is_not_the_same_evidence() -> None:
    only_v1 = EvidenceStore([V1])
    assert only_v1.resolve(("A", "v2", "a")).status == "unknown_version"
    assert only_v1.resolve(("A", "v2", "a")).passage is None


def test_d23_hashes(store: EvidenceStore) -> None:
    assert store.resolve(V1.key, sha256=text_sha256(V1.text)).resolved
    assert store.resolve(V1.key, sha256=V2.sha256).status == "hash_mismatch"
    assert store.resolve(V1.key, sha256="").status == "hash_missing"
    drifted = EvidenceStore([Passage("A", "v1", "a", "Travel", "now 800", sha256=V1.sha256)])
    assert drifted.resolve(V1.key).status == "hash_mismatch"
    assert not drifted.resolve(V1.key, sha256=V1.sha256).resolved


def test_one_identity_for_two_passages_is_refused() -> None:
    with pytest.raises(RagxError, match=r"passages must differ .* got \('A', 'v1', 'a'\) twice"):
        EvidenceStore([V1, V1])
