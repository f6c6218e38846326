"""Every event that the documents name is recorded, streamed and found, with what is known of errors (J1)."""

from __future__ import annotations

import json

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from tests.e2e.background import asking, call
from tests.e2e.client import Client
from tests.e2e.scripted import Scripted
from tests.fakes.provider import Provider, Script
from tests.rpc.rpc_kit import rejected
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import errors_pb2, event_pb2
from wonder.v1 import library_service_pb2 as library

pytestmark = pytest.mark.asyncio(loop_scope="session")

DOCUMENTED = {
    "conversation_started", "conversation_turn", "conversation_ended",
    "workflow_started", "workflow_completed", "workflow_failed",
    "agent_call_started", "agent_call_completed",
    "turn.completed", "turn.failed", "tool.failed",
    "context_assembly.failed", "memory_extraction.failed",
}  # fmt: skip
"""Event names that never change; docs/events.md marks them."""

STORY = """
name: stumble
task:
  steps: [{id: fall, action: {kind: assert, config: {condition: false, message: The ice was thin.}}}]
---
name: falling
workflow: {nodes: [{id: fall, task_id: stumble}]}
---
name: fall
description: Falls.
tool: {target_type: workflow, target_id: falling}
---
name: stand
description: Stands.
tool: {target_type: workflow, target_id: standing}
---
name: standing
workflow: {nodes: [{id: stand, task_id: stay}]}
---
name: stay
task: {steps: [{id: stay, action: {kind: context}}]}
"""


async def found(client: Client, project: str, **wanted: object) -> list[event_pb2.Event]:
    """Return the events of all conversations of the project, newest first, page by page."""
    events: list[event_pb2.Event] = []
    token = ""
    while True:
        request = pb.ListEventsRequest(project_id=project, page_size=3, page_token=token, **wanted)  # type: ignore[arg-type]
        page = await client.conversations.ListEvents(request)
        events += page.events
        token = page.next_page_token
        if not token:
            return events


async def test_every_documented_event_is_streamed_and_found(client: Client, provider: Provider) -> None:
    await client.apply("e2e/events", STORY)
    request = library.CreateProjectRequest()
    request.project.name = "events"
    project = (await client.library.CreateProject(request)).project.id
    expert = await Scripted(client, provider, "anthropic").agent(Script(status=401), tools=())
    tool, name = await asking(client, expert)
    host = Scripted(client, provider, "openai")
    calls = (call("fall"), call("stand"), call(name, message="?"))
    agent = await host.agent(
        Script(calls=calls), Script(text="So it is."), tools=("e2e/events/fall", "e2e/events/stand", tool)
    )
    profile = f"e2e/scripted/profile_{agent.rpartition('_')[2]}"
    persona = {"system_prompt": "x", "model_profile_id": profile}
    for each, hook in (("forgetful", "memory_extraction"), ("lost", "context_assembly")):
        spec = {**persona, f"{hook}_workflow_id": "e2e/events/falling"}
        if each == "lost":
            spec["memory_extraction_workflow_id"] = "none"
        await client.apply("e2e/events", json.dumps({"name": each, "persona": spec}))
        await client.agent(each, f"e2e/events/{each}")

    seen: dict[str, list[event_pb2.Event]] = {}
    convs = [await client.open(who, project_id=project) for who in (agent, "forgetful", "lost")]
    turns: list[conversation.Turn] = []
    for conv in convs:
        turn, view = await client.turn(conv, "Go.")
        await client.conversations.CompleteConversation(pb.CompleteConversationRequest(conversation_id=conv))
        turns.append(turn)
        seen[conv] = list(view.events)

    events = await found(client, project)
    assert {event.name for event in events} >= DOCUMENTED
    assert [(e.create_time.ToNanoseconds()) for e in events] == sorted(
        (e.create_time.ToNanoseconds() for e in events), reverse=True
    )
    # What was streamed is what is found.
    recorded = {(e.conversation_id, e.sequence): e for e in events}
    assert all(recorded[e.conversation_id, e.sequence] == e for each in seen.values() for e in each)
    by_name = {event.name: event for event in events}
    faults = {
        "workflow_failed": by_name["workflow_failed"].workflow_failed.error,
        "tool.failed": next(
            e.tool_failed.error for e in events if e.tool_failed.tool_call.tool_name == "fall"
        ),
        "context_assembly.failed": by_name["context_assembly.failed"].context_assembly_failed.error,
        "memory_extraction.failed": by_name["memory_extraction.failed"].memory_extraction_failed.error,
    }
    for what, fault in faults.items():
        assert fault.reason == errors_pb2.ERROR_REASON_ASSERTION_FAILED, what
        assert fault.message == "The ice was thin.", what
        assert fault.metadata["node"] == "fall" and fault.metadata["task"] == "e2e/events/stumble@1", what
    assert by_name["turn.failed"].turn_failed.error.metadata["cause"] == "ASSERTION_FAILED"
    assert by_name["agent_call_completed"].agent_call_completed.error.metadata["turn_id"]
    issues = by_name["turn.completed"].turn_completed
    assert any(e.turn_completed.issues.tool_failures == 2 for e in events), issues

    # Each filter, alone and together.
    named = await found(client, project, names=["turn.failed", "turn.completed"])
    assert sorted(e.turn_id for e in named) == sorted(turn.id for turn in turns)
    of_turn = await found(client, project, turn_id=turns[0].id)
    assert of_turn == [e for e in events if e.turn_id == turns[0].id] != []
    middle = Timestamp()
    middle.CopyFrom(events[len(events) // 2].create_time)
    late, early = (
        await found(client, project, start_time=middle),
        await found(client, project, end_time=middle),
    )
    assert late + early == events and late and early
    assert await found(client, "default", turn_id=turns[0].id) == []
    assert (await rejected(found(client, "nowhere")))[0] == "PROJECT_NOT_FOUND"
