"""Records of a server with tokens name the caller that started, answered, sent or changed them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from grpc import aio

from tests.e2e.callers import calling, tokens_file
from tests.e2e.client import PATIENCE_S, Client, struct
from tests.e2e.process import serving
from wonder.v1 import common_pb2, conversation_pb2, library_pb2, run_pb2
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import coordinator_service_pb2 as runs
from wonder.v1 import library_service_pb2 as library

pytestmark = pytest.mark.asyncio(loop_scope="session")

DEFINITIONS = """
name: decide
workflow:
  nodes:
    - id: ask
      human_gate: {prompt: "'Shall it?'"}
    - id: wait
      wait: {signal: go}
    - id: helper
      agent_id: assistant
      input_mapping: {question: "'Hello?'"}
      output_mapping: {output.turn_id: result.turn_id, output.conversation_id: result.conversation_id}
  initial_node_id: ask
  transitions:
    - {from_node_id: ask, to_node_id: wait}
    - {from_node_id: wait, to_node_id: helper}
"""

SERVER = common_pb2.Principal(kind=common_pb2.PRINCIPAL_KIND_SERVER)


def token(name: str) -> common_pb2.Principal:
    return common_pb2.Principal(kind=common_pb2.PRINCIPAL_KIND_TOKEN, subject=name)


@dataclass
class Three:
    """One server and three callers."""

    ann: Client
    bob: Client
    chief: Client


@asynccontextmanager
async def three_callers(folder: Path) -> AsyncIterator[Three]:
    """Run a server on the data below ``folder`` until the block ends."""
    flags = ("--auth-tokens-file", str(tokens_file(folder)))
    environment = {"WONDER_DEFAULT_MODEL": "offline", "WONDER_ADMIN": "chief"}
    async with (
        asyncio.timeout(PATIENCE_S),
        serving(folder / "data", *flags, environment=environment) as server,
        calling(server, "ann") as ann,
        calling(server, "bob") as bob,
        calling(server, "chief") as chief,
    ):
        yield Three(ann, bob, chief)


async def run_of(client: Client, run_id: str) -> run_pb2.Run:
    return (await client.coordinator.GetRun(runs.GetRunRequest(run_id=run_id))).run


async def answer_gate(client: Client, run_id: str) -> run_pb2.Gate:
    (gate,) = (await client.coordinator.ListGates(runs.ListGatesRequest(run_id=run_id))).gates
    request = runs.ResolveGateRequest(
        gate_id=gate.id, decision=runs.GATE_DECISION_APPROVE, shown_hash=gate.shown_hash
    )
    return (await client.coordinator.ResolveGate(request)).gate


async def test_a_run_its_gate_and_its_called_agent_name_their_callers(tmp_path: Path) -> None:
    """The run waits over a restart: the stored run gives the principal to the agent that it calls later."""
    async with three_callers(tmp_path) as three:
        await three.bob.apply("team", DEFINITIONS)
        start = runs.StartRunRequest(workflow_id="team/decide", input=struct(question="?"))
        run = (await three.ann.coordinator.StartRun(start)).run
        assert run.principal == token("ann")
        assert (await answer_gate(three.bob, run.id)).resolution.principal == token("bob")
    async with three_callers(tmp_path) as three:
        signal = run_pb2.Signal(name="go", principal=token("ann"))
        await three.chief.coordinator.SignalRun(runs.SignalRunRequest(run_id=run.id, signal=signal))
        # The stream ends with the run.
        watched = three.ann.coordinator.WatchRun(runs.WatchRunRequest(run_id=run.id))
        events = [each.event async for each in watched]
        signals = [each.signal_received.principal for each in events if each.name == "signal.received"]
        assert signals == [token("chief")]
        ended = await run_of(three.ann, run.id)
        assert (ended.status, ended.principal) == (run_pb2.RUN_STATUS_COMPLETED, token("ann"))
        answer = ended.output.fields
        request = pb.GetTurnRequest(
            turn_id=answer["turn_id"].string_value, conversation_id=answer["conversation_id"].string_value
        )
        turn = (await three.bob.conversations.GetTurn(request)).turn
        assert turn.principal == token("ann")
        assert (await run_of(three.bob, turn.context_assembly_run_id)).principal == token("ann")
        again = runs.ForkRunRequest(run_id=run.id, before_node_execution=2)
        assert (await three.bob.coordinator.ForkRun(again)).run.principal == token("bob")


async def test_a_turn_and_its_hook_name_the_caller(tmp_path: Path) -> None:
    async with three_callers(tmp_path) as three:
        conversation_id = await three.ann.open()
        turn, _ = await three.bob.turn(conversation_id, "Hello?")
        assert turn.principal == token("bob")
        assert (await run_of(three.ann, turn.context_assembly_run_id)).principal == token("bob")


async def test_changes_of_the_library_name_the_caller(tmp_path: Path) -> None:
    async with three_callers(tmp_path) as three:
        await three.ann.apply("team", DEFINITIONS)
        key = library.GetLibraryRequest(library_id="team")
        assert (await three.bob.library.GetLibrary(key)).library.updated_by == token("ann")
        key_of_definition = library.GetDefinitionRequest(definition_id="team/decide")
        assert (await three.bob.library.GetDefinition(key_of_definition)).definition.updated_by == token(
            "ann"
        )
        project = library_pb2.Project(name="p", updated_by=token("chief"))
        made = (await three.ann.library.CreateProject(library.CreateProjectRequest(project=project))).project
        assert made.updated_by == token("ann")
        change = library_pb2.Project(id="p", description="changed")
        update = library.UpdateProjectRequest(project=change)
        assert (await three.bob.library.UpdateProject(update)).project.updated_by == token("bob")
        bot = library_pb2.Agent(name="bot", persona_id="wonder/std/assistant")
        agent = (await three.bob.library.CreateAgent(library.CreateAgentRequest(agent=bot))).agent
        assert agent.updated_by == token("bob")
        standard = library.GetAgentRequest(agent_id="assistant")
        assert (await three.ann.library.GetAgent(standard)).agent.updated_by == SERVER


async def test_a_cancelled_run_names_the_caller_of_the_cancellation(tmp_path: Path) -> None:
    async with three_callers(tmp_path) as three:
        await three.bob.apply("team", DEFINITIONS)
        start = runs.StartRunRequest(workflow_id="team/decide", input=struct(question="?"))
        run = (await three.ann.coordinator.StartRun(start)).run
        assert not run.HasField("cancelled_by")
        cancel = runs.CancelRunRequest(run_id=run.id, request_id="stop")
        assert (await three.bob.coordinator.CancelRun(cancel)).run.cancelled_by == token("bob")
        # A repeated request changes nothing, and another cancellation is refused.
        assert (await three.bob.coordinator.CancelRun(cancel)).run.cancelled_by == token("bob")
        with pytest.raises(aio.AioRpcError):
            await three.ann.coordinator.CancelRun(runs.CancelRunRequest(run_id=run.id))
        with pytest.raises(aio.AioRpcError):
            await three.ann.coordinator.CancelRun(runs.CancelRunRequest(run_id="run_nothing"))
    async with three_callers(tmp_path) as three:
        ended = await run_of(three.ann, run.id)
        assert (ended.principal, ended.cancelled_by) == (token("ann"), token("bob"))
        watched = three.ann.coordinator.WatchRun(runs.WatchRunRequest(run_id=run.id))
        events = [each.event async for each in watched]
        assert [
            each.workflow_cancelled.cancelled_by for each in events if each.name == "workflow.cancelled"
        ] == [token("bob")]


async def test_a_conversation_names_who_created_it_and_who_changed_it_last(tmp_path: Path) -> None:
    async with three_callers(tmp_path) as three:
        forged = conversation_pb2.Conversation(created_by=token("chief"), updated_by=token("chief"))
        create = pb.CreateConversationRequest(conversation=forged)
        made = (await three.ann.conversations.CreateConversation(create)).conversation
        assert (made.created_by, made.updated_by) == (token("ann"), token("ann"))
        change = conversation_pb2.Conversation(id=made.id, title="New", created_by=token("chief"))
        update = pb.UpdateConversationRequest(conversation=change)
        changed = (await three.bob.conversations.UpdateConversation(update)).conversation
        assert (changed.created_by, changed.updated_by) == (token("ann"), token("bob"))
        # An update that changes nothing, and a message, leave the last change as it is.
        update.conversation.etag = changed.etag
        await three.chief.conversations.UpdateConversation(update)
        user = conversation_pb2.Participant(user=conversation_pb2.UserParticipant(user_id="eve"))
        get = pb.GetConversationRequest(conversation_id=made.id)
        assert (await three.ann.conversations.GetConversation(get)).conversation.updated_by == token("bob")
        join = pb.AddParticipantRequest(conversation_id=made.id, participant=user)
        await three.chief.conversations.AddParticipant(join)
    async with three_callers(tmp_path) as three:
        stored = (await three.ann.conversations.GetConversation(get)).conversation
        assert (stored.created_by, stored.updated_by) == (token("ann"), token("chief"))
        done = pb.CompleteConversationRequest(conversation_id=made.id)
        completed = (await three.bob.conversations.CompleteConversation(done)).conversation
        assert completed.updated_by == token("bob")
