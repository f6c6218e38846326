"""The action ``http`` against hostile servers: the outcome is a result or a business error, never
INTERNAL."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import NoReturn

import pytest

from wonder_server.adapters.web.guarded import GuardedWeb
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.schema.schemas import validate
from wonder_server.services.actions import (
    ACTIONS,
    ActionCall,
    ExecutionContext,
    ModelAccess,
    NetworkAccess,
    Services,
)

POLICY = NetworkPolicy(http_allow=("127.0.0.1",))
LIMIT = 100_000


class Nothing:
    """A service that ``http`` does not use: it fails on every use."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(name)


class Clock:
    def now_ms(self) -> int:
        return 1_767_225_600_000


class Policies:
    async def network_policy(self, project_id: str) -> NetworkPolicy:
        return POLICY


def answer(head: str = "", body: bytes = b"", status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", *filter(None, head.split("\n"))]
    if "Transfer-Encoding" not in head and "Content-Length" not in head:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


@asynccontextmanager
async def serving(*answers: bytes) -> AsyncIterator[str]:
    """Serve the given responses in order, repeat the last, and close each connection."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(left.pop(0) if len(left) > 1 else left[0])
            await writer.drain()
        except (OSError, EOFError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


async def run(url: str, **input: JsonValue) -> JsonValue:
    web = GuardedWeb()
    services = Services(
        models=ModelAccess(model=Nothing(), default_profile=ModelProfile(provider="offline")),
        memory=Nothing(),
        history=Nothing(),
        network=NetworkAccess(web=web, mcp=Nothing(), policies=Policies()),
        clock=Clock(),
    )
    given = {"url": url, "max_response_bytes": LIMIT, **input}
    try:
        context = ExecutionContext(project_id="proj_1", key="op_1")
        result = await ACTIONS["http"].run(ActionCall(input=given, context=context, services=services))
    finally:
        await web.close()
    assert validate(ACTIONS["http"].output_schema, result) == []
    assert_can_be_sent(result)
    return result


def assert_can_be_sent(value: JsonValue) -> None:
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, dict):
        for name, item in value.items():
            name.encode()
            assert_can_be_sent(item)
    elif isinstance(value, list):
        for item in value:
            assert_can_be_sent(item)


async def fault(doing: Awaitable[object]) -> tuple[Reason, str]:
    with pytest.raises(WonderError) as caught:
        await doing
    caught.value.fault.message.encode()
    return caught.value.fault.reason, caught.value.fault.message


JSON = "Content-Type: application/json"


@pytest.mark.parametrize(
    ("head", "body", "encoding"),
    [
        (JSON, b'{"a": "\xff\xfe"}', "base64"),
        (JSON, b"\xff\xfe{\x00}\x00", "base64"),
        (JSON, b'{"a": "\\ud800"}', "text"),
        (JSON, b"[" * 50_000, "text"),
        (JSON, b"[" * 2_000 + b"]" * 2_000, "text"),
        (JSON, b'{"a": NaN}', "text"),
        (f"{JSON}; charset=utf-16", b'{"a": 1}', "json"),
        ("Content-Type: text/plain; charset=utf-7", b"+ADw-", "base64"),
        ("Content-Type: text/plain; charset=idna", b"xn--a" * 100, "base64"),
        ("Content-Type: text/plain; charset=undefined", b"a", "base64"),
        ("Content-Type: text/plain; charset=../../etc/passwd", b"a", "base64"),
        ("Content-Type: text/plain; charset=utf-16", b"a", "base64"),
        ("Content-Type: \xff\xfe", b"a", "text"),
        ("X-Odd: caf\xe9 \xff", b"a", "text"),
        ("X-Odd: \x01\x02", b"a", "text"),
        ("Set-Cookie: a=1\nSet-Cookie: b=\xff", b"a", "text"),
    ],
)
async def test_a_body_that_is_not_what_it_says_is_still_a_result(
    head: str, body: bytes, encoding: str
) -> None:
    async with serving(answer(head, body)) as url:
        try:
            result = await run(url)
        except WonderError as refused:
            assert refused.fault.reason is Reason.TASK_FAILED and "\x01" in head
        else:
            assert result["encoding"] == encoding


@pytest.mark.parametrize(
    "location",
    [
        "http://[::1",
        "http://[::1]]/",
        "http://[fe80::1%25eth0]/",
        "http://[::ffff:1.2.3]/",
        "//[",
        "http://127.0.0.1:99999/",
        "http://127.0.0.1:-1/",
        "http://127.0.0.1:0/",
        "http://127.0.0.1:0x50/",
        "http://127.0.0.1:\xb2/",
        "http://a\u2100b/".encode().decode("latin-1"),
        "http://user:secret@127.0.0.1/",
        "http://127.0.0.1\\@example.com/",
        "http://\xff\xfe/",
        "http://%00/",
        "http:///path",
        "http://",
        "file:///etc/passwd",
        "gopher://127.0.0.1:6379/_INFO",
        "javascript:alert(1)",
        "data:text/plain,a",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://0/",
        "http://" + "a" * 5_000 + "/",
        "\xe2\x80\xae",
    ],
)
async def test_a_redirect_to_nowhere_is_an_error_that_says_so(location: str) -> None:
    async with serving(answer(f"Location: {location}", status="302 Found"), answer(status="404 No")) as url:
        reason, message = await fault(run(url))
    assert reason in (Reason.TASK_FAILED, Reason.INPUT_INVALID, Reason.PERMISSION_DENIED)
    assert "secret" not in message


async def test_a_redirect_that_cannot_be_read_names_the_server_that_sent_it() -> None:
    async with serving(answer("Location: http://[::1", status="302 Found")) as url:
        reason, message = await fault(run(url))
        assert (reason, message) == (
            Reason.TASK_FAILED,
            f"{url[7:-1]} redirects to an address that is not a valid URL.",
        )


async def test_redirects_in_a_circle_end() -> None:
    async with serving(answer("Location: /", status="302 Found")) as url:
        reason, message = await fault(run(url))
    assert reason is Reason.TASK_FAILED and "max_redirects is reached" in message


@pytest.mark.parametrize("url", ["http://[::1", "http://[", "//[x", "http://a\u2100b/", "http://[::1]a:1/"])
async def test_a_url_that_cannot_be_read_is_invalid_input(url: str) -> None:
    reason, _ = await fault(run(url, query={"a": 1}))
    assert reason is Reason.INPUT_INVALID


GZIP = "Content-Encoding: gzip"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x00" * 100,
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 20000 OK\r\n\r\n",
        b"HTTP/1.1 -1 OK\r\n\r\n",
        b"HTTP/1.1 \xff\xff OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA" + b"b" * 100_000 + b": c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"b" * 1_000_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 100_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nNo colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n: empty\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 400 + b"\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\nabc",
        answer("Content-Length: 50", b"short"),
        answer("Transfer-Encoding: chunked", b"zz\r\nnonsense\r\n"),
        answer("Transfer-Encoding: chunked", b"-5\r\nabcde\r\n0\r\n\r\n"),
        answer("Transfer-Encoding: chunked", b"ffffffffffffffffffff\r\nabc"),
        answer(GZIP, b"no gzip at all"),
        answer(GZIP, gzip.compress(b"abc" * 1_000)[:-20] + b"\xff" * 20),
        answer(GZIP, gzip.compress(bytes(50_000_000))),
        answer("Content-Encoding: deflate", zlib.compress(bytes(50_000_000))),
        answer("Content-Encoding: deflate", b"\xff" * 100),
        answer("", b"a" * (LIMIT + 1)),
    ],
)
async def test_an_answer_that_breaks_the_rules_is_an_error_of_the_task(raw: bytes) -> None:
    async with serving(raw) as url:
        reason, _ = await fault(run(url))
    assert reason in (Reason.TASK_FAILED, Reason.PAYLOAD_TOO_LARGE)


@pytest.mark.parametrize(
    "after",
    [
        *(
            "-1",
            "9" * 5_000,
            "\xb2",
            "1e9",
            "nan",
            "Mon",
            "Mon, 99 Foo 99999 99:99:99 GMT",
            ", , ,",
            "0 0 0 0 0",
        ),
        *("Thu, 01 Jan 0001 00:00:00 -2359", "Fri, 31 Dec 9999 23:59:59 -9999", "1 Jan 1 0:0:0", "\xff"),
    ],
)
async def test_an_invalid_retry_after_date_is_ignored(after: str) -> None:
    async with serving(answer(f"Retry-After: {after}", status="503 Busy")) as url:
        reason, _ = await fault(run(url))
    assert reason is Reason.TASK_FAILED


@pytest.mark.parametrize(
    "input",
    [
        {"method": "POST", "body": "half \ud800"},
        {"method": "POST", "body": {"a": "half \ud800"}},
        {"method": "POST", "body": 10**30},
        {"headers": {"X-A": "\u2603"}},
        {"headers": {"X-A": "half \ud800"}},
        {"query": {"a": "half \ud800"}},
    ],
)
async def test_a_request_that_cannot_be_written_is_invalid_input(input: JsonDict) -> None:
    async with serving(answer()) as url:
        try:
            await run(url, **input)
        except WonderError as refused:
            assert refused.fault.reason is Reason.INPUT_INVALID
