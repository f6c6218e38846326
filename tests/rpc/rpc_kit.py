"""A real server in the process of the test, and builders of requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager

import grpc
import pytest
from google.protobuf.struct_pb2 import Value
from google.rpc import error_details_pb2, status_pb2
from grpc import aio

from wonder_server.core.errors import Reason, error
from wonder_server.core.identity import ANONYMOUS, Principal, PrincipalKind
from wonder_server.rpc.server.server import RpcServer
from wonder_server.settings import Settings


@asynccontextmanager
async def serving(servicers: Mapping[str, object], **settings: object) -> AsyncIterator[aio.Channel]:
    """Yield a channel to a server of the whole contract with these servicers."""
    server = RpcServer(Settings(listen="127.0.0.1:0", **settings))
    address = server.bind()
    await server.start(servicers)
    try:
        async with aio.insecure_channel(address) as channel:
            yield channel
    finally:
        await server.stop(0)


async def rejected(call: Awaitable[object]) -> tuple[str, list[str]]:
    """Return the reason and the fields of a call that must fail with an ErrorInfo."""
    with pytest.raises(aio.AioRpcError) as problem:
        await call
    trailers = dict(problem.value.trailing_metadata() or ())
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    assert status.details[0].Unpack(info) and info.domain == "wonder.v1"
    fields = [v.field for d in status.details if d.Unpack(bad) for v in bad.field_violations]
    message = problem.value.details() or ""
    assert message and problem.value.code() is not grpc.StatusCode.UNKNOWN
    for tell in ("Traceback", "Error:", "Exception", "wonder_server", ".py", "protobuf", "upb", "object at"):
        assert tell not in message
    return info.reason, fields


def token_principal(name: str) -> Principal:
    """Return the principal of the token ``name``, without permissions; the anonymous one for ""."""
    return Principal(kind=PrincipalKind.TOKEN, subject=name) if name else ANONYMOUS


class FakeNameResolver:
    """Agents ``ada`` and ``bob`` with ids ``agt_ada`` and ``agt_bob``; the project ``default``, which
    is ``ada``'s."""

    async def agent_id(self, key: str) -> str:
        if key.removeprefix("agt_") in ("ada", "bob"):
            return f"agt_{key.removeprefix('agt_')}"
        raise error(Reason.AGENT_NOT_FOUND, f"There is no agent '{key}'.", field="agent_id")

    async def agent_ids(self, project: str, limit: int) -> list[str]:
        if project:
            await self.project_id(project)
            return ["agt_ada"]
        return ["agt_ada", "agt_bob"][:limit]

    async def project_id(self, key: str) -> str:
        if key in ("", "default", "proj_default"):
            return "proj_default"
        raise error(Reason.PROJECT_NOT_FOUND, f"There is no project '{key}'.", field="project_id")


def field(number: int, content: bytes) -> bytes:
    """Encode a field of bytes without the checks of a library."""
    length, size = bytearray(), len(content)
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + content


def deep_struct(levels: int) -> bytes:
    """Encode a Struct of ``levels`` levels."""
    value, struct = Value(number_value=1).SerializeToString(), b""
    for _ in range(levels):
        struct = field(1, field(1, b"a") + field(2, value))
        value = field(5, struct)
    return struct
