"""Passages that are gone at once, though their vectors still lie in the index: `deleted/<digest>.json`.

    each file holds the keys of one deletion        what is deleted is the union of all files

One decision: a deletion adds a file and changes none, so that two processes may delete at a time and neither undoes
the other, and a stop in between leaves a deletion whole or not begun. Deletions belong to the built index: an edit
leaves the passages out for good, while a build from passages that still hold them brings them back, and says so.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterable
from pathlib import Path

from ragx import atomic
from ragx.errors import IndexMismatchError
from ragx.records import PassageKey
from ragx.retriever.manifest import DELETED_FOLDER, rebuild

_logger = logging.getLogger(__name__)


def read(directory: str | Path) -> frozenset[PassageKey]:
    """Every key that was deleted from the index in `directory`.

    Raises:
        IndexMismatchError: a file that holds no keys; the index is not opened without knowing what it must hide.
    """
    found: set[PassageKey] = set()
    for file in sorted((Path(directory) / DELETED_FOLDER).glob("*.json")):
        try:
            rows = json.loads(file.read_text(encoding="utf-8"))
            if not isinstance(rows, list) or not all(map(_is_key, rows)):
                raise ValueError("something else")
        except ValueError as error:
            raise IndexMismatchError(
                f"{file} must be a list of [source, version, chunk], got: {error}. {rebuild(directory)}"
            ) from error
        found |= {PassageKey(*row) for row in rows}
    return frozenset(found)


def _is_key(row: object) -> bool:
    return isinstance(row, list) and len(row) == 3 and all(isinstance(part, str) for part in row)


def add(directory: str | Path, keys: Iterable[PassageKey]) -> None:
    """Notes a deletion, whole or not at all."""
    content = json.dumps(sorted(set(keys)), ensure_ascii=False)
    name = hashlib.sha256(content.encode("utf-8")).hexdigest()[:32]
    folder = Path(directory) / DELETED_FOLDER
    for again in (True, False):
        try:
            folder.mkdir(exist_ok=True)  # never the index folder itself, which may be on its way to its place
            with atomic.open_file(folder / f"{name}.json") as handle:
                handle.write(content)
            return
        except FileNotFoundError:  # an edit has put another index there
            if not again:
                raise
            time.sleep(0.1)


def warn_of(directory: str | Path, *, kept: bool) -> None:
    """Logs how many deletions a build in `directory` keeps, where it uses the index again, or drops.

    One that cannot be read is dropped like the others: a build is what its message asks for.
    """
    try:
        count = len(read(directory))
    except IndexMismatchError as error:
        _logger.warning("%s", error)
        return
    if count and kept:
        _logger.warning("%d passages stay deleted from the index in %s, which is used again", count, directory)
    elif count:
        _logger.warning(
            "%d deletions from the index in %s end with it: passages that the new one is given are there again",
            count,
            directory,
        )


def fingerprint(of_manifest: str, keys: Iterable[PassageKey]) -> str:
    """Names an index without the deleted passages; without deletions it is the manifest's own."""
    gone = sorted(set(keys))
    if not gone:
        return of_manifest
    return hashlib.sha256(json.dumps([of_manifest, *gone], ensure_ascii=False).encode("utf-8")).hexdigest()
