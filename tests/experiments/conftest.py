"""A tiny real model over two editions of a small corpus: BART and BERT of 16 dimensions, a few dozen words."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BartConfig, BartForConditionalGeneration, BertConfig, BertModel, PreTrainedTokenizerFast

from ragx.decoding.settings import DecodingSettings
from ragx.generator.seq2seq import Seq2SeqGenerator
from ragx.model import RagModel
from ragx.records import Example, Passage
from ragx.retriever.building import build_index
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.retriever.query_encoder import QueryEncoder

EDITIONS = ("2016-12", "2018-12")
LEADERS = {"Peru": ("Humala", "Vizcarra"), "Ghana": ("Mahama", "Addo"), "Nepal": ("Dahal", "Oli")}
SETTINGS = DecodingSettings(num_beams=2, num_return_sequences=2, max_length=4)


def passages_of(edition: str) -> list[Passage]:
    """One passage a country, and one that says nothing of use."""
    place = EDITIONS.index(edition)
    found = [Passage(c, edition, "0", c, f"{names[place]} leads {c} .") for c, names in LEADERS.items()]
    return [*found, Passage("Rain", edition, "0", "Rain", "Rain falls .")]


def questions_of(edition: str) -> list[Example]:
    """Who leads each country, with its gold passage."""
    place = EDITIONS.index(edition)
    return [
        Example(f"{c}", f"Who leads {c} ?", (names[place],), kind="leader", gold=(passages_of(edition)[row].key,))
        for row, (c, names) in enumerate(LEADERS.items())
    ]


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a word; <s> ... </s> around a text."""
    texts = [f"{p.title} {p.text}" for edition in EDITIONS for p in passages_of(edition)] + ["Who ? / //"]
    words = sorted({word for text in texts for word in re.findall(r"\w+|[^\w\s]", text)})
    vocabulary = {word: row for row, word in enumerate(["<s>", "<pad>", "</s>", "<unk>", *words])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<s>",
        cls_token="<s>",
        pad_token="<pad>",
        eos_token="</s>",
        sep_token="</s>",
        unk_token="<unk>",
        model_max_length=64,
    )


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoder")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer()), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=64, initializer_range=0.5,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def index_dirs(encoder_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A real index per edition."""
    root = tmp_path_factory.mktemp("indexes")
    encoder = PassageEncoder.from_pretrained(encoder_folder)
    for edition in EDITIONS:
        build_index(
            passages_of(edition), passage_encoder=encoder, directory=root / edition, edition=edition, progress=False
        )
    return {edition: root / edition for edition in EDITIONS}


def generator() -> Seq2SeqGenerator:
    torch.manual_seed(1)
    config = BartConfig(
        vocab_size=len(tokenizer()), d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=64, dropout=0.1,
        init_std=0.4, bos_token_id=0, pad_token_id=1, eos_token_id=2, decoder_start_token_id=2,
        forced_eos_token_id=None,
    )  # fmt: skip
    return Seq2SeqGenerator(BartForConditionalGeneration(config).eval(), tokenizer(), max_length=48)


@pytest.fixture
def make_model(encoder_folder: Path, index_dirs: dict[str, Path]) -> Callable[..., RagModel]:
    """A function that makes a model of one kind over the 2016-12 index."""

    def make(kind: str, *, n_docs: int = 3) -> RagModel:
        if kind == "closed_book":
            return RagModel(kind=kind, generator=generator())
        query_encoder = QueryEncoder.from_pretrained(encoder_folder)
        retriever = DenseRetriever.open(index_dirs["2016-12"])
        return RagModel(
            kind=kind, generator=generator(), query_encoder=query_encoder, retriever=retriever, n_docs=n_docs
        )

    return make
