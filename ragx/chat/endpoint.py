"""An OpenAI-compatible chat endpoint as what says y: vLLM, llama.cpp, Ollama, or hosted.

The `openai` package (extra `api`) speaks the protocol, waits and tries again. One decision: the key is read from the
environment when a request is made and never stands in a config, a trace or a file of replies.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragx.chat.prompt import Message
from ragx.chat.replies import Reply
from ragx.errors import ConfigError, RagxError

NO_KEY = "none"  # local servers want a key and do not look at it


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """Whom to ask and how.

    Attributes:
        base_url: up to and without `/chat/completions`.
        model: as the endpoint names it.
        api_key_env: environment variable that holds the key; unset sends none.
        temperature, max_tokens, seed: of the reply; None leaves the endpoint's own.
        timeout: seconds a try.
        max_retries: tries after the first, on a timeout, a lost connection, or status 408, 409, 429 or 5xx.
        extra: further fields of the request.
    """

    base_url: str
    model: str
    api_key_env: str = "OPENAI_API_KEY"
    temperature: float | None = 0.0
    max_tokens: int | None = 256
    seed: int | None = 0
    timeout: float = 60.0
    max_retries: int = 4
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sampling(self) -> dict[str, Any]:
        """What of the protocol's own fields is given."""
        fields = {"temperature": self.temperature, "max_tokens": self.max_tokens, "seed": self.seed}
        return {name: value for name, value in fields.items() if value is not None}


class ChatEndpoint:
    """Asks; safe to use from several threads.

    Raises:
        ConfigError: the `openai` package is not installed.
    """

    def __init__(self, settings: ChatSettings) -> None:
        try:
            import openai
        except ImportError as error:
            raise ConfigError(["openai must be installed to ask a chat endpoint. pip install 'ragx[api]'."]) from error
        self.settings = settings
        self._errors = openai.OpenAIError
        self._client = openai.OpenAI(
            base_url=settings.base_url,
            api_key=os.environ.get(settings.api_key_env) or NO_KEY,
            timeout=settings.timeout,
            max_retries=settings.max_retries,
        )

    def request(self, messages: Sequence[Message]) -> dict[str, Any]:
        """Everything that decides the reply; a reply is found again by it."""
        asked = {"base_url": self.settings.base_url, "model": self.settings.model, "messages": list(messages)}
        return {**asked, **self.settings.sampling, **self.settings.extra}

    def ask(self, messages: Sequence[Message]) -> Reply:
        """The reply to one prompt.

        Raises:
            RagxError: the endpoint cannot be reached, refuses the request, or keeps failing.
        """
        settings = self.settings
        try:
            found = self._client.chat.completions.create(
                model=settings.model, messages=list(messages), extra_body=dict(settings.extra), **settings.sampling
            )
        except self._errors as error:
            raise RagxError(
                f"{settings.base_url} must answer a request for {settings.model!r}, got {type(error).__name__}: "
                f"{error}. Check endpoint.base_url, endpoint.model and the key in {settings.api_key_env}; start again"
            ) from error
        if not found.choices:
            raise RagxError(f"{settings.base_url} must send a choice, got none. Ask for another endpoint.model")
        choice = found.choices[0]
        usage = found.usage
        counted = {} if usage is None else {"prompt": usage.prompt_tokens, "reply": usage.completion_tokens}
        return Reply(choice.message.content or "", choice.finish_reason or "", found.model or settings.model, counted)
