"""Replies that were paid for once: a JSON lines file beside the output that grows reply by reply.

    {"request": "<sha256 of the whole request>", "reply": {"text": ..., "finish": ..., "model": ..., "usage": {...}}}

One decision: a reply is found by what was asked, letter by letter, not by the question's id. A run that was killed
asks only what is missing; a changed prompt, model or setting asks anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ragx import atomic
from ragx.jsonl import read_rows


@dataclass(frozen=True, slots=True)
class Reply:
    """What an endpoint said.

    Attributes:
        text: as it came; empty for a refusal.
        finish: why it ended: `stop`, `length`, `content_filter`, ...
        model: as the endpoint names it, which may be more exact than what was asked for.
        usage: tokens it counted.
    """

    text: str
    finish: str
    model: str
    usage: Mapping[str, int] = field(default_factory=dict)


class Replies:
    """The file at `path`; several threads may use it, one process at a time.

    Raises:
        DataError: a line of it that is not one of ours (a last line cut by a kill is dropped).
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._found: dict[str, Reply] = {}
        if self.path.exists():
            for row in read_rows(self.path, torn_end=True):
                value = row.require("reply")
                if not isinstance(value, dict) or set(value) != set(Reply.__dataclass_fields__):
                    row.fail("reply", f"must hold text, finish, model and usage, got {value!r}. Remove the line")
                self._found[row.text("request", row.require("request"))] = Reply(**value)
            self._rewrite()

    def __len__(self) -> int:
        return len(self._found)

    def get(self, request: Mapping[str, Any]) -> Reply | None:
        """The reply to exactly this request, if there is one."""
        return self._found.get(digest(request))

    def add(self, request: Mapping[str, Any], reply: Reply) -> None:
        """Keeps a reply; it is on disk when this returns."""
        line = json.dumps({"request": digest(request), "reply": asdict(reply)}, ensure_ascii=False) + "\n"
        with self._lock:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as handle:
                handle.write(line.encode("utf-8"))
                handle.flush()
                os.fsync(handle.fileno())
            self._found[digest(request)] = reply

    def _rewrite(self) -> None:
        """Without a torn last line, after which nothing could be appended."""
        with atomic.open_file(self.path) as handle:
            for request, reply in self._found.items():
                handle.write(json.dumps({"request": request, "reply": asdict(reply)}, ensure_ascii=False) + "\n")


def digest(request: Mapping[str, Any]) -> str:
    """Hex digest of a request, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(request, sort_keys=True, ensure_ascii=True).encode()).hexdigest()
