"""The schema of the decoding group; `ragx.decoding.settings` explains and checks the values."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from omegaconf import MISSING

from ragx.decoding.choice import CLOSED_SET, DECODERS, require_labels
from ragx.decoding.settings import DecodingSettings
from ragx.errors import ConfigError
from ragx.limits import at_least, one_of

DECODER_NAMES = (*dict.fromkeys(name for fitting in DECODERS.values() for name in fitting), CLOSED_SET)


@dataclass
class DecodingConfig:
    """Which decoder, null for the usual one of the model's kind; the rest are the fields of `DecodingSettings`.

    `labels` are the answers that the decoder `closed_set` chooses from.
    """

    decoder: str | None = one_of(*DECODER_NAMES)
    labels: list[str] = MISSING
    num_beams: int = MISSING
    num_return_sequences: int = MISSING
    max_length: int = MISSING
    min_length: int = MISSING
    length_penalty: float = MISSING
    early_stopping: bool = MISSING
    forced_bos_token_id: int | None = MISSING
    force_eos: bool = MISSING
    bad_token_ids: list[int] = MISSING
    no_repeat_ngram_size: int = MISSING
    do_sample: bool = MISSING
    temperature: float = MISSING
    top_k: int | None = MISSING
    top_p: float = MISSING
    seed: int = MISSING
    max_sequences_in_flight: int | None = MISSING
    batch_size: int = at_least(1)
    device: str = one_of("auto", "cpu", "cuda")

    def settings(self) -> DecodingSettings:
        """What the decoders take; raises ConfigError."""
        values = asdict(self) | {"bad_token_ids": tuple(self.bad_token_ids)}
        if self.do_sample and self.decoder not in (None, "token_beam"):
            raise ConfigError([f"do_sample must be false with {self.decoder}, got true. Use token_beam to sample."])
        require_labels(self.decoder, len(self.labels))
        return DecodingSettings(**{item.name: values[item.name] for item in fields(DecodingSettings)})
