"""Kinds of settings: functions that read a value from text or TOML and check it.

Each raises `ValueError` with the expected form as a clause; `loading` adds the key and its source.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Kind:
    """A function that reads a value from text or TOML, and the name of the kind in documents."""

    name: str
    read: Callable[[object], Any]


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
    def read(value: object) -> str:
        word = _text(value).lower()
        if word not in words:
            raise ValueError(f"expected one of {', '.join(words)}")
        return word

    return Kind(" / ".join(words), read)


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """A server of tools that definitions use by its name: a process to start, or a URL to connect to."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


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
    way = next((key for key in _MCP_FIELDS if isinstance(given, dict) and given.get(key)), "")
    if not way or not isinstance(given, dict) or not set(given) <= _MCP_FIELDS[way]:
        raise ValueError(f"the server {name} needs a command with args and env, or a url with headers")
    args, maps = given.get("args", []), {key: given.get(key, {}) for key in ("env", "headers")}
    texts = isinstance(given[way], str) and isinstance(args, list) and all(isinstance(a, str) for a in args)
    for each in maps.values():
        texts = texts and isinstance(each, dict) and all(isinstance(text, str) for text in each.values())
    if not texts:
        raise ValueError(
            f"the server {name} needs texts: args is a list, env and headers are objects of them"
        )
    return McpServer(
        name=name, command=given.get("command", ""), args=tuple(args), url=given.get("url", ""), **maps
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A provider of models: ``format`` is one that the server speaks, ``litellm``, or ``litellm/NAME`` where
    LiteLLM knows it by another name."""

    name: str
    format: str
    base_url: str = ""
    key: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that no log line may show."""
        held = (*self.headers.values(), *self.options.values())
        return (self.key, *(text for text in held if len(text) >= 8))


BUILT_IN_PROVIDERS = ("openai", "anthropic", "gemini", "offline")
"""Providers that every server has, with a key or without."""

_PROVIDER_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\Z")
_PROVIDER_FORMAT = re.compile(
    r"(?:openai_chat|openai_responses|anthropic_messages|gemini|litellm(?:/[a-z0-9][a-z0-9_-]{0,63})?)\Z"
)
_PROVIDER_FIELDS = {"name", "format", "base_url", "key", "headers", "options"}
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}\Z")


def _providers(value: object) -> tuple[Provider, ...]:
    try:
        given = json.loads(value or "[]") if isinstance(value, str) else value
    except ValueError:
        given = None
    if not isinstance(given, list):
        raise ValueError('expected a list, such as [{"name": "groq", "format": "litellm", "key": "…"}]')
    found = tuple(map(_provider, given))
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"the provider {name} is there twice")
    return found


def _provider(given: object) -> Provider:
    name = given.get("name") if isinstance(given, dict) else None
    if not isinstance(given, dict) or not isinstance(name, str) or not _PROVIDER_NAME.match(name):
        raise ValueError("each provider needs a name of a-z, 0-9, '_' and '-'")
    if name in ("auto", "offline"):
        raise ValueError(f"no provider can be called {name}: that is the server's own")
    if strange := sorted(map(str, set(given) - _PROVIDER_FIELDS)):
        takes = ", ".join(sorted(_PROVIDER_FIELDS))
        raise ValueError(f"the provider {name} has no {strange[0]}; a provider has {takes}")
    texts = {key: given.get(key, "") for key in ("format", "base_url", "key")}
    maps = {key: given.get(key, {}) for key in ("headers", "options")}
    if not all(isinstance(text, str) for text in texts.values()):
        raise ValueError(f"the provider {name} needs texts for format, base_url and key")
    for key, held in maps.items():
        if not isinstance(held, dict) or not all(
            isinstance(item, str | int | float) and not isinstance(item, bool) for item in held.values()
        ):
            raise ValueError(f"the provider {name} needs an object of texts for {key}")
    if not _PROVIDER_FORMAT.match(texts["format"]):
        raise ValueError(
            f"the provider {name} needs a format: openai_chat, openai_responses, anthropic_messages, gemini, "
            "litellm, or litellm/NAME"
        )
    if texts["base_url"] and not _is_base_url(texts["base_url"]):
        raise ValueError(f"the provider {name} needs a base_url such as http://127.0.0.1:11434/v1")
    if maps["options"] and not texts["format"].startswith("litellm"):
        raise ValueError(f"the provider {name} has options, which only litellm takes")
    for header, text in maps["headers"].items():
        if not _HEADER_NAME.match(header) or not str(text).isascii() or not str(text).isprintable():
            raise ValueError(f"the provider {name} has a header that cannot be sent")
    headers, options = ({each: str(item) for each, item in held.items()} for held in maps.values())
    return Provider(name=name, headers=headers, options=options, **texts)


def _is_base_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0
            and not parts.username
        )
    except ValueError:
        return False


def _embedder(value: object) -> str:
    name = _text(value)
    kind, _, folder = name.partition(":")
    if name and not (folder if kind == "local" else all(name.partition("/"))):
        raise ValueError("expected provider/model, or local:/a/folder")
    return name


TEXT = Kind("text", _text)
EMBEDDER = Kind("provider/model", _embedder)
PROVIDERS = Kind("JSON", _providers)
MCP_SERVERS = Kind("JSON", _mcp_servers)
FLAG = Kind("true / false", _flag)
PATH = Kind("path", _path)
FOLDERS = Kind("paths", _folders)
FOLDER = Kind("path", _folder)
ADDRESS = Kind("host:port", _address)
ENDPOINT = Kind("URL", _endpoint)
BUCKET = Kind("name", _bucket)


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of ``127.0.0.1:50051`` or ``[::1]:50051``. Raises `ValueError`."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError("expected host:port, such as 127.0.0.1:50051")
    return host, int(port)
