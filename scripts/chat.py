"""Zero-shot RAG with a chat endpoint as generator; options in configs/chat.yaml."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import hydra
from omegaconf import DictConfig

from ragx import build, config
from ragx.chat.endpoint import ChatEndpoint
from ragx.chat.replies import Replies
from ragx.chat.zero_shot import answer, candidates
from ragx.citations.trace_file import write_traces
from ragx.schema_chat import Chat


@hydra.main(version_base="1.3", config_path="../configs", config_name="chat")
@config.plain_errors
def main(raw: DictConfig) -> None:
    """Writes one trace a question; started again with the same `output`, it asks only what has no reply yet."""
    cfg = config.resolve(raw, Chat)
    config.save(cfg, config.output_directory())
    output = Path(cfg.output or config.output_directory() / "traces.jsonl")
    endpoint, prompt = ChatEndpoint(cfg.endpoint.settings()), cfg.prompt.settings()
    examples = build.examples(cfg.data.questions, data=cfg.data, require_answers=False)
    retriever = build.retriever(cfg.retriever, directory=cfg.index.directory) if cfg.n_docs else None
    searched = cfg.n_docs and cfg.retriever.kind in ("dense", "hybrid")
    found = candidates(
        retriever, examples, cfg.n_docs, query_encoder=build.query_encoder(cfg.retriever) if searched else None
    )
    traces = list(
        answer(
            endpoint,
            examples,
            found,
            prompt=prompt,
            replies=Replies(output.with_name(output.name + ".replies")),
            concurrency=cfg.endpoint.concurrency,
            principal=tuple(cfg.retriever.filter.acl or ("public",)),
            provenance={"index": None if retriever is None else retriever.fingerprint, "n_docs": cfg.n_docs},
        )
    )
    write_traces(output, traces)
    print(dict(Counter(trace.answer.status for trace in traces)))
    print(output)


if __name__ == "__main__":
    main()
