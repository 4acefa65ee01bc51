"""`ragx.json`, the file that says what a checkpoint is: kind, n_docs, template, the index it was trained over.

It may have been edited or come from elsewhere, so every key that is read is checked and named when it is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ragx import atomic
from ragx.errors import CheckpointError
from ragx.generator.causal_lm import CausalLMGenerator
from ragx.generator.pretrained import PretrainedGenerator
from ragx.generator.seq2seq import Seq2SeqGenerator
from ragx.model import MODEL_KINDS

FORMAT = 1
RECORD = "ragx.json"
PARTS = ("generator", "query_encoder", "passage_encoder", "null_document")
GENERATORS: dict[str, type[PretrainedGenerator]] = {
    known.__name__: known for known in (Seq2SeqGenerator, CausalLMGenerator)
}
GENERATOR_OPTIONS = ("max_length", "template", "bos_in_labels")
SEPARATOR = "separator"  # of a decoder-only model alone


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_parts(value: Any) -> bool:
    known = isinstance(value, dict) and set(value) <= set(PARTS) and "generator" in value
    return known and all(isinstance(name, str) for name in value.values()) and value["generator"] in GENERATORS


def _is_options(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and set(value) - {SEPARATOR} == set(GENERATOR_OPTIONS)
        and isinstance(value.get(SEPARATOR, ""), str)
        and _is_count(value["max_length"])
        and isinstance(value["template"], str)
        and isinstance(value["bos_in_labels"], bool)
    )


def _is_index(value: Any) -> bool:
    return value is None or (isinstance(value, dict) and isinstance(value.get("fingerprint"), str))


_KEYS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "kind": (f"be one of {', '.join(MODEL_KINDS)}", lambda value: isinstance(value, str) and value in MODEL_KINDS),
    "n_docs": ("be a whole number >= 1", _is_count),
    "max_target_length": ("be a whole number >= 1", _is_count),
    "parts": (f"name a generator of {', '.join(GENERATORS)} and other parts of {', '.join(PARTS)} alone", _is_parts),
    "generator": (f"be an object with {', '.join(GENERATOR_OPTIONS)}", _is_options),
    "freeze_query_encoder": ("be true or false", lambda value: isinstance(value, bool)),
    "index": ("be null or an object with a fingerprint", _is_index),
    "versions": ("be an object", lambda value: isinstance(value, dict)),
}


def read_record(directory: str | Path) -> dict[str, Any]:
    """`ragx.json` of a checkpoint; an old checkpoint that a kill left aside is put back first.

    Raises:
        CheckpointError: no checkpoint there, one of another format, or a key that is missing or cannot be.
    """
    directory = Path(directory)
    atomic.recover(directory)
    file = directory / RECORD
    record = read_json(file)
    if record.get("format") != FORMAT:
        raise CheckpointError(f"{file}: format must be {FORMAT}, got {record.get('format')!r}.")
    for key, (condition, holds) in _KEYS.items():
        if key not in record or not holds(record[key]):
            got = json.dumps(record[key], ensure_ascii=False)[:80] if key in record else "nothing"
            raise CheckpointError(f"{file}: {key} must {condition}, got {got}. Copy the checkpoint again, whole.")
    for part in record["parts"]:
        folder = directory / part
        if not (folder / "config.json").is_file() or not any(folder.glob("*.safetensors")):
            raise CheckpointError(
                f"{directory} must hold {part}/ with config.json and safetensors, got a checkpoint without. "
                "Copy the folder again, whole."
            )
    return record


def require_replaceable(directory: str | Path) -> None:
    """Lets a checkpoint take the place of a checkpoint or of nothing, never of other files.

    Raises:
        CheckpointError: a file, or a folder that holds something else.
    """
    directory = Path(directory)
    atomic.recover(directory)
    if not directory.is_dir():
        if directory.exists():
            raise CheckpointError(f"checkpoint must be a folder, got the file {directory}. Name another place.")
        return
    names = sorted(entry.name for entry in directory.iterdir())
    if names and RECORD not in names:
        got = f"{directory} with {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}"
        raise CheckpointError(f"checkpoint must be a new or empty folder or a checkpoint's, got {got}. Name another.")


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a JSON object; what JSON does not have (nan) is refused."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object of a checkpoint's file.

    Raises:
        CheckpointError: no folder, no such file in it, or another content.
    """
    if path.parent.is_file():
        raise CheckpointError(f"checkpoint must be a folder, got the file {path.parent}. Give the folder it lies in.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"{path.parent} must be a checkpoint with {path.name}, got none. Give the folder that training wrote."
        ) from None
    except ValueError as error:  # no JSON, or no text
        raise CheckpointError(f"{path} must be JSON, got: {error}. Copy the checkpoint again, whole.") from error
    if not isinstance(content, dict):
        raise CheckpointError(
            f"{path} must be a JSON object, got a {type(content).__name__}. Copy the checkpoint again."
        )
    return content
