"""What goes wrong, by name.

Every message reads `<name> must <condition>, got <value>. <what to do>`. File errors name file, line and field.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path


class RagxError(Exception):
    """Base of every error that ragx raises on purpose; scripts print it without a traceback."""


class ConfigError(RagxError, ValueError):
    """Everything that is wrong with a configuration, reported in one go.

    Args:
        problems: one sentence each, opening with the dotted key (`retriever.n_docs must be >= 1, got -1`).
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[tuple[str, ...]]]:
        """The same problems from another process; of itself pickle hands on the joined message."""
        return type(self), (self.problems,)


class DataError(RagxError, ValueError):
    """A file whose content cannot be used, with the place: `questions.jsonl:7: answers: must ...`."""

    def __init__(self, message: str, *, path: str | Path, line: int | None = None, field: str | None = None) -> None:
        self.message, self.path, self.line, self.field = message, Path(path), line, field
        place = str(path) if line is None else f"{path}:{line}"
        super().__init__(f"{place}: {message}" if field is None else f"{place}: {field}: {message}")

    def __reduce__(self) -> tuple[partial[DataError], tuple[str]]:
        """The same error, place and all, from another process."""
        return partial(type(self), path=self.path, line=self.line, field=self.field), (self.message,)


class ShapeError(RagxError, ValueError):
    """Tensors whose shapes, dtypes or values do not fit each other."""


class IndexMismatchError(RagxError):
    """An index that was built from something else than what is asked of it; prints both sides."""


class CheckpointError(RagxError):
    """A checkpoint with a half missing, keys missing or surplus, or of another model kind."""


class TrainingError(RagxError):
    """A run that trained nothing, or met a value that is not a number."""
