"""Models of a given size with random weights: what both sides of a benchmark are made of.

Weights are a function of (size, seed) alone, so two processes hold the same without exchanging any. There is no
dropout: the two sides could not draw the same numbers, and no time is believed without equal results.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models
from torch import nn
from transformers import (
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    DPRConfig,
    DPRContextEncoder,
    DPRQuestionEncoder,
    PreTrainedTokenizerFast,
)

BOS, PAD, EOS = 0, 1, 2
SPECIAL = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>", "mask_token": "<mask>"}
QUERY_SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}


@dataclass(frozen=True)
class Size:
    """Width and depth of the generator (`d_model`, layers a side) and of the bi-encoder (`query_...`).

    `init_std` spreads the generator's weights so that its passages make a difference: where they do not, the gradient
    of the retriever is a difference of equal numbers.
    """

    d_model: int
    layers: int
    heads: int
    ffn: int
    vocab_size: int
    query_d_model: int
    query_layers: int
    query_heads: int
    query_ffn: int
    query_vocab_size: int
    init_std: float = 0.05


PRESETS = {
    "tiny": Size(32, 1, 2, 64, 400, 32, 1, 2, 64, 300, init_std=0.4),
    "mid": Size(256, 4, 4, 1024, 50265, 256, 4, 4, 1024, 30522),
    "bart-base": Size(768, 6, 12, 3072, 50265, 768, 12, 12, 3072, 30522),
    "bart-large": Size(1024, 12, 16, 4096, 50265, 768, 12, 12, 3072, 30522),
}


@dataclass(frozen=True)
class Setup:
    """Which model a side builds, and where.

    Attributes:
        size, seed: decide the weights.
        kind, n_docs: as in `RagModel`.
        device: a torch device.
        max_input_length: tokens of a generator input.
        tokenizers: a folder with `generator` and `query_encoder`; None for inputs that are ids already.
        short_answers: whether the state of the decoder decides when an answer ends, as in a trained generator; left
            random, EOS is as improbable as any other token and every answer has the full length.
    """

    size: Size
    seed: int
    kind: str
    n_docs: int
    device: str
    max_input_length: int
    tokenizers: str | None = None
    short_answers: bool = False


def generator(setup: Setup) -> BartForConditionalGeneration:
    """A BART in eval mode on the CPU."""
    size = setup.size
    torch.manual_seed(setup.seed)
    config = BartConfig(
        vocab_size=size.vocab_size, d_model=size.d_model, encoder_layers=size.layers, decoder_layers=size.layers,
        encoder_attention_heads=size.heads, decoder_attention_heads=size.heads, encoder_ffn_dim=size.ffn,
        decoder_ffn_dim=size.ffn, max_position_embeddings=1024, dropout=0.0, attention_dropout=0.0,
        activation_dropout=0.0, init_std=size.init_std, bos_token_id=BOS, pad_token_id=PAD, eos_token_id=EOS,
        decoder_start_token_id=EOS, forced_eos_token_id=None,
    )  # fmt: skip
    model = BartForConditionalGeneration(config)
    if setup.short_answers:
        # The largest of V normal logits is sqrt(2 log V) deviations out. At twice that scale the logit of EOS exceeds
        # all others in three states of ten, by far, and is far below them in most others.
        with torch.no_grad():
            model.get_input_embeddings().weight[EOS] *= 2 * math.sqrt(2 * math.log(size.vocab_size))
    return model.eval()


def bi_encoder_half(setup: Setup, *, passages: bool = False) -> nn.Module:
    """A DPR question encoder, or with `passages` a passage encoder, in eval mode on the CPU."""
    size = setup.size
    torch.manual_seed(setup.seed + 1)
    config = DPRConfig(
        vocab_size=size.query_vocab_size, hidden_size=size.query_d_model, num_hidden_layers=size.query_layers,
        num_attention_heads=size.query_heads, intermediate_size=size.query_ffn, max_position_embeddings=512,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    half: nn.Module = DPRContextEncoder(config) if passages else DPRQuestionEncoder(config)
    return half.eval()


def tokenizers(setup: Setup) -> tuple[Any, Any]:
    """Of the generator and of the query encoder; without a folder, ones that know the special tokens alone."""
    if setup.tokenizers is not None:
        generator_folder, query_folder = (Path(setup.tokenizers) / part for part in ("generator", "query_encoder"))
        return AutoTokenizer.from_pretrained(generator_folder), AutoTokenizer.from_pretrained(query_folder)
    return _blank(SPECIAL), _blank(QUERY_SPECIAL)


def _blank(special: dict[str, str]) -> PreTrainedTokenizerFast:
    vocabulary = {token: number for number, token in enumerate(special.values())}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=special["unk_token"]))
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=512, **special)
