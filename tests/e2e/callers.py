"""Callers with tokens of their own, on one server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.e2e.client import Client
from tests.e2e.process import Server
from wonder.v1 import conversation_service_pb2 as pb

TOKENS = {name: f"token-of-{name}-0123456789" for name in ("ann", "bob", "chief", "proxy")}


def tokens_file(folder: Path, *names: str) -> Path:
    """Write a tokens file of these names, or of all, in place of the one before."""
    path = folder / "tokens"
    fresh = folder / "tokens.new"
    fresh.write_text("".join(f"{TOKENS[name]} {name}\n" for name in names or TOKENS))
    fresh.replace(path)
    return path


STUBS = ("conversations", "coordinator", "executor", "library", "memory", "files", "identity")


class _As:
    """A stub whose calls bring a token."""

    def __init__(self, stub: Any, token: str) -> None:
        self._stub = stub
        self._metadata = (("authorization", f"Bearer {token}"),)

    def __getattr__(self, method: str) -> Any:
        return partial(getattr(self._stub, method), metadata=self._metadata)


@asynccontextmanager
async def calling(server: Server, name: str) -> AsyncIterator[Client]:
    """Return a client that calls as ``name``."""
    async with calling_with(server, TOKENS[name]) as client:
        yield client


@asynccontextmanager
async def calling_with(server: Server, token: str) -> AsyncIterator[Client]:
    """Return a client that calls with a token or a key."""
    async with server.client() as client:
        for stub in STUBS:
            setattr(client, stub, _As(getattr(client, stub), token))
        yield client


def streamed(client: Client, conversation_id: str, request_id: str, content: str = "say 1 word") -> Any:
    """Send a message and return its stream. The last response is the turn, ended."""
    send = pb.ConverseSend(request_id=request_id, content=content)
    request = pb.StreamTurnRequest(conversation_id=conversation_id, send=send)
    return client.conversations.StreamTurn(request)
