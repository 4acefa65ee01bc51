"""Tokenizers trained from a corpus, for checkpoints that start from nothing (the nano ones).

Byte-level BPE as BART has it, WordPiece as BERT has it, both through the `tokenizers` library and saved by
transformers.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

BART_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
BERT_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def byte_level_bpe(texts: Iterable[str], *, size: int, max_length: int) -> PreTrainedTokenizerFast:
    """A BART-style tokenizer: `<s> text </s>`, ids of the special tokens as in `facebook/bart-*` (0 to 3).

    Every text starts with a blank (`add_prefix_space`), so that a name has the same tokens at the start of a passage,
    inside it and in an answer; a model that learns to copy needs that.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(BART_SPECIALS), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", pad_token="<pad>", eos_token="</s>", unk_token="<unk>",
        mask_token="<mask>", cls_token="<s>", sep_token="</s>", model_max_length=max_length,
        model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip


def wordpiece(texts: Iterable[str], *, size: int, max_length: int) -> PreTrainedTokenizerFast:
    """A BERT-style uncased tokenizer: `[CLS] text [SEP]`, `[CLS] title [SEP] text [SEP]`; ids in alphabetical order."""
    texts = list(texts)
    normalizer = normalizers.BertNormalizer(lowercase=True)
    # The trainer breaks ties by id, and numbers pieces inside words in another order in every process. Named first,
    # as if they were special, they have one order.
    inside = sorted({f"##{character}" for text in texts for character in normalizer.normalize_str(text)})
    trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=[*BERT_SPECIALS, *inside], show_progress=False)
    trained = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    trained.normalizer, trained.pre_tokenizer = normalizer, pre_tokenizers.BertPreTokenizer()
    trained.train_from_iterator(texts, trainer)
    words = sorted(set(trained.get_vocab()) - set(BERT_SPECIALS))
    vocabulary = {word: row for row, word in enumerate([*BERT_SPECIALS, *words])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=max_length,
        model_input_names=["input_ids", "attention_mask"],
    )
