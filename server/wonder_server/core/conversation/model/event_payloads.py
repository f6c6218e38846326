"""Values that events of conversations and decisions carry, and that no row holds by itself."""

from __future__ import annotations

from typing import Final

from wonder_server.core.errors import Fault
from wonder_server.core.frozen import Value

TURN_ENDED: Final = frozenset({"turn_completed", "turn_failed", "turn_cancelled"})
"""Payloads of the events that end a turn."""


class HistoryTruncation(Value, frozen=True, kw_only=True):
    """The part of the history that a turn's assembly omits: messages before the ordinal ``first``.

    It has ``omitted_messages`` messages with ``tokens`` tokens. ``summarized``: the conversation's summary
    covers ``summarized_messages`` of them, or all in records of earlier versions. ``first_turn``: turns with
    a lower ordinal are omitted too. ``max_bytes``: longer texts are cut; 0 for no limit.
    """

    first: int
    omitted_messages: int = 0
    tokens: int = 0
    summarized: bool = False
    summarized_messages: int = 0
    first_turn: int = 0
    max_bytes: int = 0


class ContextReduction(Value, frozen=True, kw_only=True):
    """Reduction of a request. The token counts are estimates."""

    messages_left_out: int
    summarized: bool
    tokens_before: int
    tokens_after: int


class ModelSwitch(Value, frozen=True, kw_only=True):
    """A switch of a turn to another model: the payload of the event ``model.switched``.

    ``from_profile`` and ``to_profile`` are pinned model profiles, ``library/name@revision``. ``fault`` is the
    failure of the last call of the former model. ``hook`` is ``memory_extraction`` or ``summary`` if only the
    model of that hook is switched.
    """

    from_profile: str
    from_provider: str
    from_model: str
    to_profile: str
    to_provider: str
    to_model: str
    fault: Fault
    hook: str = ""


class OutputRejection(Value, frozen=True, kw_only=True):
    """An answer that does not satisfy the output schema: the payload of the event ``output.rejected``.

    ``message_id`` is its message; "" for an answer without text. ``repairing``: the model is asked again;
    else the turn fails.
    """

    message_id: str
    problems: tuple[str, ...]
    repairing: bool


class MemoryRefusal(Value, frozen=True, kw_only=True):
    """Operations of an extraction that are not applied: the payload of ``memory_operations.refused``.

    ``reasons`` has a sentence for each of them.
    """

    run_id: str
    reasons: tuple[str, ...]


class HookOutcome(Value, frozen=True, kw_only=True):
    """Outcome of a hook: the payload of the events ``context_assembly.*`` and ``memory_extraction.*``.

    ``model_profile`` is the pinned profile of memory extraction; empty for that of the turn.
    """

    run_id: str
    workflow: str
    attempts: int
    duration_ms: int
    fault: Fault | None = None
    model_profile: str = ""


class AgentCall(Value, frozen=True, kw_only=True):
    """A call of another agent: the payload of the events ``agent_call_*``.

    ``turn_id`` is the turn that the call started; empty at the start of the call, and for a call that
    started none.
    """

    agent_id: str
    mode: str
    operation_id: str
    turn_id: str = ""
    fault: Fault | None = None
    duration_ms: int = 0


class WorkflowRun(Value, frozen=True, kw_only=True):
    """A run that a tool call started: the payload of the events ``workflow_*``.

    Each attempt of the call is a run of its own. ``duration_ms`` covers all attempts; it is 0 at the start.
    """

    run_id: str
    workflow: str
    operation_id: str
    fault: Fault | None = None
    duration_ms: int = 0


class Limit(Value, frozen=True, kw_only=True):
    """A limit that was reached. ``enforced``: the turn ends; else the model is asked to finish."""

    fault: Fault
    enforced: bool


class ResultExcerpt(Value, frozen=True, kw_only=True):
    """The part of a large result that the model gets: at most ``max_bytes`` of its text, with a notice.

    ``result_id`` names the result for the action ``history.read_result``. ``reader`` is the agent's tool that
    calls it; "" if the agent has none.
    """

    max_bytes: int
    result_id: str
    reader: str = ""
