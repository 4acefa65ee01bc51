"""Answers requests by quoting documents, without a generator; options in configs/compose.yaml."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import hydra
from omegaconf import DictConfig

from ragx import config
from ragx.citations.documents import Library
from ragx.experiments.practice import PRACTICE, read_requests, run_practice, verify_frozen
from ragx.schema_audit import Compose


@hydra.main(version_base="1.3", config_path="../configs", config_name="compose")
@config.plain_errors
def main(raw: DictConfig) -> None:
    """Writes what was retrieved, packed and cited, and prints the outcome of every request."""
    cfg = config.resolve(raw, Compose)
    config.save(cfg, config.output_directory())
    if cfg.documents is None or cfg.requests is None:
        verify_frozen()
    library = Library.read(cfg.documents or PRACTICE / "documents.jsonl")
    output = Path(cfg.output or config.output_directory() / "composed")
    traces = run_practice(library, read_requests(cfg.requests or PRACTICE / "requests.jsonl"), output)
    for trace in traces:
        cited = ", ".join("@".join(citation.key[:2]) for citation in trace.citations)
        print(f"{trace.qid:<12} {trace.answer.status:<10} {trace.answer.reason_code or cited}")
    print(dict(Counter(trace.answer.status for trace in traces)))
    print(output)


if __name__ == "__main__":
    main()
