"""Fields of the config schema that carry their limit as metadata; `ragx.config.resolve` reads it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any

from omegaconf import MISSING

EMBEDDED = "world_leaders:"
HUB = "hub:"


def limited(condition: str, holds: Callable[[Any], bool]) -> Any:
    """A field whose value must meet `holds`; `condition` completes "<key> must ..."."""
    return field(default=MISSING, metadata={"condition": condition, "holds": holds})


def at_least(bound: float) -> Any:
    """A number with a lower bound."""
    return limited(f"be >= {bound}", lambda value: value >= bound)


def all_at_least(bound: int) -> Any:
    """A list of numbers, not empty, each with a lower bound."""
    return limited(f"be one or more numbers >= {bound}", lambda values: bool(values) and min(values) >= bound)


def share() -> Any:
    """A number between 0 and 1."""
    return limited("be between 0 and 1", lambda value: 0 <= value <= 1)


def one_of(*options: str) -> Any:
    """One of a few names."""
    return limited(f"be one of {', '.join(options)}", lambda value: value in options)


def all_of(*options: str) -> Any:
    """A list of some of a few names, or of none."""
    return limited(f"be a list of {', '.join(options)}", lambda values: set(values) <= set(options))


def file() -> Any:
    """A file that is read, or part of the embedded knowledge base."""
    condition = f"be a file or {EMBEDDED}..."
    return field(default=MISSING, metadata={"condition": condition, "holds": _is_readable, "path": True})


def questions() -> Any:
    """What `ragx.data.tasks.read_examples` reads, or questions of the embedded knowledge base."""
    condition = f"be a file, also with @train, @dev or @test, {HUB}NAME:SPLIT or {EMBEDDED}..."
    return field(default=MISSING, metadata={"condition": condition, "holds": _are_questions, "path": True})


def _are_questions(value: str) -> bool:
    return value.startswith(HUB) or _is_readable(value) or Path(value.rpartition("@")[0]).is_file()


def files() -> Any:
    """One or more of what `file` allows."""
    condition = f"be one or more files or {EMBEDDED}..."
    return field(default=MISSING, metadata={"condition": condition, "holds": _are_readable, "path": True})


def _are_readable(values: list[str]) -> bool:
    return bool(values) and all(map(_is_readable, values))


def _is_readable(value: str) -> bool:
    return value.startswith(EMBEDDED) or Path(value).is_file()


def folder() -> Any:
    """A folder or file that a script reads or writes, made absolute; its content is checked where it is opened."""
    return field(default=MISSING, metadata={"path": True})


def output() -> Any:
    """A file that a script writes; a folder there is refused before the work is done, not after it."""
    condition = "be a file, not a folder"
    return field(default=MISSING, metadata={"condition": condition, "holds": _is_no_folder, "path": True})


def _is_no_folder(value: str) -> bool:
    return not Path(value).is_dir()


def weights() -> Any:
    """A folder where there is one of that name, else a name: embedded or on the hub."""
    condition = "be a folder, dpr-nano, bart-nano or a name on the hub"
    return field(default=MISSING, metadata={"condition": condition, "holds": _is_loadable, "path": True, "name": True})


def _is_loadable(value: str) -> bool:
    """Whether to ask the hub makes sense, where there is no such folder."""
    return Path(value).is_dir() or bool(re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", value))
