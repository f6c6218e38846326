"""What every call goes through: decode, act, encode; and one way out for whatever goes wrong.

Servicers are plain objects. A method ``CreateConversation`` of the contract is their
``create_conversation(request, context)``::

    unary             async def, returns the response
    server stream     async generator (or async def returning an async iterator) of responses; or async
                      def that writes them itself, by ``context.write``, and returns None
    bidirectional     the same, and ``request`` is an async iterator of requests

A response is a message, or its bytes where they exist already (an event goes to many readers and is
serialised once). To refuse, raise `WonderError`. An iterator of requests raises it too, for a request
that does not decode, and can be read on. A method that a servicer lacks answers NOT_IMPLEMENTED.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, Message
from grpc import aio
from grpc._cython import cygrpc  # type: ignore[attr-defined]

from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.logs import logger
from wonder_server.rpc.payload import check
from wonder_server.rpc.status import refusal
from wonder_server.rpc.wire import explain

T = TypeVar("T")
_log = logger("rpc")


class Entrance:
    """The way into the server: counts who is inside, refuses past a limit and while draining."""

    def __init__(self, *, max_request_bytes: int, max_concurrent_rpcs: int) -> None:
        self._max_request_bytes = max_request_bytes
        self._max_concurrent = max_concurrent_rpcs
        self._inside = 0
        self._draining = False

    @property
    def inside(self) -> int:
        """Calls being served now, open streams included."""
        return self._inside

    def close(self) -> None:
        """From now on every new call gets SERVER_DRAINING."""
        self._draining = True

    def handler(self, method: MethodDescriptor, servicer: object) -> Any:
        """The grpc handler that leads ``method`` to ``servicer``, bytes in and bytes out."""
        name = f"{method.containing_service.full_name}/{method.name}"
        act = getattr(servicer, snake_case(method.name), None) or _missing(method)
        decode = self._decoder(method)

        def asked(received: Any) -> Any:
            return Requests(received, decode) if method.client_streaming else decode(received)

        async def answer(received: Any, context: Any) -> bytes:
            return _encode(await act(asked(received), context))

        async def one(received: Any, context: Any) -> bytes:
            return await self._serve(name, context, answer(received, context))

        async def many(received: Any, context: Any) -> None:
            await self._serve(name, context, _send(lambda: act(asked(received), context), context))

        return _SHAPES[method.client_streaming, method.server_streaming](
            many if method.server_streaming else one
        )

    def _decoder(self, method: MethodDescriptor) -> Callable[[bytes], Message]:
        parse = message_factory.GetMessageClass(method.input_type).FromString
        limit = self._max_request_bytes

        def decode(data: bytes) -> Message:
            if len(data) > limit:
                raise error(
                    Reason.PAYLOAD_TOO_LARGE,
                    f"The request has {len(data)} bytes; this server takes at most {limit}.",
                    limit=str(limit),
                )
            try:
                request = parse(data)
            except DecodeError:
                raise explain(data, method.input_type) from None
            check(request)
            return request

        return decode

    async def _serve(self, name: str, context: Any, work: Coroutine[Any, Any, T]) -> T:
        """Await ``work``, and turn what it raises into a status and a log line."""
        began = time.perf_counter()
        try:
            self._enter()
            try:
                result = await work
            finally:
                self._inside -= 1
        except (asyncio.CancelledError, aio.AbortError):
            _log.debug("call ended early", rpc=name, ms=_ms(began))
            raise
        except cygrpc.ExecuteBatchError:
            # Its client left while something was being sent to it.
            _log.debug("call ended early", rpc=name, ms=_ms(began))
            raise asyncio.CancelledError from None
        except Exception as problem:
            answer = refusal(_as_wonder_error(problem, name, began))
        else:
            _log.debug("call", rpc=name, ms=_ms(began))
            return result
        finally:
            work.close()
        await context.abort(answer.code, answer.message, answer.trailers)
        raise AssertionError("abort always raises")

    def _enter(self) -> None:
        self._inside += 1
        refused = self._refused()
        if refused is not None:
            self._inside -= 1
            raise refused

    def _refused(self) -> WonderError | None:
        if self._draining:
            return error(
                Reason.SERVER_DRAINING, "The server is shutting down; try again.", retry_after_ms=1_000
            )
        if self._inside > self._max_concurrent:
            return error(
                Reason.LIMIT_EXCEEDED,
                f"The server already serves {self._max_concurrent} calls; try again later.",
                retry_after_ms=1_000,
            )
        return None


class Requests(AsyncIterator[Message]):
    """The requests of a client stream, decoded one by one. A class rather than a generator, so that
    it can be read on after it raised `WonderError` for a request that is wrong; ``refused`` is what
    that one consisted of."""

    def __init__(self, received: AsyncIterator[bytes], decode: Callable[[bytes], Message]) -> None:
        self._received = received
        self._decode = decode
        self.refused = b""

    async def __anext__(self) -> Message:
        # `aiter` only now: a stream that nobody reads must not leave a generator that nobody awaits.
        data = await anext(aiter(self._received))
        try:
            return self._decode(data)
        except WonderError:
            self.refused = data
            raise


def snake_case(name: str) -> str:
    """``CreateConversation`` as ``create_conversation``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


async def _send(act: Callable[[], Any], context: Any) -> None:
    answers = act()
    if inspect.isawaitable(answers):
        answers = await answers
    if answers is None:
        return
    try:
        write = context.write
        async for answer in answers:
            await write(answer if type(answer) is bytes else _encode(answer))
    finally:
        # A cancelled write leaves the generator suspended: without this it would be finalised later,
        # by the garbage collector, and with it whatever it holds.
        close = getattr(answers, "aclose", None)
        if close is not None:
            await close()


def _encode(answer: Message | bytes) -> bytes:
    return answer if isinstance(answer, bytes) else answer.SerializeToString()


def _missing(method: MethodDescriptor) -> Callable[[Any, Any], Any]:
    async def refuse(_request: Any, _context: Any) -> Any:
        raise error(Reason.NOT_IMPLEMENTED, f"{method.name} is not implemented yet.", method=method.name)

    return refuse


def _as_wonder_error(problem: Exception, name: str, began: float) -> WonderError:
    """``problem`` if it may be shown; else an incident number in its place. Either way it is logged."""
    known = _find(problem)
    if known is not None:
        where = {"field": known.fault.field} if known.fault.field else {}
        _log.warning("call refused", rpc=name, reason=known.fault.reason.value, message=known.fault.message,
                     ms=_ms(began), **where)  # fmt: skip
        return known
    incident = secrets.token_hex(4)
    _log.error("call failed", rpc=name, incident=incident, ms=_ms(began), exc_info=problem)
    return error(
        Reason.INTERNAL,
        f"Something went wrong inside the server. Its log knows more, under incident {incident}.",
        incident=incident,
    )


def _find(problem: BaseException) -> WonderError | None:
    if isinstance(problem, WonderError):
        return problem
    if isinstance(problem, BaseExceptionGroup):
        return next((found for each in problem.exceptions if (found := _find(each))), None)
    return None


def _ms(began: float) -> float:
    return round((time.perf_counter() - began) * 1000, 1)


_SHAPES: dict[tuple[bool, bool], Callable[[Any], Any]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}
