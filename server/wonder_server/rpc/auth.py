"""Who is calling: bearer tokens from a file, one name each.

Configured by ``auth_tokens_file``; without it every caller is anonymous. Health stays open, so that
an orchestrator needs no secret; everything else, reflection included, asks for a token.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import grpc
from grpc import aio

from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.logs import logger
from wonder_server.rpc.status import refusal
from wonder_server.settings import SettingsError

ANONYMOUS: Final = ""
MIN_TOKEN_LENGTH: Final = 16
_log = logger("rpc")
_OPEN: Final = ("/grpc.health.v1.Health/",)

caller: ContextVar[str] = ContextVar("caller", default=ANONYMOUS)
"""The name of the token that the current call brought; ``ANONYMOUS`` where no token is asked for."""


class Tokens:
    """The tokens a server accepts. Keeps only their hashes."""

    def __init__(self, names: dict[str, str]) -> None:
        """``names`` maps each token to its name."""
        self._known = tuple((_digest(token), name) for token, name in names.items())

    @classmethod
    def read(cls, path: Path) -> Tokens:
        """Read lines of ``token name``; blank lines and lines that begin with ``#`` are skipped.

        Raises `SettingsError`, which names the line and never the token.
        """
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as problem:
            why = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
            raise SettingsError(f"auth_tokens_file: {path} cannot be read: {why}.") from None
        names: dict[str, str] = {}
        for number, line in enumerate(lines, 1):
            token, _, name = line.strip().partition(" ")
            if not token or token.startswith("#"):
                continue
            if len(token) < MIN_TOKEN_LENGTH or not name.strip() or token in names:
                raise SettingsError(
                    f"auth_tokens_file: line {number} of {path} is not 'token name' with a token of its own "
                    f"of at least {MIN_TOKEN_LENGTH} characters."
                )
            names[token] = name.strip()
        if not names:
            raise SettingsError(f"auth_tokens_file: {path} holds no token, so nobody could ever call.")
        return cls(names)

    def name_of(self, authorization: str) -> str:
        """The caller's name for an ``authorization`` header. Raises UNAUTHENTICATED."""
        scheme, _, token = authorization.strip().partition(" ")
        digest = _digest(token.strip())
        found = ""
        # Every token is compared, in constant time, so that timing tells nothing about any of them.
        for known, name in self._known:
            if hmac.compare_digest(known, digest):
                found = name
        if scheme.lower() != "bearer" or not found:
            raise error(
                Reason.UNAUTHENTICATED,
                "A token that this server knows is wanted, as the metadata 'authorization: Bearer <token>'.",
            )
        return found


class Authentication(aio.ServerInterceptor):
    """Asks every call but health for a token, and sets `caller` for what runs after it."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._refused = 0
        self._logged = float("-inf")

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None or str(handler_call_details.method).startswith(_OPEN):
            return handler
        metadata = handler_call_details.invocation_metadata or ()
        headers = [value for key, value in metadata if key == "authorization"]
        # Of two, nobody could say which was meant.
        header = headers[0] if len(headers) == 1 else ""
        try:
            caller.set(self._tokens.name_of(header if isinstance(header, str) else ""))
        except WonderError as problem:
            return _refusing(handler, problem, partial(self._noted, str(handler_call_details.method)))
        return handler

    def _noted(self, method: str, peer: str) -> None:
        """Log refusals, but no more than one line a second, however many there are."""
        self._refused += 1
        now = time.monotonic()
        if now - self._logged >= 1.0:
            _log.warning("call refused", rpc=method.lstrip("/"), reason=Reason.UNAUTHENTICATED.value,
                         peer=peer, calls=self._refused)  # fmt: skip
            self._logged, self._refused = now, 0


def _refusing(handler: Any, problem: WonderError, noted: Callable[[str], None]) -> Any:
    """A handler of the same shape that only ever answers ``problem``."""
    answer = refusal(problem)

    async def refuse(_request: object, context: Any) -> NoReturn:
        noted(context.peer())
        await context.abort(answer.code, answer.message, answer.trailers)
        raise AssertionError("abort always raises")

    kinds = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }
    return kinds[handler.request_streaming, handler.response_streaming](refuse)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
