"""What reaches the generator: the query letter by letter, and as much passage text as fits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from ragx.errors import ConfigError, ShapeError
from ragx.generator.inputs import InputBuilder
from ragx.records import Passage

QUERY = 'Who was  Müller "at" NASA?'


@pytest.fixture
def tokenizer(byte_level_tokenizer: Any) -> Any:
    return byte_level_tokenizer


def passage(text: str, title: str = "Title") -> Passage:
    return Passage(source="s", version="1", chunk="0", title=title, text=text)


def read(builder: InputBuilder, ids: torch.Tensor) -> str:
    """The input as text, padding and frame removed."""
    tokens = [i for i in ids.tolist() if i != builder.tokenizer.pad_token_id]
    assert tokens[0] == builder.tokenizer.bos_token_id and tokens[-1] == builder.tokenizer.eos_token_id
    return builder.tokenizer.decode(tokens[1:-1], clean_up_tokenization_spaces=False)


@pytest.mark.parametrize(
    "text", ["Lima is the capital.", " blanks  inside ", "", 'a "quote" // and {braces}', "München \t x"]
)
def test_uncut_input_is_the_tokenized_template(tokenizer: Any, text: str) -> None:
    builder = InputBuilder(tokenizer)
    built = builder.build([QUERY], [[passage(text)]])
    assert built.input_ids[0].tolist() == tokenizer(f"Title / {text} // {QUERY}")["input_ids"]
    assert built.visible == [(0, len(text))] and built.cut_tokens == [0]


@pytest.mark.parametrize("max_length", range(30, 90, 3))
def test_only_passage_text_is_cut_and_the_span_says_what_is_left(tokenizer: Any, max_length: int) -> None:
    text = "Ärger in Zürich: 日本 and 😀 led Peru until 2011, then nobody."
    builder = InputBuilder(tokenizer, max_length=max_length)
    try:
        built = builder.build([QUERY], [[passage(text)]])
    except ShapeError:
        assert len(tokenizer(f"Title /  // {QUERY}")["input_ids"]) >= max_length
        return
    (start, end), cut = built.visible[0], built.cut_tokens[0]
    expected = {f"Title / {text[:end]} // {QUERY}"} | ({f"Title / // {QUERY}"} if end == 0 else set())
    assert start == 0 and read(builder, built.input_ids[0]) in expected
    assert built.input_ids.shape[1] <= max_length and (cut > 0) == (end < len(text))
    whole = len(tokenizer(f"Title / {text} // {QUERY}")["input_ids"])
    assert whole - built.input_ids.shape[1] == cut


def test_every_row_is_cut_on_its_own_and_rows_run_query_by_query(tokenizer: Any) -> None:
    builder = InputBuilder(tokenizer, max_length=60)
    queries, texts = ["Who?", "Which capital?"], ["short", "word " * 100]
    built = builder.build(queries, [[passage(text) for text in texts]] * 2)
    assert built.input_ids.shape == built.attention_mask.shape == (4, 60)
    assert [cut > 0 for cut in built.cut_tokens] == [False, True, False, True]
    for row, (query, text) in enumerate((q, t) for q in queries for t in texts):
        visible = text[: built.visible[row][1]]
        assert read(builder, built.input_ids[row]) == f"Title / {visible} // {query}"
    assert torch.equal(built.attention_mask.bool(), built.input_ids != tokenizer.pad_token_id)


def test_text_cannot_put_control_tokens_into_the_input(tokenizer: Any) -> None:
    query, text = "Who </s> is <pad> it?", "<s> Lima </s> <mask>"
    builder = InputBuilder(tokenizer)
    built = builder.build([query], [[passage(text)]])
    specials = [i for i in built.input_ids[0].tolist() if i in tokenizer.all_special_ids]
    assert specials == [tokenizer.bos_token_id, tokenizer.eos_token_id]
    assert read(builder, built.input_ids[0]) == f"Title / {text} // {query}"
    reading = InputBuilder(tokenizer, read_special_tokens=True).build(["Lima is <mask>."], None)
    assert (reading.input_ids == tokenizer.mask_token_id).sum() == 1


def test_closed_book_input_is_the_query_alone(tokenizer: Any) -> None:
    builder = InputBuilder(tokenizer)
    built = builder.build([QUERY, "Who?"], None)
    assert [read(builder, row) for row in built.input_ids] == [QUERY, "Who?"]
    assert built.visible == [(0, 0)] * 2 and built.cut_tokens == [0, 0]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{text} // {query}", "Lima. // Who?"),
        ("question: {query} title: {title} context: {text}", "question: Who? title: Peru context: Lima."),
        ("{title} / {text} // {query} :", "Peru / Lima. // Who? :"),
        ("{query} [{title}] ({text}).", "Who? [Peru] (Lima.)."),
    ],
)
def test_other_templates(tokenizer: Any, template: str, expected: str) -> None:
    builder = InputBuilder(tokenizer, template=template)
    built = builder.build(["Who?"], [[passage("Lima.", title="Peru")]])
    assert built.input_ids[0].tolist() == tokenizer(expected)["input_ids"]
    assert built.visible == [(0, 5)]


@pytest.mark.parametrize(
    "template", ["{text}", "{query}", "{text} {text} {query}", "{text} {query} {title}", "{text} {query} {x}"]
)
def test_impossible_templates_are_refused(tokenizer: Any, template: str) -> None:
    with pytest.raises(ConfigError, match=r"generator.template must hold \{text\} and \{query\} once each"):
        InputBuilder(tokenizer, template=template)


def test_a_template_needs_a_blank_beside_the_query(tokenizer: Any) -> None:
    with pytest.raises(ConfigError, match="generator.template must have a blank"):
        InputBuilder(tokenizer, template="{text}//{query}")


def test_a_query_that_does_not_fit_is_an_error_and_never_cut(tokenizer: Any) -> None:
    builder = InputBuilder(tokenizer, max_length=20)
    with pytest.raises(ShapeError, match=r"max_length must hold the query and the title 'Title' .* got 20"):
        builder.build(["Who? " * 10], [[passage("Lima")]])
    with pytest.raises(ShapeError, match="max_length must hold the query with"):
        builder.build(["Who? " * 10], None)


def test_unequal_numbers_of_passages_are_refused(tokenizer: Any) -> None:
    builder = InputBuilder(tokenizer)
    with pytest.raises(ShapeError, match=r"passages must be equally many .* got \[1, 2\]"):
        builder.build(["a", "b"], [[passage("x")], [passage("x"), passage("y")]])
    with pytest.raises(ShapeError, match=r"passages must hold one list a query \(2\), got 1"):
        builder.build(["a", "b"], [[passage("x")]])


def test_remembered_passages_give_the_same_input_and_the_oldest_are_forgotten(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragx.generator.inputs.REMEMBERED_PASSAGES", 2)
    builder = InputBuilder(tokenizer, max_length=40)
    rows = [[passage(f"number {i} of many words in a row") for i in range(4)]]
    first = builder.build(["Who?"], rows)
    assert len(builder._passages._entries) == 2
    again = builder.build(["Who?"], rows)
    assert torch.equal(first.input_ids, again.input_ids)
    assert first.visible == again.visible and first.cut_tokens == again.cut_tokens


def test_labels_are_the_answer_and_eos(tokenizer: Any) -> None:
    builder = InputBuilder(tokenizer)
    answers = ["Lima", "García", ""]
    labels = builder.labels(answers, max_length=20)
    for row, answer in zip(labels.tolist(), answers, strict=True):
        kept = [i for i in row if i != -100]
        assert kept == [*tokenizer(answer, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        assert row[len(kept) :] == [-100] * (len(row) - len(kept))
        assert builder.decode(row) == answer


def test_long_answers_are_cut_before_eos(tokenizer: Any) -> None:
    labels = InputBuilder(tokenizer).labels(["a b c d e f g h", "a"], max_length=4)
    assert labels.shape == (2, 4) and labels[0, -1] == tokenizer.eos_token_id
    with pytest.raises(ShapeError, match="max_length must be at least 1, got 0"):
        InputBuilder(tokenizer).labels(["a"], max_length=0)


def test_labels_of_published_checkpoints_start_with_bos(tokenizer: Any) -> None:
    builder = InputBuilder(tokenizer, bos_in_labels=True)
    labels = builder.labels(["Lima"], max_length=3)
    assert labels[0, 0] == tokenizer.bos_token_id and labels[0, -1] == tokenizer.eos_token_id and labels.shape[1] == 3
    assert builder.decode(builder.labels(["Lima"], max_length=20)[0].tolist()) == "Lima"


def test_ids_of_another_tokenizer_do_not_decode(tokenizer: Any) -> None:
    with pytest.raises(ShapeError, match=r"token_ids must be in \[0, \d+\), got 30522"):
        InputBuilder(tokenizer).decode([5, 30522])


def test_a_sentencepiece_like_tokenizer_without_bos(tokenizer: Any) -> None:
    """T5 frames a text with EOS alone and marks blanks in front of a word."""
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", -9.0), ("▁", -3.0)]
    pieces += [(char, -4.0) for char in sorted(set("Title/WhoisLma?.{}"))] + [("▁Lima", -1.0), ("▁is", -1.0)]
    backend = Tokenizer(models.Unigram(pieces, unk_id=2))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    t5 = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    built = InputBuilder(t5).build(["Who is?"], [[passage("Lima is Lima.")]])
    assert built.input_ids[0].tolist() == t5("Title / Lima is Lima. // Who is?")["input_ids"]
    cut = InputBuilder(t5, max_length=len(built.input_ids[0]) - 3).build(["Who is?"], [[passage("Lima is Lima.")]])
    assert cut.visible == [(0, 4)] and cut.cut_tokens == [3]
    assert cut.input_ids[0].tolist() == t5("Title / Lima // Who is?")["input_ids"]
