"""What every test shares: checkpoints small enough to be made on the fly, and markers that skip with a reason.

A BART with a byte-level tokenizer, a DPR pair with another, uncased one, an index of five passages, and a user's folder
to run the scripts in.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from absl import logging as absl_logging
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    DPRConfig,
    DPRContextEncoder,
    DPRQuestionEncoder,
    PreTrainedTokenizerFast,
)

from ragx.generator.seq2seq import Seq2SeqGenerator
from ragx.records import Passage
from ragx.retriever.building import build_index
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.retriever.query_encoder import QueryEncoder
from tests.scripts import run_script
from tests.user_files import write_corpus, write_questions

SHARED = Path(__file__).parents[2] / "shared" / "data"
TEXTS = [
    ("Peru", "Lima is the capital of Peru. Alan García led Peru until 2011."),
    ("Chile", "Santiago is the capital of Chile. Michelle Bachelet led Chile until 2018."),
    ("Ghana", "Accra is the capital of Ghana. John Mahama led Ghana until 2017."),
    ("Japan", "Tokyo is the capital of Japan. Shinzo Abe led Japan until 2020."),
    ("", "Zürich lies in Switzerland. Nobody led it alone."),
]


# rouge-score brings absl, whose handler closes the stream that it was made with when Hydra sets logging up anew: unless
# that is the process's own, it is pytest's, and every later test fails.
absl_logging.get_absl_handler().python_handler.setStream(sys.__stderr__)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips `gpu`, `hub` and `shared` tests where there is no GPU, no hub or no shared data, and says so."""
    absent = {}
    if not torch.cuda.is_available():
        absent["gpu"] = "needs a GPU, torch.cuda finds none"
    if os.environ.get("HF_HUB_OFFLINE", "0") not in ("0", ""):
        absent["hub"] = "needs the Hugging Face hub, HF_HUB_OFFLINE is set"
    if not SHARED.is_dir():
        absent["shared"] = f"needs {SHARED}, which is not there"
    for item in items:
        for marker, reason in absent.items():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real data sets beside the checkout; use with the `shared` marker."""
    return SHARED


@pytest.fixture(scope="session")
def tiny_passages() -> list[Passage]:
    """Five passages with accents; the last has no title."""
    return [Passage(str(row), "2016-12", "0", title, text) for row, (title, text) in enumerate(TEXTS)]


@pytest.fixture(scope="session")
def byte_level_tokenizer() -> PreTrainedTokenizerFast:
    """BART's kind of tokenizer: byte-level BPE, <s> text </s>, 380 tokens."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=380,
        min_frequency=1,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([f"{title} {text}" for title, text in TEXTS], trainer)
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", pad_token="<pad>", eos_token="</s>", unk_token="<unk>",
        mask_token="<mask>", cls_token="<s>", sep_token="</s>", model_max_length=256,
    )  # fmt: skip


@pytest.fixture(scope="session")
def uncased_tokenizer() -> PreTrainedTokenizerFast:
    """BERT's kind of tokenizer, without case and accents: one letter a token, 82 tokens."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *".,?/", *letters, *(f"##{letter}" for letter in letters)]
    backend = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=128,
    )  # fmt: skip


@pytest.fixture(scope="session")
def tiny_bart(byte_level_tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a random BART: 16 dimensions, one layer a side, no dropout."""
    torch.manual_seed(0)
    config = BartConfig(
        vocab_size=len(byte_level_tokenizer), d_model=16, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32,
        max_position_embeddings=300, dropout=0.0, init_std=0.4, bos_token_id=0, pad_token_id=1, eos_token_id=2,
        decoder_start_token_id=2, forced_eos_token_id=None,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("bart")
    BartForConditionalGeneration(config).save_pretrained(folder)
    byte_level_tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_dpr(uncased_tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random bi-encoder: the folders `query_encoder` and `passage_encoder`, 16 dimensions, no dropout."""
    torch.manual_seed(1)
    config = DPRConfig(
        vocab_size=len(uncased_tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=128, initializer_range=0.4, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("dpr")
    for part, model in (("query_encoder", DPRQuestionEncoder(config)), ("passage_encoder", DPRContextEncoder(config))):
        model.save_pretrained(folder / part)
        uncased_tokenizer.save_pretrained(folder / part)
    return folder


@pytest.fixture(scope="session")
def tiny_index(tiny_dpr: Path, tiny_passages: list[Passage], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a flat index over the five passages."""
    folder = tmp_path_factory.mktemp("index") / "2016-12"
    encoder = PassageEncoder.from_pretrained(tiny_dpr / "passage_encoder")
    build_index(tiny_passages, passage_encoder=encoder, directory=folder, edition="2016-12", progress=False)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder: two editions of a corpus as TSV and questions on each as JSONL."""
    folder = tmp_path_factory.mktemp("user")
    for year in (2016, 2018):
        write_corpus(folder / f"{year}.tsv", year)
        write_questions(folder / f"{year}.jsonl", year)
    return folder


@pytest.fixture(scope="module")
def run(folder: Path) -> Callable[..., int]:
    """Runs a script in the user's folder; returns its exit status."""
    return partial(run_script, folder=folder)


@pytest.fixture(scope="module")
def encoders(tiny_dpr: Path) -> list[str]:
    """Overrides that put `tiny_dpr` in place of the embedded one, the passage encoder last."""
    return [f"retriever.{half}={tiny_dpr}/{half}" for half in ("query_encoder", "passage_encoder")]


@pytest.fixture(scope="module")
def bart(tiny_bart: Path) -> str:
    """The override that puts `tiny_bart` in place of the embedded one."""
    return f"generator.checkpoint={tiny_bart}"


@pytest.fixture
def generator(tiny_bart: Path) -> Seq2SeqGenerator:
    """`tiny_bart` behind the protocol; a test may change its weights."""
    return Seq2SeqGenerator.from_pretrained(tiny_bart)


@pytest.fixture
def query_encoder(tiny_dpr: Path) -> QueryEncoder:
    """The query half of `tiny_dpr`; a test may change its weights."""
    return QueryEncoder.from_pretrained(tiny_dpr / "query_encoder")


@pytest.fixture
def retriever(tiny_index: Path) -> DenseRetriever:
    """A retriever over the five passages."""
    return DenseRetriever.open(tiny_index)
