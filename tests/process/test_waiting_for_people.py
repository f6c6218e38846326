"""Gates behind tools on virtual time: an hour of waiting counts against no timeout."""

from __future__ import annotations

from tests.process.test_application import (
    NOWHERE,
    Call,
    apply,
    create_conversation,
    get_turn,
    libraries,
    messages,
    send,
)
from tests.process.virtual_platform import VirtualTime, run_virtual, virtual_platform
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import coordinator_service_pb2 as run_service
from wonder.v1 import library_service_pb2 as library
from wonder.v1 import run_pb2
from wonder_server.adapters.in_memory.journal import MemoryShards
from wonder_server.compose import Application, open_application
from wonder_server.rpc.coordinator.servicer import CoordinatorServicer

HOUR_S = 3_600
GATED = (
    {"name": "sign", "workflow": {"nodes": [{"id": "sign", "human_gate": {"prompt": "Sign?"}}]}},
    {
        "name": "nested",
        "workflow": {
            "nodes": [
                {"id": "inner", "workflow_id": "sign"},
                {"id": "nap", "wait": {"duration_ms": 3 * HOUR_S * 1_000}},
            ],
            "transitions": [{"from_node_id": "inner", "to_node_id": "nap"}],
        },
    },
    {
        "name": "ask_sign",
        "description": "Asks for a signature.",
        "tool": {"target_type": "workflow", "target_id": "sign", "retry": {"timeout_ms": 60_000}},
    },
    {
        "name": "ask_nested",
        "description": "Asks for a signature, then works too long.",
        "tool": {"target_type": "workflow", "target_id": "nested", "retry": {"timeout_ms": 60_000}},
    },
    {
        "name": "approved",
        "description": "Needs approval.",
        "tool": {"target_type": "task", "target_id": "say", "approval": "always"},
    },
    {"name": "say", "task": {"steps": [{"id": "say", "action": {"kind": "context"}}]}},
    {
        "name": "signer",
        "persona": {
            "system_prompt": "Sign.",
            "memory_extraction_workflow_id": "none",
            "tool_ids": ["ask_sign", "ask_nested", "approved", "ask_colleague"],
            "constraints": {"max_turn_ms": 120_000},
        },
    },
    {
        "name": "helper",
        "persona": {
            "system_prompt": "Help.",
            "memory_extraction_workflow_id": "none",
            "tool_ids": ["approved"],
        },
    },
    {
        "name": "ask_colleague",
        "description": "Asks a colleague.",
        "tool": {
            "target_type": "agent",
            "target_id": "colleague",
            "retry": {"timeout_ms": 60_000},
        },
    },
)


def coordinator(app: Application) -> CoordinatorServicer:
    servicer = app.servicers["wonder.v1.CoordinatorService"]
    assert isinstance(servicer, CoordinatorServicer)
    return servicer


async def create_signer(app: Application) -> str:
    await apply(app, *GATED)
    for name, persona in (("colleague", "test/helper"), ("signer", "test/signer")):
        create = library.CreateAgentRequest()
        create.agent.name = name
        create.agent.persona_id = persona
        created = await libraries(app).create_agent(create, Call())
    return str(created.agent.id)


async def open_gate(app: Application) -> run_pb2.Gate:
    (gate,) = (await coordinator(app).list_gates(run_service.ListGatesRequest(), Call())).gates
    return gate


async def approve(app: Application) -> None:
    gate = await open_gate(app)
    request = run_service.ResolveGateRequest(
        gate_id=gate.id, decision=run_service.GATE_DECISION_APPROVE, shown_hash=gate.shown_hash
    )
    await coordinator(app).resolve_gate(request, Call())


def outcome(tool: str, *, hours: int = 1, after_s: float = 5) -> tuple[conversation.Turn, str]:
    """Return the turn that called ``tool``, whose gate was approved after ``hours``, and its last message."""
    shards, found = MemoryShards(), []

    async def story(time: VirtualTime) -> None:
        async with open_application(NOWHERE, virtual_platform(time, shards, seed=1)) as app:
            conversation_id = await create_conversation(app, await create_signer(app))
            turn_id = await send(app, conversation_id, f"use the tool {tool}")
            await time.advance(hours * HOUR_S)
            turn = await get_turn(app, turn_id)
            assert turn.status == conversation.TURN_STATUS_ACTIVE, turn
            await approve(app)
            await time.advance(after_s)
            found.append((await get_turn(app, turn_id), (await messages(app, conversation_id))[-1]))
            await app.drain(10)

    run_virtual(story)
    (result,) = found
    return result


def test_an_hour_at_a_gate_does_not_count_against_the_timeout_of_the_tool() -> None:
    turn, _ = outcome("ask_sign")
    assert turn.status == conversation.TURN_STATUS_COMPLETED, turn.error
    assert not turn.issues.tool_failures


def test_an_hour_until_an_approval_counts_against_no_time() -> None:
    turn, _ = outcome("approved", hours=24)
    assert turn.status == conversation.TURN_STATUS_COMPLETED, turn.error
    assert not turn.issues.tool_failures


def test_work_after_the_gate_still_has_a_limit_of_time() -> None:
    """The run sleeps for hours after the gate of its child run; the tool has a minute, and the turn has
    two.
    """
    turn, _ = outcome("ask_nested", after_s=2 * HOUR_S)
    assert turn.status == conversation.TURN_STATUS_FAILED


def test_a_delegate_that_waits_for_approval_does_not_time_out() -> None:
    turn, _ = outcome("ask_colleague with use the tool approved")
    assert turn.status == conversation.TURN_STATUS_COMPLETED, turn.error
    assert not turn.issues.tool_failures
