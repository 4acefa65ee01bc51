"""A built index changed by passage: deletions at once, additions and new versions without encoding the rest.

    delete     the passages are hidden where the index is opened next; nothing is built (`deletions`)
    replace    all passages of a source give way to new ones, such as those of its next version
    add        new passages behind the others

The two latter build the index anew beside the old one, of the vectors that are there and those of new text, and put it
in its place in one move; until then the old one answers, with what is to be replaced. One edit runs at a time, but
deletions never wait: one that another process makes meanwhile is carried over.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from ragx import atomic
from ragx.errors import ConfigError, DataError
from ragx.records import Passage, PassageKey
from ragx.retriever import deletions
from ragx.retriever import manifest as manifests
from ragx.retriever.bm25 import BM25Retriever
from ragx.retriever.building import Encoding, build_index
from ragx.retriever.corpus_encoding import Alone
from ragx.retriever.corpus_store import on_disk
from ragx.retriever.edit_lock import edited_alone
from ragx.retriever.edition import PASSAGES_FOLDER
from ragx.retriever.manifest import Manifest
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.retriever.passages import PassageStore

_logger = logging.getLogger(__name__)


def delete_passages(directory: str | Path, names: Iterable[str]) -> int:
    """Hides passages of the index in `directory`, of vectors or BM25; returns how many.

    Args:
        names: each a source, which stands for all its passages, or `source@version#chunk`.

    Raises:
        DataError: a name that no passage has; then nothing is deleted.
        IndexMismatchError: no index there.
    """
    directory, names = Path(directory), list(names)
    Manifest.read(directory)
    store = PassageStore.open(directory / PASSAGES_FOLDER)
    keys = _named(store, names, directory) - deletions.read(directory)
    if keys:
        deletions.add(directory, keys)
    return len(keys)


def extend_index(
    directory: str | Path,
    *,
    added: Sequence[Passage] = (),
    replaced: Sequence[Passage] = (),
    edition: str | None = None,
    passage_encoder: PassageEncoder | None = None,
) -> Manifest:
    """Puts an index with more passages in the place of the one in `directory`; kind and parameters stay.

    Args:
        added: whose identities are new.
        replaced: what the index has of their sources gives way to them.
        edition: name of the new state of the corpus; None keeps the old one.
        passage_encoder: that the index was built with; BM25 needs none.

    Raises:
        ConfigError: an index of vectors without an encoder to go on with, or another edit of it is under way.
        DataError: a passage whose identity the index has.
        IndexMismatchError: no index there, or one of another encoder.
    """
    directory = Path(os.path.realpath(directory))  # what lies beside it is then on its disk
    with edited_alone(directory):
        return _extended(directory, added, replaced, edition=edition, passage_encoder=passage_encoder)


def _extended(
    directory: Path,
    added: Sequence[Passage],
    replaced: Sequence[Passage],
    *,
    edition: str | None,
    passage_encoder: PassageEncoder | None,
) -> Manifest:
    manifest = Manifest.read(directory)
    dense = manifest.metric == manifests.INNER_PRODUCT
    if dense:
        _require_encoder(manifest, passage_encoder, directory)
    store = PassageStore.open(directory / PASSAGES_FOLDER)
    known = deletions.read(directory)
    gone = known | set(store.keys_of({passage.source for passage in replaced}))
    corpus = chain((p for p in store if p.key not in gone), replaced, added)
    edition = edition or manifest.edition
    beside = directory.parent / f".{directory.name}.edited"
    if not dense:
        parameters = {name: manifest.parameters[name] for name in ("k1", "b")}
        BM25Retriever.build(corpus, beside, edition=edition, **parameters)
    else:
        assert passage_encoder is not None
        with on_disk(corpus, beside, processes=Alone()) as passages:
            build_index(
                passages,
                passage_encoder=passage_encoder,
                directory=beside,
                edition=edition,
                kind=manifest.kind,
                encoding=Encoding(storage=manifest.storage, vectors_from=directory),
                reuse=True,
                **manifest.parameters,
            )

    def carry(old: Path, new: Path) -> None:
        late = deletions.read(old) - known
        if late:
            deletions.add(new, late)

    with atomic.directory(directory, carry=carry) as folder:
        folder.rmdir()  # one move or none: what a stop leaves beside is a whole index, which is used again
        os.replace(beside, folder)
        carry(directory, folder)  # and again when the new one is in its place
    return Manifest.read(directory)


def _require_encoder(manifest: Manifest, encoder: PassageEncoder | None, directory: Path) -> None:
    if encoder is None or manifest.encoder_fingerprint.startswith("imported:"):
        known = manifest.encoder_fingerprint.startswith("imported:")
        got = "one that was imported without" if known else "none"
        advice = "Import it again with the new vectors." if known else "Name the one that the index was built with."
        raise ConfigError([f"passage_encoder must be given to add text to an index of vectors, got {got}. {advice}"])
    manifest.require_encoder(encoder.settings, encoder.fingerprint(), directory)


def _named(store: PassageStore, names: Sequence[str], directory: Path) -> set[PassageKey]:
    """The keys of every name: a source that there is comes before a reading as a key."""
    sources: dict[str, list[PassageKey]] = {}
    for key in store.keys_of({source for name in names for source in _sources(name)}):
        sources.setdefault(key.source, []).append(key)
    found: set[PassageKey] = set()
    for name in names:
        whole, *parts = _sources(name)
        here = sources.get(whole) or [key for source in parts for key in sources.get(source, ()) if _name(key) == name]
        if not here:
            message = f"delete must name passages of the index, got {name!r}. Give a source, or source@version#chunk"
            raise DataError(message, path=directory)
        found.update(here)
    return found


def _name(key: PassageKey) -> str:
    return f"{key.source}@{key.version}#{key.chunk}"


def _sources(name: str) -> Iterator[str]:
    """What of `name` may be the source: all of it, or what stands before one of its @."""
    yield name
    for place, letter in enumerate(name):
        if letter == "@":
            yield name[:place]
