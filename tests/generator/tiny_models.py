"""Random models of each family, small enough to compare every number."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    MBartConfig,
    MBartForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)


def tiny_model(family: str, vocab_size: int, *, seed: int = 0) -> Any:
    """A model of `bart`, `mbart`, `t5` or `t5_unscaled` (embeddings not tied), 16 dimensions, 2 + 2 layers."""
    torch.manual_seed(seed)
    if family.startswith("t5"):
        config = T5Config(
            vocab_size=vocab_size, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, dropout_rate=0.0,
            tie_word_embeddings=family == "t5", pad_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        )  # fmt: skip
        model = T5ForConditionalGeneration(config)
    else:
        kinds = {
            "bart": (BartConfig, BartForConditionalGeneration),
            "mbart": (MBartConfig, MBartForConditionalGeneration),
        }
        config_class, model_class = kinds[family]
        config = config_class(
            vocab_size=vocab_size, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
            decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=300,
            dropout=0.0, init_std=0.4, bos_token_id=0, pad_token_id=1, eos_token_id=2, decoder_start_token_id=2,
            forced_eos_token_id=None,
        )  # fmt: skip
        model = model_class(config)
        model.final_logits_bias.normal_()
    return model.eval()
