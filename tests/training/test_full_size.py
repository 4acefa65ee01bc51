"""`experiment=ten_steps`: the paper's architecture from random weights, on a CPU and without the hub.

The small variant runs the same config on a model of a thousandth of the size.
"""

from __future__ import annotations

import gc
import math
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import BartConfig, BartForConditionalGeneration, DPRConfig, DPRContextEncoder, DPRQuestionEncoder

from ragx.data.tasks import write_examples
from ragx.retriever.building import build_index
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.training.metrics_log import read_metrics
from ragx.training.record import read_record
from ragx.training.vocabulary import byte_level_bpe
from tests.training.conftest import DPR_SIZES, EXAMPLES, PASSAGES, word_tokenizer

ROOT = Path(__file__).parents[2]
SMALL: dict[str, Any] = {
    "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "vocab_size": 290,
}  # fmt: skip


def save_random_parts(folder: Path, bart: dict[str, Any], bert: dict[str, Any]) -> None:
    """Random weights in the layout of the hub's checkpoints, with small tokenizers, and an index of six passages."""
    texts = [f"{passage.title} {passage.text}" for passage in PASSAGES]
    special = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    config = BartConfig(**special, forced_eos_token_id=None, **bart)
    parts = {
        "bart": (BartForConditionalGeneration, config, byte_level_bpe(texts, size=290, max_length=64)),
        "question": (DPRQuestionEncoder, DPRConfig(**bert), word_tokenizer(texts)),
        "context": (DPRContextEncoder, DPRConfig(**bert), word_tokenizer(texts)),
    }
    for name, (network, sizes, tokenizer) in parts.items():
        network(sizes).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
        gc.collect()  # one model in memory at a time
    encoder = PassageEncoder.from_pretrained(folder / "context")
    build_index(PASSAGES, passage_encoder=encoder, directory=folder / "index", edition="1", progress=False)
    write_examples(folder / "train.jsonl", EXAMPLES)


def train_ten_steps(folder: Path) -> list[dict[str, Any]]:
    """The rows of scripts/train.py on the parts of `folder`."""
    overrides = [
        "experiment=ten_steps",
        f"generator.checkpoint={folder}/bart",
        f"retriever.query_encoder={folder}/question",
        f"retriever.passage_encoder={folder}/context",
        f"index.directory={folder}/index",
        f"data.train={folder}/train.jsonl",
        f"hydra.run.dir={folder}/run",
    ]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "scripts" / "train.py"), *overrides]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return read_metrics(folder / "run" / "metrics.jsonl")


def require_trained(rows: list[dict[str, Any]], folder: Path, vocab_size: int) -> None:
    assert [row["step"] for row in rows] == list(range(1, 11))
    assert all(math.isfinite(row["loss"]) and row["grad_norm/query_encoder"] > 0 for row in rows)
    per_token = [row["loss"] * row["examples"] / row["tokens"] for row in rows]
    assert abs(per_token[0] - math.log(vocab_size)) < 2.0  # random weights know nothing
    assert min(per_token[5:]) < per_token[0]
    assert read_record(folder / "run" / "checkpoints" / "last")["n_docs"] == 2


def test_the_small_variant_trains(tmp_path: Path) -> None:
    save_random_parts(tmp_path, SMALL, DPR_SIZES)
    require_trained(train_ten_steps(tmp_path), tmp_path, SMALL["vocab_size"])


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(os.environ.get("RAGX_FULL_SIZE") != "1", reason="12 GB and minutes: RAGX_FULL_SIZE=1 runs it")
def test_bart_large_and_bert_base_train_ten_steps_in_12_gb(tmp_path: Path) -> None:
    save_random_parts(tmp_path, {}, {})  # transformers' default sizes are those of BART-large and BERT-base
    require_trained(train_ten_steps(tmp_path), tmp_path, 50_265)
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert largest < 12 * 2**20, f"{largest / 2**20:.1f} GiB"  # Linux counts in KiB
