"""Folders of runs as the scripts leave them, small enough to check by hand: a demo, a sweep, curves, an evaluation."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from ragx.data.predictions import write_predictions
from ragx.data.tasks import write_examples
from ragx.records import AnswerTokens, Citation, Example, PassageKey, Prediction, RetrievedPassage

EVIL = '<script>alert("x")</script> & <b>$_|`'
TEXTS = (f"The sun rises {EVIL} in the east.", "It sets in the west.")


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def metric(value: float | None, *, n: int = 9, **more: Any) -> dict[str, Any]:
    low_high = None if value is None else [value - 0.0625, value + 0.0625]
    return {"value": value, "n": n, "n_null": 0, "ci95": low_high, **more}


def prediction(
    name: str = "q1",
    *,
    kind: str = "rag_token",
    prior: Sequence[float] = (0.6, 0.4),
    rows: Sequence[Sequence[float]] = ((0.9, 0.1), (0.2, 0.8)),
    answer: str = "Sun rises",
    query: str = f"What {EVIL}?",
) -> Prediction:
    """Two tokens, the first of one passage, the second of the other; `rows` are p(token|passage)."""
    keys = [PassageKey(f"sky{z}", "v1", "0") for z in range(len(prior))]
    passages = tuple(
        RetrievedPassage(key, EVIL, TEXTS[z % 2], "0" * 64, 9.0 - z, prior[z], prior[z], (0, len(TEXTS[z % 2])))
        for z, key in enumerate(keys)
    )
    logs = tuple(tuple(map(math.log, row)) for row in rows)
    spans = ((0, 3), (3, len(answer)))
    decoder = {"rag_token": "token_beam", "rag_sequence": "thorough"}[kind]
    return Prediction(
        id=name,
        query=query,
        answer=answer,
        logprob=math.log(0.5),
        hypotheses=((answer, math.log(0.5)),),
        passages=passages,
        citations=(Citation(keys[0], 0.9, 1.0, (4, 13), "full"),),
        cut_tokens=0,
        provenance={"kind": kind, "decoder": decoder},
        tokens=AnswerTokens(spans, logs),
    )


def write_steps(path: Path, losses: Sequence[float | None], **columns: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = ({"step": step, "loss": loss, "skipped_steps": 0, **columns} for step, loss in enumerate(losses, start=1))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_demo(folder: Path, *, seed: int = 0, match: float = 0.75, n_docs: int = 5) -> Path:
    """A demo of two models; exact match of rag_token is `match`, all else hangs on it or stands still."""
    results = {
        "exact_match": {"rag_token": {"token_beam": match, "greedy": 0.5}, "closed_book": {"greedy": 0.0}},
        "exact_match_before": {"rag_token": {"token_beam": 0.25}},
        "exact_match_ci95": {
            "rag_token": {"token_beam": [match - 0.125, match + 0.125], "greedy": [0.25, 0.75]},
            "closed_book": {"greedy": [0.0, 0.0]},
        },
        "exact_match_by_kind": {"rag_token": {"rise": match, "set": 0.5}, "closed_book": {"rise": 0.0, "set": 0.0}},
        "supported_share": {"rag_token": {"token_beam": 0.875, "greedy": 0.875}, "closed_book": {"greedy": None}},
        "questions": 9,
        "retrieval": {"success_at": {"1": match, "5": 1.0}, "success_at_before": {"1": 0.5, "5": 0.625}},
        "hot_swap": swap(match),
        "seconds": {"total": 12.4},
        "peak_rss_mib": 100,
        "seed": seed,
        "versions": {"python": "3.11.1", "torch": "2.9"},
        "fingerprints": {"generator": "abcdef0123456789", "indexes": {"2016": "fedcba9876543210"}},
    }
    write(folder / "results.json", results)
    write(
        folder / "demo.json",
        {"run_dir": None, "seed": seed, "n_docs": n_docs, "index": {"directory": "/home/me/a/b/c"}},
    )
    write_steps(
        folder / "models" / "rag_token" / "metrics.jsonl",
        [4.0 - seed, 2.0 - seed],
        distinct_top1=3,
        queries=4,
        prior_entropy=0.5,
        kl_posterior_prior=0.25,
    )
    write_predictions(folder / "predictions" / "rag_token.token_beam.jsonl", [prediction()])
    write_predictions(folder / "predictions" / "rag_sequence.thorough.jsonl", [prediction(kind="rag_sequence")])
    write_predictions(folder / "predictions" / "before.rag_token.token_beam.jsonl", [prediction("early")])
    write_examples(folder / "questions.jsonl", [Example("q1", f"What {EVIL}?", ("Sun rises",))])
    write(folder / "audit" / "rag_token" / "summary.json", audit(match))
    return folder


def swap(match: float) -> dict[str, Any]:
    matrix = {i: {q: metric(match if i == q else 0.125) for q in ("2016", "2018")} for i in ("2016", "2018")}
    return {
        "matched": {"2016": match, "2018": match},
        "mismatched": {"2016": 0.125, "2018": 0.125},
        "n": {"2016": 9, "2018": 9},
        "ci": {name: {"2016": [0.0, 1.0], "2018": [0.0, 1.0]} for name in ("matched", "mismatched")},
        "matrix": matrix,
    }


def audit(coverage: float) -> dict[str, Any]:
    return {
        "schema": "ragx-audit-v1",
        "n_questions": 9,
        "n_claims": 1200,
        "n_citations": 11,
        "metrics": {"support": {"coverage_any": metric(coverage)}, "answer": {"exact_match": metric(None)}},
        "counts": {"claim_status": {"supported": 7, "not_judged": 2}, "citation_status": {"full": 11}},
        "gates": [{"name": "coverage_any", "kind": "at least", "bound": 0.8, "found": coverage, "passed": False}],
    }


def arm(
    label: str, settings: Mapping[str, str], values: Sequence[float], *, against: str | None = None
) -> dict[str, Any]:
    mean = sum(values) / len(values)
    difference = {"value": 0.0625, "ci95": [-0.125, 0.25], "p_value": 0.0412, "n": 9, "seeds": [0, 1]}
    return {
        "arm": label,
        "settings": dict(settings),
        "is_baseline": against is None,
        "compared_with": against,
        "seeds": list(range(len(values))),
        "jobs": [label],
        "metrics": {"exact_match": {"mean": mean, "std": 0.03125, "values": list(values), "n": 9}, "f1": None},
        "difference": None if against is None else difference,
    }


def write_sweep(folder: Path, *, failed: bool = True) -> Path:
    """A sweep over n_docs and a likelihood, of two seeds; with a job that failed and one that never ended."""
    arms = [
        arm(f"n_docs={n}, model={kind}", {"model.n_docs": str(n), "model": kind}, [0.5, 0.5 + n / 64], against=other)
        for kind, other in (("rag_token", None), (EVIL, f"{EVIL} again"))
        for n in (1, 10, 2)
    ]
    job = {"folder": "job-3", "overrides": {}, "error": f"no memory {EVIL}", "trace": "..."}
    summary = {
        "format": 1,
        "name": "n_docs",
        "metrics": ["exact_match", "f1"],
        "axes": {"model.n_docs": ["1", "10", "2"], "model": ["rag_token", EVIL]},
        "baseline": {"model": "rag_token"},
        "arms": arms,
        "failed": [job] if failed else [],
        "missing": [{"folder": "job-4", "overrides": {}}] if failed else [],
    }
    write(folder / "sweep.json", {"name": "n_docs"})
    write(folder / "summary.json", summary)
    write(folder / "job-1" / "metrics.json", {"exact_match": metric(0.015625)})
    return folder


def write_curve(folder: Path, *, values: Mapping[int, float]) -> Path:
    points = {
        str(n): {
            "exact_match": metric(value),
            "f1": metric(None, n=0),
            "success_at": {str(k): metric(k / 16) for k in values if k <= n},
            "by_kind": {},
        }
        for n, value in values.items()
    }
    write(folder / "results.json", points)
    return folder


class Tables(HTMLParser):
    """The tables of a page: caption -> rows of cells, each cell its text and, in parentheses, its small note."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: dict[str, list[list[str]]] = {}
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._caption = ""
        self._in = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "div" and dict(attrs).get("class") == "wide":
            self._caption = dict(attrs).get("aria-label") or ""
            self.found[self._caption] = []
        elif tag == "tr":
            self.found[self._caption].append([])
        elif tag in ("td", "th"):
            self.found[self._caption][-1].append("")
        if tag in ("td", "th", "small"):
            self._in = tag

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "small"):
            self._in = ""

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._in:
            self.found[self._caption][-1][-1] += f" ({data})" if self._in == "small" else data


def markdown_tables(text: str) -> dict[str, list[list[str]]]:
    """The tables of a Markdown file by caption, with escapes undone."""
    found: dict[str, list[list[str]]] = {}
    caption = ""
    for line in text.splitlines():
        if line.startswith("**") and line.endswith("**"):
            caption = _unescaped(line[2:-2])
        elif line.startswith("|") and not line.startswith("|---"):
            cells = line.strip("|").replace("\\|", "\0").split("|")
            found.setdefault(caption, []).append([_unescaped(cell.strip().replace("\0", "|")) for cell in cells])
    return found


def _unescaped(text: str) -> str:
    return "".join(part if i % 2 == 0 else part[0] + part[1:] for i, part in enumerate(text.split("\\")))
