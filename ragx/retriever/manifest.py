"""What an index was built from: `manifest.json`, the file that lets a frozen index be trusted.

The paper trains q(x) against vectors that never change (section 2.4), so a score means something only while encoder,
passages and files are the ones of the build. Loading compares and refuses; nothing is repaired and no time or path
is stored, so that the same build gives the same bytes.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ragx import atomic
from ragx.errors import ConfigError, IndexMismatchError

MANIFEST_FILE = "manifest.json"
DELETED_FOLDER = "deleted"  # see `ragx.retriever.deletions`
FORMAT = 2
INNER_PRODUCT = "inner_product"
BM25 = "bm25"
# Hashing reads everything; beyond this many bytes opening checks sizes alone unless asked for more.
HASH_LIMIT_BYTES = 512 * 1024 * 1024
_LIBRARIES = ("faiss-cpu", "torch", "transformers", "datasets", "numpy", "bm25s")
_NAMES = {str: "text", int: "a whole number", dict: "a mapping"}
_TYPES = {
    **dict.fromkeys(("edition", "encoder_fingerprint", "passages_fingerprint", "kind", "metric", "storage"), str),
    **dict.fromkeys(("dimension", "count"), int),
    **dict.fromkeys(("parameters", "recall", "encoder", "files", "versions"), dict),
}
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Manifest:
    """Provenance of one index folder.

    Attributes:
        edition: name of the corpus as it stood, for example `2016-12`.
        encoder_fingerprint: of the passage encoder; empty for BM25.
        passages_fingerprint: over content and order of the passages.
        dimension: D; 0 for BM25.
        count: number of vectors, and of passages.
        kind, parameters: which index, built how; what `kinds.settle` made of what was asked for.
        metric: `inner_product`, or `bm25`.
        storage: how the numbers of embeddings.npy lie on disk, see `ragx.retriever.storage`.
        recall: of the index beside exact search of the same vectors, and on how many queries; see `recall.measured`.
        encoder: pooling and the like, for people to read; `encoder_fingerprint` covers it.
        files: sha256 and size of every other file, by path inside the folder.
        versions: of the libraries that built it; noted, not compared.
        format: of this file.
    """

    edition: str
    encoder_fingerprint: str
    passages_fingerprint: str
    dimension: int
    count: int
    kind: str
    parameters: Mapping[str, Any]
    metric: str = INNER_PRODUCT
    storage: str = "fp32"
    recall: Mapping[str, Any] = field(default_factory=dict)
    encoder: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    format: int = FORMAT

    @property
    def fingerprint(self) -> str:
        """Names this index: sha256 over everything but what was noted about it, library versions and recall."""
        content = {name: value for name, value in asdict(self).items() if name not in ("versions", "recall")}
        return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode("utf-8")).hexdigest()

    def write(self, directory: str | Path) -> None:
        """Writes `manifest.json`."""
        with atomic.open_file(Path(directory) / MANIFEST_FILE) as handle:
            json.dump(asdict(self), handle, indent=2, sort_keys=True, ensure_ascii=False)
            handle.write("\n")

    @classmethod
    def read(cls, directory: str | Path) -> Manifest:
        """The manifest of an index folder.

        Raises:
            IndexMismatchError: no index there, or not a manifest of this format.
        """
        directory = Path(directory)
        atomic.recover(directory)
        file = directory / MANIFEST_FILE
        if not file.is_file():
            raise IndexMismatchError(
                f"index must be a folder with {MANIFEST_FILE}, got {directory}. {rebuild(directory)}"
            )
        try:
            row = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise IndexMismatchError(f"{file} must be JSON, got: {error}. {rebuild(directory)}") from error
        expected = {entry.name for entry in fields(cls)}
        if not isinstance(row, dict) or set(row) != expected or row["format"] != FORMAT:
            found = sorted(row) if isinstance(row, dict) else type(row).__name__
            raise IndexMismatchError(
                f"{file} must have format {FORMAT} and the fields {sorted(expected)}, got {found}. {rebuild(directory)}"
            )
        for name, kind in _TYPES.items():
            if not isinstance(row[name], kind) or isinstance(row[name], bool):
                raise IndexMismatchError(
                    f"{file}: {name} must be {_NAMES[kind]}, got {json.dumps(row[name])}. {rebuild(directory)}"
                )
        for name, noted in row["files"].items():
            if not isinstance(noted, dict) or not isinstance(noted.get("bytes"), int) or "sha256" not in noted:
                raise IndexMismatchError(
                    f"{file}: files must hold sha256 and bytes, got {json.dumps(noted)} for {name}. "
                    f"{rebuild(directory)}"
                )
        return cls(**row)

    def require(self, name: str, asked: object, directory: str | Path) -> None:
        """Compares one field with what is asked of the index.

        Raises:
            IndexMismatchError: they differ; the message shows both and the command that rebuilds.
        """
        require(name, asked=asked, found=getattr(self, name), directory=directory)

    def require_encoder(self, settings: Mapping[str, Any], fingerprint: str, directory: str | Path) -> None:
        """Compares a passage encoder with that of the build: what can be named first, then weights and tokenizer.

        Raises:
            IndexMismatchError: they differ; the message shows both and the command that rebuilds.
        """
        if self.encoder_fingerprint == fingerprint:
            return
        for name in sorted({*self.encoder, *settings}):
            require(f"encoder.{name}", asked=settings.get(name), found=self.encoder.get(name), directory=directory)
        self.require("encoder_fingerprint", fingerprint, directory)

    def verify(self, directory: str | Path, *, hashes: bool | None = None) -> None:
        """Compares the files with what was noted at the build.

        Args:
            hashes: compare contents (True), sizes alone (False), or contents up to 512 MiB in all (None).

        Raises:
            IndexMismatchError: a file is missing, surplus, or differs.
        """
        directory = Path(directory)
        require("files", asked=sorted(self.files), found=_file_names(directory), directory=directory)
        for name, noted in self.files.items():
            require(
                f"{name}: bytes", asked=noted["bytes"], found=(directory / name).stat().st_size, directory=directory
            )
        if hashes is None:
            hashes = sum(noted["bytes"] for noted in self.files.values()) <= HASH_LIMIT_BYTES
            if not hashes:
                _logger.info("%s is large: sizes and counts were checked, contents were not hashed", directory)
        if hashes:
            for name, noted in self.files.items():
                require(f"{name}: sha256", asked=noted["sha256"], found=_sha256(directory / name), directory=directory)


def require(name: str, *, asked: object, found: object, directory: str | Path) -> None:
    """Raises IndexMismatchError with both sides and the rebuild command where `asked` is not `found`."""
    if asked != found:
        raise IndexMismatchError(
            f"{name} must agree with the index, got a mismatch.\n"
            f"  asked: {asked}\n  index: {found}\n  folder: {directory}\n{rebuild(directory)}"
        )


def rebuild(directory: str | Path) -> str:
    """The sentence that says how to build the index of a folder anew."""
    return f"Build it: python scripts/build_index.py data.passages=... index.directory={directory}"


def require_replaceable(directory: str | Path) -> None:
    """Lets a build take the place of an index or of nothing, never of other files.

    Raises:
        ConfigError: a file, or a folder that holds something else.
    """
    directory = Path(directory)
    atomic.recover(directory)
    if directory.is_dir():
        names = sorted(entry.name for entry in directory.iterdir())
        if not names or MANIFEST_FILE in names:
            return
        got = f"{directory} with {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}"
    elif directory.exists():
        got = f"the file {directory}"
    else:
        return
    raise ConfigError([f"index.directory must be new, empty or an index, got {got}. Name a folder of its own."])


def describe_files(directory: str | Path) -> dict[str, dict[str, Any]]:
    """sha256 and size of every file of an index folder but the manifest."""
    directory = Path(directory)
    return {
        name: {"sha256": _sha256(directory / name), "bytes": (directory / name).stat().st_size}
        for name in _file_names(directory)
    }


def library_versions() -> dict[str, str]:
    """Versions of the libraries that decide the bytes of an index; those not installed are left out."""
    versions = {}
    for name in _LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _file_names(directory: Path) -> list[str]:
    names = (file.relative_to(directory) for file in directory.rglob("*") if file.is_file())
    return sorted(n.as_posix() for n in names if n.parts[0] not in (MANIFEST_FILE, DELETED_FOLDER))


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
