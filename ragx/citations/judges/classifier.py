"""A Hugging Face sequence-classification checkpoint that reads (premise, claim) pairs, for the judge J4.

Scores in float32, without gradients, weights from safetensors alone. One decision: the tokenizer truncates nothing;
what is too long for the model is the judge's to cut, between sentences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from ragx.citations.judges.nli import MEANINGS, label_meanings
from ragx.errors import CheckpointError

_SANE = 100_000  # a tokenizer that knows no limit says 1e30


class PairClassifier:
    """Implements `ragx.citations.judges.nli.Scorer`.

    Args:
        model: with `logits` of shape (N, labels).
        tokenizer: of the model.
        meanings: of the outputs, in order.
        batch_size: pairs scored at once.
    """

    def __init__(self, model: Any, tokenizer: Any, meanings: Sequence[str], *, batch_size: int = 16) -> None:
        self._model, self._tokenizer, self._meanings = model.float().eval(), tokenizer, list(meanings)
        self._batch_size = batch_size
        self.max_length = _limit(model.config, tokenizer)

    @classmethod
    def load(cls, checkpoint: str | Path, *, labels: Sequence[str] = ()) -> PairClassifier:
        """Opens a folder or a name on the hub.

        Raises:
            ConfigError: labels that do not say which one is entailment; before any weight is read.
            CheckpointError: the folder holds no such checkpoint, or weights that would have to be unpickled.
        """
        with _naming(checkpoint):
            config = AutoConfig.from_pretrained(str(checkpoint))
        meanings = label_meanings(config.id2label, labels)
        with _naming(checkpoint):
            model = AutoModelForSequenceClassification.from_pretrained(str(checkpoint), use_safetensors=True)
            tokenizer = AutoTokenizer.from_pretrained(str(checkpoint))
        return cls(model, tokenizer, meanings)

    def lengths(self, pairs: Sequence[tuple[str, str]]) -> list[int]:
        """Tokens of each pair with the special ones."""
        return [len(ids) for ids in self._encode(pairs)["input_ids"]]

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> list[dict[str, float]]:
        """p(meaning) of each pair; meanings that several outputs share are added."""
        given: list[dict[str, float]] = []
        for start in range(0, len(pairs), self._batch_size):
            encoded = self._tokenizer.pad(self._encode(pairs[start : start + self._batch_size]), return_tensors="pt")
            with torch.inference_mode():
                probabilities = self._model(**encoded).logits.float().softmax(-1).tolist()
            for row in probabilities:
                by_meaning = dict.fromkeys(MEANINGS, 0.0)
                for meaning, probability in zip(self._meanings, row, strict=True):
                    by_meaning[meaning] += probability
                given.append(by_meaning)
        return given

    def _encode(self, pairs: Sequence[tuple[str, str]]) -> Any:
        premises, claims = [premise for premise, _ in pairs], [claim for _, claim in pairs]
        return self._tokenizer(premises, claims, truncation=False, verbose=False)


@contextmanager
def _naming(checkpoint: str | Path) -> Iterator[None]:
    """What transformers raises about a folder that is no checkpoint, as one error of ours."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"checkpoint must be a sequence-classification model in safetensors, got {str(checkpoint)!r}: "
            f"{str(error).splitlines()[0]} Name another folder"
        ) from error


def _limit(config: Any, tokenizer: Any) -> int:
    """Tokens that the model can place: positions, less those RoBERTa keeps before the first."""
    positions = getattr(config, "max_position_embeddings", 0) or _SANE
    if config.model_type in ("roberta", "xlm-roberta", "camembert"):
        positions -= (config.pad_token_id or 0) + 1
    return int(min(positions, tokenizer.model_max_length, _SANE))
