"""Pins of turns and runs, and their stability (feature A1)."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace

import pytest
import pytest_asyncio

from tests.services.catalog.library_kit import (
    STANDARD,
    containing,
    keep_agent_tool,
    make,
    persona,
    reason,
    refusal,
    task,
    workflow,
)
from wonder_server.adapters.in_memory.catalog import MemoryCatalog
from wonder_server.core.definitions.document import DefinitionDraft, parse_draft
from wonder_server.core.definitions.resources import Agent
from wonder_server.core.definitions.specs import Persona
from wonder_server.core.errors import Reason, WonderError
from wonder_server.services.catalog.library import Library


@pytest.fixture
def library() -> Library:
    return make(MemoryCatalog())


@pytest_asyncio.fixture
async def standard(library: Library) -> Library:
    await library.ensure_standard(STANDARD)
    return library


async def test_an_agent_is_pinned_with_all_that_a_turn_needs(standard: Library) -> None:
    pin = await standard.pin_agent("assistant")
    assert pin == await standard.pin_agent(pin.agent_id)
    assert [tool.spec.name for tool in pin.tools] == ["remember", "recall", "forget", "correct"]
    assert [str(tool.task.pin) for tool in pin.tools if tool.task] == [
        "wonder/std/write_memory@1",
        "wonder/std/search_memory@1",
        "wonder/std/delete_memory@1",
        "wonder/std/replace_memory@1",
    ]
    assert (pin.profile.spec.provider, str(pin.profile.pin)) == ("offline", "wonder/std/default@1")
    assert (str(pin.assembly.pin), pin.assembly.spec.initial_node_id) == (
        "wonder/std/assemble_context@1",
        "gather",
    )
    assert pin.extraction is not None and set(pin.assembly.tasks) == {
        "gather_context",
        "write_request",
    }


async def test_a_known_pin_is_the_same_object_until_something_changes(standard: Library) -> None:
    pin = await standard.pin_agent("assistant")
    assert await standard.pin_agent("assistant") is pin
    await standard.agents.create(Agent(id="", name="bot", project_ids=(), persona_id="wonder/std/assistant"))
    assert await standard.pin_agent("assistant") is pin
    await standard.agents.update("assistant", lambda a: replace(a, name="helper"))
    assert await reason(standard.pin_agent("assistant")) is Reason.AGENT_NOT_FOUND
    assert (await standard.pin_agent("helper")).name == "helper"


async def test_a_pin_does_not_change_and_the_next_one_has_the_new_revision(standard: Library) -> None:
    await standard.definitions.apply("team", [task("t"), workflow("w", "t")])
    old = await standard.pin_workflow("team/w")
    await standard.definitions.put("team", task("t", description="New."))
    new = await standard.pin_workflow("w", library="team")
    assert (old.tasks["t"].pin.revision, new.tasks["t"].pin.revision) == (1, 2)
    assert (await standard.pin_workflow("team/w@1")).pin.revision == 1


async def test_a_reference_with_a_revision_stays_with_it(library: Library) -> None:
    await library.definitions.apply("team", [task("t")])
    await library.definitions.apply("team", [workflow("w", "t@1"), task("t", description="New.")])
    assert (await library.pin_workflow("team/w")).tasks["t@1"].pin.revision == 1
    assert (await library.pin_task("team/t")).pin.revision == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("team/wlow", "There is no workflow 'team/wlow' (did you mean 'team/flow'?)."),
        ("flow", "There is no workflow 'flow' (did you mean 'team/flow'?)."),
        ("team/flow@3", "There is no workflow 'team/flow@3': it only has revisions 1 to 2."),
        ("team/t", "'team/t' is a task, not a workflow."),
        ("taem/wlow", "There is no workflow 'taem/wlow' (did you mean 'team/flow'?)."),
        ("team/nosuch", "There is no workflow 'team/nosuch'."),
        ("elsewhere/quite", "There is no workflow 'elsewhere/quite'."),
    ],
)
async def test_a_missing_definition_is_reported_with_the_closest_name(
    library: Library, text: str, said: str
) -> None:
    await library.definitions.apply("team", [task("t"), workflow("flow", "t")])
    await library.definitions.put("team", workflow("flow", "t@1"))
    with pytest.raises(WonderError) as refusal:
        await library.pin_workflow(text)
    fault = refusal.value.fault
    assert (fault.reason, fault.metadata) == (Reason.DEFINITION_NOT_FOUND, {"id": text})
    assert fault.message.startswith(said)
    if said.startswith("There is no") and ":" not in said:
        assert (
            fault.message
            == f"{said} List the definitions with `wonder definitions` or ListDefinitions, or save a new "
            "one with `wonder apply`."
        )


async def test_a_missing_agent_project_or_persona_is_reported_with_the_closest_name(
    standard: Library,
) -> None:
    await standard.definitions.apply("team", [persona("thirsty")])
    bot = Agent(id="", name="bot", project_ids=(), persona_id="team/thirsty")

    async def said(work: Awaitable[object]) -> str:
        with pytest.raises(WonderError) as refusal:
            await work
        first, _, next_step = refusal.value.fault.message.partition(". ")
        assert next_step.startswith("List the ") and "`wonder " in next_step
        return f"{first}."

    meant = "There is no agent 'assitant' (did you mean 'assistant'?)."
    assert await said(standard.agents.agent("assitant")) == meant
    assert await said(standard.pin_agent("assitant")) == meant
    assert await said(standard.agents.agent("missing")) == "There is no agent 'missing'."
    meant = "There is no project 'defalt' (did you mean 'default'?)."
    assert await said(standard.projects.project("defalt")) == meant
    assert await said(standard.agents.create(replace(bot, project_ids=("defalt",)))) == meant
    assert await said(standard.projects.project("nosuch")) == "There is no project 'nosuch'."
    missing = standard.agents.create(replace(bot, persona_id="team/thirfty"))
    assert await said(missing) == "There is no persona 'team/thirfty' (did you mean 'team/thirsty'?)."


async def test_a_step_that_names_an_action_has_it_inline_when_pinned(library: Library) -> None:
    action = parse_draft({"name": "note", "action": {"kind": "context", "config": {"x": 1}}})
    named = parse_draft({"name": "t", "task": {"steps": [{"id": "s", "action_id": "note"}]}})
    await library.definitions.apply("team", [named, action])
    (step,) = (await library.pin_task("team/t")).spec.steps
    assert step.action_id == "" and step.action is not None and step.action.config == {"x": 1}


async def test_a_persona_may_choose_its_hooks_or_none(standard: Library) -> None:
    await standard.definitions.apply(
        "team",
        [
            persona(
                memory_extraction_workflow_id="none", context_assembly_workflow_id="w", model_profile_id="m"
            ),
            workflow("w", "t"),
            task("t"),
            parse_draft({"name": "m", "model_profile": {"provider": "openai", "model": "gpt"}}),
        ],
    )
    await standard.agents.create(Agent(id="", name="bot", project_ids=(), persona_id="team/helper"))
    pin = await standard.pin_agent("bot")
    assert pin.extraction is None
    assert (str(pin.assembly.pin), pin.profile.spec.model) == ("team/w@1", "gpt")


async def test_a_tool_that_calls_an_agent_is_pinned_to_its_id() -> None:
    catalog = MemoryCatalog()
    standard = make(catalog)
    await standard.ensure_standard(STANDARD)
    await keep_agent_tool(standard, catalog, "ask", "expert")
    await standard.definitions.apply("team", [persona(tool_ids=["ask"])])
    await standard.agents.create(Agent(id="", name="bot", project_ids=(), persona_id="team/helper"))
    # The agent need not exist: a call of it returns an error to the model.
    assert (await standard.pin_agent("bot")).tools[0].agent_id == ""
    expert = await standard.agents.create(
        Agent(id="", name="expert", project_ids=(), persona=Persona(system_prompt="Hm."))
    )
    assert (await standard.pin_agent("bot")).tools[0].agent_id == expert.id


def calling(name: str, agent: str) -> DefinitionDraft:
    return parse_draft({"name": name, "workflow": {"nodes": [{"id": "ask", "agent_id": agent}]}})


async def test_a_node_that_calls_an_agent_is_pinned_to_its_id(standard: Library) -> None:
    await standard.definitions.apply("team", [calling("w", "expert"), containing("outer", "w")])
    missing = await refusal(standard.pin_workflow("team/outer"))
    assert missing.reason is Reason.AGENT_NOT_FOUND
    assert missing.message == (
        "There is no agent 'expert', which the node 'ask' of team/w@1 calls. List the agents with "
        "`wonder agent list` or ListAgents, or create it with `wonder agent create`."
    )
    assert missing.metadata == {"id": "expert", "agent": "expert"}
    expert = await standard.agents.create(
        Agent(id="", name="expert", project_ids=(), persona=Persona(system_prompt="Hm."))
    )
    outer = await standard.pin_workflow("team/outer")
    assert (outer.agents, outer.workflows["w"].agents) == ({}, {"expert": expert.id})
    await standard.definitions.apply("team", [calling("by_id", expert.id)])
    assert (await standard.pin_workflow("team/by_id")).agents == {expert.id: expert.id}


async def test_an_agents_hooks_and_tools_may_call_agents(standard: Library) -> None:
    tool = {"target_type": "workflow", "target_id": "w"}
    await standard.definitions.apply(
        "team",
        [
            calling("w", "assistant"),
            parse_draft({"name": "ask", "description": "Ask.", "tool": tool}),
            persona(tool_ids=["ask"], memory_extraction_workflow_id="w"),
        ],
    )
    await standard.agents.create(Agent(id="", name="bot", project_ids=(), persona_id="team/helper"))
    pin = await standard.pin_agent("bot")
    called = {"assistant": await standard.agent_id("assistant")}
    assert pin.extraction is not None and pin.extraction.agents == called
    assert [tool.workflow.agents for tool in pin.tools if tool.workflow] == [called]


async def test_a_workflow_pin_follows_changes_of_its_agent(standard: Library) -> None:
    expert = Agent(id="", name="expert", project_ids=(), persona=Persona(system_prompt="Hm."))
    first = await standard.agents.create(expert)
    await standard.definitions.put("wonder/std", calling("w", "expert"))
    pinned = await standard.pin_workflow("wonder/std/w@1")
    assert await reason(standard.agents.delete("expert")) is Reason.RESOURCE_IN_USE
    renamed = standard.agents.update("expert", lambda agent: replace(agent, name="other"))
    assert (await refusal(renamed)).message == (
        "The workflow wonder/std/w calls the agent 'expert'. "
        "Change or delete the workflow wonder/std/w first."
    )
    # The latest revision calls no agent. The older one names an agent that may now be deleted.
    await standard.definitions.apply("wonder/std", [workflow("w", "t"), task("t")])
    assert (await standard.pin_workflow("wonder/std/w@1")) == pinned
    await standard.agents.delete("expert")
    assert await reason(standard.pin_workflow("wonder/std/w@1")) is Reason.AGENT_NOT_FOUND
    second = await standard.agents.create(expert)
    again = await standard.pin_workflow("wonder/std/w@1")
    assert (pinned.agents["expert"], again.agents["expert"]) == (first.id, second.id)


@pytest.mark.parametrize("text", ["", "nowhere/x", "wonder/std/recall", "not a reference", "wonder/std/x@9"])
async def test_a_pin_of_an_empty_name_is_rejected(standard: Library, text: str) -> None:
    assert await reason(standard.pin_workflow(text)) is Reason.DEFINITION_NOT_FOUND
    assert await reason(standard.pin_agent(text)) is Reason.AGENT_NOT_FOUND
