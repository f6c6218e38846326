"""Methods of the ConversationService for streams: Converse and Subscribe."""

from __future__ import annotations

import asyncio
from typing import cast

from wonder.v1 import conversation_service_pb2 as pb
from wonder_server.actors.conversation.conversations import SendRequest, SendResult
from wonder_server.actors.streaming.attachment import Attachment
from wonder_server.actors.streaming.items import Reply
from wonder_server.core.errors import Fault, Reason, WonderError, error
from wonder_server.logs import logger
from wonder_server.rpc.conversation import codec
from wonder_server.rpc.conversation.lifecycle import LifecycleMethods
from wonder_server.rpc.conversation.stream import part_kinds, write_stream
from wonder_server.rpc.server.authorization import resolve_user
from wonder_server.rpc.server.call_pipeline import RequestStream
from wonder_server.rpc.shared.call_context import CallContext
from wonder_server.rpc.shared.common_codec import check_text_size, metadata_from_proto
from wonder_server.rpc.shared.faults import fault_to_proto
from wonder_server.rpc.shared.request_keys import call_origin
from wonder_server.rpc.shared.trace_context import trace_from_metadata

_log = logger("rpc")


class StreamMethods(LifecycleMethods):
    """Methods of the ConversationServicer; see ``conversation_service.proto``."""

    _attach_timeout_s: float

    def _send_request(self, send: pb.ConverseSend, trace_id: str = "") -> SendRequest:
        user_id = check_text_size(send.user_id, codec.MAX_USER_BYTES, "user_id")
        return SendRequest(
            content=send.content,
            reply_to_message_id=send.reply_to_message_id,
            origin=call_origin(send.request_id),
            agent_id=send.agent_id,
            user_id=resolve_user(user_id, "user_id"),
            metadata=metadata_from_proto(send.metadata, "metadata"),
            trace_id=trace_id,
            parts=codec.parts_from_proto(send.parts),
            start_turn=starts_turn(send),
            overrides=codec.overrides_from_proto(send),
        )

    async def subscribe(self, request: pb.SubscribeRequest, context: CallContext) -> None:
        attachment, attached = await self._attach(request.attach)
        try:
            await write_stream(attachment, attached, context.write, grouping=request.attach.group_events)
        finally:
            attachment.close()

    async def converse(self, requests: RequestStream, context: CallContext) -> None:
        first = await self._read_first(requests)
        if first is None or first.WhichOneof("intent") != "attach":
            raise error(
                Reason.NOT_ATTACHED, "The first message of a stream must be `attach`.", field="attach"
            )
        attachment, attached = await self._attach(first.attach)
        conversation_id, trace_id = first.attach.conversation_id, trace_from_metadata(context)
        reader = asyncio.create_task(self._read_requests(requests, attachment, conversation_id, trace_id))
        try:
            await write_stream(attachment, attached, context.write, grouping=first.attach.group_events)
        finally:
            reader.cancel()
            attachment.close()

    async def _read_first(self, requests: RequestStream) -> pb.ConverseRequest | None:
        """Return a stream's first message, or None if the stream ends.

        Raises NOT_ATTACHED after the timeout.
        """
        try:
            async with asyncio.timeout(self._attach_timeout_s):
                return cast(pb.ConverseRequest | None, await anext(requests, None))
        except TimeoutError:
            raise error(
                Reason.NOT_ATTACHED,
                f"The stream sent no `attach` within {self._attach_timeout_s:g} s.",
                field="attach",
            ) from None

    async def _attach(self, attach: pb.ConverseAttach) -> tuple[Attachment, pb.ConverseResponse]:
        if attach.after_sequence < 0:
            raise error(
                Reason.FIELD_INVALID,
                f"after_sequence is {attach.after_sequence}. It must not be negative.",
                field="attach.after_sequence",
            )
        attachment = await self._conversations.attach(
            attach.conversation_id,
            attach.after_sequence,
            tail_only=attach.tail_only,
            kinds=part_kinds(attach.delta_kinds, "attach.delta_kinds"),
        )
        try:
            conversation = await self._conversations.lookup.get(attach.conversation_id)
            attached = pb.ConverseAttached(
                conversation=await self._encode(conversation), last_sequence=attachment.head
            )
        except BaseException:
            attachment.close()
            raise
        return attachment, pb.ConverseResponse(attached=attached)

    async def _read_requests(
        self,
        requests: RequestStream,
        attachment: Attachment,
        conversation_id: str,
        trace_id: str,
    ) -> None:
        """Handle the client's messages in order. A half-closed stream stays open for its reader."""
        while True:
            request_id = ""
            try:
                try:
                    request = cast(pb.ConverseRequest, await anext(requests))
                except StopAsyncIteration:
                    return
                intent = request.WhichOneof("intent")
                if intent in ("send", "cancel"):
                    request_id = (request.send if intent == "send" else request.cancel).request_id
                    await self._handle_intent(request, request_id, attachment, conversation_id, trace_id)
                elif intent == "detach":
                    attachment.subscription.close("detached")
                    return
                elif intent != "ack":
                    raise error(
                        Reason.FIELD_INVALID,
                        f"A client cannot send `{intent or 'an empty message'}` after `attach`. Use `send`, "
                        "`cancel`, `ack` or `detach`.",
                        field=intent or "intent",
                    )
            except WonderError as problem:
                requests.log_rejection(problem)
                rejection = pb.ConverseRefused(request_id=request_id, error=fault_to_proto(problem.fault))
                attachment.subscription.push(_reply(pb.ConverseResponse(refused=rejection)))
            except Exception:
                # Send a rejection before the task ends: without one the client would wait for an answer.
                _log.exception("conversation_stream_failed", conversation=conversation_id)
                fault = Fault(reason=Reason.INTERNAL, message="Internal error. See the server log.")
                rejection = pb.ConverseRefused(request_id=request_id, error=fault_to_proto(fault))
                attachment.subscription.push(_reply(pb.ConverseResponse(refused=rejection)))
                return

    async def _handle_intent(
        self,
        request: pb.ConverseRequest,
        request_id: str,
        attachment: Attachment,
        conversation_id: str,
        trace_id: str,
    ) -> None:
        if not request_id:
            raise error(
                Reason.FIELD_INVALID,
                "request_id is required: the answer names it.",
                field=f"{request.WhichOneof('intent')}.request_id",
            )
        if request.HasField("send"):
            result = await self._conversations.send(
                conversation_id, self._send_request(request.send, trace_id)
            )
            attachment.subscription.push(_sent_reply(request_id, result))
            return
        turn, sequence = await self._conversations.cancel(
            conversation_id, request.cancel.turn_id, call_origin(request_id)
        )
        cancelled = pb.ConverseCancelled(request_id=request_id, turn_id=turn.id, sequence=sequence)
        attachment.subscription.push(_reply(pb.ConverseResponse(cancelled=cancelled)))


def starts_turn(send: pb.ConverseSend) -> bool:
    """Return False for a message that is only appended."""
    return send.start_turn or not send.HasField("start_turn")


def _sent_reply(request_id: str, result: SendResult) -> Reply:
    reply = pb.ConverseResponse()
    sent = reply.sent
    sent.request_id = request_id
    sent.turn_id = result.turn_id
    sent.message_id = result.message_id
    sent.sequence = result.sequence
    return Reply(reply.SerializeToString())


def _reply(response: pb.ConverseResponse) -> Reply:
    return Reply(response.SerializeToString())
