"""A stand-in for an OpenAI-compatible endpoint on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

Reply = Callable[[dict[str, Any]], tuple[int, dict[str, Any]]]


def completion(text: str | None, *, finish: str = "stop") -> tuple[int, dict[str, Any]]:
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    return 200, {"id": "x", "object": "chat.completion", "created": 0, "model": "stand-in-1b", "choices": [choice],
                 "usage": usage}  # fmt: skip


class StandIn:
    """Answers with what `reply` makes of a request; keeps every request with its headers."""

    def __init__(self) -> None:
        self.reply: Reply = lambda request: completion("Lima [1]")
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                stand_in.requests.append({"path": self.path, **request})
                stand_in.keys.append(self.headers["Authorization"])
                status, body = stand_in.reply(request)
                raw = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def prompts(self) -> list[str]:
        """What the user's message of each request said."""
        return [request["messages"][-1]["content"] for request in self.requests]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    pytest.importorskip("openai", reason="needs the extra `api`")
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    found = StandIn()
    thread = threading.Thread(target=found.server.serve_forever, daemon=True)
    thread.start()
    yield found
    found.server.shutdown()
    found.server.server_close()
    thread.join()
