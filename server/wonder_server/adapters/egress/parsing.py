"""Strict parsing of the requests that the egress proxy accepts, without I/O.

The proxy never forwards received bytes as a request line, a header or the framing of a body. It parses them,
checks the result and writes them again. So another proxy or a server reads the request that was checked, even
if its own parser is lenient about line ends, control characters or duplicate headers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address
from typing import Final

from wonder_server.core.network_address import host_port

MAX_CHUNK_LINE: Final = 256
"""Maximum bytes of the line with the size of a chunk. Its extensions are dropped."""

_REQUEST_LINE: Final = re.compile(rb"([A-Z][A-Z-]{0,31}) ([!-\xff]+) HTTP/1\.([01])\Z")
_AUTHORITY: Final = rb"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+)"
_HOST_PORT: Final = re.compile(_AUTHORITY + rb":([0-9]{1,5})\Z")
_ABSOLUTE: Final = re.compile(rb"(?i:http)://" + _AUTHORITY + rb"(?::([0-9]{1,5}))?([/?][!-\xff]*)?\Z")
_PATH_SAFE: Final = re.compile(rb"[^#\\\x7f]*\Z")
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([ -~\t\x80-\xff]*)\Z")
_CONTROL: Final = re.compile("[\x80-\x9f\u2028\u2029]")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}\Z")
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[ -~\t]*)?\r\n")
_INTERIM: Final = re.compile(rb"HTTP/1\.[01] 1[0-9][0-9]")
_OF_CONNECTION: Final = frozenset({b"connection", b"keep-alive", b"proxy-connection"})
MAX_RESPONSE_HEAD: Final = 64 * 1024

_NOT_ASCII: Final = re.compile(rb"[\x80-\xff]")

_UNIQUE_HEADERS: Final = frozenset({b"host", b"content-length", b"transfer-encoding", b"proxy-authorization"})
_HOP_BY_HOP: Final = _UNIQUE_HEADERS | {
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-connection", b"te", b"trailer", b"upgrade"
}  # fmt: skip


class BadRequest(ValueError):
    """The proxy does not forward this request. The message is a sentence."""


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """A parsed request.

    ``headers`` excludes hop-by-hop headers and those that the proxy writes itself. ``length`` is the size of
    the body in bytes, None for a chunked body.
    """

    method: str
    host: str
    port: int
    path: str
    headers: tuple[tuple[bytes, bytes], ...] = ()
    credential: bytes = b""
    length: int | None = 0

    @property
    def is_tunnel(self) -> bool:
        return self.method == "CONNECT"

    @property
    def scheme(self) -> str:
        """Return the URL scheme that selects the operator's proxy."""
        return "https" if self.is_tunnel else "http"

    def head(self, *more: tuple[bytes, bytes], absolute: bool) -> bytes:
        """Return the head to send. ``absolute`` writes the whole URL as the target, for another proxy."""
        authority = host_port(self.host, self.port)
        if self.port == 80:
            authority = authority.removesuffix(":80")
        target = f"http://{authority}{self.path}" if absolute else self.path
        framing = (b"Transfer-Encoding", b"chunked")
        if self.length is not None:
            framing = (b"Content-Length", str(self.length).encode())
        lines = [f"{self.method} {target} HTTP/1.1".encode("ascii")]
        headers = [(b"Host", authority.encode("ascii")), *self.headers, *more, (b"Connection", b"close")]
        if self.length != 0 or self.method in ("POST", "PUT", "PATCH"):
            headers.append(framing)
        return b"\r\n".join([*lines, *(name + b": " + value for name, value in headers), b"", b""])


def parse(head: bytes) -> ProxyRequest:
    """Parse the bytes before the empty line. Raises `BadRequest`."""
    first, *lines = head.split(b"\r\n")
    line = _REQUEST_LINE.match(first)
    if line is None:
        raise BadRequest("The request line is not METHOD, URL and HTTP/1.1, with one space between them.")
    method = line[1].decode("ascii")
    headers = _headers(lines)
    unique = {name.lower(): value for name, value in headers if name.lower() in _UNIQUE_HEADERS}
    length = _framing(unique, has_chunks=line[3] == b"1")
    if method == "CONNECT":
        host, port, path = *_tunnel(line[2]), ""
        if length != 0:
            raise BadRequest("CONNECT has no body.")
    else:
        host, port, path = _absolute(line[2])
    dropped = _HOP_BY_HOP | {
        token.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for token in value.split(b",")
    }
    return ProxyRequest(
        method=method,
        host=host,
        port=port,
        path=path,
        headers=tuple((name, value) for name, value in headers if name.lower() not in dropped),
        credential=unique.get(b"proxy-authorization", b""),
        length=length,
    )


class Body:
    """The body of one request. It forwards the bytes that the head declared and rejects any after them."""

    def __init__(self, length: int | None) -> None:
        self._remaining = length or 0
        self._chunked = length is None
        self._buffer = bytearray()
        self._at = 0
        self._in_trailer = False
        self.complete = length == 0

    def feed(self, data: bytes) -> bytes:
        """Return what to send for the next ``data`` received. Raises `BadRequest`."""
        if not self._chunked:
            self._remaining -= len(data)
            if self._remaining < 0:
                raise BadRequest("A connection carries one request; more bytes follow its body.")
            self.complete = self._remaining == 0
            return data
        self._buffer += data
        sent: list[bytes] = []
        while not self.complete and (part := self._next_chunk()) is not None:
            sent.append(part)
        if self.complete and self._at < len(self._buffer):
            raise BadRequest("A connection carries one request; more bytes follow its body.")
        del self._buffer[: self._at]
        self._at = 0
        return b"".join(sent)

    def _next_chunk(self) -> bytes | None:
        """Return the next part of a chunk from the buffer; None if more bytes are needed."""
        if self._remaining:
            part = bytes(self._buffer[self._at : self._at + self._remaining])
            self._remaining -= len(part)
            self._at += len(part)
            self._in_trailer = self._remaining == 0
            return b"%x\r\n%b\r\n" % (len(part), part) if part else None
        if self._in_trailer:
            if not self._check_line_end(self._at):
                return None
            self._at += 2
            self._in_trailer = False
            return b""
        line = _CHUNK.match(self._buffer, self._at)
        if line is None:
            if len(self._buffer) - self._at > MAX_CHUNK_LINE or self._buffer.find(b"\n", self._at) >= 0:
                raise BadRequest("A chunk of the body does not begin with its size.")
            return None
        size = int(line[1], 16)
        if size == 0:
            if not self._check_line_end(line.end()):
                return None
            self._at = line.end() + 2
            self.complete = True
            return b"0\r\n\r\n"
        self._at, self._remaining = line.end(), size
        return b""

    def _check_line_end(self, at: int) -> bool:
        """Return True if a line end is at ``at``; False if more bytes are needed to decide."""
        found = bytes(self._buffer[at : at + 2])
        if not b"\r\n".startswith(found):
            raise BadRequest("A chunk of the body does not end where its size says, or trailers follow it.")
        return len(found) == 2


class ResponseHead:
    """The head of the response to a forwarded request. It gets ``Connection: close`` in place of the
    server's own: the connection carries one request, and a client that reused it would lose the second."""

    def __init__(self) -> None:
        self._buffer = b""
        self._complete = False

    def feed(self, data: bytes) -> bytes:
        """Return what to send for the next ``data`` received."""
        if self._complete:
            return data
        self._buffer += data
        sent: list[bytes] = []
        while not self._complete:
            head, found, rest = self._buffer.partition(b"\r\n\r\n")
            if not b"HTTP/1.".startswith(head[:7]) or len(head) > MAX_RESPONSE_HEAD:
                self._complete = True  # Forward what is no head as it is.
                break
            if not found:
                break
            self._buffer = rest
            is_interim = _INTERIM.match(head) is not None
            sent.append((head if is_interim else _closing(head)) + found)
            self._complete = not is_interim
        if self._complete:
            sent.append(self.rest())
        return b"".join(sent)

    def rest(self) -> bytes:
        """Return what is left at the end of the connection."""
        self._complete, rest, self._buffer = True, self._buffer, b""
        return rest


def _closing(head: bytes) -> bytes:
    first, *lines = head.split(b"\r\n")
    kept = [line for line in lines if line.partition(b":")[0].strip().lower() not in _OF_CONNECTION]
    return b"\r\n".join([first, *kept, b"Connection: close"])


def _headers(lines: list[bytes]) -> list[tuple[bytes, bytes]]:
    headers: list[tuple[bytes, bytes]] = []
    seen: set[bytes] = set()
    for line in lines:
        found = _HEADER.match(line)
        if found is None:
            raise BadRequest("A header is not a name, a colon and a value of printable text on one line.")
        if not found[2].isascii():
            _check_text(found[1], found[2])
        name = found[1].lower()
        if name in _UNIQUE_HEADERS and name in seen:
            raise BadRequest(f"The header {name.decode('ascii')} occurs twice.")
        seen.add(name)
        headers.append((found[1], found[2].rstrip(b" \t")))
    return headers


def _check_text(name: bytes, value: bytes) -> None:
    """Raise `BadRequest` unless a value with other bytes than ASCII is UTF-8 without control characters and
    line ends, in a header that the proxy does not interpret."""
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        text = "\x80"
    if name.lower() in _UNIQUE_HEADERS or _CONTROL.search(text):
        raise BadRequest("A header is not a name, a colon and a value of printable text on one line.")


def _framing(unique: dict[bytes, bytes], *, has_chunks: bool) -> int | None:
    """Return the length of the body; None for a chunked one."""
    length, encoding = unique.get(b"content-length"), unique.get(b"transfer-encoding")
    if encoding is not None:
        if length is not None:
            raise BadRequest("Content-Length and Transfer-Encoding exclude each other.")
        if encoding.lower() != b"chunked" or not has_chunks:
            raise BadRequest("The only Transfer-Encoding is chunked, in HTTP/1.1.")
        return None
    if length is None:
        return 0
    if not _LENGTH.match(length):
        raise BadRequest("Content-Length is not a number of bytes.")
    return int(length)


def _tunnel(target: bytes) -> tuple[str, int]:
    found = _HOST_PORT.match(target)
    if found is None:
        raise BadRequest("The target of CONNECT is not host:port.")
    return _host(found[1]), _port(found[2])


def _absolute(target: bytes) -> tuple[str, int, str]:
    found = _ABSOLUTE.match(target)
    if found is None or not _PATH_SAFE.match(found[3] or b""):
        raise BadRequest("Only CONNECT and absolute http URLs without a user or a fragment are served.")
    path = found[3] or b"/"
    path = path if path.startswith(b"/") else b"/" + path
    path = _NOT_ASCII.sub(lambda byte: b"%%%02X" % byte[0][0], path)
    return _host(found[1]), _port(found[2]) if found[2] else 80, path.decode("ascii")


def _host(text: bytes) -> str:
    host = text.decode("ascii").lower()
    if not host.startswith("["):
        return host
    try:
        return str(IPv6Address(host[1:-1]))
    except AddressValueError:
        raise BadRequest("The host in brackets is not an IPv6 address.") from None


def _port(digits: bytes) -> int:
    port = int(digits)
    if not 0 < port < 65536:
        raise BadRequest("The port is not between 1 and 65535.")
    return port
