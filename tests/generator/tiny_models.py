"""Random models of each family, small enough to compare every number."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MBartConfig,
    MBartForConditionalGeneration,
    MT5Config,
    MT5ForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)


def tiny_model(family: str, vocab_size: int, *, seed: int = 0) -> Any:
    """A model of 16 dimensions, 2 + 2 layers.

    `bart`, `mbart`, `t5`, `t5_unscaled` (embeddings not tied), `t5_gated` (as Flan-T5), or `mt5`.
    """
    torch.manual_seed(seed)
    if "t5" in family:
        config_class, model_class = {
            "mt5": (MT5Config, MT5ForConditionalGeneration),
        }.get(family, (T5Config, T5ForConditionalGeneration))
        config = config_class(
            vocab_size=vocab_size, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, dropout_rate=0.0,
            tie_word_embeddings=family == "t5", pad_token_id=1, eos_token_id=2, decoder_start_token_id=1,
            feed_forward_proj="gated-gelu" if family in ("t5_gated", "mt5") else "relu",
        )  # fmt: skip
        model = model_class(config)
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


def causal_model(family: str, vocab_size: int) -> Any:
    """A random GPT-2 (positions, tied head) or Llama (rotary, grouped keys, own head), 16 dimensions, 2 layers."""
    torch.manual_seed(0)
    if family == "gpt2":
        config = GPT2Config(
            vocab_size=vocab_size, n_positions=200, n_embd=16, n_layer=2, n_head=2, initializer_range=0.4,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=2,
        )  # fmt: skip
        return GPT2LMHeadModel(config).eval()
    config = LlamaConfig(
        vocab_size=vocab_size, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, initializer_range=0.4, bos_token_id=0, eos_token_id=2, pad_token_id=1,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()
