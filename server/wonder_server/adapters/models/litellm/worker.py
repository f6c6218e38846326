"""The LiteLLM helper process: ``python -m wonder_server.adapters.models.litellm.worker FD``.

It communicates with the server over the socket that it inherits as file descriptor ``FD``, in the protocol of
`frames`. Each call is a task and one attempt. The process ends when the socket closes. Keys arrive in the
first frame, never on the command line or in the environment.

Properties of LiteLLM 1.106.2 that this module works around:

- Cancelling the reader of a stream does not close the stream, so ``finally`` calls ``aclose``.
- A stream without a finish reason gets the reason "stop", so `_is_cut_off` checks the received reasons.
- Its reader of Anthropic streams imports LiteLLM's proxy, and continues to read after the client has closed
  the stream. So LiteLLM's native entry point only prepares the call (address, authentication, beta headers)
  with an HTTP client that captures the request, and this module sends it and reads the answer.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, NoReturn

import aiohttp

from wonder_server.adapters.egress.confine import confine
from wonder_server.adapters.models import formats
from wonder_server.adapters.models.common import frames, provider_errors
from wonder_server.adapters.models.common.sse import EventDecoder, parse_data
from wonder_server.adapters.models.litellm.chat_fields import to_arguments
from wonder_server.adapters.models.litellm.errors import fault_from_exception, fault_of_options
from wonder_server.core.content.answer_images import AnswerImage
from wonder_server.core.errors import Fault, Reason, WonderError, error
from wonder_server.core.json_types import JsonDict
from wonder_server.core.model import ModelResult
from wonder_server.core.request_formats import anthropic_messages

if TYPE_CHECKING:
    from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

# The fields from which LiteLLM chooses the headers. They do not become the body.
ANTHROPIC_FIELDS = frozenset(
    "container context_management max_tokens messages output_config output_format system thinking tool_choice"
    " tools".split()
)


class _PreparedRequest(BaseException):
    """A prepared HTTP request. As a `BaseException` it passes LiteLLM's error handling."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        super().__init__("prepared")
        self.url = url
        self.headers = headers


class Worker:
    """The calls of the server, with reports through ``writer``."""

    def __init__(self, writer: asyncio.StreamWriter, hello: JsonDict) -> None:
        self._writer = writer
        self._endpoints: dict[str, JsonDict] = hello["endpoints"]
        self._secrets = tuple(
            secret for endpoint in self._endpoints.values() for secret in endpoint["secrets"]
        )
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._unsent: list[bytes] = []
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            trust_env=True,
        )

    def handle(self, message: JsonDict) -> None:
        """Start or cancel a call."""
        if "cancel" in message:
            if task := self._tasks.get(message["cancel"]):
                task.cancel()
            return
        call_id = message["call"]
        task = asyncio.create_task(self._run(call_id, message))
        self._tasks[call_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(call_id, None))

    async def _run(self, call_id: int, call: JsonDict) -> None:
        try:
            result, images = await self._answer(call_id, call)
            self._send({"id": call_id, **frames.finished_to_json(result, images)})
        except WonderError as failure:
            self._fail(call_id, failure.fault)
        except Exception as failure:  # LiteLLM raises any exception of its providers' clients.
            endpoint = self._endpoints.get(call["provider"], {})
            fault = fault_of_options(failure, endpoint.get("options", {}))
            url = endpoint.get("api_base", "")
            self._fail(call_id, fault or fault_from_exception(failure, call["provider"], url))
        await self._writer.drain()

    async def _answer(self, call_id: int, call: JsonDict) -> tuple[ModelResult, list[AnswerImage]]:
        accumulator = formats.accumulator(call["format"])
        native = call["format"] == anthropic_messages.FORMAT.name
        events = self._anthropic(call) if native else self._chat(call)
        reported = (accumulator.usage_so_far, accumulator.character_count)
        try:
            async for event in events:
                text = formats.feed(accumulator, event)
                if accumulator.asides:
                    for piece in formats.take_pieces(accumulator, text):
                        self._send({"id": call_id, **frames.piece_to_json(piece)})
                elif text:
                    self._send({"id": call_id, "text": text})
                elif accumulator.has_started:
                    self._send({"id": call_id})
                so_far = (accumulator.usage_so_far, accumulator.character_count)
                if so_far != reported:
                    reported = so_far
                    self._send({"id": call_id, "counted": asdict(so_far[0]), "letters": so_far[1]})
        finally:
            await events.aclose()
        return formats.finish(accumulator), accumulator.images.found

    async def _chat(self, call: JsonDict) -> AsyncGenerator[JsonDict, None]:
        """Yield the chunks of a chat completion."""
        import litellm

        stream = await litellm.acompletion(
            model=f"{call['known_as']}/{call['model']}",
            stream=True,
            stream_options={"include_usage": True},
            num_retries=0,
            max_retries=0,
            timeout=call["timeout_ms"] / 1000,
            **to_arguments(call["request"]),
            **self._connection_arguments(call["provider"], call["known_as"]),
        )
        try:
            async for chunk in stream:
                event = chunk.model_dump(exclude_none=True)
                if _is_cut_off(stream, event):
                    raise WonderError(provider_errors.STREAM_CUT_OFF)
                yield event
        finally:
            await stream.aclose()

    async def _anthropic(self, call: JsonDict) -> AsyncGenerator[JsonDict, None]:
        """Yield the events of an Anthropic message. The body is the unchanged request."""
        prepared = await self._prepare(call)
        body = {**call["request"], "model": call["model"], "stream": True}
        given = self._endpoints.get(call["provider"], {}).get("headers", {})
        headers = {**prepared.headers, **given}
        async with self._session.post(prepared.url, headers=headers, json=body) as response:
            if response.status >= 400:
                headers = {name.lower(): value for name, value in response.headers.items()}
                raise WonderError(
                    provider_errors.from_status(response.status, await response.text(), headers)
                )
            decoder = EventDecoder()
            async for received in response.content.iter_any():
                for data in decoder.feed(received):
                    yield parse_data(data)

    async def _prepare(self, call: JsonDict) -> _PreparedRequest:
        """Return the address and headers that LiteLLM's native Anthropic entry point would post to."""
        import litellm

        try:
            await litellm.anthropic.messages.acreate(  # type: ignore[attr-defined]
                **{name: value for name, value in call["request"].items() if name in ANTHROPIC_FIELDS},
                model=f"{call['known_as']}/{call['model']}",
                stream=True,
                client=_client(),
                **self._connection_arguments(call["provider"], call["known_as"]),
            )
        except _PreparedRequest as prepared:
            return prepared
        raise error(Reason.INTERNAL, "The call to the Anthropic messages format could not be prepared.")

    def _connection_arguments(self, provider: str, known_as: str) -> JsonDict:
        """Return LiteLLM's arguments for address and key, from the operator's endpoint only."""
        endpoint = self._endpoints.get(provider, {})
        arguments = {name: endpoint[name] for name in ("api_key", "api_base") if endpoint.get(name)}
        if endpoint.get("headers"):
            arguments["extra_headers"] = endpoint["headers"]
        if known_as == "openai" and "api_base" in arguments:
            # Self-hosted servers often need no key, but LiteLLM's client requires one.
            arguments.setdefault("api_key", "none")
        return {**arguments, **endpoint.get("options", {})}

    def _fail(self, call_id: int, fault: Fault) -> None:
        self._send(
            {"id": call_id, "fault": frames.fault_to_json(provider_errors.redacted(fault, self._secrets))}
        )

    def _send(self, message: JsonDict) -> None:
        """Send at the end of the event loop's iteration: the chunks of many calls wake the server once."""
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsent.append(frames.encode(message))

    def _flush(self) -> None:
        self._writer.write(b"".join(self._unsent))
        self._unsent.clear()


def _is_cut_off(stream: object, event: JsonDict) -> bool:
    """Return True if LiteLLM has invented the finish reason because the stream ended without one."""
    if not any(choice.get("finish_reason") for choice in event.get("choices", ())):
        return False
    received = [
        getattr(stream, name, "?") for name in ("received_finish_reason", "intermittent_finish_reason")
    ]
    return received == [None, None]


def _client() -> AsyncHTTPHandler:
    """Return an HTTP client for LiteLLM that captures requests and sends nothing."""
    from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

    class Preparing(AsyncHTTPHandler):
        def __init__(self) -> None:  # It sends nothing, so it needs no connection pool.
            pass

        async def post(self, url: str, *, headers: Mapping[str, str] | None = None, **_: object) -> NoReturn:
            raise _PreparedRequest(url, dict(headers or {}))

    return Preparing()


def _import_litellm() -> None:
    import litellm

    litellm.telemetry = False
    litellm.suppress_debug_info = True
    litellm.turn_off_message_logging = True
    litellm.disable_streaming_logging = True


async def serve(connection: socket.socket) -> None:
    """Serve the server at the other end of ``connection`` until it closes."""
    reader, writer = await asyncio.open_connection(sock=connection)
    buffer = frames.FrameBuffer()
    worker: Worker | None = None
    while data := await reader.read(1 << 16):
        for message in buffer.feed(data):
            if worker is not None:
                worker.handle(message)
                continue
            confine(message["proxy_port"])
            _import_litellm()
            worker = Worker(writer, message)
            writer.write(frames.encode({"ready": True}))


def main() -> None:
    with suppress(KeyboardInterrupt, ConnectionError):
        asyncio.run(serve(socket.socket(fileno=int(sys.argv[1]))))
    # The server has ended, so do not wait for LiteLLM's threads and logging queues.
    os._exit(0)


if __name__ == "__main__":
    main()
