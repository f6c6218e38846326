"""Codec of CallAgent."""

from __future__ import annotations

from wonder.v1 import common_pb2, conversation_pb2
from wonder.v1 import conversation_service_pb2 as pb
from wonder_server.actors.conversation.call_agent import AgentCallRequest
from wonder_server.core.access.permissions import ACT_AS
from wonder_server.core.conversation.model.values import Caller, Turn
from wonder_server.core.errors import Reason, error
from wonder_server.core.idempotency import Origin
from wonder_server.core.ids import is_id
from wonder_server.core.json_types import JsonDict
from wonder_server.core.paths import check_work_branch
from wonder_server.core.schema.output_schemas import check_output_schema
from wonder_server.rpc.conversation import codec
from wonder_server.rpc.server.authorization import require_permission, resolve_user
from wonder_server.rpc.shared.common_codec import budget_from_proto, check_text_size
from wonder_server.rpc.shared.fields import required
from wonder_server.rpc.shared.names import NameResolver
from wonder_server.rpc.shared.payload import struct_to_dict, value_to_json

MAX_TIMEOUT_MS = 24 * 60 * 60 * 1000


async def request_from_proto(
    request: pb.CallAgentRequest, resolver: NameResolver, origin: Origin
) -> AgentCallRequest:
    """Decode the request, and check it.

    Raises FIELD_INVALID, PERMISSION_DENIED, PROJECT_NOT_FOUND, NOT_IMPLEMENTED and the errors of payloads.
    """
    _check_mode(request)
    if not request.HasField("input"):
        raise error(Reason.FIELD_INVALID, "input is required.", field="input")
    if not 0 <= request.timeout_ms <= MAX_TIMEOUT_MS:
        raise error(
            Reason.FIELD_INVALID,
            f"timeout_ms is {request.timeout_ms}. Use a number between 0 and {MAX_TIMEOUT_MS}.",
            field="timeout_ms",
        )
    return AgentCallRequest(
        agent=required(request.agent_id, "agent_id"),
        input=value_to_json(request.input, "input"),
        caller=_caller_from_proto(request.caller),
        conversation_id=request.conversation_id,
        project_id=await resolver.project_id(request.project_id) if request.project_id else "",
        branch=check_work_branch(request.branch) if request.branch else "",
        timeout_ms=request.timeout_ms,
        budget=budget_from_proto(request.budget, "budget") if request.HasField("budget") else None,
        origin=origin,
        output_schema=_output_schema_from_proto(request),
        overrides=codec.overrides_from_proto(request),
    )


def _output_schema_from_proto(request: pb.CallAgentRequest) -> JsonDict:
    """Return the output schema of the request. Raises FIELD_INVALID if no answer can be checked by it."""
    schema = struct_to_dict(request.output_schema, "output_schema")
    problem = check_output_schema(schema)
    if problem is not None:
        field = f"output_schema.{problem.path}".removesuffix(".")
        raise error(Reason.FIELD_INVALID, f"{field}: {problem.message}.", field=field)
    return schema


def _check_mode(request: pb.CallAgentRequest) -> None:
    """Raise FIELD_INVALID for an unknown mode, and for fields that do not fit the mode."""
    loop_in = request.mode == common_pb2.INVOCATION_MODE_LOOP_IN
    if request.mode not in common_pb2.InvocationMode.values():
        raise error(Reason.FIELD_INVALID, f"mode {request.mode} does not exist.", field="mode")
    if loop_in:
        required(request.conversation_id, "conversation_id")
    elif request.conversation_id:
        raise error(
            Reason.FIELD_INVALID,
            "A delegated turn gets its own conversation. Leave conversation_id empty or set mode to LOOP_IN.",
            field="conversation_id",
        )
    if loop_in and request.branch:
        raise error(
            Reason.FIELD_INVALID,
            "With mode LOOP_IN the agent works on the conversation's branch. Leave branch empty.",
            field="branch",
        )
    if loop_in and request.project_id:
        raise error(
            Reason.FIELD_INVALID,
            "With mode LOOP_IN the agent works in its own project. Leave project_id empty.",
            field="project_id",
        )


def response_to_proto(turn: Turn) -> pb.CallAgentResponse:
    """Encode the answer; ``turn`` has ended."""
    answer = pb.CallAgentResponse(turn=codec.turn_to_proto(turn))
    fault = turn.fault
    if fault is not None:
        declined = "declined" in fault.metadata  # by its tool, or by a refusal of its model
        answer.error.CopyFrom(
            conversation_pb2.ToolError(
                code=conversation_pb2.TOOL_ERROR_CODE_AGENT_DECLINED
                if declined
                else conversation_pb2.TOOL_ERROR_CODE_EXECUTION_FAILED,
                message=fault.message,
                retriable=fault.transient,
            )
        )
    return answer


def _caller_from_proto(caller: common_pb2.Caller) -> Caller:
    kind = caller.WhichOneof("caller")
    if kind in ("workflow", "agent"):
        require_permission(ACT_AS, "caller differs from the token's name.", f"caller.{kind}")
    if kind == "workflow":
        return Caller(
            type="workflow", run_id=_checked_id("run", caller.workflow.run_id, "caller.workflow.run_id")
        )
    if kind == "agent":
        return Caller(
            type="agent",
            agent_id=_checked_id("agt", caller.agent.agent_id, "caller.agent.agent_id"),
            turn_id=_checked_id("turn", caller.agent.turn_id, "caller.agent.turn_id"),
        )
    user_id = check_text_size(caller.user.user_id, codec.MAX_USER_BYTES, "caller.user.user_id")
    return Caller(user_id=resolve_user(user_id, "caller.user.user_id"))


def _checked_id(prefix: str, value: str, field: str) -> str:
    if value and not is_id(prefix, value):
        raise error(
            Reason.FIELD_INVALID, f"{field} '{value[:80]}' is not an id of the form {prefix}_….", field=field
        )
    return value
