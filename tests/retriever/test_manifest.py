"""A manifest notices every file that is not as it was, and says both sides."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from ragx.errors import IndexMismatchError
from ragx.retriever.manifest import Manifest, describe_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "passages").mkdir()
    (tmp_path / "passages" / "data").write_bytes(b"text")
    (tmp_path / "vectors").write_bytes(b"0123")
    manifest = Manifest("2016-12", "e", "p", 4, 2, "flat", {}, files=describe_files(tmp_path), versions={"torch": "2"})
    manifest.write(tmp_path)
    return tmp_path


def test_round_trip(folder: Path) -> None:
    manifest = Manifest.read(folder)
    manifest.verify(folder)
    assert (manifest.edition, manifest.dimension, manifest.count, manifest.metric) == ("2016-12", 4, 2, "inner_product")
    assert sorted(manifest.files) == ["passages/data", "vectors"]


def test_fingerprint_covers_all_but_what_is_noted(folder: Path) -> None:
    manifest = Manifest.read(folder)
    assert dataclasses.replace(manifest, versions={}, recall={"recall": 0.5}).fingerprint == manifest.fingerprint
    changes: dict[str, Any] = {
        "edition": "2018-12",
        "encoder_fingerprint": "x",
        "passages_fingerprint": "x",
        "count": 3,
        "storage": "bf16",
        "parameters": {"m": 4},
        "files": {},
    }
    for name, value in changes.items():
        assert dataclasses.replace(manifest, **{name: value}).fingerprint != manifest.fingerprint


def test_files_are_compared(folder: Path) -> None:
    manifest = Manifest.read(folder)
    (folder / "vectors").write_bytes(b"0124")
    manifest.verify(folder, hashes=False)  # the size is the same: this is what the cheap check cannot see
    with pytest.raises(IndexMismatchError, match=r"vectors: sha256 must agree(.|\n)*asked: (.|\n)*index: "):
        manifest.verify(folder)
    (folder / "vectors").write_bytes(b"012")
    with pytest.raises(IndexMismatchError, match=r"vectors: bytes must agree(.|\n)*asked: 4\n  index: 3"):
        manifest.verify(folder, hashes=False)
    (folder / "vectors").unlink()
    with pytest.raises(
        IndexMismatchError, match=r"asked: \['passages/data', 'vectors'\]\n  index: \['passages/data'\]"
    ):
        manifest.verify(folder)
    (folder / "vectors").write_bytes(b"0123")
    (folder / "stale").write_bytes(b"")
    with pytest.raises(IndexMismatchError, match="'stale', 'vectors'"):
        manifest.verify(folder)


def test_large_folders_are_compared_by_size_unless_asked(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    manifest = Manifest.read(folder)
    (folder / "vectors").write_bytes(b"0124")
    monkeypatch.setattr("ragx.retriever.manifest.HASH_LIMIT_BYTES", 7)
    with caplog.at_level("INFO"):
        manifest.verify(folder)
    assert "contents were not hashed" in caplog.text
    with pytest.raises(IndexMismatchError, match="vectors: sha256"):
        manifest.verify(folder, hashes=True)


def test_a_mismatch_prints_both_sides_and_the_command(folder: Path) -> None:
    message = r"encoder_fingerprint must agree(.|\n)*asked: other\n  index: e\n(.|\n)*python scripts/build_index.py"
    with pytest.raises(IndexMismatchError, match=message):
        Manifest.read(folder).require("encoder_fingerprint", "other", folder)


def test_what_is_no_manifest_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        IndexMismatchError, match=r"index must be a folder with manifest.json, got .*nowhere. Build it: "
    ):
        Manifest.read(tmp_path / "nowhere")
    file = folder / "manifest.json"
    row = json.loads(file.read_text())
    file.write_text(json.dumps({**row, "format": 1}))
    with pytest.raises(IndexMismatchError, match="must have format 2"):
        Manifest.read(folder)
    del row["count"]
    file.write_text(json.dumps(row))
    with pytest.raises(IndexMismatchError, match=r"and the fields \['count'"):
        Manifest.read(folder)
    file.write_text("{")
    with pytest.raises(IndexMismatchError, match="must be JSON"):
        Manifest.read(folder)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("files", None, "files must be a mapping, got null"),
        ("count", "6", 'count must be a whole number, got "6"'),
        ("count", True, "count must be a whole number, got true"),
        ("edition", 2016, "edition must be text, got 2016"),
        ("files", {"a": {"bytes": "6", "sha256": ""}}, r"files must hold sha256 and bytes, got {.*} for a"),
        ("files", {"a": 6}, "files must hold sha256 and bytes, got 6 for a"),
    ],
)
def test_fields_of_another_type_are_refused(folder: Path, name: str, value: object, message: str) -> None:
    file = folder / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), name: value}))
    with pytest.raises(IndexMismatchError, match=f"manifest.json: {message}.*Build it: "):
        Manifest.read(folder)
