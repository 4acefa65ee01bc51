"""One config for each table and figure of the paper, and its nano twin: all compose, the twins train one step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from ragx import config, schema
from ragx.build import CHECKPOINTS
from ragx.data.world_leaders.editions import edition
from ragx.retriever.bm25 import BM25Retriever
from ragx.retriever.building import build_index
from ragx.retriever.passage_encoder import PassageEncoder
from tests.scripts import ROOT, run_script

CONFIGS = ROOT / "configs"
QA = ("natural_questions", "trivia_qa", "web_questions", "curated_trec")
GENERATION = ("jeopardy", "ms_marco_nlg")
VERIFICATION = ("fever_3way", "fever_2way")
MODELS = ("rag_token", "rag_sequence")
RETRIEVERS: dict[str, list[str]] = {
    "learned": [],
    "frozen": ["retriever.freeze_query_encoder=true"],
    "bm25": ["retriever=bm25", "index=bm25", "index.directory=indexes/wikipedia-bm25"],
}
PAPER = {
    "table1": (MODELS, QA),
    "table2": ((*MODELS, "closed_book"), (*GENERATION, *VERIFICATION)),
    "table5": ((*MODELS, "closed_book"), GENERATION),
    "table6": (MODELS, (*QA, *GENERATION, *VERIFICATION)),
    "figure2": (("rag_token",), ("jeopardy",)),
    "figure3": (MODELS, ("natural_questions",)),
    "hot_swap": (MODELS, ("natural_questions",)),
}
TWINS = {f"{name}_nano" for name in PAPER}


def composed(*overrides: str) -> schema.Train:
    """The checked config; files that CuratedTREC needs are named."""
    files = ["data.train=hub:a/b:train", "data.questions=hub:a/b:test"] if "data=curated_trec" in overrides else []
    with initialize_config_dir(version_base="1.3", config_dir=str(CONFIGS)):
        return config.resolve(compose("train", [*overrides, *files]), schema.Train)


def test_every_table_and_figure_has_a_config_and_a_twin() -> None:
    there = {path.stem for path in (CONFIGS / "experiment").glob("*.yaml")}
    assert {*PAPER, *TWINS} <= there


@pytest.mark.parametrize("name", PAPER)
def test_every_combination_has_the_papers_parts(name: str) -> None:
    models, tasks = PAPER[name]
    for retriever, given in RETRIEVERS.items() if name == "table6" else [("learned", [])]:
        for model in models:
            for task in tasks:
                cfg = composed(f"experiment={name}", f"model={model}", f"data={task}", *given)
                assert cfg.experiment.name == name and cfg.model.kind == model
                assert cfg.generator.checkpoint == "facebook/bart-large"
                assert cfg.training.mixed_precision == "bf16" and cfg.training.weight_decay == 0.0  # Adam
                assert cfg.model.n_docs in (5, 10)
                bm25 = retriever == "bm25"
                assert (cfg.index.kind, cfg.retriever.kind) == (("bm25", "bm25") if bm25 else ("hnsw", "dense"))
                encoder = None if bm25 else "facebook/dpr-question_encoder-single-nq-base"
                assert cfg.retriever.query_encoder == encoder
                assert cfg.retriever.freeze_query_encoder == (retriever != "learned")
                assert Path(cfg.index.directory).name == ("wikipedia-bm25" if bm25 else "wikipedia")


def test_figure_2_is_of_rag_token_on_jeopardy_with_five_passages() -> None:
    cfg = composed("experiment=figure2")
    assert (cfg.model.kind, cfg.model.n_docs, cfg.data.task) == ("rag_token", 5, "question_generation")


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A flat and a BM25 index over the first 40 passages of the embedded base."""
    root, few = tmp_path_factory.mktemp("indexes"), edition("2016-12")[:40]
    encoder = PassageEncoder.from_pretrained(CHECKPOINTS / "dpr-nano" / "passage_encoder")
    build_index(few, passage_encoder=encoder, directory=root / "flat", edition="2016-12", progress=False)
    BM25Retriever.build(few, root / "bm25", edition="2016-12")
    return {"flat": str(root / "flat"), "bm25": str(root / "bm25")}


def twin_runs() -> list[tuple[str, Sequence[str]]]:
    """Each twin, in every form that its table needs."""
    claims = [("table2_nano", [f"data=world_leaders_claims_{ways}way", "model=rag_token"]) for ways in (3, 2)]
    table6 = [
        ("table6_nano", ["retriever=bm25", "index=bm25", "index.directory={bm25}"]),
        ("table6_nano", ["retriever.freeze_query_encoder=true"]),
    ]
    closed = [("table2_nano", ["model=closed_book"])]
    return [*((name, []) for name in sorted(TWINS)), *claims, *table6, *closed]


@pytest.mark.parametrize(("name", "given"), twin_runs())
def test_a_twin_trains_one_step(name: str, given: Sequence[str], indexes: dict[str, str], tmp_path: Path) -> None:
    """On the embedded base with the embedded checkpoints, two questions and two passages each."""
    small = ["model.n_docs=2", "training.steps=1", "training.batch_size=2", "training.warmup_steps=0"]
    quiet = ["training.progress=false", "training.device=cpu"]
    own = [override.format(**indexes) for override in given]
    chosen = [f"experiment={name}", f"index.directory={indexes['flat']}", *own]
    assert run_script("train", *chosen, *small, *quiet, folder=tmp_path) == 0
    (row,) = [json.loads(line) for line in (tmp_path / "runs/run/metrics.jsonl").read_text().splitlines()]
    assert row["step"] == 1 and row["loss"] > 0
    cfg = OmegaConf.load(tmp_path / "runs/run/config.yaml")
    assert cfg.experiment.name == name and cfg.data.train.startswith("world_leaders:")
    assert ("distinct_top1" in row) == (cfg.model.kind != "closed_book")
    assert ("lr/query_encoder" in row) == (cfg.model.kind != "closed_book" and not cfg.retriever.freeze_query_encoder)
