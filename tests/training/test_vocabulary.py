"""Trained tokenizers survive saving, have the special ids of BART and BERT, and see names the same everywhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from transformers import AutoTokenizer

from ragx.training.vocabulary import byte_level_bpe, wordpiece

TEXTS = ["Ada Lovelace led Peru from May 1990 to June 1995.", "In Peru, power passed from Ada to Bob Müller."] * 5


def test_byte_level_bpe_is_lossless_and_frames_as_bart(tmp_path: Path) -> None:
    byte_level_bpe(TEXTS, size=400, max_length=64).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    ids = tokenizer("Zoë  Öz / 東京 <x>")["input_ids"]
    assert ids[0] == tokenizer.bos_token_id == 0 and ids[-1] == tokenizer.eos_token_id == 2
    assert tokenizer.pad_token_id == 1 and tokenizer.mask_token == "<mask>"
    assert tokenizer.decode(ids, skip_special_tokens=True).strip() == "Zoë  Öz / 東京 <x>"


def test_a_name_has_the_same_tokens_at_the_start_and_inside() -> None:
    tokenizer = byte_level_bpe(TEXTS, size=400, max_length=64)
    name = tokenizer("Lovelace", add_special_tokens=False)["input_ids"]
    inside = tokenizer("after Lovelace", add_special_tokens=False)["input_ids"]
    assert inside[-len(name) :] == name


def test_wordpiece_lowers_case_and_frames_as_bert(tmp_path: Path) -> None:
    wordpiece(TEXTS, size=120, max_length=64).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    pair = tokenizer("Ada", "PERU")["input_ids"]
    assert pair[0] == tokenizer.cls_token_id and pair.count(tokenizer.sep_token_id) == 2
    assert tokenizer("Müller")["input_ids"] == tokenizer("muller")["input_ids"]
    assert tokenizer.pad_token_id == 0


def test_both_vocabularies_are_the_same_in_every_process() -> None:
    code = (
        "from tests.training.test_vocabulary import TEXTS\n"
        "from ragx.training.vocabulary import byte_level_bpe, wordpiece\n"
        "for make in (byte_level_bpe, wordpiece):\n"
        "    vocabulary = make(TEXTS, size=300, max_length=64).get_vocab()\n"
        "    print(sorted(vocabulary, key=vocabulary.get))\n"
    )
    environment = {"PYTHONPATH": ":".join(sys.path)}
    seen = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment).stdout
        for _ in range(3)
    }
    assert len(seen) == 1
    assert seen.pop().count("\n") == 2
