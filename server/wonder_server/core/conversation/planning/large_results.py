"""Large results of tools: the decision that the model gets only a part of one.

The bound is recorded with the turn's agent and the decision with the result, so that replays and later turns
show the same text.
"""

from __future__ import annotations

from typing import Final

from wonder_server.core.conversation.context.dialects import whole_result_text
from wonder_server.core.conversation.context.permissions import forbidden_action, kinds_of
from wonder_server.core.conversation.model.event_payloads import ResultExcerpt
from wonder_server.core.conversation.model.values import Move, Operation, ToolResult
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.errors import Reason
from wonder_server.core.frozen import replace
from wonder_server.core.schema import payloads
from wonder_server.core.schema.truncation import utf8_size

READ_RESULT: Final = "history.read_result"
"""The action that reads a large result on."""

_MAX_EXPANSION: Final = 6
"""Maximum bytes of JSON text for one byte of a value: a control character becomes six."""

_NOT_KEPT: Final = (
    "Its result is larger than this server takes, so nothing of it was kept. Ask for less at once."
)


def result_id(move_id: str, index: int) -> str:
    """Return the id of the result of the call number ``index`` of a move."""
    return f"{move_id}.{index}"


def parse_result_id(text: str) -> tuple[str, int] | None:
    """Return the move and the number of the call that a result id names; None if it is no such id."""
    move_id, dot, index = text.partition(".")
    if not dot or not move_id or len(index) > 4 or not (index.isascii() and index.isdigit()):
        return None
    return move_id, int(index)


def bounded(
    result: ToolResult, agent: PinnedAgent, operation: Operation, move: Move, index: int
) -> ToolResult:
    """Return the result of ``operation``, the call number ``index`` of ``move``; with an excerpt if it is too
    large."""
    max_bytes = _max_bytes(agent, operation.tool_name)
    if not max_bytes:
        return result
    if result.fault is not None and result.fault.reason is Reason.PAYLOAD_TOO_LARGE:
        result = replace(result, message=f"{result.message}. {_NOT_KEPT}".replace("..", "."))
    if _is_surely_within(result, max_bytes) or utf8_size(whole_result_text(result)) <= max_bytes:
        return result
    excerpt = ResultExcerpt(max_bytes=max_bytes, result_id=result_id(move.id, index), reader=_reader(agent))
    return replace(result, excerpt=excerpt)


def _max_bytes(agent: PinnedAgent, tool_name: str) -> int:
    """Return the bound for results of a tool; 0 for none."""
    for tool in agent.tools:
        if tool.spec.name == tool_name and tool.spec.max_result_bytes:
            return tool.spec.max_result_bytes
    return agent.max_result_bytes


def _is_surely_within(result: ToolResult, max_bytes: int) -> bool:
    """Return True if the text of the result is small, as nearly all are, without making the text."""
    value = result.result if result.success else result.message
    return payloads.check(value, max_bytes=max_bytes // _MAX_EXPANSION) is None


def _reader(agent: PinnedAgent) -> str:
    """Return the agent's tool that reads results on; "" if it has none."""
    allowed = agent.persona.constraints.allowed_actions
    return next(
        (
            tool.spec.name
            for tool in agent.tools
            if READ_RESULT in kinds_of(tool) and not forbidden_action(tool, allowed)
        ),
        "",
    )
