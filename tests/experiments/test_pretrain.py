"""The committed nano checkpoints are what their cards say, and the scripts' functions make such checkpoints."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, DPRContextEncoder, DPRQuestionEncoder

from ragx import build, config
from ragx.data.world_leaders.cloze import ClozeMaker
from ragx.data.world_leaders.editions import edition
from ragx.data.world_leaders.questions import questions
from ragx.experiments.pretrain import pretrain_bi_encoder, pretrain_generator
from ragx.generator.inputs import InputBuilder
from ragx.generator.seq2seq import Seq2SeqGenerator
from ragx.records import Passage
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.retriever.query_encoder import QueryEncoder
from ragx.schema_pretraining import Pretrain

CONFIGS = str(Path(__file__).parents[2] / "configs")
TINY = ["size.vocab_size=300", "size.d_model=16", "size.layers=1", "size.heads=2", "pretraining.steps=2",
        "pretraining.batch_size=4", "pretraining.save_every=2", "pretraining.warmup_steps=1"]  # fmt: skip


def _config(name: str, directory: Path) -> Pretrain:
    with initialize_config_dir(CONFIGS, version_base="1.3"):
        raw = compose(name, overrides=[f"directory={directory}", *TINY])
    return config.resolve(raw, Pretrain)


def test_the_checkpoints_are_small_and_have_cards() -> None:
    files = [path for path in build.CHECKPOINTS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 12_000_000
    assert {path.suffix for path in files} <= {".json", ".safetensors", ".md", ".jsonl"}
    for name in ("bart-nano", "dpr-nano"):
        card = (build.CHECKPOINTS / name / "MODEL_CARD.md").read_text()
        for word in ("Data", "Command", "seed", "steps", "seconds", "scripts/pretrain_"):
            assert word in card


def test_the_generator_reads_names_it_has_never_seen() -> None:
    generator = Seq2SeqGenerator.from_pretrained(build.weights("bart-nano"))
    inputs = InputBuilder(generator.tokenizer, max_length=256, read_special_tokens=True)
    maker, rng = ClozeMaker(invented=1.0), random.Random("unseen")
    draws = [maker.draw(rng) for _ in range(100)]
    built = inputs.build(
        [draw.sentence.format(mask="<mask>") for draw in draws],
        [[Passage("s", "1", "0", *draw.positive)] for draw in draws],
    )
    ids = generator.model.generate(
        input_ids=built.input_ids, attention_mask=built.attention_mask, max_new_tokens=32, num_beams=1, do_sample=False
    )
    right = sum(inputs.decode(row.tolist()) == draw.answer for row, draw in zip(ids, draws, strict=True))
    assert right >= 80


def test_the_bi_encoder_finds_gold_passages_of_questions_it_was_not_trained_on() -> None:
    query = QueryEncoder.from_pretrained(build.weights("dpr-nano", "query_encoder"))
    passage = PassageEncoder.from_pretrained(build.weights("dpr-nano", "passage_encoder"))
    passages, asked = edition("2016-12"), questions("dev")
    doc_embeds = torch.from_numpy(passage.encode(passages))
    with torch.no_grad():
        top = (query.embed([example.query for example in asked]) @ doc_embeds.T).topk(5).indices.tolist()
    hits = [any(passages[row].key in example.gold for row in rows) for rows, example in zip(top, asked, strict=True)]
    assert 0.75 <= sum(hits) / len(hits) <= 0.95  # above: nothing would be left for joint training to teach


@pytest.mark.slow
def test_a_pretrained_generator_opens_in_transformers(tmp_path: Path) -> None:
    folder = pretrain_generator(_config("pretrain_generator", tmp_path / "bart"), command="test")
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert model.config.d_model == 16 and len(tokenizer) == model.config.vocab_size
    assert "`test`" in (folder / "MODEL_CARD.md").read_text()


@pytest.mark.slow
def test_a_pretrained_bi_encoder_opens_in_transformers(tmp_path: Path) -> None:
    folder = pretrain_bi_encoder(_config("pretrain_bi_encoder", tmp_path / "dpr"), command="test")
    query = DPRQuestionEncoder.from_pretrained(folder / "query_encoder")
    passage = DPRContextEncoder.from_pretrained(folder / "passage_encoder")
    first, second = (next(model.parameters()) for model in (query, passage))
    assert first.shape == second.shape and not torch.equal(first, second)
