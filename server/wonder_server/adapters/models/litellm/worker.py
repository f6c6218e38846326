"""The LiteLLM helper process: ``python -m wonder_server.adapters.models.litellm.worker FD``.

It talks to the server over the socket that it inherits as file descriptor ``FD`` (`frames` has the
words), makes each call as a task of its own, and ends when that socket does. Keys arrive in the first
frame, never on the command line or in the environment. One call is one attempt.

LiteLLM's traps that shape this file (version 1.106.2):

- Cancelling whoever reads a stream does not close it: ``aclose`` in ``finally``.
- A stream that simply ends is given the finish reason "stop": `_broke_off` asks what really came.
- Its reader of Anthropic streams imports LiteLLM's proxy, and goes on reading after the client has
  left. So the native entry point only prepares the call (address, authentication, beta headers): its
  HTTP client is ours, takes what it was about to post, and the answer is read here.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import asdict
from typing import Any, NoReturn

import aiohttp

from wonder_server.adapters.egress.confine import confine
from wonder_server.adapters.models import formats
from wonder_server.adapters.models.common import format_names, frames, provider_errors
from wonder_server.adapters.models.common.sse import EventDecoder, parse_data
from wonder_server.adapters.models.litellm.chat_fields import to_arguments
from wonder_server.adapters.models.litellm.errors import fault_from_exception
from wonder_server.core.errors import Fault, Reason, WonderError, error

# What LiteLLM may look at to choose the headers; the body is not made of these.
ANTHROPIC_FIELDS = frozenset(
    "container context_management max_tokens messages output_config output_format system thinking tool_choice"
    " tools".split()
)


class _PreparedRequest(BaseException):
    """Carries a prepared HTTP request past LiteLLM's own handling of errors."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        super().__init__("prepared")
        self.url = url
        self.headers = headers


class Worker:
    """Makes calls and reports on them through ``writer``."""

    def __init__(self, writer: asyncio.StreamWriter, hello: dict[str, Any]) -> None:
        self._writer = writer
        self._endpoints: dict[str, dict[str, Any]] = hello["endpoints"]
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

    def handle(self, message: dict[str, Any]) -> None:
        """Starts or cancels a call."""
        if "cancel" in message:
            if task := self._tasks.get(message["cancel"]):
                task.cancel()
            return
        call_id = message["call"]
        task = asyncio.create_task(self._run(call_id, message))
        self._tasks[call_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(call_id, None))

    async def _run(self, call_id: int, call: dict[str, Any]) -> None:
        try:
            result = await self._answer(call_id, call)
            self._send({"id": call_id, "result": frames.result_to_json(result)})
        except WonderError as failure:
            self._fail(call_id, failure.fault)
        except Exception as failure:  # LiteLLM raises whatever its providers' clients do.
            endpoint = self._endpoints.get(call["provider"], {})
            self._fail(call_id, fault_from_exception(failure, call["provider"], endpoint.get("api_base", "")))
        await self._writer.drain()

    async def _answer(self, call_id: int, call: dict[str, Any]) -> Any:
        accumulator = formats.accumulator(call["format"])
        native = call["format"] == format_names.ANTHROPIC_MESSAGES
        events = self._anthropic(call) if native else self._chat(call)
        told = (accumulator.usage_so_far, accumulator.character_count)
        try:
            async for event in events:
                if text := formats.feed(accumulator, event):
                    self._send({"id": call_id, "text": text})
                elif accumulator.has_started:
                    self._send({"id": call_id})
                so_far = (accumulator.usage_so_far, accumulator.character_count)
                if so_far != told:
                    told = so_far
                    self._send({"id": call_id, "counted": asdict(told[0]), "letters": told[1]})
        finally:
            await events.aclose()
        return formats.finish(accumulator)

    async def _chat(self, call: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The chunks of a chat completion."""
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

    async def _anthropic(self, call: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The events of an Anthropic message. The request's body goes out as it came."""
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

    async def _prepare(self, call: dict[str, Any]) -> _PreparedRequest:
        """What LiteLLM's native Anthropic entry point is about to post, and where."""
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

    def _connection_arguments(self, provider: str, known_as: str) -> dict[str, Any]:
        """Where to and with which key: the operator's word alone."""
        endpoint = self._endpoints.get(provider, {})
        where = {name: endpoint[name] for name in ("api_key", "api_base") if endpoint.get(name)}
        if endpoint.get("headers"):
            where["extra_headers"] = endpoint["headers"]
        if known_as == "openai" and "api_base" in where:
            # A server of one's own often asks for no key, but clients insist on sending one.
            where.setdefault("api_key", "none")
        return {**where, **endpoint.get("options", {})}

    def _fail(self, call_id: int, fault: Fault) -> None:
        self._send(
            {"id": call_id, "fault": frames.fault_to_json(provider_errors.redacted(fault, self._secrets))}
        )

    def _send(self, message: dict[str, Any]) -> None:
        """Sends at the end of this turn of the loop: the chunks of many calls wake the server once."""
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsent.append(frames.encode(message))

    def _flush(self) -> None:
        self._writer.write(b"".join(self._unsent))
        self._unsent.clear()


def _is_cut_off(stream: Any, event: dict[str, Any]) -> bool:
    """Whether a finish reason is one that LiteLLM made up because the stream ended without any."""
    if not any(choice.get("finish_reason") for choice in event.get("choices", ())):
        return False
    said = [getattr(stream, name, "?") for name in ("received_finish_reason", "intermittent_finish_reason")]
    return said == [None, None]


def _client() -> Any:
    """An HTTP client of LiteLLM's kind that posts nothing."""
    from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

    class Preparing(AsyncHTTPHandler):
        def __init__(self) -> None:  # No connection pool: nothing is ever sent through this.
            pass

        async def post(self, url: str, *, headers: Any = None, **_: Any) -> NoReturn:
            raise _PreparedRequest(url, dict(headers or {}))

    return Preparing()


def _import_litellm() -> None:
    import litellm

    litellm.telemetry = False
    litellm.suppress_debug_info = True
    litellm.turn_off_message_logging = True
    litellm.disable_streaming_logging = True


async def serve(connection: socket.socket) -> None:
    """Serves the other end of ``connection`` until it closes."""
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
    # The server is gone: LiteLLM's threads and logging queues are not worth waiting for.
    os._exit(0)


if __name__ == "__main__":
    main()
