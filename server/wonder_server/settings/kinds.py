"""Kinds of settings: functions that read a value from text or TOML and check it.

Each raises `ValueError` with the expected form as a clause; `loading` adds the key and its source.
"""

from __future__ import annotations

import enum
import ipaddress
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


class Group(enum.StrEnum):
    """Groups of settings, in order: the headings of ``wonder serve --help`` and of the document."""

    SERVER = "Server"
    LOG = "Log"
    TELEMETRY = "Telemetry"
    SECURITY = "Security and permissions"
    STORAGE = "Storage"
    CONVERSATIONS = "Conversations"
    MODELS = "Models"
    EMBEDDER = "Embedder"
    SERVERS = "Workers and MCP servers"
    SANDBOX = "Sandboxes"
    REPOSITORIES = "Repositories"
    CALLS = "Calls and streams"
    SIZES = "Sizes of messages"
    FILES = "Files"


@dataclass(frozen=True, slots=True)
class Kind:
    """A function that reads a value from text or TOML, and the name of the kind in documents."""

    name: str
    read: Callable[[object], object]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("expected a text")
    return value.strip()


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off", ""):
        return False
    raise ValueError("expected true or false")


def _path(value: object) -> Path | None:
    text = _text(value)
    return Path(text).expanduser() if text else None


def _folder(value: object) -> Path:
    path = _path(value)
    if path is None:
        raise ValueError("expected a folder")
    return path


def _folders(value: object) -> tuple[Path, ...]:
    given = value if isinstance(value, list) else [each for each in _text(value).split(":") if each]
    paths = tuple(Path(_text(each)) for each in given)
    if not all(path.is_absolute() for path in paths):
        raise ValueError("expected absolute paths")
    return paths


def _address(value: object) -> str:
    host, port = split_address(_text(value))
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _endpoint(value: object) -> str:
    text = _text(value)
    if text and not re.fullmatch(r"https?://[A-Za-z0-9.\[\]:_-]+/?", text):
        raise ValueError("expected a URL of scheme, host and port, such as http://127.0.0.1:9000")
    return text.rstrip("/")


def _bucket(value: object) -> str:
    text = _text(value)
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", text):
        raise ValueError("expected 3 to 63 of a-z, 0-9, '.' and '-'")
    return text


def number(low: int, high: int) -> Kind:
    """Return the kind of a whole number from ``low`` to ``high``."""

    def read(value: object) -> int:
        try:
            number = value if type(value) is int else int(_text(value))
        except ValueError:
            raise ValueError("expected a whole number") from None
        if not low <= number <= high:
            raise ValueError(f"expected a number from {low} to {high}")
        return number

    return Kind("number", read)


def choice(*words: str) -> Kind:
    """Return the kind of one word of ``words``, in any case."""

    def read(value: object) -> str:
        word = _text(value).lower()
        if word not in words:
            raise ValueError(f"expected one of {', '.join(words)}")
        return word

    return Kind(" / ".join(words), read)


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """A server of tools that definitions name: a process to start, or a URL to connect to."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}\Z")
_MCP_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,99}\Z")
_MCP_FIELDS = {"command": {"command", "args", "env"}, "url": {"url", "headers"}}


def _mcp_servers(value: object) -> tuple[McpServer, ...]:
    try:
        given = json.loads(value or "{}") if isinstance(value, str) else value
    except ValueError:
        raise ValueError('expected a JSON object, such as {"files": {"command": "mcp-files"}}') from None
    if not isinstance(given, dict):
        raise ValueError("expected an object, from names to servers")
    return tuple(_mcp_server(name, fields) for name, fields in given.items())


def _mcp_server(name: str, given: object) -> McpServer:
    if not _MCP_NAME.match(name):
        raise ValueError("a server's name is a letter followed by a-z, 0-9, '_', '.' and '-'")
    target = next((key for key in _MCP_FIELDS if isinstance(given, dict) and given.get(key)), "")
    if not target or not isinstance(given, dict) or not set(given) <= _MCP_FIELDS[target]:
        raise ValueError(f"the server {name} needs a command with args and env, or a url with headers")
    args, maps = given.get("args", []), {key: given.get(key, {}) for key in ("env", "headers")}
    if (
        not isinstance(given[target], str)
        or not _is_text_list(args)
        or not all(map(_is_text_map, maps.values()))
    ):
        raise ValueError(
            f"the server {name} needs texts: args is a list, env and headers are objects of them"
        )
    for header, text in maps["headers"].items():
        if not is_header(header, text):
            raise ValueError(
                f"the server {name} has a header that cannot be sent, {header!r}: names and values are "
                "printable ASCII"
            )
    return McpServer(
        name=name, command=given.get("command", ""), args=tuple(args), url=given.get("url", ""), **maps
    )


def is_header(name: str, text: str) -> bool:
    """Return True if HTTP can carry this header."""
    return bool(_HEADER_NAME.match(name)) and text.isascii() and text.isprintable()


def _is_text_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_text_map(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())


def _embedder(value: object) -> str:
    name = _text(value)
    kind, _, folder = name.partition(":")
    if name and not (folder if kind == "local" else all(name.partition("/"))):
        raise ValueError("expected provider/model, or local:/a/folder")
    return name


TEXT = Kind("text", _text)
EMBEDDER = Kind("provider/model", _embedder)
MCP_SERVERS = Kind("JSON", _mcp_servers)
FLAG = Kind("true / false", _flag)
PATH = Kind("path", _path)
FOLDERS = Kind("paths", _folders)
FOLDER = Kind("path", _folder)
ADDRESS = Kind("host:port", _address)
METRICS_ADDRESS = Kind("host:port", lambda value: _address(value) if _text(value) else "")
ENDPOINT = Kind("URL", _endpoint)
BUCKET = Kind("name", _bucket)


def is_loopback(address: str) -> bool:
    """Return True if only this machine can reach ``address``, written host:port."""
    host, _ = split_address(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of ``127.0.0.1:50051`` or ``[::1]:50051``. Raises `ValueError`."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError("expected host:port, such as 127.0.0.1:50051")
    return host, int(port)
