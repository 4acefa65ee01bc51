"""The page that goes with a checkpoint: what it is, what it was trained on, what it scored, how to load it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

TITLES = {"rag_sequence": "RAG-Sequence", "rag_token": "RAG-Token", "closed_book": "closed-book generator"}
LOADING = """```python
from ragx.training.checkpoint import load_checkpoint

model = load_checkpoint("this/folder", retriever=retriever)
```"""


def model_card(record: Mapping[str, Any], card: Mapping[str, Any] | None) -> str:
    """MODEL_CARD.md of a checkpoint.

    Args:
        record: the content of `ragx.json`.
        card: sections to add, by heading; a value is a sentence, a list of sentences, or a mapping for a table. Nothing
            that changes from run to run (times, dates) belongs here: equal runs write equal cards.
    """
    facts = {
        "kind": record["kind"],
        "passages per query (n_docs)": record["n_docs"],
        "generator": record["parts"]["generator"],
        "query encoder": record["parts"].get("query_encoder", "none"),
        "query encoder frozen": record["freeze_query_encoder"],
        **({"null document": "learned logit, appendix F"} if "null_document" in record["parts"] else {}),
        "index": (record["index"] or {}).get("fingerprint", "none"),
        **record["versions"],
    }
    lines = ["---", "library_name: ragx", "tags: [retrieval-augmented-generation]", "---", ""]
    lines += [
        f"# {TITLES.get(record['kind'], record['kind'])}",
        "",
        "Lewis et al. 2020, section 2. Each half opens alone",
    ]
    lines += ["with `from_pretrained` of transformers; together they load as", "", LOADING, ""]
    for heading, content in {"What it is": facts, **(card or {})}.items():
        lines += [f"## {heading}", "", *_section(content), ""]
    return "\n".join(lines)


def _section(content: Any) -> list[str]:
    if isinstance(content, Mapping):
        return ["| | |", "|---|---|", *(f"| {_cell(key)} | {_cell(value)} |" for key, value in content.items())]
    if isinstance(content, list | tuple):
        return [f"* {item}" for item in content]
    return [str(content)]


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.replace("|", "\\|").replace("\n", " ")
