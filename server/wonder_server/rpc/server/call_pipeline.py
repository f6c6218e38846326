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

from wonder_server.core.errors import Reason, WonderError, error, system_fault
from wonder_server.logs import logger
from wonder_server.rpc.server.admission import ActiveCall, Admission, CallLimits
from wonder_server.rpc.server.authorization import NO_GRANTS, ScopeGrants, scope_for
from wonder_server.rpc.server.call_slots import CallSlots
from wonder_server.rpc.server.rejection_log import RejectionLog
from wonder_server.rpc.server.status import to_rpc_status
from wonder_server.rpc.server.wire_errors import decode_error
from wonder_server.rpc.shared.message_trimming import MAX_MESSAGE_BYTES, trim_encoded
from wonder_server.rpc.shared.payload import check_request

T = TypeVar("T")
_log = logger("rpc")


class CallPipeline:
    """The way into the server: checks rights and limits, and turns what goes wrong into a status."""

    def __init__(
        self,
        limits: CallLimits,
        *,
        grants: ScopeGrants = NO_GRANTS,
        rejections: RejectionLog | None = None,
        storage_full: Callable[[], WonderError | None] = lambda: None,
    ) -> None:
        """``storage_full`` returns the error for calls that write while the disk is full, else None."""
        self._limits = limits
        self._storage_full = storage_full
        self._grants = grants
        self._rejections = rejections or RejectionLog()
        self.admission = Admission(limits)
        self._slots = CallSlots(limits.pages)

    def build_handler(self, method: MethodDescriptor, servicer: object) -> Any:
        """The grpc handler that leads ``method`` to ``servicer``, bytes in and bytes out."""
        act = getattr(servicer, snake_case(method.name), None) or _unimplemented(method)
        kind = self._slots.slots_for(method)
        decode = self._decoder(method)

        name = _name(method)

        def note(problem: WonderError) -> None:
            self._log_rejection(problem, name)

        def asked(received: Any) -> Any:
            return RequestStream(received, decode, note) if method.client_streaming else decode(received)

        async def answer(received: Any, context: Any) -> bytes:
            if not method.client_streaming:
                received = await self._read_single_request(received)
            request = asked(received)
            async with self._slots.hold(kind, request):
                return _encode(await act(request, context))

        async def one(received: Any, context: Any) -> bytes:
            return await self._serve(method, context, answer(received, context))

        async def sent(received: Any, context: Any) -> None:
            if not method.client_streaming:
                received = await self._read_single_request(received)
            await _send(lambda: act(asked(received), context), context)

        async def many(received: Any, context: Any) -> None:
            await self._serve(method, context, sent(received, context))

        # Every call is a stream of requests to grpc: for others it would wait, without end and without a
        # place among the calls, for a request that may never come.
        if method.server_streaming:
            return grpc.stream_stream_rpc_method_handler(many)
        return grpc.stream_unary_rpc_method_handler(one)

    async def _read_single_request(self, received: AsyncIterator[bytes]) -> bytes:
        """Return the only request of a call. TIMEOUT, MALFORMED_REQUEST."""
        requests = aiter(received)
        try:
            async with asyncio.timeout(self._limits.request_seconds):
                return await anext(requests)
        except TimeoutError:
            raise error(
                Reason.TIMEOUT,
                f"The request did not come within {self._limits.request_seconds:g} seconds of its call; the "
                "operator sets this time by request_seconds.",
            ) from None
        except StopAsyncIteration:
            raise error(Reason.MALFORMED_REQUEST, "The call ended without a request.") from None

    def _decoder(self, method: MethodDescriptor) -> Callable[[bytes], Message]:
        parse = message_factory.GetMessageClass(method.input_type).FromString
        limit = self._limits.request_bytes

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
                raise decode_error(data, method.input_type) from None
            check_request(request, len(data))
            return request

        return decode

    async def _serve(self, method: MethodDescriptor, context: Any, work: Coroutine[Any, Any, T]) -> T:
        """Await ``work``, and turn what it raises into a status and a log line."""
        began = time.perf_counter()
        name = _name(method)
        call: ActiveCall | None = None
        try:
            call = self.admission.admit(is_stream=method.client_streaming or method.server_streaming)
            try:
                if scope := scope_for(method.name):
                    self._grants.require(scope)
                if not _works_on_full_disk(method.name) and (storage_error := self._storage_full()):
                    raise storage_error
                result = await work
            finally:
                self.admission.release(call)
        except aio.AbortError:
            _log.debug("rpc_cancelled", rpc=name, ms=_ms(began))
            raise
        except (asyncio.CancelledError, cygrpc.ExecuteBatchError):
            # Its client left, perhaps while something was being sent to it; or the server ends it.
            if call is None or call.end_error is None:
                _log.debug("rpc_cancelled", rpc=name, ms=_ms(began))
                raise asyncio.CancelledError from None
            asyncio.current_task().uncancel()  # type: ignore[union-attr]
            answer = to_rpc_status(self._client_error(call.end_error, name, began))
        except Exception as problem:
            answer = to_rpc_status(self._client_error(problem, name, began))
        else:
            _log.debug("rpc_completed", rpc=name, ms=_ms(began))
            return result
        finally:
            work.close()
        await context.abort(answer.code, answer.message, answer.trailers)
        raise AssertionError("abort always raises")

    def _client_error(self, problem: Exception, name: str, began: float) -> WonderError:
        """Return ``problem`` if clients may see it, else an incident number. Either way it is logged."""
        known = _find_error(problem)
        if known is not None:
            self._log_rejection(known, name, ms=_ms(began))
            return known
        incident_id = secrets.token_hex(4)
        _log.error("rpc_failed", rpc=name, incident_id=incident_id, ms=_ms(began), exc_info=problem)
        return error(
            Reason.INTERNAL,
            f"Something went wrong inside the server. Its log knows more, under incident {incident_id}.",
            incident_id=incident_id,
        )

    def _log_rejection(self, problem: WonderError, name: str, **fields: Any) -> None:
        fault = problem.fault
        where = {"field": fault.field} if fault.field else {}
        self._rejections.record(fault.reason, rpc=name, message=fault.message, **fields, **where)


class RequestStream(AsyncIterator[Message]):
    """The requests of a client stream, decoded one by one. A class rather than a generator, so that
    it can be read on after it raised `WonderError` for a request that is wrong; ``refused`` is what
    that one consisted of. ``note`` logs the refusal of one request of a stream that goes on."""

    def __init__(
        self,
        received: AsyncIterator[bytes],
        decode: Callable[[bytes], Message],
        log_rejection: Callable[[WonderError], None],
    ) -> None:
        self.log_rejection = log_rejection
        self._received = received
        self._decode = decode
        self.rejected = b""

    async def __anext__(self) -> Message:
        # `aiter` only now: a stream that nobody reads must not leave a generator that nobody awaits.
        data = await anext(aiter(self._received))
        try:
            return self._decode(data)
        except WonderError:
            self.rejected = data
            raise


def _works_on_full_disk(name: str) -> bool:
    """Return True for methods that only read, that delete, or whose stream is told of each write by
    itself."""
    return name in _STREAMS or name.startswith(_READS_AND_DELETES)


_STREAMS = frozenset({"Converse", "Work"})
_READS_AND_DELETES = (
    *("Get", "List", "Search", "Read", "Diff", "Export", "Preview", "Replay", "Subscribe", "Watch"),
    *("Delete", "Cancel"),
)


def _name(method: MethodDescriptor) -> str:
    return f"{method.containing_service.full_name}/{method.name}"


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
    if isinstance(answer, bytes):
        return answer
    return trim_encoded(answer.SerializeToString(), answer, MAX_MESSAGE_BYTES)


def _unimplemented(method: MethodDescriptor) -> Callable[[Any, Any], Any]:
    async def refuse(_request: Any, _context: Any) -> Any:
        raise error(Reason.NOT_IMPLEMENTED, f"{method.name} is not implemented yet.", method=method.name)

    return refuse


def _find_error(problem: BaseException) -> WonderError | None:
    if isinstance(problem, WonderError):
        return problem
    if isinstance(problem, BaseExceptionGroup):
        found = next((found for each in problem.exceptions if (found := _find_error(each))), None)
        if found is not None:
            return found
    fault = system_fault(problem)
    return None if fault is None else WonderError(fault)


def _ms(began: float) -> float:
    return round((time.perf_counter() - began) * 1000, 1)
