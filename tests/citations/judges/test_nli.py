"""Entailment over windows (CITATIONS D26, FAULTS E12): nothing is cut off, labels are never guessed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from ragx.citations.judges.nli import NliJudge, label_meanings
from ragx.citations.support import CompositeJudge, build_judge
from ragx.errors import CheckpointError, ConfigError
from ragx.records import Passage


class LooksFor:
    """Entails exactly where the window holds a word, contradicts where it holds another; a token is a word."""

    def __init__(self, word: str, against: str = "never", max_length: int = 60) -> None:
        self._word, self._against, self.max_length = word, against, max_length
        self.pairs: list[tuple[str, str]] = []

    def lengths(self, pairs: Sequence[tuple[str, str]]) -> list[int]:
        return [len(premise.split()) + len(claim.split()) + 3 for premise, claim in pairs]

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> list[dict[str, float]]:
        self.pairs += pairs
        return [self._of(premise) for premise, _ in pairs]

    def _of(self, premise: str) -> dict[str, float]:
        if self._word in premise:
            return {"entailment": 0.9, "neutral": 0.1, "contradiction": 0.0}
        against = 0.8 if self._against in premise else 0.0
        return {"entailment": 0.0, "neutral": 1 - against, "contradiction": against}


def passage(text: str, title: str = "") -> Passage:
    return Passage("s", "v1", "a", title, text)


LONG = " ".join(f"Filler {i} says nothing." for i in range(500))


def test_d26_the_support_after_two_thousand_words_is_found() -> None:
    scorer = LooksFor("X=7")
    judge = NliJudge(scorer)
    assert judge.judge("X is seven.", [passage(f"{LONG} Here X=7 holds.")]) == "full"
    assert judge.windows > 1 and judge.truncated_windows == 0
    assert all(claim == "X is seven." for _, claim in scorer.pairs)
    assert all(length <= scorer.max_length for length in scorer.lengths(scorer.pairs))


def test_every_sentence_is_in_a_window_and_neighbours_share_one() -> None:
    scorer = LooksFor("X=7")
    NliJudge(scorer).judge("X is seven.", [passage(LONG)])
    windows = [premise for premise, _ in scorer.pairs]
    for i in range(500):
        assert any(f"Filler {i} says" in window for window in windows)
    first_words = [window.split(".")[0] for window in windows[1:]]
    assert all(word in before for word, before in zip(first_words, windows, strict=False))


def test_a_sentence_that_is_too_long_is_cut_in_overlapping_runs() -> None:
    scorer = LooksFor("w70 w71")
    judge = NliJudge(scorer)
    assert judge.judge("A claim.", [passage(" ".join(f"w{i}" for i in range(200)))]) == "full"
    assert judge.truncated_windows == 0 and judge.windows > 3


def test_e12_the_end_of_the_fifth_passage_counts() -> None:
    passages = [passage(" ".join(["word."] * 100)) for _ in range(4)] + [passage(" ".join(["word."] * 100) + " KEY")]
    assert NliJudge(LooksFor("KEY")).judge("The key.", passages) == "full"


def test_labels_and_scores() -> None:
    judge = NliJudge(LooksFor("yes"))
    assert (judge.judge("c", [passage("yes")]), judge.score("c", [passage("yes")])) == ("full", 0.9)
    assert (judge.judge("c", [passage("never")]), judge.score("c", [passage("never")])) == ("contradict", 0.0)
    assert judge.judge("c", [passage("perhaps")]) == "none"
    assert judge.judge("c", []) == judge.judge(" ", [passage("yes")]) == "not_judged"
    assert NliJudge(LooksFor("yes"), threshold=0.95).judge("c", [passage("yes")]) == "none"


def test_a_claim_without_room_for_a_premise_is_not_judged() -> None:
    judge = NliJudge(LooksFor("yes"))
    assert judge.judge("word " * 55, [passage("yes")]) == "not_judged"
    assert judge.claims_too_long == 1 and judge.windows == 0


@pytest.mark.parametrize(
    ("names", "labels", "meanings"),
    [
        (["contradiction", "neutral", "entailment"], (), ["contradiction", "neutral", "entailment"]),
        (["ENTAILMENT", "not_entailment"], (), ["entailment", "neutral"]),
        (["SUPPORTS", "REFUTES", "NOT ENOUGH INFO"], (), ["entailment", "contradiction", "neutral"]),
        (["LABEL_0", "LABEL_1"], ("neutral", "entailment"), ["neutral", "entailment"]),
    ],
)
def test_what_outputs_mean(names: list[str], labels: tuple[str, ...], meanings: list[str]) -> None:
    assert label_meanings(dict(enumerate(names)), labels) == meanings


@pytest.mark.parametrize(
    ("names", "labels", "message"),
    [
        (["LABEL_0", "LABEL_1", "LABEL_2"], (), "labels must say for each of the outputs .*LABEL_0.*, got none"),
        (["LABEL_0", "LABEL_1"], ("entailment",), r"got \['entailment'\]"),
        (["LABEL_0", "LABEL_1"], ("neutral", "neutral"), "labels must name entailment exactly once"),
        (["entailment", "neutral"], ("neutral", "entailment"), "labels must agree with the checkpoint"),
    ],
)
def test_d26_outputs_without_a_meaning_are_refused(names: list[str], labels: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        label_meanings(dict(enumerate(names)), labels)


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "lima", "leads", "peru", "is", "in", "the", "capital", "of", "."]


def tiny_checkpoint(folder: Path, labels: list[str]) -> Path:
    """A random BERT of 32 positions; another order of labels permutes its outputs."""
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace()])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=32, num_labels=3, id2label=dict(enumerate(labels)),
        label2id={label: i for i, label in enumerate(labels)},
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    order = torch.tensor([["entailment", "neutral", "contradiction"].index(label.lower()) for label in labels])
    model.classifier.weight.data = model.classifier.weight.data[order] * 40
    model.save_pretrained(folder)
    return folder


def test_a_real_checkpoint_gives_the_same_whatever_the_order_of_its_labels(tmp_path: Path) -> None:
    text = passage(" ".join(["Lima is the capital of Peru.", "Peru leads."] * 9), "Peru")
    found = []
    for name, labels in (
        ("a", ["entailment", "neutral", "contradiction"]),
        ("b", ["CONTRADICTION", "neutral", "Entailment"]),
    ):
        judge = NliJudge.load(tiny_checkpoint(tmp_path / name, labels))
        found.append((judge.score("Lima leads", [text]), judge.judge("Lima leads", [text])))
        assert judge.windows > 1 and judge.truncated_windows == 0
    assert found[0][0] == pytest.approx(found[1][0], abs=1e-6) and found[0][1] == found[1][1]
    composite = build_judge("composite", checkpoint=tmp_path / "a")
    assert isinstance(composite, CompositeJudge) and composite.id == "composite(nli)"
    assert composite.score("Lima leads", [text]) == pytest.approx(found[0][0], abs=1e-6)


def test_batches_change_nothing(tmp_path: Path) -> None:
    from ragx.citations.judges.classifier import PairClassifier

    loaded = PairClassifier.load(tiny_checkpoint(tmp_path, ["entailment", "neutral", "contradiction"]))
    pairs = [("lima is the capital of peru .", "lima"), ("peru", "peru leads"), ("in the", "capital of peru")]
    together = loaded.probabilities(pairs)
    for pair, expected in zip(pairs, together, strict=True):
        assert loaded.probabilities([pair])[0] == pytest.approx(expected, abs=1e-6)
        assert sum(expected.values()) == pytest.approx(1.0, abs=1e-6)


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="checkpoint must be a sequence-classification model in safetensors"):
        NliJudge.load(tmp_path)
