"""Requests that the egress proxy takes: what it writes for them, and what it refuses before it connects."""

from __future__ import annotations

import pytest

from wonder_server.adapters.egress.parsing import BadRequest, Body, ResponseHead, parse

GET = b"GET http://a.example/ HTTP/1.1"


def head(first: bytes = GET, *headers: bytes) -> bytes:
    return b"\r\n".join([first, *headers])


@pytest.mark.parametrize(
    ("asked", "origin", "proxied"),
    [
        (head(), b"GET / HTTP/1.1\r\nHost: a.example", b"GET http://a.example/ HTTP/1.1\r\nHost: a.example"),
        (head(b"GET HTTP://A.Example:80 HTTP/1.0"), b"GET / HTTP/1.1\r\nHost: a.example", b"GET http://a.ex"),
        (
            head(b"GET http://a.example:81/x?y=/z HTTP/1.1"),
            b"GET /x?y=/z HTTP/1.1\r\nHost: a.example:81",
            b"GET http://a.example:81/x?y=/z HTTP/1.1\r\nHost: a.example:81",
        ),
        (head(b"GET http://a.example?@b.example/ HTTP/1.1"), b"GET /?@b.example/ HTTP/1.1\r\nHost: a.e", b""),
        (head(b"GET http://[FD00::0:1]:8/ HTTP/1.1"), b"GET / HTTP/1.1\r\nHost: [fd00::1]:8", b""),
        (head("GET http://a.example/é HTTP/1.1".encode()), b"GET /%C3%A9 HTTP/1.1", b""),
        (head(GET, b"Host: 169.254.169.254"), b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close", b""),
    ],
)
def test_the_target_and_the_host_are_written_from_what_was_parsed(
    asked: bytes, origin: bytes, proxied: bytes
) -> None:
    request = parse(asked)
    assert request.head(absolute=False).startswith(origin)
    assert request.head(absolute=True).startswith(proxied)


def test_headers_of_one_connection_are_not_passed_on() -> None:
    request = parse(
        head(
            GET,
            b"Connection: keep-alive, X-Mine",
            b"X-Mine: 1",
            b"Keep-Alive: 5",
            b"Proxy-Authorization: Basic eA==",
            b"Proxy-Connection: keep-alive",
            b"TE: trailers",
            b"Trailer: X",
            b"Upgrade: websocket",
            b"X-Kept:   a\tb  ",
            b"X-Empty:",
        )
    )
    assert request.credential == b"Basic eA=="
    assert request.head(absolute=False) == (
        b"GET / HTTP/1.1\r\nHost: a.example\r\nX-Kept: a\tb\r\nX-Empty: \r\nConnection: close\r\n\r\n"
    )


@pytest.mark.parametrize("value", ["Grüße", "Åse", "日本語", "naïve — “quoted” €", "🎉"])
def test_a_header_with_utf_8_text_is_passed_on(value: str) -> None:
    request = parse(head(GET, f"X-Text: {value}".encode()))
    assert f"X-Text: {value}\r\n".encode() in request.head(absolute=False)


@pytest.mark.parametrize("step", [1, 3, 1000])
@pytest.mark.parametrize(
    ("received", "sent"),
    [
        (b"HTTP/1.1 200 OK\r\nX: a\r\n\r\nbody", b"HTTP/1.1 200 OK\r\nX: a\r\nConnection: close\r\n\r\nbody"),
        (
            b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nKeep-Alive: max=5\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        ),
        (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
        ),
        (b"200 no head\r\n\r\nX: a", b"200 no head\r\n\r\nX: a"),
        (b"HTTP/1.1 200 OK\r\nX: cut", b"HTTP/1.1 200 OK\r\nX: cut"),
    ],
)
def test_a_response_says_that_the_connection_ends(received: bytes, sent: bytes, step: int) -> None:
    response = ResponseHead()
    pieces = [response.feed(received[at : at + step]) for at in range(0, len(received), step)]
    assert b"".join([*pieces, response.rest()]) == sent


def test_the_framing_of_a_body_is_written_anew() -> None:
    post = b"POST http://a.example/ HTTP/1.1"
    assert b"Content-Length: 5\r\n" in parse(head(post, b"content-length: 005")).head(absolute=False)
    assert b"Content-Length: 0\r\n" in parse(head(post)).head(absolute=False)
    chunked = parse(head(post, b"transfer-encoding: Chunked")).head(absolute=False)
    assert b"Transfer-Encoding: chunked\r\n" in chunked and b"Content-Length" not in chunked


@pytest.mark.parametrize(
    "asked",
    [
        # control characters and line ends
        head(GET, b"X: a\n\nGET http://169.254.169.254/ HTTP/1.1"),
        head(GET, b"X: a\nConnection: keep-alive"),
        head(GET, b"X: a\rConnection: keep-alive"),
        head(GET, b"X: a\x00b"),
        head(GET, b"X: a\x7f"),
        head(GET, b"X: \x85a"),
        head(GET, b"X: \xff"),
        head(GET, "X: \x85a".encode()),
        head(GET, "X: \u2028a".encode()),
        head(GET, "X: \u2029a".encode()),
        head(GET, "X: \x9ba".encode()),
        head(GET, "Host: ä.example".encode()),
        head(b"GET http://a.example/\nX:y HTTP/1.1"),
        head(b"GET http://a.example/\t HTTP/1.1"),
        head(b"GET http://a.example/\x0b\x0c HTTP/1.1"),
        head(b"GET http://a.example/\x7f HTTP/1.1"),
        head(b"GET \x01http://a.example/ HTTP/1.1"),
        head(b"GET http://a.exam\nple/ HTTP/1.1"),
        head(b"GET http://169.254.169.254\n.a.example/ HTTP/1.1"),
        head(b"GET http://a.example/ HTTP/1.\n\nGET"),
        head(b"GET http://a.example/ HTTP/1.1\n"),
        head(b"\nGET http://a.example/ HTTP/1.1"),
        # headers
        head(GET, b"X: a", b" Connection: keep-alive"),
        head(GET, b"X: a", b"\tfolded"),
        head(GET, b"X : a"),
        head(GET, b"no colon"),
        head(GET, b": empty"),
        head(GET, b""),
        head(GET, b"Host: a.example", b"host: b.example"),
        head(GET, b"Proxy-Authorization: a", b"Proxy-Authorization: b"),
        # bodies
        head(GET, b"Content-Length: 5", b"Transfer-Encoding: chunked"),
        head(GET, b"Content-Length: 5", b"Content-Length: 5"),
        head(GET, b"Content-Length: 5, 5"),
        head(GET, b"Content-Length: +5"),
        head(GET, b"Content-Length: 0x5"),
        head(GET, b"Content-Length: -1"),
        head(GET, b"Content-Length:"),
        head(GET, b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
        head(GET, b"Transfer-Encoding: gzip, chunked"),
        head(GET, b"Transfer-Encoding: identity"),
        head(b"POST http://a.example/ HTTP/1.0", b"Transfer-Encoding: chunked"),
        head(b"CONNECT a.example:443 HTTP/1.1", b"Content-Length: 1"),
        head(b"CONNECT a.example:443 HTTP/1.1", b"Transfer-Encoding: chunked"),
        # targets
        head(b"GET  http://a.example/ HTTP/1.1"),
        head(b"GET http://a.example/ x HTTP/1.1"),
        head(b"GET http://a.example/ HTTP/2.0"),
        head(b"GET http://a.example/"),
        head(b"get http://a.example/ HTTP/1.1"),
        head(b"GET / HTTP/1.1"),
        head(b"GET https://a.example/ HTTP/1.1"),
        head(b"GET http:///x HTTP/1.1"),
        head(b"GET http://a.example#@b.example/ HTTP/1.1"),
        head(b"GET http://a.example/#x HTTP/1.1"),
        head(b"GET http://a.example\\@b.example/ HTTP/1.1"),
        head(b"GET http://a.example/\\x HTTP/1.1"),
        head(b"GET http://u@a.example/ HTTP/1.1"),
        head(b"GET http://a.example:0/ HTTP/1.1"),
        head(b"GET http://a.example:65536/ HTTP/1.1"),
        head(b"GET http://a%2eexample/ HTTP/1.1"),
        head("GET http://ä.example/ HTTP/1.1".encode()),
        head(b"GET http://[v1.x]/ HTTP/1.1"),
        head(b"GET http://[1.2.3.4]/ HTTP/1.1"),
        head(b"GET http://[a.b]/ HTTP/1.1"),
        head(b"GET http://[fe80::1%25eth0]/ HTTP/1.1"),
        head(b"CONNECT a.example HTTP/1.1"),
        head(b"CONNECT a.example\n:443 HTTP/1.1"),
        head(b"CONNECT a.example:443#x HTTP/1.1"),
        head(b"CONNECT a.example:443/ HTTP/1.1"),
        head(b"CONNECT a.ex\tample:443 HTTP/1.1"),
        head(b"CONNECT u@a.example:443 HTTP/1.1"),
        head(b"CONNECT [v1.x]:443 HTTP/1.1"),
        head("CONNECT a.example:４４３ HTTP/1.1".encode()),
    ],
)
def test_what_two_parsers_could_read_in_two_ways_is_refused(asked: bytes) -> None:
    with pytest.raises(BadRequest):
        parse(asked)


@pytest.mark.parametrize("step", [1, 2, 3, 7, 100])
def test_a_body_is_passed_on_as_declared_however_it_arrives(step: int) -> None:
    def passed(body: Body, data: bytes) -> bytes:
        return b"".join(body.feed(data[at : at + step]) for at in range(0, len(data), step))

    plain = Body(11)
    assert passed(plain, b"hello world") == b"hello world" and plain.complete
    chunked = Body(None)
    out = passed(chunked, b"5\r\nhello\r\n00A\r\n0123456789\r\n0\r\n\r\n")
    assert chunked.complete and out.endswith(b"0\r\n\r\n")
    again = Body(None)
    assert again.feed(out) and again.complete
    extended = Body(None)
    out = passed(extended, b'5;name=value\r\nhello\r\n5 ; a="b c";d\r\nworld\r\n0;last\r\n\r\n')
    assert extended.complete and b";" not in out
    assert b"".join(out.split(b"\r\n")[1::2]) == b"helloworld"


@pytest.mark.parametrize(
    ("length", "data"),
    [
        (0, b"x"),
        (5, b"123456"),
        (None, b"0\r\n\r\nGET http://169.254.169.254/ HTTP/1.1\r\n\r\n"),
        (None, b"0\r\nX: trailer\r\n\r\n"),
        (None, b"5;ext=\x01\r\nhello\r\n0\r\n\r\n"),
        (None, b"5;ext\nhello\r\n0\r\n\r\n"),
        (None, b"5 5\r\nhello\r\n0\r\n\r\n"),
        (None, b"5;" + b"x" * 300),
        (None, b"5\nhello\r\n0\r\n\r\n"),
        (None, b"5\r\nhello0\r\n\r\n"),
        (None, b"5\r\nhello\n0\r\n\r\n"),
        (None, b"-5\r\nhello\r\n"),
        (None, b"0x5\r\nhello\r\n"),
        (None, b" 5\r\nhello\r\n"),
        (None, b"\r\n"),
        (None, b"fffffffffffffffffff\r\n"),
        (None, b"0" * 300),
    ],
)
def test_nothing_follows_a_body_and_no_chunk_is_read_in_two_ways(length: int | None, data: bytes) -> None:
    with pytest.raises(BadRequest):
        Body(length).feed(data)


def test_many_small_chunks_cost_time_in_proportion() -> None:
    body = Body(None)
    assert len(body.feed(b"1\r\nx\r\n" * 40_000)) == 240_000
