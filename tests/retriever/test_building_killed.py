"""A build that ends between encoding and its last step costs no encoding, and harms no index (FAULTS D4)."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ragx.records import Passage
from ragx.retriever import building
from ragx.retriever.building import Encoding, _link
from ragx.retriever.importing import Vectors, import_index
from ragx.retriever.passage_encoder import PassageEncoder

CORPUS = [Passage(str(row), "1", "0", "", word) for row, word in enumerate(("paris", "lima", "berlin"))]


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


class Ended(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def ended(encoder: PassageEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Builds CORPUS until a function is called."""

    def end(*_: object) -> None:
        raise Ended

    def run(name: str, **how: str) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(f"ragx.retriever.building.{name}", end)
            with pytest.raises(Ended, match="^$"):
                building.build_index(
                    CORPUS,
                    passage_encoder=encoder,
                    directory=tmp_path / "index",
                    edition="1",
                    encoding=Encoding(**how),  # type: ignore[arg-type]
                    progress=False,
                )

    return run


def rebuild(encoder: PassageEncoder, folder: Path, corpus: list[Passage] = CORPUS, **options: bool) -> dict[str, bytes]:
    building.build_index(corpus, passage_encoder=encoder, directory=folder, edition="1", progress=False, **options)  # type: ignore[arg-type]
    return bytes_of(folder)


def test_a_kill_after_the_encoding_does_not_lose_it(
    checkpoint: Callable[..., Path], encoder: PassageEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = rebuild(encoder, tmp_path / "whole")
    script = textwrap.dedent(
        f"""
        import os
        from ragx.records import Passage
        from ragx.retriever import building
        from ragx.retriever.passage_encoder import PassageEncoder
        building.manifests.describe_files = lambda _: os._exit(9)
        corpus = [Passage(str(row), "1", "0", "", word) for row, word in enumerate(("paris", "lima", "berlin"))]
        encoder = PassageEncoder.from_pretrained({str(checkpoint("context"))!r})
        where = {str(tmp_path / "index")!r}
        building.build_index(corpus, passage_encoder=encoder, directory=where, edition="1", progress=False)
        """
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=300).returncode == 9
    monkeypatch.setattr(PassageEncoder, "_embed", lambda *_: pytest.fail("encoded again"))
    assert rebuild(encoder, tmp_path / "index") == whole
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["index", "whole"]


def test_what_an_end_leaves_is_not_overwritten_in_the_index(
    ended: Callable[..., None], encoder: PassageEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended before it removed the encoding, which is the index's own file: later runs begin others in that folder."""
    ended("_discard")
    index, work = tmp_path / "index", tmp_path / ".index.encoding"
    before = bytes_of(index)
    assert work.is_dir()
    with monkeypatch.context() as patch:
        patch.setattr(PassageEncoder, "_embed", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError, match="division"):
            rebuild(encoder, index, CORPUS[:2])
    assert bytes_of(index) == before
    ended("_discard")
    with pytest.raises(ZeroDivisionError, match="division"):
        parts = (Vectors(str(row), None, np.full((1 // (1 - row), 16), 7.0, np.float32)) for row in range(2))
        import_index(CORPUS, parts, directory=index, edition="1", passage_encoder=None)
    assert bytes_of(index) == before
    ended("_discard")
    rebuild(encoder, index, reuse=True)
    assert bytes_of(index) == before and not work.exists()


def test_an_encoding_that_another_build_wrote_over_is_not_taken_up(
    ended: Callable[..., None], encoder: PassageEncoder, tmp_path: Path
) -> None:
    whole = rebuild(encoder, tmp_path / "whole")
    rebuild(encoder, tmp_path / "older", CORPUS[::-1])
    ended("manifests.describe_files")
    ended("manifests.describe_files", vectors_from=str(tmp_path / "older"))
    assert not (tmp_path / ".index.encoding" / "encoding.json").exists()
    assert rebuild(encoder, tmp_path / "index") == whole


def test_without_links_it_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    (tmp_path / "a").write_bytes(b"abc")
    _link(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"abc"
