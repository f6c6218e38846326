"""A model provider on this machine that repeats what it gets, to try providers, fallbacks and budgets.

``python examples/providers/provider.py FORMAT PORT KEY`` listens on 127.0.0.1 until SIGTERM or Ctrl-C. FORMAT
is `openai_chat`, `anthropic_messages` or `gemini`. It counts 100 input tokens for each message of a request
and one output token for each word of an answer. It prints its counts at its end, and ``GET /counts`` returns
them. A request without the key KEY gets 401 and is not counted.
"""

import json
import signal
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKENS_OF_A_MESSAGE = 100
FORMATS = ("openai_chat", "anthropic_messages", "gemini")

Json = dict[str, object]


class Provider(ThreadingHTTPServer):
    """The server: its format, its key and its counts."""

    daemon_threads = True

    def __init__(self, format_name: str, port: int, key: str) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.format_name, self.key = format_name, key
        self.counts = {"calls": 0, "input_tokens": 0, "output_tokens": 0}


class Handler(BaseHTTPRequestHandler):
    """One connection. It ends with its answer."""

    server: Provider

    def do_GET(self) -> None:
        self._send_json(200, dict(self.server.counts))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        given = self.headers["authorization"] or self.headers["x-api-key"] or self.headers["x-goog-api-key"]
        if (given or "").removeprefix("Bearer ") != self.server.key:
            self._send_json(
                401, {"error": {"message": "The key is not valid.", "type": "authentication_error"}}
            )
            return
        messages = body["contents"] if self.server.format_name == "gemini" else body["messages"]
        answer = f"{self.server.format_name} got: {text_of(messages[-1])}"
        asked, made = TOKENS_OF_A_MESSAGE * len(messages), len(answer.split())
        for name, count in zip(self.server.counts, (1, asked, made), strict=True):
            self.server.counts[name] += count
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for event in EVENTS[self.server.format_name](answer, asked, made):
            name = f"event: {event['type']}\n" if "type" in event else ""
            self.wfile.write(f"{name}data: {json.dumps(event)}\n\n".encode())
        if self.server.format_name == "openai_chat":
            self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_: object) -> None:
        """Log no requests."""

    def _send_json(self, status: int, body: Json) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode() + b"\n")


def text_of(message: Json) -> str:
    """Return the text of a message of any format."""
    content = message.get("content") or message.get("parts")
    if isinstance(content, list):
        return " ".join(str(part["text"]) for part in content if "text" in part)
    return str(content)


def openai_chat(answer: str, asked: int, made: int) -> Iterator[Json]:
    for delta, stop in (({"role": "assistant", "content": answer}, None), ({}, "stop")):
        yield {"id": "1", "choices": [{"index": 0, "delta": delta, "finish_reason": stop}]}
    usage = {"prompt_tokens": asked, "completion_tokens": made, "total_tokens": asked + made}
    yield {"id": "1", "choices": [], "usage": usage}


def anthropic_messages(answer: str, asked: int, made: int) -> Iterator[Json]:
    message = {"id": "1", "type": "message", "role": "assistant", "content": []}
    yield {
        "type": "message_start",
        "message": {**message, "usage": {"input_tokens": asked, "output_tokens": 1}},
    }
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": answer}}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": made}}
    yield {"type": "message_stop"}


def gemini(answer: str, asked: int, made: int) -> Iterator[Json]:
    content = {"role": "model", "parts": [{"text": answer}]}
    usage = {"promptTokenCount": asked, "candidatesTokenCount": made, "totalTokenCount": asked + made}
    yield {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}


EVENTS = {"openai_chat": openai_chat, "anthropic_messages": anthropic_messages, "gemini": gemini}


def main() -> None:
    if len(sys.argv) != 4 or sys.argv[1] not in FORMATS:
        sys.exit(f"usage: provider.py {'|'.join(FORMATS)} PORT KEY")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    provider = Provider(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    try:
        provider.serve_forever()
    except KeyboardInterrupt:
        print(json.dumps(provider.counts))


if __name__ == "__main__":
    main()
