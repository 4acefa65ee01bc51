"""A tiny world to train in: six facts, a BART and a DPR of 16 dimensions, a real FAISS index."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    DPRConfig,
    DPRContextEncoder,
    DPRQuestionEncoder,
    PreTrainedTokenizerFast,
)

from ragx.generator.seq2seq import Seq2SeqGenerator
from ragx.model import RagModel
from ragx.records import Example, Passage
from ragx.retriever.building import build_index
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.retriever.query_encoder import QueryEncoder
from ragx.training.vocabulary import BERT_SPECIALS, byte_level_bpe

CAPITALS = {
    "peru": "lima", "france": "paris", "germany": "berlin", "chile": "santiago", "cuba": "havana", "mali": "bamako",
}  # fmt: skip
PASSAGES = [
    Passage("capitals", "1", str(row), country, f"the capital of {country} is {city}")
    for row, (country, city) in enumerate(CAPITALS.items())
]
EXAMPLES = [Example(country, f"capital of {country}", (city,)) for country, city in CAPITALS.items()]
DPR_SIZES = dict(
    hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, max_position_embeddings=64,
    initializer_range=0.5,
)  # fmt: skip


def word_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """One token a word, in alphabetical order; a trained WordPiece numbers its pieces otherwise in each process."""
    words = sorted({word for text in texts for word in text.split()})
    backend = Tokenizer(models.WordPiece({piece: row for row, piece in enumerate([*BERT_SPECIALS, *words])}))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), BERT_SPECIALS, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=64, **names)


def save_parts(root: Path) -> None:
    """Random checkpoints of the three networks, and an index over `PASSAGES`, below `root`."""
    torch.manual_seed(0)
    texts = [f"{passage.title} {passage.text}" for passage in PASSAGES]
    bpe, pieces = byte_level_bpe(texts, size=290, max_length=64), word_tokenizer(texts)
    config = BartConfig(
        vocab_size=len(bpe), d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=64, dropout=0.1,
        init_std=0.2, bos_token_id=0, pad_token_id=1, eos_token_id=2, decoder_start_token_id=2,
        forced_eos_token_id=None,
    )  # fmt: skip
    sizes = DPRConfig(vocab_size=len(pieces), **DPR_SIZES)
    networks = {
        "bart": (BartForConditionalGeneration(config), bpe),
        "question": (DPRQuestionEncoder(sizes), pieces),
        "context": (DPRContextEncoder(sizes), pieces),
    }
    for name, (model, tokenizer) in networks.items():
        model.save_pretrained(root / name)
        tokenizer.save_pretrained(root / name)
    encoder = PassageEncoder.from_pretrained(root / "context")
    build_index(PASSAGES, passage_encoder=encoder, directory=root / "index", edition="1", progress=False)


@pytest.fixture(scope="session")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `save_parts` filled."""
    root = tmp_path_factory.mktemp("parts")
    save_parts(root)
    return root


def build_model(parts: Path, kind: str = "rag_sequence", *, n_docs: int = 3) -> RagModel:
    """A model of the random checkpoints; the same weights each time."""
    generator = Seq2SeqGenerator.from_pretrained(parts / "bart", max_length=60)
    if kind == "closed_book":
        return RagModel(kind=kind, generator=generator)
    query_encoder = QueryEncoder.from_pretrained(parts / "question")
    retriever = DenseRetriever.open(parts / "index")
    return RagModel(kind=kind, generator=generator, query_encoder=query_encoder, retriever=retriever, n_docs=n_docs)


@pytest.fixture
def make_model(parts: Path) -> Callable[..., RagModel]:
    """`build_model` over the session's checkpoints."""
    return lambda kind="rag_sequence", **options: build_model(parts, kind, **options)


@pytest.fixture(scope="session")
def examples() -> list[Example]:
    """Six questions, each answered by one of the six passages."""
    return EXAMPLES
