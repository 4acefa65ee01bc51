"""The schema of the scripts that pretrain the nano models: their size, what their batches hold, and the optimizer."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from omegaconf import MISSING

from ragx.limits import at_least, folder, share
from ragx.training.pretraining import PretrainingSettings


@dataclass
class NanoConfig:
    """Width and depth of a nano model; the feed-forward layers are four times as wide."""

    vocab_size: int = at_least(300)
    d_model: int = at_least(8)
    layers: int = at_least(1)
    heads: int = at_least(1)


@dataclass
class MixtureConfig:
    """What pretraining batches are made of.

    `invented`, `renewed`, `familiar` and `rivals` are explained in `ClozeMaker`. `infilling` is the share of steps that
    denoise, the rest being cloze, after `infilling_steps` that all denoise: there every target token teaches copying,
    and cloze builds on it.
    """

    invented: float = share()
    renewed: float = share()
    familiar: float = share()
    rivals: float = share()
    infilling: float = share()
    infilling_steps: int = at_least(0)


@dataclass
class PretrainingConfig:
    """The fields of `PretrainingSettings`, which explains and checks them."""

    steps: int = MISSING
    batch_size: int = MISSING
    learning_rate: float = MISSING
    warmup_steps: int = MISSING
    max_grad_norm: float = MISSING
    seed: int = at_least(0)
    save_every: int = MISSING

    def settings(self) -> PretrainingSettings:
        """What `ragx.training.pretraining.pretrain` takes."""
        return PretrainingSettings(**asdict(self))


@dataclass
class Pretrain:
    """Schema of configs/pretrain_generator.yaml and configs/pretrain_bi_encoder.yaml."""

    directory: str = folder()
    threads: int = at_least(1)
    size: NanoConfig = MISSING
    mixture: MixtureConfig = MISSING
    pretraining: PretrainingConfig = MISSING


SCRIPTS = (Pretrain,)
