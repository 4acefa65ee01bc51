"""A JSON or YAML file of a run whose fields are asked for by name, so that an error says which file lacks what."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ragx.errors import DataError


@dataclass(frozen=True)
class Document:
    """A JSON object with its place.

    Attributes:
        run: name of the run it lies in.
        place: folder in that run, "" at its top.
        values: the object.
    """

    run: str
    place: str
    path: Path
    values: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Run and place as a page writes them."""
        return f"{self.run}/{self.place}" if self.place else self.run

    def get(self, *names: str) -> Any:
        """The value under these names; DataError where there is none."""
        value: Any = self.values
        for depth, name in enumerate(names):
            if not isinstance(value, Mapping) or name not in value:
                self.fail(names[: depth + 1], "be there", "nothing")
            value = value[name]
        return value

    def table(self, *names: str) -> Mapping[str, Any]:
        """The object under these names; DataError where it is none."""
        value = self.get(*names)
        if not isinstance(value, Mapping):
            self.fail(names, "be an object", value)
        return value

    def number(self, *names: str) -> float | None:
        """The finite number or null under these names; DataError where it is neither."""
        value = self.get(*names)
        if value is not None and not _is_number(value):
            self.fail(names, "be a finite number or null", value)
        return value

    def bounds(self, *names: str) -> tuple[float, float] | None:
        """The interval or null under these names; DataError where it is neither."""
        value = self.get(*names)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != 2 or not all(map(_is_number, value)):
            self.fail(names, "be [low, high] or null", value)
        return value[0], value[1]

    def names(self, *names: str) -> list[str]:
        """The list of texts under these names; DataError where it is none."""
        value = self.get(*names)
        if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
            self.fail(names, "be a list of texts, not empty", value)
        return value

    def rows(self, *names: str) -> list[Document]:
        """The list of objects under these names, each a document of the same place; DataError where it is none."""
        value = self.get(*names)
        if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
            self.fail(names, "be a list of objects", value)
        return [replace(self, values=item) for item in value]

    def fail(self, names: Sequence[str], condition: str, got: object) -> NoReturn:
        """Raises the DataError of a field."""
        message = f"must {condition}, got {str(got)[:80]}. Make the file again with the script that wrote it"
        raise DataError(message, path=self.path, field=".".join(names))


def read_json(run: str, place: str, path: Path) -> Document:
    """The object of a JSON file; DataError where it holds none."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"file must be JSON, got: {error}. Make it again", path=path) from error
    if not isinstance(values, dict):
        raise DataError(f"file must be a JSON object, got {type(values).__name__}. Make it again", path=path)
    return Document(run, place, path, values)


def read_yaml(run: str, place: str, path: Path) -> Document:
    """The settings of a YAML file, interpolations as they are written; DataError where it is none."""
    try:
        values = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    except (OmegaConfBaseException, ValueError, OSError) as error:
        raise DataError(f"file must be YAML, got: {str(error).splitlines()[0]}. Make it again", path=path) from error
    except Exception as error:  # the parser's own exceptions, which OmegaConf lets through
        raise DataError(f"file must be YAML, got: {str(error).splitlines()[0]}. Make it again", path=path) from error
    return Document(run, place, path, {str(k): v for k, v in values.items()} if isinstance(values, dict) else {})


def metrics_of(table: Mapping[str, Any], *above: str) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Every metric of an evaluation with the names it stands under, those by kind and differences apart."""
    for name, value in table.items():
        if isinstance(value, Mapping) and "value" in value and "n" in value:
            yield (*above, name), value
        elif isinstance(value, Mapping) and name not in ("by_kind", "difference"):
            yield from metrics_of(value, *above, name)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
