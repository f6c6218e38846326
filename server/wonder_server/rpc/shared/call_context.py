"""The part of a gRPC call's context that servicers use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class CallContext(Protocol):
    """Metadata and output of one call; `grpc.aio.ServicerContext` implements it."""

    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]] | None:
        """Return the request's metadata as pairs of key and value."""
        ...

    def peer(self) -> str:
        """Return the address of the caller, such as ``ipv4:127.0.0.1:50000``."""
        ...

    async def write(self, message: bytes, /) -> None:
        """Write one encoded response to the stream; waits while the client's flow control window is full."""
        ...
