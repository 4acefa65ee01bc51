"""Every config composes, a misspelt key is an error wherever it stands, and all problems are reported together."""

from __future__ import annotations

import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import ConfigCompositionException
from omegaconf import DictConfig

from ragx import build, config, schema, schema_ablation, schema_bi_encoder, schema_import, schema_pretraining
from ragx.decoding.choice import DECODERS
from ragx.decoding.settings import DecodingSettings
from ragx.errors import ConfigError
from ragx.model import MODEL_KINDS
from ragx.training.settings import TrainingSettings

CONFIGS = Path(__file__).parents[1] / "configs"
SCHEMAS: dict[str, Any] = {
    "build_index": schema.BuildIndex,
    "train": schema.Train,
    "ablate": schema_ablation.Ablate,
    "generate": schema.Generate,
    "evaluate": schema.Evaluate,
    "evaluate_retrieval": schema.EvaluateRetrieval,
    "hot_swap": schema.HotSwap,
    "demo": schema.Demo,
    "pretrain_generator": schema_pretraining.Pretrain,
    "pretrain_bi_encoder": schema_pretraining.Pretrain,
    "import_checkpoint": schema.ImportCheckpoint,
    "train_bi_encoder": schema_bi_encoder.TrainBiEncoder,
    "import_passages": schema_import.ImportPassages,
    "import_index": schema_import.ImportIndex,
    "edit_index": schema_import.EditIndex,
}
# What a script cannot do without.
GIVEN = {
    "build_index": [],
    "train": [],
    "ablate": [],
    "generate": ["model.checkpoint=somewhere"],
    "evaluate": ["predictions=predictions.jsonl"],
    "evaluate_retrieval": [],
    "hot_swap": ["model.checkpoint=somewhere"],
    "demo": [],
    "pretrain_generator": [],
    "pretrain_bi_encoder": [],
    "import_checkpoint": ["source=facebook/rag-token-nq", "directory=somewhere"],
    "train_bi_encoder": ["data.train=predictions.jsonl"],
    "import_passages": ["source.place=predictions.jsonl", "output=passages.jsonl"],
    "import_index": ["source.place=predictions.jsonl", "passage_encoder=null", "index.directory=somewhere"],
    "edit_index": ["index.directory=somewhere"],
}
GROUP_FILES = sorted(path for path in CONFIGS.glob("*/*.yaml") if path.parent.name != "hydra")
# Two groups that go together.
WITH = {
    "retriever/bm25": ["index=bm25"],
    "retriever/given": ["retriever.given=predictions.jsonl"],
    "index/bm25": ["retriever=bm25"],
    "data/curated_trec": ["data.train=hub:a/b:train", "data.questions=hub:a/b:test"],
    "model/from_checkpoint": GIVEN["generate"],
}
# What the configs of local sets name, in the folder `data` unless RAGX_DATA names another.
LOCAL_FILES = (
    "nq_qed_wiki.tsv.gz",
    "jeopardy_2000.csv",
    *(f"nq_qed/{part}.jsonl.gz" for part in ("train", "dev")),
    *(f"wiki2015_openqa/curatedtrec.{part}.jsonl.gz" for part in ("train", "test")),
    *(f"wiki2015_openqa/webquestions.{part}.jsonl.gz" for part in ("trainmodel", "devtest")),
    *(f"fact_verification_pool/{name}" for name in ("evidence.tsv.gz", "claims.jsonl.gz")),
)
NOT_DENSE = ("bm25", "hybrid", "given")


def composed(name: str, *overrides: str, folder: Path = CONFIGS) -> DictConfig:
    with initialize_config_dir(str(folder), version_base="1.3"):
        return compose(name, overrides=list(overrides))


def resolved(name: str, *overrides: str) -> Any:
    return config.resolve(composed(name, *overrides), SCHEMAS[name])


def problems(name: str, *overrides: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError, match="must") as caught:
        resolved(name, *overrides)
    return caught.value.problems


@pytest.fixture(autouse=True)
def in_a_folder_with_predictions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("predictions.jsonl", *(f"data/{name}" for name in LOCAL_FILES)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.delenv("RAGX_DATA", raising=False)
    monkeypatch.chdir(tmp_path)


def test_the_list_of_primary_configs_is_whole() -> None:
    assert SCHEMAS.keys() <= {path.stem for path in CONFIGS.glob("*.yaml")}
    assert len(GROUP_FILES) >= 20


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_primary_config_resolves(name: str) -> None:
    assert isinstance(resolved(name, *GIVEN[name]), SCHEMAS[name])


@pytest.mark.parametrize("path", GROUP_FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_group_file_resolves_in_each_script_that_has_the_group(path: Path) -> None:
    group = path.parent.name
    scripts = [name for name in SCHEMAS if f"- {group}: " in (CONFIGS / f"{name}.yaml").read_text()]
    assert scripts
    for name in scripts:
        if group != "retriever" or path.stem not in NOT_DENSE or name not in ("hot_swap", "demo"):
            token_alone = name == "ablate" and path.stem in ("sample", *DECODERS["rag_token"])
            fitting = ["model=rag_token"] if token_alone else []
            resolved(name, *GIVEN[name], f"{group}={path.stem}", *WITH.get(f"{group}/{path.stem}", []), *fitting)


def test_only_a_dense_index_can_be_swapped() -> None:
    (found,) = problems("hot_swap", *GIVEN["hot_swap"], "retriever=bm25")
    assert found == "retriever.kind must be dense where an index is swapped, got bm25. Give retriever=dpr_nano."


@pytest.mark.parametrize("path", sorted(CONFIGS.rglob("*.yaml")), ids=lambda path: path.stem)
def test_every_file_opens_with_what_it_is(path: Path) -> None:
    assert path.read_text().startswith("# ")


@pytest.mark.parametrize("override", ["training.stepz=1", "trainning.steps=1", "model.n_doc=3", "experiment=no_such"])
def test_a_misspelt_key_on_the_command_line_is_an_error(override: str) -> None:
    with pytest.raises(Exception, match=f"Could not (override '{override.split('=')[0]}'|find 'experiment/no_such')"):
        composed("train", override)


def test_adding_a_key_with_a_plus_is_an_error_too() -> None:
    found = problems("train", "+training.stepz=1", "+speed=2")
    assert sorted(text.split(" ")[0] for text in found) == ["speed", "training.stepz"]
    assert all("must be a key of the schema" in text for text in found)


@pytest.mark.parametrize(
    "file", ["train.yaml", "training/nano.yaml", "model/rag_sequence.yaml", "experiment/frozen.yaml"]
)
def test_a_misspelt_key_in_a_file_is_an_error(file: str, tmp_path: Path) -> None:
    folder = tmp_path / "configs"
    shutil.copytree(CONFIGS, folder)
    with (folder / file).open("a") as handle:
        handle.write("\nn_dox: 3\n")
    with pytest.raises(ConfigCompositionException, match=r"'\S*train\S*'|In '\S+'") as caught:
        composed("train", "experiment=frozen", folder=folder)
    assert "n_dox" in str(caught.value.__cause__ or caught.value)


def test_all_problems_are_reported_together() -> None:
    found = problems(
        "generate",
        "model.kind=rag",
        "model.n_docs=-1",
        "index.kind=flatt",
        "generator.template='no question'",
        "decoding.num_beams=0",
        "decoding.batch_size=0",
        "data.questions=nowhere.jsonl",
    )
    keys = ("model.kind", "model.n_docs", "index.kind", "generator.template", "decoding.num_beams",
            "decoding.batch_size", "data.questions")  # fmt: skip
    assert sorted(text.split(" ")[0] for text in found) == sorted(keys)
    assert f"model.kind must be one of {', '.join(MODEL_KINDS)}, got 'rag'." in found
    assert "model.n_docs must be >= 1, got -1." in found


def test_what_is_missing_is_reported_with_what_is_wrong() -> None:
    found = problems("evaluate", "seed=-1", "success_at=[0]")
    assert [text.split(" must")[0] for text in found] == ["predictions", "success_at", "seed"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.kind=null"], "model.kind must be given where model.checkpoint is not, got null"),
        (["retriever=bm25"], "index.kind must be bm25 with retriever.kind bm25 alone, got index flat"),
        (["index=hnsw", "+index.parameters.links=3"], "index.parameters of hnsw must be among: m, ef_construction"),
        (
            ["training.steps=20", "training.warmup_steps=21"],
            r"training.warmup_steps must be at most steps \(20\), got 21",
        ),
        (["training.schedule=step"], "training.schedule must be one of constant, linear, cosine, got 'step'"),
        (["training.steps=${no.such}"], "training.steps must resolve, got: Interpolation key 'no.such' not found"),
    ],
)
def test_single_problems(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolved("train", *overrides)


def test_a_decoder_that_does_not_fit_the_kind_is_an_error_that_lists_those_that_do() -> None:
    found = problems("generate", "model=rag_token", "decoding=fast")
    assert found == (
        "decoding.decoder must be null or one of token_beam, greedy, closed_set, got 'fast' with model.kind rag_token.",
    )


def test_another_schema_is_an_error() -> None:
    with pytest.raises(ConfigError, match="defaults must open with Generate_schema, got a config of type .*Train"):
        config.resolve(composed("train"), schema.Generate)


def test_relative_paths_start_where_the_script_was_started(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    (tmp_path / "my.tsv").touch()
    cfg = resolved(
        "build_index", "data.passages=my.tsv", "index.directory=indexes/mine", "retriever.passage_encoder=weights"
    )
    assert cfg.data.passages == str(tmp_path / "my.tsv")
    assert cfg.index.directory == str(tmp_path / "indexes/mine")
    assert cfg.retriever.passage_encoder == str(tmp_path / "weights")


def test_names_that_are_no_folder_stay_names() -> None:
    cfg = resolved("build_index", "retriever.passage_encoder=facebook/dpr-ctx_encoder-single-nq-base")
    assert cfg.retriever.passage_encoder == "facebook/dpr-ctx_encoder-single-nq-base"
    assert cfg.data.passages == "world_leaders:2016-12"


@pytest.mark.parametrize(("written", "value"), [("'a,b'", "a,b"), ("'x=y'", "x=y"), ("'[1]'", "[1]"), ("'a b'", "a b")])
def test_text_with_special_characters_arrives_as_it_is(written: str, value: str) -> None:
    assert resolved("train", f"experiment.name={written}").experiment.name == value


def test_numbers_arrive_as_numbers() -> None:
    cfg = resolved("train", "training.generator_lr=1e-5", "training.max_grad_norm=2")
    assert (cfg.training.generator_lr, cfg.training.max_grad_norm) == (1e-5, 2.0)


def test_the_schema_has_every_setting_of_training_and_decoding() -> None:
    training = {item.name for item in fields(TrainingSettings)} - {"seed"}
    assert {item.name for item in fields(schema.TrainingConfig)} == training
    decoding = {item.name for item in fields(DecodingSettings)}
    besides = {"decoder", "labels", "batch_size", "device"}
    assert {item.name for item in fields(schema.DecodingConfig)} == decoding | besides


def test_settings_carry_the_values() -> None:
    cfg = resolved("train", "training.steps=40", "experiment.seed=7")
    settings = cfg.training.settings(seed=cfg.experiment.seed)
    assert (settings.steps, settings.seed) == (40, 7)
    assert resolved("generate", *GIVEN["generate"], "decoding.num_beams=9").decoding.settings().num_beams == 9


def test_the_usual_decoder_fits_each_kind() -> None:
    assert {kind: build.decoder(None, kind) for kind in MODEL_KINDS} == {
        "rag_sequence": "thorough",
        "rag_token": "token_beam",
        "closed_book": "greedy",
    }
    assert all(build.decoder(None, kind) in DECODERS[kind] for kind in MODEL_KINDS)
    assert build.decoder("fast", "rag_sequence") == "fast"


def test_the_saved_config_holds_the_resolved_values(tmp_path: Path) -> None:
    config.save(resolved("build_index", "index.batch_size=8"), tmp_path)
    text = (tmp_path / "config.yaml").read_text()
    assert "batch_size: 8" in text and f"directory: {tmp_path}/indexes/world_leaders-2016-12" in text


@pytest.mark.parametrize("source", ["world_leaders:tset", "world_leaders:hot_swap/2017-12"])
def test_unknown_parts_of_the_embedded_knowledge_base(source: str) -> None:
    with pytest.raises(ConfigError, match=f"questions must be a file or world_leaders: with one of .*, got '{source}'"):
        build.examples(source)


def test_the_version_of_a_corpus() -> None:
    data = resolved("build_index").data
    assert build.edition(data) == "2016-12"
    data.passages = "/somewhere/my.passages.tsv.gz"
    assert build.edition(data) == "my"
    data.edition = "spring"
    assert build.edition(data) == "spring"
    data.passages = "world_leaders:2018-12"
    with pytest.raises(ConfigError, match=r"data.edition must be null or 2018-12 .*, got 'spring'"):
        build.edition(data)
