"""A whole server whose callers have access scopes: a caller of one project finds nothing of another."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.process.test_application import NOWHERE, WAITING_WORKFLOW, Call, apply, conversations, libraries
from tests.process.virtual_platform import VirtualTime, run_virtual, virtual_platform
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import coordinator_service_pb2 as runs
from wonder.v1 import library_service_pb2 as library
from wonder.v1 import memory_service_pb2 as memory
from wonder_server.compose import open_application
from wonder_server.core.access.permissions import ALL
from wonder_server.core.errors import WonderError
from wonder_server.core.identity import Principal, PrincipalKind
from wonder_server.ports.access import ALL_RECORDS, AccessScope
from wonder_server.rpc.shared.principal import current_principal

ANN = Principal(kind=PrincipalKind.TOKEN, subject="ann", permissions=ALL)
"""A caller of the project ``mine``, with every permission."""
CALL = Call()


@contextmanager
def calling_as(principal: Principal) -> Iterator[None]:
    token = current_principal.set(principal)
    try:
        yield
    finally:
        current_principal.reset(token)


async def refused(call: Awaitable[object], missing: str) -> str:
    """Return the error of a call, with the id of what it misses left out."""
    with pytest.raises(WonderError) as found:
        await call
    return str(found.value.fault.message).replace(missing, "ID")


class House:
    """Two projects, each with an agent, a conversation with a turn, and a waiting run."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.conversations, self.library = conversations(app), libraries(app)
        self.runs = app.servicers["wonder.v1.CoordinatorService"]
        self.memory = app.servicers["wonder.v1.MemoryService"]
        self.projects: dict[str, str] = {}
        self.agents: dict[str, str] = {}
        self.opened: dict[str, str] = {}
        self.started: dict[str, str] = {}

    async def furnish(self) -> None:
        await apply(self.app, WAITING_WORKFLOW)
        for name in ("mine", "theirs"):
            project = library.CreateProjectRequest()
            project.project.name = name
            made = (await self.library.create_project(project, CALL)).project
            self.projects[name] = made.id
            agent = library.CreateAgentRequest()
            agent.agent.name, agent.agent.persona_id = f"{name}-bot", "wonder/std/assistant"
            agent.agent.project_ids.append(made.id)
            self.agents[name] = (await self.library.create_agent(agent, CALL)).agent.id
            opening = pb.CreateConversationRequest()
            opening.conversation.project_id = made.id
            opening.conversation.external_ref = "ref"
            opening.conversation.participants.add().agent.agent_id = self.agents[name]
            self.opened[name] = (await self.conversations.create_conversation(opening, CALL)).conversation.id
            start = runs.StartRunRequest(workflow_id="test/day")
            start.context.project_id = made.id
            self.started[name] = (await self.runs.start_run(start, CALL)).run.id


NOTHING = {"conv": "conv_01HF7YAT000000000000000010", "run": "run_01HF7YAT000000000000000010"}


def test_a_caller_of_one_project_finds_nothing_of_another() -> None:
    async def story(time: VirtualTime) -> None:
        scope = ALL_RECORDS
        platform = virtual_platform(
            time, scope_of=lambda principal: scope if principal == ANN else ALL_RECORDS
        )
        async with open_application(NOWHERE, platform) as app:
            house = House(app)
            await house.furnish()
            scope = AccessScope(projects=frozenset({house.projects["mine"]}))
            with calling_as(ANN):
                await lists_show_the_project(house)
                await others_are_not_found(house)
                await own_work_goes_on(house)
            listed = await house.conversations.list_conversations(pb.ListConversationsRequest(), CALL)
            assert len(listed.conversations) == 2

    run_virtual(story)


async def lists_show_the_project(house: House) -> None:
    listed = await house.conversations.list_conversations(pb.ListConversationsRequest(), CALL)
    assert [each.id for each in listed.conversations] == [house.opened["mine"]]
    found = await house.runs.list_runs(runs.ListRunsRequest(), CALL)
    assert [each.id for each in found.runs] == [house.started["mine"]]
    agents = await house.library.list_agents(library.ListAgentsRequest(), CALL)
    assert [each.id for each in agents.agents] == [house.agents["mine"]]
    projects = await house.library.list_projects(library.ListProjectsRequest(), CALL)
    assert [each.id for each in projects.projects] == [house.projects["mine"]]
    by_reference = pb.GetConversationRequest(external_ref="ref")
    with pytest.raises(WonderError):  # The project ``default`` is outside of the scope.
        await house.conversations.get_conversation(by_reference, CALL)
    by_reference.project_id = "mine"
    got = await house.conversations.get_conversation(by_reference, CALL)
    assert got.conversation.id == house.opened["mine"]


async def others_are_not_found(house: House) -> None:
    theirs, project, agent = house.opened["theirs"], house.projects["theirs"], house.agents["theirs"]
    nothing = NOTHING["conv"]
    for call in (
        lambda key: house.conversations.get_conversation(
            pb.GetConversationRequest(conversation_id=key), CALL
        ),
        lambda key: house.conversations.list_messages(pb.ListMessagesRequest(conversation_id=key), CALL),
        lambda key: house.conversations.search_messages(
            pb.SearchMessagesRequest(conversation_id=key, query="hello"), CALL
        ),
        lambda key: house.conversations.list_events(pb.ListEventsRequest(conversation_id=key), CALL),
        lambda key: house.conversations.delete_conversation(
            pb.DeleteConversationRequest(conversation_id=key), CALL
        ),
        lambda key: house.conversations.complete_conversation(
            pb.CompleteConversationRequest(conversation_id=key), CALL
        ),
        lambda key: house.conversations.send_message(
            pb.SendMessageRequest(conversation_id=key, send=pb.ConverseSend(content="Hello?")), CALL
        ),
    ):
        assert await refused(call(theirs), theirs) == await refused(call(nothing), nothing)
    for call in (
        lambda key: house.runs.get_run(runs.GetRunRequest(run_id=key), CALL),
        lambda key: house.runs.cancel_run(runs.CancelRunRequest(run_id=key), CALL),
        lambda key: house.runs.replay_run(runs.ReplayRunRequest(run_id=key), CALL),
    ):
        foreign = house.started["theirs"]
        assert await refused(call(foreign), foreign) == await refused(call(NOTHING["run"]), NOTHING["run"])
    for call, foreign in (
        (house.library.get_agent(library.GetAgentRequest(agent_id=agent), CALL), agent),
        (house.library.get_agent(library.GetAgentRequest(agent_id="theirs-bot"), CALL), "theirs-bot"),
        (house.memory.list_memories(memory.ListMemoriesRequest(agent_id=agent), CALL), agent),
        (house.library.get_project(library.GetProjectRequest(project_id=project), CALL), project),
        (house.library.list_artifacts(library.ListArtifactsRequest(project_id="theirs"), CALL), "theirs"),
    ):
        assert "There is no" in await refused(call, foreign)
    start = runs.StartRunRequest(workflow_id="test/day")
    start.context.project_id = project
    assert "There is no project" in await refused(house.runs.start_run(start, CALL), project)


async def own_work_goes_on(house: House) -> None:
    request = pb.SendMessageRequest(
        conversation_id=house.opened["mine"], send=pb.ConverseSend(content="Hello?")
    )
    turn = (await house.conversations.send_message(request, CALL)).turn
    assert turn.principal.subject == "ann"
    run_id = house.started["mine"]
    cancelled = (await house.runs.cancel_run(runs.CancelRunRequest(run_id=run_id), CALL)).run
    assert cancelled.cancelled_by.subject == "ann"
