"""A scripted model provider on loopback: OpenAI chat completions and Anthropic messages.

The request's ``model`` chooses what happens: each name in `SCRIPTS` is a list of `Script` s, and the
n-th request for a name plays its n-th script (the last one repeats). So ``429-then-text`` is a provider
that is busy once. More can be added at run time, in process by `Provider.script`, from outside by
``POST /control/script`` (see `control_script`).

In process::

    async with running_provider() as provider:
        provider.url            # http://127.0.0.1:54321
        provider.seen           # what was asked, and whether the client left early

As a process of its own: ``python tests/fakes/provider.py --port 0`` prints the port it listens on.
``GET /control/seen`` answers with what was asked, ``POST /control/reset`` forgets it.

OpenAI clients use ``<url>/v1`` as their base, Anthropic clients ``<url>``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from aiohttp import web

STALL_SECONDS = 60
"""A stall ends when the client leaves; this bounds it should the client never do so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call to make: ``arguments`` is sent as it stands, so it may be malformed."""

    name: str
    arguments: str = "{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What one request is answered with.

    ``stall``: ``headers`` (nothing at all is sent), ``first_token`` (the stream opens, then silence) or
    ``chunks`` (half of the text, then silence). ``break_off``: after half of the text ``abort`` resets
    the connection, ``eof`` ends the body without a finish. ``echo`` answers with the last user text.
    """

    text: str = ""
    echo: bool = False
    calls: tuple[Call, ...] = ()
    stop: str = ""
    stall: str = ""
    break_off: str = ""
    malformed_chunk: bool = False
    delay_ms: int = 0
    status: int = 200
    error: str = "scripted error"
    error_code: str = ""
    retry_after: str = ""


@dataclass(slots=True, kw_only=True)
class Seen:
    """One request as it arrived, and how it ended."""

    path: str
    model: str
    body: dict[str, Any]
    chunks_sent: int = 0
    finished: bool = False
    closed_early: bool = False


_WEATHER = Call(name="weather", arguments='{"city": "Łódź", "days": 3}')
_TIME = Call(name="clock", arguments='{"zone": "UTC"}')
_HELLO = Script(text="Hello there, this is a scripted answer.")

SCRIPTS: dict[str, list[Script]] = {
    "text": [_HELLO],
    "echo": [Script(echo=True)],
    "words-50": [Script(text=" ".join(f"word{n}" for n in range(50)))],
    "slow": [Script(text=" ".join(f"word{n}" for n in range(500)), delay_ms=20)],
    "silent": [Script(text="")],
    "tool": [Script(text="Let me look.", calls=(_WEATHER,)), Script(text="It is sunny.")],
    "parallel": [Script(calls=(_WEATHER, _TIME)), Script(text="Sunny at noon.")],
    "no-arguments": [Script(calls=(Call(name="clock", arguments=""),))],
    "bad-arguments": [Script(calls=(Call(name="weather", arguments='{"city": "Par'), _TIME))],
    "deep-arguments": [Script(calls=(Call(name="weather", arguments='{"a":' * 40 + "1" + "}" * 40),))],
    "huge-number": [Script(calls=(Call(name="weather", arguments='{"n": 9007199254740993}'),))],
    "length": [Script(text="cut sho", stop="length")],
    "refusal": [Script(text="I will not.", stop="refusal")],
    "stall-headers": [Script(stall="headers")],
    "stall-first": [Script(text="never", stall="first_token")],
    "stall-chunks": [Script(text="one two three four", stall="chunks")],
    "break-abort": [Script(text="one two three four", break_off="abort")],
    "break-eof": [Script(text="one two three four", break_off="eof")],
    "bad-chunk": [Script(text="one two three four", malformed_chunk=True)],
    "429": [Script(status=429)],
    "429-retry-after": [Script(status=429, retry_after="7")],
    "429-then-text": [Script(status=429), _HELLO],
    "500": [Script(status=500)],
    "500-then-text": [Script(status=500), _HELLO],
    "503": [Script(status=503)],
    "400": [Script(status=400, error="messages.0: the role is unknown")],
    "401": [Script(status=401, error="Incorrect API key provided: sk-test-secret-key")],
    "403": [Script(status=403)],
    "404": [Script(status=404, error="The model does not exist")],
    "too-long": [
        Script(
            status=400,
            error="prompt is too long: this model's maximum context length is 8192 tokens",
            error_code="context_length_exceeded",
        )
    ],
}


class Provider:
    """The scripted server's state; `app` is its web application."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.url = ""
        self._scripts = {name: list(scripts) for name, scripts in SCRIPTS.items()}
        self._played: dict[str, int] = {}
        self._changed = asyncio.Condition()

    def app(self) -> web.Application:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", self._openai)
        app.router.add_post("/v1/messages", self._anthropic)
        app.router.add_get("/control/seen", self.control_seen)
        app.router.add_post("/control/reset", self.control_reset)
        app.router.add_post("/control/script", self.control_script)
        return app

    def script(self, model: str, *scripts: Script) -> None:
        """From now on, requests for ``model`` play these, in order; the last one repeats."""
        self._scripts[model] = list(scripts)
        self._played.pop(model, None)

    def reset(self) -> None:
        """Forget what was seen, and begin every list of scripts again."""
        self.seen.clear()
        self._played.clear()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Until ``condition`` holds of what was seen; checked on every change. Wrap it in a timeout."""
        async with self._changed:
            await self._changed.wait_for(condition)

    async def control_seen(self, _: web.Request) -> web.Response:
        return web.json_response([asdict(seen) for seen in self.seen])

    async def control_reset(self, _: web.Request) -> web.Response:
        self.reset()
        return web.json_response({})

    async def control_script(self, request: web.Request) -> web.Response:
        """Body: ``{"model": "name", "scripts": [{"text": "…", "calls": [{"name": …}], …}]}``."""
        body = await request.json()
        scripts = [
            Script(**{**given, "calls": tuple(Call(**call) for call in given.get("calls", ()))})
            for given in body["scripts"]
        ]
        self.script(body["model"], *scripts)
        return web.json_response({})

    async def _openai(self, request: web.Request) -> web.StreamResponse:
        return await self._play(request, _openai_error, _openai_events)

    async def _anthropic(self, request: web.Request) -> web.StreamResponse:
        return await self._play(request, _anthropic_error, _anthropic_events)

    async def _play(self, request: web.Request, refuse: Refuse, events: Events) -> web.StreamResponse:
        body = await request.json()
        model = body.get("model", "")
        seen = Seen(path=request.path, model=model, body=body)
        self.seen.append(seen)
        await self._notify()
        script = self._next(model)
        if script is None:
            return refuse(Script(status=404, error=f"no script is called {model}"))
        if script.echo:
            script = replace(script, text=f"You said: {_last_user_text(body)}")
        try:
            if script.stall == "headers":
                await asyncio.sleep(STALL_SECONDS)
            if script.status != 200:
                seen.finished = True
                return refuse(script)
            return await self._stream(request, script, events(script, model), seen)
        except (asyncio.CancelledError, ConnectionResetError):
            seen.closed_early = True
            raise
        finally:
            await asyncio.shield(self._notify())

    async def _stream(
        self, request: web.Request, script: Script, frames: list[Frame], seen: Seen
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        texts = sum(frame.text for frame in frames)
        sent_texts = 0
        for frame in frames:
            half_way = frame.text and sent_texts == texts // 2
            if (script.stall == "first_token" and frame.text) or (script.stall == "chunks" and half_way):
                await asyncio.sleep(STALL_SECONDS)
            if half_way and script.malformed_chunk:
                await response.write(b'data: {"this is": not JSON\n\n')
            if half_way and script.break_off == "abort":
                seen.finished = True
                assert request.transport is not None
                request.transport.abort()
                return response
            if half_way and script.break_off == "eof":
                break
            if script.delay_ms and frame.text:
                await asyncio.sleep(script.delay_ms / 1000)
            await response.write(frame.data)
            seen.chunks_sent += 1
            sent_texts += frame.text
        seen.finished = True
        await response.write_eof()
        return response

    def _next(self, model: str) -> Script | None:
        scripts = self._scripts.get(model)
        if scripts is None:
            return None
        played = self._played.get(model, 0)
        self._played[model] = played + 1
        return scripts[min(played, len(scripts) - 1)]

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


@dataclass(frozen=True, slots=True)
class Frame:
    """One server-sent event; ``text`` says whether it carries a piece of the answer."""

    data: bytes
    text: bool = False


Refuse = Callable[[Script], web.Response]
Events = Callable[[Script, str], list[Frame]]


def _last_user_text(body: dict[str, Any]) -> str:
    for message in reversed(body.get("messages", [])):
        if message.get("role") == "user":
            content = message.get("content", "")
            if isinstance(content, str):
                return content
            return " ".join(str(block.get("text", "")) for block in content)
    return ""


def _pieces(text: str) -> list[str]:
    words = text.split(" ")
    return [word if last else word + " " for word, last in zip(words, _marks(len(words)), strict=True)]


def _marks(count: int) -> list[bool]:
    return [position == count - 1 for position in range(count)]


def _split(text: str) -> list[str]:
    """Arguments in uneven pieces, as providers send them."""
    return [text[start : start + 5] for start in range(0, len(text), 5)]


# --- OpenAI ------------------------------------------------------------------------------------

_OPENAI_STOPS = {"refusal": "content_filter"}


def _openai_error(script: Script) -> web.Response:
    detail = {"message": script.error, "type": "scripted", "code": script.error_code or None}
    return web.json_response({"error": detail}, status=script.status, headers=_retry_after(script))


def _openai_events(script: Script, model: str) -> list[Frame]:
    frames = [_openai_frame(model, {"role": "assistant", "content": ""})]
    if script.text:
        frames += [_openai_frame(model, {"content": piece}, text=True) for piece in _pieces(script.text)]
    openings = [
        {"index": index, "id": f"call_{index}", "type": "function",
         "function": {"name": call.name, "arguments": ""}}
        for index, call in enumerate(script.calls)
    ]  # fmt: skip
    # Parallel calls arrive interleaved: what an accumulator must not mix up.
    frames += [_openai_frame(model, {"tool_calls": [opening]}) for opening in openings]
    splits = [_split(call.arguments) for call in script.calls]
    for position in range(max((len(split) for split in splits), default=0)):
        for index, split in enumerate(splits):
            if position < len(split):
                delta = {"index": index, "function": {"arguments": split[position]}}
                frames.append(_openai_frame(model, {"tool_calls": [delta]}))
    stop = _OPENAI_STOPS.get(script.stop, script.stop) or ("tool_calls" if script.calls else "stop")
    frames.append(_openai_frame(model, {}, finish=stop))
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    frames.append(_sse({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1,
                        "model": model, "choices": [], "usage": usage}))  # fmt: skip
    frames.append(Frame(b"data: [DONE]\n\n"))
    return frames


def _openai_frame(
    model: str, delta: dict[str, Any], *, text: bool = False, finish: str | None = None
) -> Frame:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model}
    return _sse({**chunk, "choices": [choice]}, text=text)


def _sse(payload: dict[str, Any], *, event: str = "", text: bool = False) -> Frame:
    head = f"event: {event}\n" if event else ""
    return Frame(f"{head}data: {json.dumps(payload)}\n\n".encode(), text)


def _retry_after(script: Script) -> dict[str, str]:
    return {"retry-after": script.retry_after} if script.retry_after else {}


# --- Anthropic ---------------------------------------------------------------------------------

_ANTHROPIC_STOPS = {"length": "max_tokens"}
_ANTHROPIC_ERRORS = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
                     404: "not_found_error", 429: "rate_limit_error"}  # fmt: skip


def _anthropic_error(script: Script) -> web.Response:
    kind = _ANTHROPIC_ERRORS.get(script.status, "api_error")
    body = {"type": "error", "error": {"type": kind, "message": script.error}}
    return web.json_response(body, status=script.status, headers=_retry_after(script))


def _anthropic_events(script: Script, model: str) -> list[Frame]:
    usage = {"input_tokens": 11, "output_tokens": 1}
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    frames = [_event("message_start", message=message), _event("ping")]
    index = 0
    if script.text:
        frames += _anthropic_block(
            index, {"type": "text", "text": ""}, "text_delta", "text", _pieces(script.text)
        )
        index += 1
    for number, call in enumerate(script.calls):
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": call.name, "input": {}}
        pieces = ["", *_split(call.arguments)]
        frames += _anthropic_block(index, block, "input_json_delta", "partial_json", pieces)
        index += 1
    stop = _ANTHROPIC_STOPS.get(script.stop, script.stop) or ("tool_use" if script.calls else "end_turn")
    delta = {"stop_reason": stop, "stop_sequence": None}
    frames += [_event("message_delta", delta=delta, usage={"output_tokens": 7}), _event("message_stop")]
    return frames


def _anthropic_block(
    index: int, block: dict[str, Any], kind: str, key: str, pieces: list[str]
) -> list[Frame]:
    deltas = [
        _event(
            "content_block_delta", text=kind == "text_delta", index=index, delta={"type": kind, key: piece}
        )
        for piece in pieces
    ]
    start = _event("content_block_start", index=index, content_block=block)
    return [start, *deltas, _event("content_block_stop", index=index)]


def _event(kind: str, *, text: bool = False, **fields: Any) -> Frame:
    return _sse({"type": kind, **fields}, event=kind, text=text)


# --- running it --------------------------------------------------------------------------------


@asynccontextmanager
async def running_provider(port: int = 0) -> AsyncIterator[Provider]:
    """A provider that listens on loopback for as long as the block lasts."""
    provider = Provider()
    # Without handler_cancellation a handler is not told that its client has left.
    runner = web.AppRunner(provider.app(), access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    host, bound = runner.addresses[0][:2]
    provider.url = f"http://{host}:{bound}"
    try:
        yield provider
    finally:
        await runner.cleanup()


async def _serve(port: int) -> None:
    async with running_provider(port) as provider:
        print(provider.url.rpartition(":")[2], flush=True)
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="A scripted model provider on loopback.")
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one, which is printed")
    try:
        asyncio.run(_serve(parser.parse_args().port))
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
