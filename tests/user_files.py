"""A user's own files: who leads six countries, by year; and what makes runs of the scripts on them small."""

from __future__ import annotations

import csv
import json
from pathlib import Path

COUNTRIES = ["Peru", "Chile", "France", "Japan", "Kenya", "Norway"]
TRAIN = ["data.train=2016.jsonl", "model.kind=rag_token", "model.n_docs=2", "training.steps=2", "training.batch_size=2",
         "training.warmup_steps=0", "training.progress=false", "training.device=cpu"]  # fmt: skip
ANSWER = ["data.questions=2016.jsonl", "decoding.num_beams=2", "decoding.max_length=4", "decoding.device=cpu"]


def leader(country: str, year: int) -> str:
    """Who leads `country` in `year`."""
    return f"{country[:3]}{year % 10}"


def write_corpus(path: Path, year: int) -> None:
    """A passage on each country, as TSV."""
    with path.open("w", newline="") as handle:
        rows = csv.writer(handle, delimiter="\t")
        rows.writerow(["id", "text", "title"])
        for country in COUNTRIES:
            rows.writerow([country.lower(), f"The leader of {country} is {leader(country, year)}.", country])


def write_questions(path: Path, year: int) -> None:
    """A question on each country with its gold passage, as JSONL."""
    rows = [
        {
            "id": f"q-{c}",
            "question": f"Who leads {c}?",
            "answers": [leader(c, year)],
            "gold": [[c.lower(), str(year), "0"]],
        }
        for c in COUNTRIES
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
