"""scripts/train_bi_encoder.py as a user calls it, from DPR's file to an index that its passage encoder builds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from transformers import DPRContextEncoder, DPRQuestionEncoder

from ragx import config
from ragx.errors import ConfigError
from ragx.experiments import train_bi_encoder
from ragx.records import Passage
from ragx.retriever.building import build_index
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.schema_bi_encoder import TrainBiEncoder

CONFIGS = Path(__file__).parents[2] / "configs"
SMALL = [
    "training.steps=3", "training.batch_size=3", "training.warmup_steps=1", "training.learning_rate=1e-3",
    "training.device=cpu", "training.progress=false", "training.eval_every=0", "training.save_every=0",
]  # fmt: skip


@pytest.fixture
def resolve(tiny_dpr: Path) -> Callable[..., TrainBiEncoder]:
    def run(*overrides: str) -> TrainBiEncoder:
        given = [f"encoders.query_encoder={tiny_dpr}/query_encoder", *SMALL, *overrides]
        with initialize_config_dir(str(CONFIGS), version_base="1.3"):
            return config.resolve(compose("train_bi_encoder", overrides=given), TrainBiEncoder)

    return run


@pytest.fixture
def dpr_file(tmp_path: Path, tiny_passages: list[Passage]) -> Path:
    """Five questions in DPR's format, each with the next passage as hard negative."""
    written: list[dict[str, Any]] = []
    contexts = [{"title": p.title, "text": p.text, "passage_id": p.source} for p in tiny_passages]
    for row, context in enumerate(contexts):
        hard = contexts[(row + 1) % len(contexts)]
        question = {"question": f"Who led {context['title']}?", "answers": ["x"], "positive_ctxs": [context]}
        written.append({**question, "negative_ctxs": [], "hard_negative_ctxs": [hard]})
    (tmp_path / "biencoder-dev.json").write_text(json.dumps(written, indent=4))
    return tmp_path / "biencoder-dev.json"


@pytest.mark.parametrize("shared", ["true", "false"])
def test_from_dprs_file_to_an_index(
    resolve: Callable[..., TrainBiEncoder], dpr_file: Path, tiny_passages: list[Passage], tmp_path: Path, shared: str
) -> None:
    cfg = resolve(f"data.train={dpr_file}", f"data.dev={dpr_file}", f"encoders.shared={shared}")
    result = train_bi_encoder.run(cfg, run_dir=tmp_path / "run", command="python scripts/train_bi_encoder.py x")
    assert result.step == 3 and result.checkpoint == tmp_path / "run" / "checkpoints" / "best"
    assert set(result.final_metrics) == {
        "average_rank",
        "mrr",
        "pool",
        "success@1",
        "success@5",
        "success@20",
        "success@100",
    }
    card = (result.checkpoint / "MODEL_CARD.md").read_text()
    assert "Trained on biencoder-dev.json." in card and "`python scripts/train_bi_encoder.py x`" in card
    DPRQuestionEncoder.from_pretrained(result.checkpoint / "query_encoder")
    DPRContextEncoder.from_pretrained(result.checkpoint / "passage_encoder")
    encoder = PassageEncoder.from_pretrained(result.checkpoint / "passage_encoder")
    manifest = build_index(
        tiny_passages, passage_encoder=encoder, directory=tmp_path / "index", edition="e", progress=False
    )
    assert manifest.encoder["architecture"] == "DPRContextEncoder"


def test_questions_of_ours_with_gold_keys(
    resolve: Callable[..., TrainBiEncoder], tiny_passages: list[Passage], tmp_path: Path
) -> None:
    rows = [{"question": f"q {p.title}", "answers": ["x"], "gold": [list(p.key)]} for p in tiny_passages]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "2016-12.jsonl").write_text("".join(json.dumps(p.to_json()) + "\n" for p in tiny_passages))
    cfg = resolve(f"data.train={tmp_path}/q.jsonl", f"data.passages={tmp_path}/2016-12.jsonl")
    result = train_bi_encoder.run(cfg, run_dir=tmp_path / "run", command="")
    assert result.checkpoint.name == "last"


def test_the_embedded_questions_find_their_embedded_passages(resolve: Callable[..., TrainBiEncoder]) -> None:
    cfg = resolve("data.train=world_leaders:dev")
    found = train_bi_encoder.pairs(cfg.data.train, cfg.data)
    assert len(found) > 50 and all(example.positives for example in found)


def test_settings_are_checked_before_anything_is_read(
    resolve: Callable[..., TrainBiEncoder], dpr_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train_bi_encoder, "pairs", lambda *_: pytest.fail("the questions were read"))
    with pytest.raises(ConfigError, match="training.learning_rate must be finite and at least 0, got -1.0"):
        train_bi_encoder.run(
            resolve(f"data.train={dpr_file}", "training.learning_rate=-1"), run_dir=tmp_path / "r", command=""
        )
