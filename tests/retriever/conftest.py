"""Tiny checkpoints in Hugging Face format: a WordPiece tokenizer of a few dozen words, BERT of 16 dimensions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertModel,
    DPRConfig,
    DPRContextEncoder,
    DPRQuestionEncoder,
    PreTrainedTokenizerFast,
)

from ragx.records import Passage
from ragx.retriever.building import Encoding, build_index
from ragx.retriever.passage_encoder import PassageEncoder

WORDS = (
    "lima paris berlin peru france germany capital of is the a who leads president city river amazon seine "
    "spree country in europe south america since 2016 2018 john mary ollanta merkel hollande what where ##s ##er"
).split()
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {word: row for row, word in enumerate([*SPECIAL, *WORDS])}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
    )


SIZES = dict(
    vocab_size=len(SPECIAL) + len(WORDS),
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=64,
    # Initialised wide, so that different texts get clearly different vectors.
    initializer_range=0.5,
)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A function that saves a tiny encoder of one of four kinds, once per kind and seed, and names its folder."""
    root = tmp_path_factory.mktemp("encoders")

    def make(kind: str, seed: int = 0) -> Path:
        folder = root / f"{kind}-{seed}"
        if not folder.exists():
            torch.manual_seed(seed)
            model = {
                "question": lambda: DPRQuestionEncoder(DPRConfig(**SIZES)),
                "context": lambda: DPRContextEncoder(DPRConfig(**SIZES)),
                "projected": lambda: DPRContextEncoder(DPRConfig(**SIZES, projection_dim=8)),
                "bert": lambda: BertModel(BertConfig(**SIZES)),
            }[kind]()
            model.save_pretrained(folder)
            tiny_tokenizer().save_pretrained(folder)
        return folder

    return make


@pytest.fixture
def passages() -> list[Passage]:
    """Six passages of different length; the ids are neither sorted nor of one type."""
    rows = [
        ("wiki:1", "Peru", "Lima is the capital of Peru"),
        ("7", "France", "Paris is the capital of France in Europe since 2016"),
        ("x", "Germany", "Berlin"),
        ("wiki:3", "", "The Amazon is a river in South America"),
        ("-1", "Spree", "The Spree is a river in Berlin Germany"),
        ("ü b", "President of France", "Hollande leads France"),
    ]
    return [Passage(source, "2016-12", "0", title, text) for source, title, text in rows]


@pytest.fixture
def encoder(checkpoint: Callable[..., Path]) -> PassageEncoder:
    return PassageEncoder.from_pretrained(checkpoint("context"))


@pytest.fixture
def build(encoder: PassageEncoder, tmp_path: Path) -> Callable[..., Path]:
    def make(passages: list[Passage], name: str = "index", edition: str = "2016-12", **options: object) -> Path:
        how = {key: options.pop(key) for key in ("storage", "batch_size", "vectors_from") if key in options}
        settings = {"passage_encoder": encoder, "progress": False, "encoding": Encoding(**how), **options}  # type: ignore[arg-type]
        build_index(passages, directory=tmp_path / name, edition=edition, **settings)  # type: ignore[arg-type]
        return tmp_path / name

    return make


@pytest.fixture
def next_edition(passages: list[Passage]) -> list[Passage]:
    """The same passages in another order, another text and another version."""
    return [Passage(p.source, "2018-12", p.chunk, p.title, f"{p.text} since 2018") for p in passages[::-1]]
