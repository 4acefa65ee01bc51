"""The schema of scripts/chat.py: whom to ask, and what it is shown."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from omegaconf import MISSING

from ragx.chat.endpoint import ChatSettings
from ragx.chat.prompt import STYLES, PromptSettings
from ragx.limits import at_least, limited, one_of, output
from ragx.schema import DataConfig, IndexConfig
from ragx.schema_retriever import RetrieverConfig


@dataclass
class EndpointConfig:
    """The fields of `ChatSettings`, which explains them, and how many requests run at a time."""

    base_url: str = limited("start with http:// or https://", lambda url: url.startswith(("http://", "https://")))
    model: str = MISSING
    api_key_env: str = MISSING
    temperature: float | None = at_least(0)
    max_tokens: int | None = at_least(1)
    seed: int | None = at_least(0)
    timeout: float = at_least(0.1)
    max_retries: int = at_least(0)
    extra: dict[str, Any] = MISSING
    concurrency: int = at_least(1)

    def settings(self) -> ChatSettings:
        """What `ChatEndpoint` takes."""
        return ChatSettings(**{name: value for name, value in asdict(self).items() if name != "concurrency"})


@dataclass
class PromptConfig:
    """The fields of `PromptSettings`, which explains and checks them."""

    style: str = one_of(*STYLES)
    window: int = at_least(1)
    reserve: int = at_least(0)

    def settings(self) -> PromptSettings:
        """What `messages` takes."""
        return PromptSettings(**asdict(self))


@dataclass
class Chat:
    """Schema of configs/chat.yaml."""

    retriever: RetrieverConfig = MISSING
    index: IndexConfig = MISSING
    data: DataConfig = MISSING
    endpoint: EndpointConfig = MISSING
    prompt: PromptConfig = MISSING
    n_docs: int = at_least(0)
    output: str | None = output()


SCRIPTS = (Chat,)
