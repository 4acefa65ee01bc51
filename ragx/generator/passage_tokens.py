"""Section 2.3: tokenized passages, remembered, and cut without touching anything but their text.

Passages are frozen and read again and again, so the most recent ones keep their ids. Offsets of the tokenizer tell
which ids are text; they also tell what was cut in code points, the unit of every span in ragx.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ragx.generator.template import Template
from ragx.records import Passage


@dataclass(frozen=True, slots=True)
class PassageTokens:
    """A tokenized passage.

    Attributes:
        ids: (P,) ids of the passage's part of the template.
        text: which of them are text, and may be cut.
        starts, ends: code points of the text where each of those begins and ends.
        length: code points of the text.
    """

    ids: np.ndarray
    text: slice
    starts: np.ndarray
    ends: np.ndarray
    length: int

    @property
    def n_fixed(self) -> int:
        """How many ids are never cut."""
        return len(self.ids) - len(self.starts)

    def kept(self, room: int) -> tuple[np.ndarray, tuple[int, int], int]:
        """Ids when `room` tokens of text fit, the visible code points [start, end), and the number of tokens cut."""
        total = len(self.starts)
        if room >= total:
            return self.ids, (0, self.length), 0
        while room > 0 and self.starts[room] < self.ends[room - 1]:
            room -= 1  # a character of several tokens is kept whole or not at all
        ids = np.concatenate([self.ids[: self.text.start + room], self.ids[self.text.stop :]])
        return ids, (0, int(self.ends[room - 1]) if room else 0), total - room


class PassageCache:
    """Tokenizes passages; the `size` most recently used are not tokenized again. Safe to ask from many threads.

    Args:
        tokenize: texts to a mapping with `input_ids` and `offset_mapping`.
        template: how title and text are joined.
        size: passages remembered.
    """

    def __init__(self, tokenize: Callable[[list[str]], Any], template: Template, *, size: int) -> None:
        self._tokenize = tokenize
        self._template = template
        self._size = size
        self._entries: OrderedDict[tuple[str, str], PassageTokens] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, passages: Sequence[Passage]) -> list[PassageTokens]:
        """The tokens of each passage, in order."""
        with self._lock:
            return self._take([(p.title, p.text) for p in passages])

    def _take(self, keys: list[tuple[str, str]]) -> list[PassageTokens]:
        missing = [key for key in dict.fromkeys(keys) if key not in self._entries]
        if missing:
            parts = [self._template.present(title, text) for title, text in missing]
            encoded = self._tokenize([part for part, _ in parts])
            for i, (key, (part, start)) in enumerate(zip(missing, parts, strict=True)):
                offsets = encoded["offset_mapping"][i]
                self._entries[key] = _locate(encoded["input_ids"][i], offsets, part, slice(start, start + len(key[1])))
        for key in keys:
            self._entries.move_to_end(key)
        found = [self._entries[key] for key in keys]
        while len(self._entries) > self._size:
            self._entries.popitem(last=False)
        return found


def _locate(ids: list[int], offsets: list[tuple[int, int]], part: str, text: slice) -> PassageTokens:
    """Finds the tokens of the text among those of a part; a blank before the text may belong to its first token."""
    inside = [
        i
        for i, (start, end) in enumerate(offsets)
        if end > text.start and start < text.stop and (start >= text.start or part[start : text.start].isspace())
    ]
    first = inside[0] if inside else len(ids)
    length = text.stop - text.start
    spans = (np.asarray([offsets[i] for i in inside], dtype=np.int32).reshape(-1, 2) - text.start).clip(0, length)
    text_tokens = slice(first, first + len(inside))
    return PassageTokens(np.asarray(ids, dtype=np.int64), text_tokens, spans[:, 0], spans[:, 1], length)
