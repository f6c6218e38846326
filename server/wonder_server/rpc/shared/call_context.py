"""The part of a gRPC call's context that servicers use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class CallContext(Protocol):
    """Metadata and output of one call; `grpc.aio.ServicerContext` implements it."""

    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]] | None:
        """Return the request's metadata as pairs of key and value."""
        ...

    async def write(self, message: bytes, /) -> None:
        """Write one encoded response to the stream; waits while the client's flow control window is full."""
        ...
