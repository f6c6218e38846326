"""Failures of hooks: failed context assembly fails the turn, failed extraction only marks it (D3, D5)."""

from __future__ import annotations

import pytest
import pytest_asyncio

from tests.e2e.client import Client, struct
from tests.rpc.rpc_kit import rejected
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as convs
from wonder.v1 import coordinator_service_pb2 as runs
from wonder.v1 import errors_pb2, library_pb2, run_pb2
from wonder.v1 import library_service_pb2 as library_service

pytestmark = pytest.mark.asyncio(loop_scope="session")

LIBRARY = """
name: refuse
description: Fails for what it must not see.
task:
  steps:
    - id: check
      action: {kind: assert, config: {condition: false}}
      input_mapping: {message: '"No " + input.user_message + " here."'}
---
name: refusing
workflow:
  nodes: [{id: check, task_id: refuse, input_mapping: {user_message: input.user_message}}]
---
name: empty_handed
description: Puts out no request.
workflow:
  nodes: [{id: nothing, task_id: nothing}]
---
name: nothing
task:
  steps: [{id: nothing, action: {kind: context}, output_mapping: {output.note: '"nothing"'}}]
---
name: misshapen
description: Puts out memory operations that are none.
workflow:
  nodes:
    - id: bad
      task_id: bad_operations
      output_mapping: {output.memory_operations: result.memory_operations}
---
name: bad_operations
task:
  steps:
    - id: bad
      action: {kind: context}
      output_mapping: {output.memory_operations: '[{"op": "explode"}]'}
---
name: endless
workflow:
  nodes:
    - {id: wait, wait: {duration_ms: 600000}}
---
name: slow_assembly
persona: {system_prompt: x, context_assembly_workflow_id: endless}
---
name: slip
description: Fails.
tool:
  target_type: task
  target_id: refuse
  input_schema: {type: object}
  input_mapping: {user_message: '"tools"'}
---
name: clumsy
persona: {system_prompt: x, tool_ids: [slip]}
---
name: no_assembly
persona: {system_prompt: x, context_assembly_workflow_id: refusing, memory_extraction_workflow_id: none}
---
name: no_request
persona: {system_prompt: x, context_assembly_workflow_id: empty_handed}
---
name: no_extraction
persona: {system_prompt: x, memory_extraction_workflow_id: refusing}
---
name: bad_extraction
persona: {system_prompt: x, memory_extraction_workflow_id: misshapen}
"""
PERSONAS = ("slow_assembly", "clumsy", "no_assembly", "no_request", "no_extraction", "bad_extraction")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def library(server: object) -> None:
    async with server.client() as client:  # type: ignore[attr-defined]
        await client.apply("e2e/hooks", LIBRARY)
        for name in PERSONAS:
            await client.agent(name, f"e2e/hooks/{name}")


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("agent", "why"), [("no_assembly", "No elephants here."), ("no_request", "`request`")]
)
async def test_a_turn_whose_context_cannot_be_assembled_fails_and_says_why(
    client: Client, agent: str, why: str
) -> None:
    conv = await client.open(agent)
    turn, view = await client.turn(conv, "elephants")
    assert turn.status == conversation.TURN_STATUS_FAILED
    assert turn.error.reason == errors_pb2.ERROR_REASON_CONTEXT_ASSEMBLY_FAILED
    assert why in turn.error.message
    assert view.of_turn(turn.id) == [
        "conversation_turn",
        "message.appended",
        "context_assembly.failed",
        "turn.failed",
    ]
    failed = view.events[-2].context_assembly_failed
    assert failed.run_id == turn.context_assembly_run_id and failed.workflow.startswith("e2e/hooks/")
    # The run that failed can be read like every other.
    run = (await client.coordinator.GetRun(runs.GetRunRequest(run_id=failed.run_id))).run
    wanted = run_pb2.RUN_STATUS_FAILED if agent == "no_assembly" else run_pb2.RUN_STATUS_COMPLETED
    assert run.status == wanted


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("agent", ["no_extraction", "bad_extraction"])
async def test_a_failed_extraction_marks_the_turn_and_leaves_it_completed(client: Client, agent: str) -> None:
    conv = await client.open(agent)
    turn, view = await client.turn(conv, "say 2 words")
    assert turn.status == conversation.TURN_STATUS_COMPLETED and not turn.HasField("error")
    assert turn.issues.memory_extraction_failed
    assert view.names[-2:] == ["turn.completed", "memory_extraction.failed"]
    assert view.events[-1].memory_extraction_failed.error.message
    assert not (await client.memories(agent))
    assert not turn.operations
    await client.turn(conv, "say 2 words")
    shown = (await client.library.GetAgent(library_service.GetAgentRequest(agent_id=agent))).agent
    (failing,) = shown.failing_hooks
    assert failing.hook == library_pb2.HOOK_MEMORY_EXTRACTION and failing.conversation_id == conv
    assert failing.count == 2 and failing.error.message and failing.workflow.startswith("e2e/hooks/")
    listed = (await client.library.ListAgents(library_service.ListAgentsRequest(page_size=100))).agents
    assert {each.name for each in listed if each.failing_hooks} >= {agent}


@pytest.mark.usefixtures("library")
async def test_what_is_said_on_a_turn_whose_tool_failed_is_remembered(client: Client) -> None:
    conv = await client.open("clumsy")
    turn, view = await client.turn(conv, "use the tool slip with {}. My name is Ida and I live in Oslo.")
    assert turn.status == conversation.TURN_STATUS_COMPLETED and turn.issues.tool_failures == 1
    assert view.names[-1] == "memory_extraction.completed" and not turn.issues.memory_extraction_failed
    assert await client.memories("clumsy")


@pytest.mark.usefixtures("library")
async def test_a_hook_s_run_is_found_while_it_runs_and_cancelled_with_its_turn(client: Client) -> None:
    conv = await client.open("slow_assembly")
    turn = (await client.say(conv, "hello")).turn
    ask = runs.GetRunRequest(run_id=turn.context_assembly_run_id)
    assert (await client.coordinator.GetRun(ask)).run.status == run_pb2.RUN_STATUS_WAITING
    await client.conversations.CancelTurn(convs.CancelTurnRequest(turn_id=turn.id))
    assert (await client.coordinator.GetRun(ask)).run.status == run_pb2.RUN_STATUS_CANCELLED
    # The cancellation does not depend on an earlier read of the run.
    turn = (await client.say(conv, "hello again")).turn
    await client.conversations.CancelTurn(convs.CancelTurnRequest(turn_id=turn.id))
    ask = runs.GetRunRequest(run_id=turn.context_assembly_run_id)
    assert (await client.coordinator.GetRun(ask)).run.status == run_pb2.RUN_STATUS_CANCELLED


@pytest.mark.usefixtures("library")
async def test_a_run_of_the_same_workflow_fails_with_the_same_words(client: Client) -> None:
    start = runs.StartRunRequest(workflow_id="e2e/hooks/refusing", input=struct(user_message="elephants"))
    run = (await client.coordinator.StartRun(start)).run
    watch = client.coordinator.WatchRun(runs.WatchRunRequest(run_id=run.id))
    words = [word async for word in watch]
    assert [w.event.sequence for w in words if w.HasField("event")] == list(range(1, len(words)))
    assert words[-1].HasField("end")
    run = (await client.coordinator.GetRun(runs.GetRunRequest(run_id=run.id))).run
    assert run.status == run_pb2.RUN_STATUS_FAILED and "No elephants here." in run.error.message
    verdict = await client.coordinator.ReplayRun(runs.ReplayRunRequest(run_id=run.id))
    assert verdict.identical and verdict.step_count


@pytest.mark.usefixtures("library")
async def test_a_definition_in_use_is_changed_for_new_turns_only(client: Client) -> None:
    """A turn keeps the revision that it began with; the next turn has the new one (A1)."""
    persona = "name: changing\npersona: {{system_prompt: {}, memory_extraction_workflow_id: none}}"
    await client.apply("e2e/hooks", persona.format("one"))
    await client.agent("changing", "e2e/hooks/changing")
    conv = await client.open("changing")
    first, _ = await client.turn(conv, "hello")
    await client.apply("e2e/hooks", persona.format("two"))
    second, _ = await client.turn(conv, "hello")
    assert [first.persona, second.persona] == ["e2e/hooks/changing@1", "e2e/hooks/changing@2"]


async def test_an_agent_of_a_persona_that_is_not_there_is_refused(client: Client) -> None:
    reason, _ = await rejected(client.agent("absent", "e2e/hooks/absent"))
    assert reason == "DEFINITION_NOT_FOUND"
