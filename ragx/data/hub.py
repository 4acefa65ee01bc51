"""Question sets of the Hugging Face hub by name, and folders in the same layout.

    hub:google-research-datasets/nq_open:validation
    hub:microsoft/ms_marco:v2.1:train[:10%]                          a configuration, and a slice as datasets writes it
    hub:kyunghyuncho/search_qa@refs/convert/parquet:raw_jeopardy:test    a revision

One decision: what is read is data, never code. A data set that needs its loading script is refused by `datasets`;
its Parquet revision `@refs/convert/parquet` loads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from ragx.errors import DataError
from ragx.jsonl import Row

PREFIX = "hub:"
_NAME = re.compile(
    r"hub:(?P<name>[^:@]+)(@(?P<revision>[^:]+))?(:(?P<config>[^:\[]+))?:(?P<split>[^:\[]+(\[[^\]]*\])?)"
)


class HubName(NamedTuple):
    """What `datasets.load_dataset` is asked for."""

    name: str
    config: str | None
    split: str
    revision: str | None


def parse(source: str) -> HubName:
    """The parts of `hub:NAME[@REVISION][:CONFIG]:SPLIT`.

    Raises:
        DataError: not of that form.
    """
    found = _NAME.fullmatch(source)
    if found is None:
        raise DataError("source must be hub:NAME[@REVISION][:CONFIG]:SPLIT, got no split. Give one", path=source)
    return HubName(found["name"], found["config"], found["split"], found["revision"])


def hub_rows(source: str) -> Iterator[Row]:
    """The rows of a split; their lines are row numbers, from 1.

    Raises:
        DataError: not of the form above, or a data set that cannot be loaded.
    """
    import datasets  # half a second that a question file does not need

    asked = parse(source)
    try:
        rows = datasets.load_dataset(asked.name, asked.config, split=asked.split, revision=asked.revision)
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        message = f"data set must be loadable, got: {first}. Check the name and the network, or give a file"
        raise DataError(message, path=source) from error
    numbered = (Row(Path(source), number, values) for number, values in enumerate(rows, start=1))
    yield from _merged(numbered) if "evidence_wiki_url" in rows.column_names else numbered


def _merged(rows: Iterable[Row]) -> Iterator[Row]:
    """One row a claim from FEVER on the hub, which has one a sentence of evidence."""
    for _, group in groupby(rows, key=lambda row: row.values.get("id")):
        sentences = list(group)
        sets: dict[Any, list[list[Any]]] = {}
        for row in sentences:
            part = [row.values.get(f"evidence_{name}") for name in ("annotation_id", "id", "wiki_url", "sentence_id")]
            sets.setdefault((part[0], part[1]), []).append(part)
        first = sentences[0]
        yield replace(first, values={**first.values, "evidence": list(sets.values())})
