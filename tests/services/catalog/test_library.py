"""The use cases of the catalog, over a catalog in memory (features A1, A5, A6, A7)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.services.catalog.library_kit import (
    ALL,
    STANDARD,
    containing,
    keep_agent_tool,
    make,
    persona,
    reason,
    refusal,
    summaries_of,
    task,
    workflow,
)
from wonder_server.adapters.in_memory.catalog import MemoryCatalog
from wonder_server.adapters.sqlite.catalog.store import SqliteCatalog
from wonder_server.core.definitions.document import DefinitionDraft, parse_draft
from wonder_server.core.definitions.resources import Agent, NetworkPolicy, Project, etag
from wonder_server.core.definitions.specs import Kind, Persona
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.idempotency import Origin
from wonder_server.core.identity import ANONYMOUS
from wonder_server.core.json_types import JsonDict
from wonder_server.services.catalog.definitions import ChangeAction
from wonder_server.services.catalog.library import Library
from wonder_server.services.paging import PageRequest


@pytest.fixture
def library() -> Library:
    return make(MemoryCatalog())


@pytest_asyncio.fixture
async def standard(library: Library) -> Library:
    await library.ensure_standard(STANDARD)
    return library


# --- libraries ----------------------------------------------------------------------------------------


async def test_a_library_is_created_found_by_id_and_name_and_deleted(library: Library) -> None:
    made = await library.definitions.create_library("acme/bots", "Ours.")
    assert (
        await library.definitions.library(made.id) == await library.definitions.library("acme/bots") == made
    )
    await library.definitions.delete_library("acme/bots", etag=etag(made))
    assert await reason(library.definitions.library(made.id)) is Reason.LIBRARY_NOT_FOUND


@pytest.mark.parametrize("name", ["", "a/b/c", "A", "a b", "/a", "a" * 200])
async def test_a_library_needs_a_proper_name(library: Library, name: str) -> None:
    fault = await refusal(library.definitions.create_library(name))
    assert (fault.reason, fault.field) == (Reason.FIELD_INVALID, "library.name")


async def test_a_library_name_is_taken_once(library: Library) -> None:
    await library.definitions.create_library("team")
    assert await reason(library.definitions.create_library("team")) is Reason.ALREADY_EXISTS


async def test_a_library_that_holds_something_goes_only_by_force(library: Library) -> None:
    await library.definitions.apply("team", [task("a"), task("b")])
    assert await reason(library.definitions.delete_library("team")) is Reason.RESOURCE_IN_USE
    await library.definitions.delete_library("team", force=True)
    assert (await library.definitions.definitions(ALL)).items == ()


async def test_a_library_that_others_refer_to_does_not_even_go_by_force(library: Library) -> None:
    await library.definitions.apply("team", [task("a")])
    await library.definitions.apply("other", [workflow("w", "team/a")])
    assert await reason(library.definitions.delete_library("team", force=True)) is Reason.RESOURCE_IN_USE


async def test_libraries_come_in_pages_by_name(library: Library) -> None:
    for name in ("c", "a", "b"):
        await library.definitions.create_library(name)
    first = await library.definitions.libraries(PageRequest(size=2))
    second = await library.definitions.libraries(PageRequest(size=2, token=first.next_page_token))
    assert [[each.name for each in page.items] for page in (first, second)] == [["a", "b"], ["c"]]
    assert second.next_page_token == ""


# --- definitions --------------------------------------------------------------------------------------


async def test_saving_again_makes_a_revision_only_if_something_changed(library: Library) -> None:
    await library.definitions.create_library("team")
    first = await library.definitions.put("team", task("a"))
    same = await library.definitions.put("team", task("a"))
    second = await library.definitions.put("team", task("a", description="Now with words."))
    assert summaries_of([first.change, same.change, second.change]) == [
        ("a", "created", 0, 1),
        ("a", "unchanged", 1, 1),
        ("a", "updated", 1, 2),
    ]
    assert "+description: Now with words." in second.change.diff
    assert same.definition == first.definition
    assert (second.definition.id, second.definition.created_ms) == (
        first.definition.id,
        first.definition.created_ms,
    )


async def test_a_definition_is_found_by_id_or_name_with_or_without_revision(library: Library) -> None:
    await library.definitions.create_library("acme/bots")
    first = (await library.definitions.put("acme/bots", task("a"))).definition
    second = (await library.definitions.put("acme/bots", task("a", description="New."))).definition
    find = library.definitions.definition
    assert await find(first.id) == await find("acme/bots/a") == await find("acme/bots/a@2") == second
    assert await find(f"{first.id}@1") == await find("acme/bots/a@1") == first
    assert await reason(find("acme/bots/a@3")) is Reason.DEFINITION_NOT_FOUND
    assert await reason(find("a")) is Reason.FIELD_INVALID


async def test_revisions_come_newest_first_in_pages(library: Library) -> None:
    await library.definitions.create_library("team")
    for word in ("one", "two", "three"):
        await library.definitions.put("team", task("a", description=word))
    first = await library.definitions.revisions("team/a@1", PageRequest(size=2))
    second = await library.definitions.revisions("team/a", PageRequest(size=2, token=first.next_page_token))
    assert [[each.revision for each in page.items] for page in (first, second)] == [[3, 2], [1]]


async def test_definitions_are_listed_by_library_kind_and_label(library: Library) -> None:
    await library.definitions.apply("a", [task("t", labels={"x": "1"}), persona("p")])
    await library.definitions.apply("b", [task("t")])

    async def names(**filters: Any) -> list[str]:
        page = await library.definitions.definitions(ALL, **filters)
        return [f"{each.library}/{each.name}" for each in page.items]

    assert await names() == ["a/p", "a/t", "b/t"]
    assert await names(library="a") == ["a/p", "a/t"]
    assert await names(kinds=[Kind.TASK]) == ["a/t", "b/t"]
    assert await names(labels={"x": "1"}) == ["a/t"]
    assert await reason(names(library="nowhere")) is Reason.LIBRARY_NOT_FOUND


async def test_a_page_token_fits_only_the_list_it_was_made_for(library: Library) -> None:
    await library.definitions.apply("a", [task("t"), task("u")])
    page = await library.definitions.definitions(PageRequest(size=1))
    for token in (page.next_page_token, "nonsense", "!!", "W10", "x" * 5000):
        fault = await refusal(library.definitions.definitions(PageRequest(token=token), library="a"))
        assert (fault.reason, fault.field) == (Reason.PAGE_TOKEN_INVALID, "page_token")
    assert await reason(library.definitions.libraries(PageRequest(size=-1))) is Reason.FIELD_INVALID


async def test_a_stale_etag_is_refused_and_the_right_one_taken(library: Library) -> None:
    await library.definitions.create_library("team")
    first = (await library.definitions.put("team", task("a"))).definition
    await library.definitions.put("team", task("a", description="New."), etag=etag(first))
    again = library.definitions.put("team", task("a", description="Newer."), etag=etag(first))
    assert await reason(again) is Reason.ETAG_MISMATCH
    assert await reason(library.definitions.put("team", task("b"), etag="x")) is Reason.ETAG_MISMATCH


async def test_the_kind_of_a_definition_cannot_change(library: Library) -> None:
    await library.definitions.apply("team", [task("a")])
    fault = await refusal(library.definitions.put("team", persona("a")))
    assert (fault.reason, fault.field) == (Reason.DEFINITION_INVALID, "definition.kind")


async def test_a_definition_with_references_is_not_deleted(library: Library) -> None:
    await library.definitions.apply("team", [task("a"), workflow("w", "a")])
    await library.projects.create(Project(id="", name="default"))
    await library.definitions.apply("team", [persona()])
    await library.agents.create(Agent(id="", name="bot", project_ids=(), persona_id="team/helper"))
    fault = await refusal(library.definitions.delete("team/a"))
    assert (fault.reason, "workflow team/w" in fault.message) == (Reason.RESOURCE_IN_USE, True)
    assert "agent bot" in (await refusal(library.definitions.delete("team/helper"))).message
    await library.definitions.delete("team/w")
    await library.definitions.delete("team/a")
    assert (await library.definitions.library("team")).definition_count == 1


async def test_a_single_revision_is_not_deleted(library: Library) -> None:
    await library.definitions.apply("team", [task("a")])
    assert await reason(library.definitions.delete("team/a@1")) is Reason.FIELD_INVALID


# --- apply --------------------------------------------------------------------------------------------


async def test_a_batch_is_applied_whatever_its_order(library: Library) -> None:
    applied = await library.definitions.apply("team", [workflow("w", "a", "b"), task("b"), task("a")])
    assert summaries_of(applied.changes) == [
        ("w", "created", 0, 1),
        ("b", "created", 0, 1),
        ("a", "created", 0, 1),
    ]
    assert applied.library.definition_count == 3


async def test_applying_the_same_again_changes_nothing(library: Library) -> None:
    batch = [workflow("w", "a"), task("a")]
    first = await library.definitions.apply("team", batch)
    second = await library.definitions.apply("team", batch, prune=True)
    assert {change.action for change in second.changes} == {ChangeAction.UNCHANGED}
    assert second.library == first.library


async def test_a_batch_is_applied_completely_or_not_at_all_and_reports_every_fault(library: Library) -> None:
    with pytest.raises(WonderError) as refused:
        await library.definitions.apply("team", [task("a"), workflow("w", "nope"), task("b", "explode")])
    assert {fault.field for fault in refused.value.faults} == {
        "definitions[1].workflow.nodes[0].task_id",
        "definitions[2].task.steps[0].action.kind",
    }
    assert await reason(library.definitions.library("team")) is Reason.LIBRARY_NOT_FOUND


async def test_validating_only_shows_the_diff_and_keeps_nothing(library: Library) -> None:
    await library.definitions.apply("team", [task("a")])
    shown = await library.definitions.apply(
        "team", [task("a", description="New."), task("b")], prune=True, validate_only=True
    )
    assert summaries_of(shown.changes) == [("a", "updated", 1, 2), ("b", "created", 0, 1)]
    assert "+description: New." in shown.changes[0].diff
    assert [each.name for each in (await library.definitions.definitions(ALL)).items] == ["a"]


async def test_pruning_deletes_definitions_outside_the_batch(library: Library) -> None:
    await library.definitions.apply("team", [task("a"), task("b"), task("c")])
    applied = await library.definitions.apply("team", [task("b")], prune=True)
    assert summaries_of(applied.changes) == [
        ("b", "unchanged", 1, 1),
        ("a", "deleted", 1, 0),
        ("c", "deleted", 1, 0),
    ]
    assert applied.library.definition_count == 1


async def test_pruning_considers_the_references_after_the_change(library: Library) -> None:
    await library.definitions.apply("team", [task("a"), task("b"), workflow("w", "a")])
    refused = library.definitions.apply("team", [task("b"), workflow("w", "a", "b")], prune=True)
    assert await reason(refused) is Reason.RESOURCE_IN_USE
    applied = await library.definitions.apply("team", [task("b"), workflow("w", "b")], prune=True)
    assert summaries_of(applied.changes)[-1] == ("a", "deleted", 1, 0)


async def test_a_batch_may_not_have_a_name_twice(library: Library) -> None:
    fault = await refusal(library.definitions.apply("team", [task("a"), persona("a")]))
    assert (fault.reason, fault.field) == (Reason.FIELD_INVALID, "definitions[1].name")


async def test_a_batch_has_a_limit(library: Library) -> None:
    many = [replace(task("a"), name=f"t{number}") for number in range(1001)]
    assert await reason(library.definitions.apply("team", many)) is Reason.LIMIT_EXCEEDED


async def test_workflows_that_contain_each_other_are_refused_also_over_time(library: Library) -> None:
    await library.definitions.apply("team", [task("t"), workflow("a", "t"), containing("b", "a")])
    fault = await refusal(library.definitions.put("team", containing("a", "b")))
    assert fault.field == "definition.workflow.nodes[0].workflow_id"
    await library.definitions.put("team", containing("c", "b@1"))


async def test_workflows_that_hold_too_many_others_are_refused(library: Library) -> None:
    def doubled(name: str, inner: str) -> DefinitionDraft:
        nodes = [{"id": "l", "workflow_id": inner}, {"id": "r", "workflow_id": f"team/{inner}"}]
        edge = {"from_node_id": "l", "to_node_id": "r"}
        return parse_draft({"name": name, "workflow": {"nodes": nodes, "transitions": [edge]}})

    chain = [doubled(f"w{n + 1}", f"w{n}") for n in range(12)]
    fault = await refusal(library.definitions.apply("team", [task("t"), workflow("w0", "t"), *chain]))
    assert "contains more than 1000 workflows" in fault.message


# --- once ---------------------------------------------------------------------------------------------


async def test_a_request_that_comes_again_gets_its_first_answer(library: Library) -> None:
    await library.definitions.create_library("team")
    once = Origin(ANONYMOUS, "r1", "put a")
    first = await library.definitions.put("team", task("a"), origin=once)
    await library.definitions.put("team", task("a", description="Changed."))
    assert await library.definitions.put("team", task("a"), origin=once) == first
    other = library.definitions.put("team", task("b"), origin=Origin(ANONYMOUS, "r1", "put b"))
    assert await reason(other) is Reason.REQUEST_ID_REUSED


async def test_every_kind_of_answer_is_remembered(tmp_path: Path) -> None:
    catalog = await SqliteCatalog.open(tmp_path / "catalog.db")
    library = make(catalog)
    await library.ensure_standard(STANDARD)

    async def twice(work: Awaitable[object]) -> None:
        assert await work() == await work()

    await twice(lambda: library.definitions.create_library("a", origin=Origin(ANONYMOUS, "1", "f")))
    await twice(
        lambda: library.definitions.apply("a", [task("t"), persona("p")], origin=Origin(ANONYMOUS, "2", "f"))
    )
    agent = Agent(
        id="", name="bot", project_ids=(), persona=Persona(system_prompt="Hi."), metadata={"x": [1]}
    )
    await twice(lambda: library.agents.create(agent, origin=Origin(ANONYMOUS, "3", "f")))
    await twice(
        lambda: library.agents.update(
            "bot", lambda a: replace(a, name="rob"), origin=Origin(ANONYMOUS, "4", "f")
        )
    )
    await twice(lambda: library.agents.delete("rob", origin=Origin(ANONYMOUS, "5", "f")))
    await twice(lambda: library.projects.create(Project(id="", name="p"), origin=Origin(ANONYMOUS, "6", "f")))
    await twice(lambda: library.projects.delete("p", origin=Origin(ANONYMOUS, "7", "f")))
    await twice(lambda: library.definitions.delete("a/t", origin=Origin(ANONYMOUS, "8", "f")))
    await catalog.close()


async def test_the_same_request_twice_at_once_acts_once(library: Library) -> None:
    once = Origin(ANONYMOUS, "r", "f")
    both = await asyncio.gather(*(library.definitions.create_library("a", origin=once) for _ in range(2)))
    assert both[0] == both[1]


async def test_a_refused_request_may_be_sent_again(library: Library) -> None:
    once = Origin(ANONYMOUS, "r", "f")
    assert await reason(library.definitions.put("team", task("a"), origin=once)) is Reason.LIBRARY_NOT_FOUND
    await library.definitions.create_library("team")
    await library.definitions.put("team", task("a"), origin=once)


async def test_a_change_that_cannot_be_stored_leaves_no_trace() -> None:
    class Full(MemoryCatalog):
        async def commit(self, changes: Any, answer: Any = None, audit: Any = ()) -> None:
            raise error(Reason.STORAGE_UNAVAILABLE, "The disk is full.", transient=True)

    full = make(Full())
    assert await reason(full.definitions.create_library("a")) is Reason.STORAGE_UNAVAILABLE
    assert await reason(full.definitions.library("a")) is Reason.LIBRARY_NOT_FOUND


# --- agents and projects ------------------------------------------------------------------------------


async def test_an_agent_belongs_to_the_default_project_unless_it_says_otherwise(standard: Library) -> None:
    project = await standard.projects.create(Project(id="", name="site"))
    default = await standard.projects.project("default")
    free = await standard.agents.create(
        Agent(id="", name="a", project_ids=(), persona_id="wonder/std/assistant")
    )
    bound = await standard.agents.create(
        Agent(id="", name="b", project_ids=("site", project.id), persona_id="wonder/std/assistant@1")
    )
    assert (free.project_ids, bound.project_ids) == ((default.id,), (project.id,))
    listed = await standard.agents.agents(ALL, project="site")
    assert listed.items == (bound,)


@pytest.mark.parametrize(
    ("change", "refused", "field"),
    [
        ({"name": "Bot"}, Reason.FIELD_INVALID, "agent.name"),
        ({"name": "assistant"}, Reason.ALREADY_EXISTS, "agent.name"),
        ({"project_ids": ("nope",)}, Reason.PROJECT_NOT_FOUND, "agent.project_ids[0]"),
        ({"persona_id": ""}, Reason.FIELD_INVALID, "agent.persona_id"),
        ({"persona_id": "assistant"}, Reason.FIELD_INVALID, "agent.persona_id"),
        ({"persona_id": "wonder/std/missing"}, Reason.DEFINITION_NOT_FOUND, "agent.persona_id"),
        ({"persona_id": "wonder/std/recall"}, Reason.DEFINITION_NOT_FOUND, "agent.persona_id"),
        ({"persona": Persona(system_prompt="")}, Reason.DEFINITION_INVALID, "agent.persona.system_prompt"),
        (
            {"persona": Persona(system_prompt="x", tool_ids=("recall",))},
            Reason.DEFINITION_INVALID,
            "agent.persona.tool_ids[0]",
        ),
        ({"description": "x" * 5000}, Reason.FIELD_INVALID, "agent.description"),
        ({"metadata": {"x": "y" * 70_000}}, Reason.PAYLOAD_TOO_LARGE, "agent.metadata"),
    ],
)
async def test_a_wrong_agent_is_refused(
    standard: Library, change: JsonDict, refused: Reason, field: str
) -> None:
    agent = Agent(id="", name="bot", project_ids=(), persona_id="wonder/std/assistant")
    fault = await refusal(standard.agents.create(replace(agent, **change)))
    assert (fault.reason, fault.field) == (refused, field)
    assert len((await standard.agents.agents(ALL)).items) == 1


async def test_an_agent_is_updated_under_its_etag(standard: Library) -> None:
    before = await standard.agents.agent("assistant")
    after = await standard.agents.update(
        "assistant", lambda a: replace(a, description="New."), etag=etag(before)
    )
    assert (after.id, after.version, after.description) == (before.id, 2, "New.")
    stale = standard.agents.update("assistant", lambda a: replace(a, description="X."), etag=etag(before))
    assert await reason(stale) is Reason.ETAG_MISMATCH
    assert await standard.agents.update("assistant", lambda a: a) == after
    assert await reason(standard.agents.update("missing", lambda a: a)) is Reason.AGENT_NOT_FOUND


async def test_an_agent_that_a_tool_calls_keeps_its_name_and_stays() -> None:
    catalog = MemoryCatalog()
    standard = make(catalog)
    await standard.ensure_standard(STANDARD)
    await keep_agent_tool(standard, catalog, "ask", "assistant")
    assert await reason(standard.agents.delete("assistant")) is Reason.RESOURCE_IN_USE
    renamed = standard.agents.update("assistant", lambda a: replace(a, name="other"))
    assert await reason(renamed) is Reason.RESOURCE_IN_USE


async def test_the_hooks_run_before_an_agent_or_project_is_deleted() -> None:
    async def busy(resource: Agent | Project) -> None:
        raise error(Reason.RESOURCE_IN_USE, f"{resource.name} is busy.")

    library = make(MemoryCatalog(), before_agent=[busy], before_project=[busy])
    await library.ensure_standard(STANDARD)
    await library.projects.create(Project(id="", name="p"))
    assert await reason(library.agents.delete("assistant")) is Reason.RESOURCE_IN_USE
    assert await reason(library.projects.delete("p")) is Reason.RESOURCE_IN_USE


async def test_a_project_stays_while_agents_belong_to_it(standard: Library) -> None:
    await standard.projects.create(Project(id="", name="p"))
    await standard.agents.create(
        Agent(id="", name="bot", project_ids=("p",), persona_id="wonder/std/assistant")
    )
    assert await reason(standard.projects.delete("p")) is Reason.RESOURCE_IN_USE
    await standard.agents.delete("bot")
    await standard.projects.delete("p")
    assert await reason(standard.projects.project("p")) is Reason.PROJECT_NOT_FOUND


# --- the standard ---------------------------------------------------------------------------------------


async def test_the_first_start_creates_the_standard_library_and_the_second_changes_nothing() -> None:
    catalog = MemoryCatalog()
    await make(catalog).ensure_standard(STANDARD)
    before = await catalog.library("wonder/std"), await catalog.agent("assistant")
    await make(catalog).ensure_standard(STANDARD)
    assert before == (await catalog.library("wonder/std"), await catalog.agent("assistant"))
    assert before[0] is not None and before[0].definition_count > 8


async def test_names_lead_to_ids_and_no_project_is_the_default_one(standard: Library) -> None:
    agent, project = await standard.agents.agent("assistant"), await standard.projects.project("default")
    assert await standard.agent_id("assistant") == await standard.agent_id(agent.id) == agent.id
    assert await standard.project_id("") == await standard.project_id("default") == project.id
    assert await reason(standard.agent_id("missing")) is Reason.AGENT_NOT_FOUND


async def test_a_project_that_is_remembered_is_read_anew_once_it_has_changed(standard: Library) -> None:
    made = await standard.projects.create(Project(id="", name="site"))
    assert await standard.project_id("site") == await standard.project_id(made.id) == made.id
    closed = NetworkPolicy(http_only_allowed=True)
    await standard.projects.update("site", lambda project: replace(project, network=closed))
    assert await standard.network_policy(made.id) == closed
    await standard.projects.delete("site")
    assert await reason(standard.project_id("site")) is Reason.PROJECT_NOT_FOUND
    again = await standard.projects.create(Project(id="", name="site"))
    assert await standard.project_id("site") == again.id != made.id


async def test_the_standard_cannot_be_deleted(standard: Library) -> None:
    in_use = Reason.RESOURCE_IN_USE
    assert await reason(standard.definitions.delete_library("wonder/std", force=True)) is in_use
    assert await reason(standard.definitions.delete("wonder/std/recall")) is in_use
    assert await reason(standard.definitions.apply("wonder/std", [], prune=True)) is in_use
    assert await reason(standard.projects.delete("default")) is in_use


async def test_a_file_that_is_no_definition_is_named(tmp_path: Path, library: Library) -> None:
    (tmp_path / "a.yaml").write_text("name: [\n")
    fault = await refusal(library.ensure_standard(tmp_path))
    assert fault.field.startswith("a.yaml:")
    (tmp_path / "a.yaml").write_text("name: x\ntask: {}\n")
    fault = await refusal(library.ensure_standard(tmp_path))
    assert fault.field == "a.yaml.task.steps"
