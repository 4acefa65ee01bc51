"""Invented names of people and countries, for pretraining on what nobody has seen."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable

from ragx.data.world_leaders.facts import EDITIONS, offices, spells


class NameMaker:
    """Invents names letter by letter from the three-letter statistics of the real ones."""

    def __init__(self, *, familiar: float = 0.0) -> None:
        people = [spell.leader for rows in spells().values() for spell in rows if spell.start <= EDITIONS[0]]
        people += [office.holder(EDITIONS[0])[0] for office in offices()]
        self.people = _Letters(
            word for name in people for word in name.split() if len(word) > 2 and chr(34) not in word
        )
        self.places = _Letters(
            word for name in spells() for word in name.split() if len(word) > 3 and word[0].isupper()
        )
        self.words = [len(name.split()) for name in people]
        self.familiar, self.known = familiar, sorted({word for name in people for word in name.split()})

    def leader(self, rng: random.Random) -> str:
        """A name of one to six words, as long as real names are."""
        return " ".join(self._word(rng) for _ in range(rng.choice(self.words)))

    def _word(self, rng: random.Random) -> str:
        is_known = self.familiar > 0 and rng.random() < self.familiar
        return rng.choice(self.known) if is_known else self.people.word(rng)

    def country(self, rng: random.Random) -> str:
        """A name of one or two words."""
        return " ".join(self.places.word(rng) for _ in range(1 if rng.random() < 0.8 else 2))


class _Letters:
    def __init__(self, words: Iterable[str]) -> None:
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for word in words:
            padded = f"^^{word}$"
            for i in range(2, len(padded)):
                counts[padded[i - 2 : i]][padded[i]] += 1
        self.following = {pair: (sorted(c), [c[letter] for letter in sorted(c)]) for pair, c in counts.items()}

    def word(self, rng: random.Random) -> str:
        while True:
            word = "^^"
            while word[-1] != "$" and len(word) < 14:
                letters, weights = self.following[word[-2:]]
                word += rng.choices(letters, weights)[0]
            if 5 <= len(word) < 14:
                return word[2:].rstrip("$")
