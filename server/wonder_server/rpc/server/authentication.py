"""Authentication by bearer tokens: API keys of stored principals, and tokens of a file, each with a name.

The setting ``require_auth`` turns it on, and so does ``auth_tokens_file``, which names the file. Without them
every caller is anonymous. Health needs no token, so that an orchestrator needs no secret. Every other call,
including reflection, needs one.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import stat
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import grpc
from grpc import aio

from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.logs import logger
from wonder_server.rpc.server.authorization import TokenGrants
from wonder_server.rpc.server.error_codes import to_rpc_status
from wonder_server.rpc.server.rejection_log import RejectionLog
from wonder_server.rpc.shared.principal import current_caller, current_principal
from wonder_server.services.tenancy.directory import KEY_PREFIX, Caller, PrincipalDirectory
from wonder_server.services.tenancy.logins import Logins
from wonder_server.settings import SettingsError

MIN_TOKEN_LENGTH: Final = 16
MAX_TOKEN_LENGTH: Final = 16_384
"""Length above which a token is not even hashed."""
CHECK_INTERVAL_S: Final = 1.0
"""Seconds between two checks of the tokens file."""
_MAX_FILE_BYTES: Final = 8 << 20
_log = logger("rpc")
_UNAUTHENTICATED_PREFIXES: Final = ("/grpc.health.v1.Health/",)


@dataclass(frozen=True, slots=True)
class Credential:
    """A token of the file, by its hash, and its name; or the name of a stored principal, and its caller."""

    digest: bytes
    name: str
    caller: Caller | None = field(default=None, compare=False)


credential: ContextVar[Credential | None] = ContextVar("credential", default=None)
"""The token or key of the current call; None on a server without authentication."""


class Tokens:
    """The tokens that a server accepts, stored as hashes."""

    def __init__(self, names: dict[str, str]) -> None:
        """Store the hashes of ``names``, which maps each token to its name."""
        self._known = tuple(Credential(_digest(token), name) for token, name in names.items())
        self._valid = frozenset(self._known)

    @classmethod
    def read(cls, path: Path) -> Tokens:
        """Read lines of ``token name``; skip blank lines and lines that begin with ``#``.

        Raises `SettingsError`, which names the line and never the token.
        """
        try:
            lines = _content(path).decode("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
            raise SettingsError(f"auth_tokens_file: {path} cannot be read: {reason}.") from None
        names: dict[str, str] = {}
        for number, line in enumerate(lines, 1):
            token, _, name = line.strip().partition(" ")
            if not token or token.startswith("#"):
                continue
            if len(token) < MIN_TOKEN_LENGTH or not name.strip() or token in names:
                raise SettingsError(
                    f"auth_tokens_file: line {number} of {path} is not valid. Write 'token name': a token of "
                    f"at least {MIN_TOKEN_LENGTH} characters that no other line has, a space, and a name."
                )
            names[token] = name.strip()
        if not names:
            raise SettingsError(
                f"auth_tokens_file: {path} contains no token, so every call would be rejected. "
                "Add a line 'token name'."
            )
        return cls(names)

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, credential: object) -> bool:
        """Return True if this token is still valid under this name."""
        return credential in self._valid

    @property
    def names(self) -> frozenset[str]:
        """Names of all tokens."""
        return frozenset(known.name for known in self._known)

    def find(self, token: str) -> Credential | None:
        """Return the credential of a token; None if it is unknown."""
        digest = _digest(token)
        found = None
        # Compare every token, in constant time, so that the duration reveals nothing about a token.
        for known in self._known:
            if hmac.compare_digest(known.digest, digest):
                found = known
        return found


class TokensFile:
    """The tokens of a file. A change of the file takes effect without a restart.

    `current` checks the file's times, size and inode at most once in ``interval_s`` seconds. If the new
    content cannot be read, the earlier tokens stay valid and one line is logged.
    """

    def __init__(self, path: Path, *, interval_s: float = CHECK_INTERVAL_S) -> None:
        """Read the file. Raises `SettingsError` as `Tokens.read`."""
        self._path = path
        self._interval_s = interval_s
        # Read the stamp first: the next check then sees a change between the two reads.
        self._stamp = _stamp(path)
        self._tokens = Tokens.read(path)
        self._checked_at = time.monotonic()

    def current(self) -> Tokens:
        """Return the valid tokens; a change of the file gives a new object."""
        now = time.monotonic()
        if now - self._checked_at >= self._interval_s:
            self._checked_at = now
            self._reload_if_changed()
        return self._tokens

    def _reload_if_changed(self) -> None:
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._tokens = Tokens.read(self._path)
        except SettingsError as problem:
            _log.error("tokens_file_rejected", problem=str(problem), effect="the earlier tokens stay valid")
        else:
            _log.info("tokens_file_loaded", path=str(self._path), tokens=len(self._tokens))


class Authentication(aio.ServerInterceptor):
    """Requires a token for every call except health, and makes the principal of the call.

    ``now_ms`` is the clock for the expiry of keys.
    """

    def __init__(
        self,
        tokens: TokensFile | None,
        grants: TokenGrants,
        rejections: RejectionLog,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        self.principals = PrincipalDirectory()
        """The stored principals, with their keys."""
        self.logins: Logins | None = None
        """Callers with tokens of issuers; None if the settings name no issuer."""
        self._tokens = tokens
        self._grants = grants
        self._rejections = rejections
        self._now_ms = now_ms

    def is_valid(self, found: Credential) -> bool:
        """Return True if calls with this token or key are still served, with the same permissions."""
        if found.caller is not None:
            return self.principals.is_still_valid(found.caller, self._now_ms())
        return self._tokens is not None and found in self._tokens.current()

    def authenticate(self, header: str) -> Credential:
        """Set the principal of the call from its ``authorization`` header. Raises UNAUTHENTICATED."""
        token = _bearer(header)
        if token:
            if token.startswith(KEY_PREFIX):
                caller = self.principals.caller_of_key(token, self._now_ms())
                if caller is not None:
                    current_principal.set(caller.principal)
                    current_caller.set(caller)
                    return Credential(b"", caller.principal.subject, caller)
            # A token of the file may look like a key.
            found = self._tokens.current().find(token) if self._tokens is not None else None
            if found is not None:
                current_principal.set(self._grants.principal_of(found.name))
                return found
        raise error(
            Reason.UNAUTHENTICATED,
            "The call has no valid token. Send one in the metadata 'authorization: Bearer <token>'.",
        )

    async def _login(self, header: str) -> Credential | None:
        """Set the principal of a call with a token of an issuer: three parts with dots between them. Return
        None for any other, and for one that is not valid."""
        token = _bearer(header)
        if self.logins is None or token.count(".") != 2:
            return None
        caller = await self.logins.caller_of(token, self._now_ms())
        if caller is None:
            return None
        current_principal.set(caller.principal)
        current_caller.set(caller)
        return Credential(b"", caller.principal.subject, caller)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None or str(handler_call_details.method).startswith(_UNAUTHENTICATED_PREFIXES):
            return handler
        metadata = handler_call_details.invocation_metadata or ()
        headers = [value for key, value in metadata if key == "authorization"]
        # Two headers are ambiguous.
        header = headers[0] if len(headers) == 1 else ""
        header = header if isinstance(header, str) else ""
        try:
            credential.set(await self._login(header) or self.authenticate(header))
        except WonderError as problem:
            return _rejecting_handler(
                handler, problem, partial(self._log_rejection, str(handler_call_details.method))
            )
        return handler

    def _log_rejection(self, method: str, peer: str) -> None:
        self._rejections.record(Reason.UNAUTHENTICATED, rpc=method.lstrip("/"), peer=peer)


def _bearer(header: str) -> str:
    """Return the token of an ``authorization`` header; "" if there is none, or one that is too long."""
    scheme, _, token = header.strip().partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and len(token) <= MAX_TOKEN_LENGTH else ""


def _rejecting_handler(handler: Any, problem: WonderError, on_rejected: Callable[[str], None]) -> Any:
    """Return a handler that answers every call with ``problem`` without reading a request."""
    answer = to_rpc_status(problem)

    async def refuse(_request: object, context: Any) -> NoReturn:
        on_rejected(context.peer())
        await context.abort(answer.code, answer.message, answer.trailers)
        raise AssertionError("abort always raises")

    if handler.response_streaming:
        return grpc.stream_stream_rpc_method_handler(refuse)
    return grpc.stream_unary_rpc_method_handler(refuse)


def _content(path: Path) -> bytes:
    """Read a regular file. Raises OSError, also for files that could block the reader, such as a pipe."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a plain file")
        content = file.read(_MAX_FILE_BYTES + 1)
    if len(content) > _MAX_FILE_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {_MAX_FILE_BYTES} bytes")
    return content


def _stamp(path: Path) -> tuple[int, ...]:
    """Return values that change when a file is written or replaced; () without a file."""
    try:
        found = path.stat()
    except OSError:
        return ()
    # A program can reset a file's modification time, but not the change time of its inode.
    return found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
