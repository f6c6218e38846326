"""The pipeline of every call: decode, authorize, call the servicer, encode, and report errors as a status.

Servicers are plain objects. A method ``CreateConversation`` of the contract is the servicer's
``create_conversation(request, context)``::

    unary             async def, returns the response
    server stream     async generator (or async def that returns an async iterator) of responses; or async
                      def that writes them with ``context.write`` and returns None
    bidirectional     the same, and ``request`` is an async iterator of requests

A response is a message, or its encoded bytes: an event goes to many readers and is serialized once. To reject
a call, raise `WonderError`. An iterator of requests also raises it for a request that does not decode, and
can be read further. A method that the servicer lacks answers NOT_IMPLEMENTED.
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
from wonder_server.rpc.server.authorization import narrow_to, permission_of, require_permission
from wonder_server.rpc.server.call_slots import CallSlots
from wonder_server.rpc.server.decode_errors import decode_error
from wonder_server.rpc.server.error_codes import to_rpc_status
from wonder_server.rpc.server.rejection_log import RejectionLog
from wonder_server.rpc.shared.message_trimming import MAX_MESSAGE_BYTES, trim_encoded
from wonder_server.rpc.shared.payload import check_request
from wonder_server.rpc.shared.principal import current_principal
from wonder_server.services.tenancy.visibility import Visibility

T = TypeVar("T")
_log = logger("rpc")


class CallPipeline:
    """Checks permissions and limits of calls, and converts errors to statuses."""

    def __init__(
        self,
        limits: CallLimits,
        admission: Admission,
        *,
        rejections: RejectionLog | None = None,
        storage_full: Callable[[], WonderError | None] = lambda: None,
        visibility: Visibility | None = None,
    ) -> None:
        """``storage_full`` returns the error for calls that write while the disk is full, else None.
        ``visibility`` tells callers which permission is missing where something does not exist for them."""
        self._limits = limits
        self._storage_full = storage_full
        self._visibility = visibility
        self._rejections = rejections or RejectionLog()
        self._admission = admission
        self._slots = CallSlots(limits.pages)

    def build_handler(self, method: MethodDescriptor, servicer: object) -> Any:
        """Return the gRPC handler that calls ``servicer`` for ``method``, with bytes as input and output."""
        act = getattr(servicer, snake_case(method.name), None) or _unimplemented(method)
        kind = self._slots.slots_for(method)
        decode = self._decoder(method)

        name, permission = _name(method), permission_of(method)

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
            return await self._serve(method, permission, context, answer(received, context))

        async def sent(received: Any, context: Any) -> None:
            if not method.client_streaming:
                received = await self._read_single_request(received)
            await _send(lambda: act(asked(received), context), context)

        async def many(received: Any, context: Any) -> None:
            await self._serve(method, permission, context, sent(received, context))

        # Register every call as a stream of requests. For a unary one gRPC would wait for its request without
        # a timeout and without a slot in `Admission`.
        if method.server_streaming:
            return grpc.stream_stream_rpc_method_handler(many)
        return grpc.stream_unary_rpc_method_handler(one)

    async def _read_single_request(self, received: AsyncIterator[bytes]) -> bytes:
        """Return the only request of a call. Raises TIMEOUT or MALFORMED_REQUEST."""
        requests = aiter(received)
        try:
            async with asyncio.timeout(self._limits.request_seconds):
                return await anext(requests)
        except TimeoutError:
            raise error(
                Reason.TIMEOUT,
                f"The request did not arrive within {self._limits.request_seconds:g} seconds of its call. "
                "The operator can raise the setting request_seconds.",
            ) from None
        except StopAsyncIteration:
            raise error(
                Reason.MALFORMED_REQUEST, "The call ended without a request. Send one message."
            ) from None

    def _decoder(self, method: MethodDescriptor) -> Callable[[bytes], Message]:
        parse = message_factory.GetMessageClass(method.input_type).FromString
        limit = self._limits.request_bytes

        def decode(data: bytes) -> Message:
            if len(data) > limit:
                raise error(
                    Reason.PAYLOAD_TOO_LARGE,
                    f"The request has {len(data)} bytes; the maximum is {limit}.",
                    limit=str(limit),
                )
            try:
                request = parse(data)
            except DecodeError:
                raise decode_error(data, method.input_type) from None
            check_request(request, len(data))
            return request

        return decode

    async def _serve(
        self, method: MethodDescriptor, permission: str, context: Any, work: Coroutine[Any, Any, T]
    ) -> T:
        """Await ``work``, and convert its error to a status and a log line."""
        began = time.perf_counter()
        name = _name(method)
        call: ActiveCall | None = None
        try:
            call = self._admission.admit(is_stream=method.client_streaming or method.server_streaming)
            try:
                if permission:
                    require_permission(permission)
                    narrow_to(permission)
                if not _works_on_full_disk(method.name) and (storage_error := self._storage_full()):
                    raise storage_error
                result = await work
            finally:
                self._admission.release(call)
        except aio.AbortError:
            _log.debug("rpc_cancelled", rpc=name, ms=_ms(began))
            raise
        except (asyncio.CancelledError, cygrpc.ExecuteBatchError):
            # The client left, perhaps during a write to it, or the server ends the call.
            if call is None or call.end_error is None:
                _log.debug("rpc_cancelled", rpc=name, ms=_ms(began))
                raise asyncio.CancelledError from None
            asyncio.current_task().uncancel()  # type: ignore[union-attr]
            answer = to_rpc_status(self._client_error(call.end_error, name, began))
        except Exception as problem:
            answer = to_rpc_status(self._client_error(await self._explained(problem), name, began))
        else:
            _log.debug("rpc_completed", rpc=name, ms=_ms(began))
            return result
        finally:
            work.close()
        await context.abort(answer.code, answer.message, answer.trailers)
        raise AssertionError("abort always raises")

    async def _explained(self, problem: Exception) -> Exception:
        """Return the error that names the missing permission, if one is the cause of ``problem``."""
        known = _find_error(problem)
        if known is None or self._visibility is None:
            return problem
        try:
            return await self._visibility.explain(current_principal.get(), known)
        except WonderError:
            return problem  # What cannot be read is not visible.

    def _client_error(self, problem: Exception, name: str, began: float) -> WonderError:
        """Return ``problem`` if clients may see it, else INTERNAL with an incident id; log it."""
        known = _find_error(problem)
        if known is not None:
            self._log_rejection(known, name, ms=_ms(began))
            return known
        incident_id = secrets.token_hex(4)
        _log.error("rpc_failed", rpc=name, incident_id=incident_id, ms=_ms(began), exc_info=problem)
        return error(
            Reason.INTERNAL,
            f"Internal error. See the server log, incident {incident_id}.",
            incident_id=incident_id,
        )

    def _log_rejection(self, problem: WonderError, name: str, **fields: Any) -> None:
        fault = problem.fault
        where = {"field": fault.field} if fault.field else {}
        is_read = name.rpartition("/")[2].startswith(_READS)
        self._rejections.record(
            fault.reason, is_read=is_read, rpc=name, message=fault.message, **fields, **where
        )


class RequestStream(AsyncIterator[Message]):
    """The requests of a client stream, decoded one by one.

    A class rather than a generator: reading can continue after it raised `WonderError` for an invalid
    request. ``rejected`` holds the bytes of that request. ``log_rejection`` logs a rejected request of a
    stream that continues.
    """

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
        # Call `aiter` here, not earlier: a stream that is never read must not leave an unawaited generator.
        data = await anext(aiter(self._received))
        try:
            return self._decode(data)
        except WonderError:
            self.rejected = data
            raise


def _works_on_full_disk(name: str) -> bool:
    """Return True for methods that only read or delete, and for streams that check each write themselves."""
    return name in _STREAMS or name.startswith(_READS_AND_DELETES)


_STREAMS = frozenset({"Converse", "Work"})
_READS = ("Get", "List", "Search", "Read", "Diff", "Export", "Preview", "Replay", "Subscribe", "Watch")
_READS_AND_DELETES = (*_READS, "Delete", "Cancel")


def _name(method: MethodDescriptor) -> str:
    return f"{method.containing_service.full_name}/{method.name}"


def snake_case(name: str) -> str:
    """Return ``CreateConversation`` as ``create_conversation``."""
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
        # A cancelled write leaves the generator suspended. Without this, the garbage collector would finalize
        # it and its resources at an unknown time.
        close = getattr(answers, "aclose", None)
        if close is not None:
            await close()


def _encode(answer: Message | bytes) -> bytes:
    if isinstance(answer, bytes):
        return answer
    return trim_encoded(answer.SerializeToString(), answer, MAX_MESSAGE_BYTES)


def _unimplemented(method: MethodDescriptor) -> Callable[[Any, Any], Any]:
    async def refuse(_request: Any, _context: Any) -> Any:
        raise error(Reason.NOT_IMPLEMENTED, f"{method.name} is not implemented.", method=method.name)

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
