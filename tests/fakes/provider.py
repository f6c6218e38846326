"""A scripted model provider on loopback: OpenAI chat and responses, Anthropic messages, Gemini.

The request's ``model`` selects the answer: each name in `SCRIPTS` is a list of `Script` s, and the n-th
request for a name plays its n-th script; the last one repeats. So ``429-then-text`` is a provider that is
busy once. `Provider.script` adds scripts in process, and ``POST /control/script`` from another process. For a
script for each turn of one model, the model is `BY_WORD`: the first word of the last user message names the
script.

In process::

    async with running_provider() as provider:
        provider.url            # http://127.0.0.1:54321
        provider.requests       # the requests, and whether the client left early

As a process: ``python -m tests.fakes.provider --port 0`` prints its port. ``GET /control/seen`` returns the
requests, and ``POST /control/reset`` removes them.

OpenAI clients use ``<url>/v1`` as their base, Anthropic's and Gemini's ``<url>``.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace

from aiohttp import web

from tests.fakes import provider_formats, provider_validation
from tests.fakes.provider_formats import Call, Counts, Format, Script, billed
from wonder_server.core.json_types import JsonDict

__all__ = ["Call", "Provider", "RecordedRequest", "Script", "running_provider"]

STALL_SECONDS = 600
"""Maximum duration of a stall, which normally ends when the client leaves."""

BY_WORD = "by-word"
"""The model whose scripts the user messages name."""


@dataclass(slots=True, kw_only=True)
class RecordedRequest:
    """One request and the state of its answer.

    - ``script`` is the name of the script.
    - ``at`` is the time of arrival, in seconds of the monotonic clock.
    - ``port`` is the client's, one for each connection.
    - ``finished``: all data was sent. ``ended``: the end of the body was sent too.
    - ``counts`` are the tokens that the provider charges for; None before the whole answer was sent.
    """

    path: str
    model: str
    body: JsonDict
    script: str = ""
    at: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)
    query: str = ""
    port: int = 0
    chunks_sent: int = 0
    finished: bool = False
    ended: bool = False
    closed_early: bool = False
    counts: Counts | None = None


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
    "thinking": [Script(thought="Let me think.", text="It is so.")],
    "comments": [Script(text="one two three four", comments=True)],
    "late-end": [Script(text="one two", late_end_ms=600_000)],
    "stall-headers": [Script(stall="headers")],
    "stall-first": [Script(text="never", stall="first_token")],
    "stall-chunks": [Script(text="one two three four", stall="chunks")],
    "break-abort": [Script(text="one two three four", break_off="abort")],
    "break-begin": [Script(text="never", break_off="begin")],
    "nothing": [Script(body="")],
    "html": [Script(body="<html>Hello</html>", content_type="text/html")],
    "no-stream": [
        Script(body='{"error": {"message": "overloaded", "code": 503}}', content_type="application/json")
    ],
    "redirect": [Script(status=307, location="/v1/elsewhere", error="moved")],
    "error-event": [Script(text="one two three four", error_event=503)],
    "error-event-429": [Script(text="one two three four", error_event=429)],
    "error-event-400": [Script(text="one two three four", error_event=400)],
    "break-end": [Script(text="one two three four", break_off="end")],
    "break-eof": [Script(text="one two three four", break_off="eof")],
    "bad-chunk": [Script(text="one two three four", malformed_chunk=True)],
    "429": [Script(status=429)],
    "429-retry-after": [Script(status=429, retry_after="7")],
    "429-then-text": [Script(status=429), _HELLO],
    "500": [Script(status=500)],
    "500-then-text": [Script(status=500), _HELLO],
    "502": [Script(status=502)],
    "503": [Script(status=503)],
    "529": [Script(status=529)],
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
    """The state of the scripted server. `app` is its web application."""

    def __init__(self) -> None:
        self.requests: list[RecordedRequest] = []
        self.strict = True
        """If True, refuse the requests that a real provider refuses (`tests.fakes.provider_validation`)."""
        self.rejections: list[str] = []
        """The reasons of the refusals."""
        self.url = ""
        self._seen_by_script: dict[str, list[RecordedRequest]] = {}
        self._scripts = {name: list(scripts) for name, scripts in SCRIPTS.items()}
        self._played: dict[str, int] = {}
        self._changed = asyncio.Condition()

    def app(self) -> web.Application:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", self._openai)
        app.router.add_post("/v1/messages", self._anthropic)
        app.router.add_post("/v1/responses", self._responses)
        app.router.add_post("/v1beta/models/{model}:streamGenerateContent", self._gemini)
        app.router.add_get("/control/seen", self.control_seen)
        app.router.add_post("/control/reset", self.control_reset)
        app.router.add_post("/control/script", self.control_script)
        return app

    def script(self, model: str, *scripts: Script) -> None:
        """Play these scripts for requests for ``model``, in order; the last one repeats."""
        self._scripts[model] = list(scripts)
        self._played.pop(model, None)

    def of(self, script: str) -> list[RecordedRequest]:
        """Return the requests that this script answered."""
        return self._seen_by_script.get(script, [])

    @property
    def open(self) -> list[RecordedRequest]:
        """The requests whose answers are not complete."""
        return [seen for seen in self.requests if not (seen.finished or seen.closed_early or seen.ended)]

    def reset(self) -> None:
        """Remove the recorded requests, and restart every list of scripts."""
        self.requests.clear()
        self._seen_by_script.clear()
        self._played.clear()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition`` is true; check it after every change. Call it within a timeout."""
        async with self._changed:
            await self._changed.wait_for(condition)

    async def control_seen(self, _: web.Request) -> web.Response:
        return web.json_response([asdict(seen) for seen in self.requests])

    async def control_reset(self, _: web.Request) -> web.Response:
        self.reset()
        return web.json_response({})

    async def control_script(self, request: web.Request) -> web.Response:
        """Add scripts. Body: ``{"model": "name", "scripts": [{"text": "…", "calls": [{"name": …}], …}]}``."""
        body = await request.json()
        scripts = [
            Script(**{**given, "calls": tuple(Call(**call) for call in given.get("calls", ()))})
            for given in body["scripts"]
        ]
        self.script(body["model"], *scripts)
        return web.json_response({})

    async def _openai(self, request: web.Request) -> web.StreamResponse:
        return await self._play(request, provider_formats.OPENAI_CHAT)

    async def _responses(self, request: web.Request) -> web.StreamResponse:
        return await self._play(request, provider_formats.OPENAI_RESPONSES)

    async def _anthropic(self, request: web.Request) -> web.StreamResponse:
        return await self._play(request, provider_formats.ANTHROPIC_MESSAGES)

    async def _gemini(self, request: web.Request) -> web.StreamResponse:
        return await self._play(request, provider_formats.GEMINI)

    async def _play(self, request: web.Request, wire: Format) -> web.StreamResponse:
        body = await request.json()
        model = request.match_info.get("model") or body.get("model", "")
        # LiteLLM joins consecutive user messages.
        name = _users_word(body) if model == BY_WORD else model
        assert request.transport is not None
        seen = RecordedRequest(
            path=request.path,
            model=model,
            body=body,
            script=name,
            at=time.monotonic(),
            headers={name.lower(): value for name, value in request.headers.items()},
            query=request.query_string,
            port=request.transport.get_extra_info("peername")[1],
        )
        self.requests.append(seen)
        self._seen_by_script.setdefault(name, []).append(seen)
        await self._notify()
        script = self._next(name)
        if script is None:
            return wire.refuse(Script(status=404, error=f"no script is called {name}"))
        refused = provider_validation.rejection(wire.name, body) if self.strict else ""
        if refused:
            self.rejections.append(refused)
            seen.finished = True
            return wire.refuse(Script(status=400, error=refused))
        if script.echo:
            script = replace(script, text=f"You said: {' '.join(_last_user_texts(body))}")
        try:
            if script.stall == "headers":
                await asyncio.sleep(STALL_SECONDS)
            if script.status != 200:
                seen.finished = True
                answer = wire.refuse(script)
                if script.location:
                    answer.headers["location"] = script.location
                return answer
            if script.body is not None:
                seen.finished = True
                return web.Response(text=script.body, content_type=script.content_type)
            return await self._stream(request, script, wire, seen)
        except (asyncio.CancelledError, ConnectionResetError):
            seen.closed_early = True
            raise
        finally:
            await asyncio.shield(self._notify())

    async def _stream(
        self, request: web.Request, script: Script, wire: Format, seen: RecordedRequest
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        if script.break_off == "begin":
            seen.finished = True
            return _reset(request, response)
        frames = wire.events(script, seen.model)
        await response.prepare(request)
        texts, calls, thoughts = (
            sum(getattr(frame, kind) for frame in frames) for kind in ("text", "call", "thought")
        )
        sent_texts = sent_calls = sent_thoughts = 0
        for frame in frames:
            half_way = bool(frame.text) and sent_texts == texts // 2
            if (script.stall == "first_token" and frame.text) or (script.stall == "chunks" and half_way):
                await asyncio.sleep(STALL_SECONDS)
            if script.stall == "thought" and frame.thought and sent_thoughts == thoughts // 2:
                await asyncio.sleep(STALL_SECONDS)
            if script.stall == "call" and frame.call and sent_calls == (calls + 1) // 2:
                await asyncio.sleep(STALL_SECONDS)
            if half_way and script.malformed_chunk:
                await response.write(b'data: {"this is": not JSON\n\n')
            if half_way and script.error_event:
                await response.write(wire.fail(script).data)
                break
            if _is_reset_due(script, half_way=half_way, calls=calls, sent_calls=sent_calls):
                seen.finished = True
                return _reset(request, response)
            if half_way and script.break_off == "eof":
                break
            if script.delay_ms and (frame.text or frame.call or frame.thought):
                await asyncio.sleep(script.delay_ms / 1000)
            await response.write(_with_comments(frame.data) if script.comments else frame.data)
            seen.chunks_sent += 1
            sent_texts += frame.text
            sent_calls += frame.call
            sent_thoughts += frame.thought
        else:
            seen.counts = billed(script, writes=wire is provider_formats.ANTHROPIC_MESSAGES)
        seen.finished = True
        if script.break_off == "end":
            return _reset(request, response)
        await asyncio.sleep(script.late_end_ms / 1000)
        await response.write_eof()
        seen.ended = True
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


def _reset(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return response


def _is_reset_due(script: Script, *, half_way: bool, calls: int, sent_calls: int) -> bool:
    """Return True if the script resets the connection before the next frame."""
    if script.break_off == "call":
        return calls > 0 and sent_calls == (calls + 1) // 2
    return script.break_off == "abort" and half_way


def _with_comments(data: bytes) -> bytes:
    return b": still here\r\n\r\n" + data.replace(b"\n", b"\r\n")


def _users_word(body: JsonDict) -> str:
    """Return the first word that the user wrote: after the context, and before notices of the platform."""
    for texts in _user_texts(body):
        for text in reversed(texts):
            written = text.partition(_NOTICE)[0].rpartition(_MESSAGE)[2]
            if written.strip():
                return _SPEAKER.sub("", written).partition(" ")[0]
    return ""


_NOTICE = "(A notice of the platform"
_MESSAGE = "[Message]\n"
_SPEAKER = re.compile(r"\[(?:user|agent|workflow)[^\]\n]*\] ")


def _last_user_texts(body: JsonDict) -> list[str]:
    """Return the texts of the last user message that has one."""
    return next(_user_texts(body), [""])


def _user_texts(body: JsonDict) -> Iterator[list[str]]:
    """Yield the texts of each user message, the last message first. Some formats put tool results there,
    which are not text."""
    for message in reversed(body.get("messages") or body.get("input") or body.get("contents") or []):
        if message.get("role") == "user":
            content = message.get("content") or message.get("parts") or ""
            if isinstance(content, str):
                yield [content]
            elif texts := [str(block["text"]) for block in content if block.get("text")]:
                yield texts


# --- running it --------------------------------------------------------------------------------


@asynccontextmanager
async def running_provider(port: int = 0) -> AsyncIterator[Provider]:
    """Run a provider that listens on loopback."""
    provider = Provider()
    # Without handler_cancellation a handler does not notice that its client has left.
    runner = web.AppRunner(provider.app(), access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    host, bound = runner.addresses[0][:2]
    provider.url = f"http://{host}:{bound}"
    try:
        yield provider
        assert not provider.rejections, provider.rejections
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
