"""Tests of the built-in actions (feature H3)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import NoReturn

import pytest

from tests.replacing import replace
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.idempotency import IdempotencyKey, own_key
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.memory.ranking import Hit
from wonder_server.core.memory.records import Change, Draft, Filter, Memory, Source
from wonder_server.core.model import NO_USAGE, ModelResult, ToolCall, Usage
from wonder_server.core.schema.schemas import check_schema, validate
from wonder_server.core.task.action_effects import ACTION_EFFECTS
from wonder_server.ports.model import Chunk, Finished, TextDelta
from wonder_server.services.actions import (
    ACTIONS,
    ActionCall,
    ActionKind,
    ExecutionContext,
    ModelAccess,
    NetworkAccess,
    Services,
)
from wonder_server.services.actions.contract.kind import InlineNotPossibleError
from wonder_server.services.paging import Page, PageRequest

CONTEXT = ExecutionContext(
    agent_id="agt_1", conversation_id="conv_1", turn_id="turn_1", run_id="run_1", key="op_1/n/s"
)
DEFAULT = ModelProfile(provider="offline", model="offline-1", format="openai_chat")


class Nothing:
    """A service that fails on every use."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(name)


class Clock:
    def now_ms(self) -> int:
        return 1_000


class RememberedCalls:
    """An agent memory with one record, which records its calls."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.is_bare = False
        self.memory = Memory(
            id="mem_1",
            agent_id="agt_1",
            type="fact",
            content="likes tea",
            significance=0.5,
            metadata={},
            source=Source(),
            created_ms=1,
            updated_ms=2,
            said_ms=3,
            version=1,
        )

    async def write(self, agent_id: str, draft: Draft) -> Memory:
        self.asked.append((agent_id, draft))
        return self.memory

    async def get(self, agent_id: str, memory_id: str) -> Memory:
        self.asked.append((agent_id, memory_id))
        return self.memory

    async def page(self, agent_id: str, request: PageRequest, wanted: Filter | None = None) -> Page[Memory]:
        self.asked.append((agent_id, request, wanted))
        return Page(items=(self.memory,), next_page_token="more")

    async def update(
        self, agent_id: str, memory_id: str, change: Change, *, request: IdempotencyKey | None = None
    ) -> Memory:
        self.asked.append((agent_id, memory_id, change, request))
        return self.memory

    async def supersede(
        self, agent_id: str, memory_id: str, draft: Draft, *, request: IdempotencyKey | None = None
    ) -> tuple[Memory, Memory]:
        self.asked.append((agent_id, memory_id, draft, request))
        return self.memory, self.memory

    async def delete(self, agent_id: str, memory_id: str, *, request: IdempotencyKey | None = None) -> None:
        self.asked.append((agent_id, memory_id, request))

    async def search(
        self,
        agent_id: str,
        query: str,
        *,
        limit: int = 0,
        wanted: Filter | None = None,
        now_ms: int | None = None,
    ) -> list[Hit]:
        self.asked.append((agent_id, query, limit, wanted, now_ms))
        return [
            Hit(memory=self.memory, score=score, relevance=relevance, significance=0.5, recency=1)
            for score, relevance in ((0.9, 0.8), (0.4, 0.05), (0.3, 0.01))
        ]

    def search_inline(
        self, agent_id: str, query: str, *, limit: int = 0, wanted: Filter | None = None
    ) -> list[Hit] | None:
        self.asked.append((agent_id, query, limit, wanted))
        return [] if self.is_bare else None


class ScriptedModel:
    """A model that returns given chunks and records requests and closings."""

    def __init__(self, *chunks: Chunk, stalls: bool = False, fault: WonderError | None = None) -> None:
        self._chunks = chunks
        self._stalls = stalls
        self._fault = fault
        self.asked: list[tuple[ModelProfile, JsonDict]] = []
        self.closed = 0
        self.speaking = asyncio.Event()

    async def stream(self, profile: ModelProfile, request: JsonDict) -> AsyncIterator[Chunk]:
        self.asked.append((profile, request))
        try:
            for chunk in self._chunks:
                yield chunk
            if self._fault is not None:
                raise self._fault
            if self._stalls:
                self.speaking.set()
                await asyncio.Event().wait()
        finally:
            self.closed += 1

    async def close(self) -> None: ...


async def run(
    kind: str,
    input: JsonDict,
    *,
    model: ScriptedModel | None = None,
    memory: RememberedCalls | None = None,
    context: ExecutionContext = CONTEXT,
) -> JsonValue:
    result = await ACTIONS[kind].run(called(kind, input, model, memory, context))
    assert validate(ACTIONS[kind].output_schema, result) == []
    return result


def run_inline(kind: str, input: JsonDict, *, memory: RememberedCalls | None = None) -> JsonValue:
    quick = ACTIONS[kind].run_inline
    assert quick is not None
    return quick(called(kind, input, None, memory, CONTEXT))


def called(
    kind: str,
    input: JsonDict,
    model: ScriptedModel | None,
    memory: RememberedCalls | None,
    context: ExecutionContext,
) -> ActionCall:
    assert validate(ACTIONS[kind].input_schema, input) == []
    services = Services(
        models=ModelAccess(model=model or ScriptedModel(), default_profile=DEFAULT),
        memory=memory or RememberedCalls(),
        history=Nothing(),
        network=NetworkAccess(web=Nothing(), mcp=Nothing(), policies=Nothing()),
        clock=Clock(),
    )
    return ActionCall(input=input, context=context, services=services)


@pytest.mark.parametrize("kind", ACTIONS.values(), ids=lambda kind: kind.name)
def test_every_kind_describes_itself(kind: ActionKind) -> None:
    assert ACTIONS[kind.name] is kind
    assert kind.description.endswith(".")
    assert check_schema(kind.input_schema) is None
    assert check_schema(kind.output_schema) is None


def test_the_effect_of_every_kind_is_declared_and_no_other() -> None:
    assert ACTION_EFFECTS.keys() == ACTIONS.keys()


async def test_context_answers_with_its_input() -> None:
    assert await run("context", {"a": [1]}) == {"a": [1]}


async def test_assert_passes_on_true_and_fails_with_its_message_on_false() -> None:
    assert await run("assert", {"condition": True}) == {}
    with pytest.raises(WonderError) as caught:
        await run("assert", {"condition": False, "message": "Too short."})
    assert (caught.value.fault.reason, caught.value.fault.message) == (
        Reason.ASSERTION_FAILED,
        "Too short.",
    )


async def test_memory_write_stores_for_the_agent_of_the_context_under_the_step_s_key() -> None:
    memory = RememberedCalls()
    written = await run("memory.write", {"content": "likes tea", "unless_known": True}, memory=memory)
    assert (written["id"], written["content"]) == ("mem_1", "likes tea")
    source = Source(conversation_id="conv_1", turn_id="turn_1", run_id="run_1")
    draft = Draft(
        type="fact", content="likes tea", source=source, idempotency_key="op_1/n/s", unless_known=True
    )
    assert memory.asked == [("agt_1", draft)]


def test_no_input_can_name_another_agent() -> None:
    for name in sorted(name for name in ACTIONS if name.startswith("memory.")):
        needed = {"content": "x", "id": "x", "query": "x", "label": "x", "text": "x"}
        needed |= {"old_text": "x", "new_text": "x"}
        schema = ACTIONS[name].input_schema
        input = {key: needed[key] for key in schema.get("required", ())}
        assert validate(schema, input) == []
        assert validate(schema, {**input, "agent_id": "agt_2"}) == ["agent_id: is not a known field"]


async def test_memory_changes_are_made_once_under_the_step_s_key() -> None:
    memory, once = RememberedCalls(), own_key("step", "op_1/n/s")
    change = Change(content="likes milk", significance=1.0, contradicts_ids=("mem_2",), archived_ms=0)
    given = {"content": "likes milk", "significance": 1, "contradicts_ids": ["mem_2"], "archived": False}
    await run("memory.update", {"id": "mem_1", **given}, memory=memory)
    await run("memory.delete", {"id": "mem_1"}, memory=memory)
    source = Source(conversation_id="conv_1", turn_id="turn_1", run_id="run_1", speaker="Anna", ordinal=3)
    more = {"content": "likes milk", "speaker": "Anna", "ordinal": 3.0}
    await run("memory.supersede", {"id": "mem_1", **more}, memory=memory)
    draft = Draft(type="", content="likes milk", source=source, idempotency_key="op_1/n/s")
    assert memory.asked == [
        ("agt_1", "mem_1", change, once),
        ("agt_1", "mem_1", once),
        ("agt_1", "mem_1", draft, once),
    ]


async def test_memory_list_answers_with_a_page_of_what_is_wanted() -> None:
    memory = RememberedCalls()
    given = {"metadata": {"a": 1}, "start_ms": 5.0, "conversation_id": "c", "turn_id": "t", "end_ms": 9}
    found = await run("memory.list", {"limit": 2, "page_token": "p", **given}, memory=memory)
    assert (len(found["memories"]), found["next_page_token"]) == (1, "more")
    wanted = Filter(metadata={"a": 1}, start_ms=5, end_ms=9, conversation_id="c", turn_id="t")
    assert memory.asked == [("agt_1", PageRequest(size=2, token="p"), wanted)]


async def test_memory_needs_an_agent() -> None:
    with pytest.raises(WonderError) as caught:
        await run("memory.search", {"query": "tea"}, context=ExecutionContext(key="k"))
    assert caught.value.fault.reason is Reason.NO_AGENT


async def test_memory_search_answers_with_memories_and_scores() -> None:
    memory = RememberedCalls()
    asked = {"query": "tea", "limit": 3.0, "types": ["fact"], "now_ms": 7.0, "said_end_ms": 9.0}
    found = await run("memory.search", asked, memory=memory)
    fields = ("content", "score", "relevance", "said_ms")
    first = {name: found["memories"][0][name] for name in fields}
    assert first == {"content": "likes tea", "score": 0.9, "relevance": 0.8, "said_ms": 3}
    assert len(found["memories"]) == 3
    assert found["omitted"] == 0
    assert memory.asked == [("agt_1", "tea", 3, Filter(types=("fact",), said_end_ms=9), 7)]


async def test_memory_search_omits_and_counts_what_is_less_relevant() -> None:
    found = await run("memory.search", {"query": "tea", "min_relevance": 0.05}, memory=RememberedCalls())
    assert [each["relevance"] for each in found["memories"]] == [0.8, 0.05]
    assert found["omitted"] == 1


async def test_memory_search_for_nothing_finds_nothing() -> None:
    assert await run("memory.search", {"query": "  "}) == {"memories": [], "omitted": 0}
    assert run_inline("memory.search", {"query": "  "}) == {"memories": [], "omitted": 0}


def test_memory_search_waits_for_nothing_where_nothing_can_be_found() -> None:
    memory = RememberedCalls()
    with pytest.raises(InlineNotPossibleError):
        run_inline("memory.search", {"query": "tea"}, memory=memory)
    memory.is_bare = True
    found = run_inline("memory.search", {"query": "tea", "limit": 3.0, "types": ["fact"]}, memory=memory)
    assert found == {"memories": [], "omitted": 0}
    assert memory.asked[1:] == [("agt_1", "tea", 3, Filter(types=("fact",)))]


async def test_memory_read_answers_with_one_memory() -> None:
    memory = RememberedCalls()
    assert (await run("memory.read", {"id": "mem_1"}, memory=memory))["content"] == "likes tea"
    assert memory.asked == [("agt_1", "mem_1")]


ANSWER = ModelResult(
    text="Hello",
    tool_calls=(ToolCall(id="c1", name="add", arguments={"a": 1}),),
    usage=Usage(input_tokens=3, cached_input_tokens=2),
    stop_reason="tool_calls",
    model="m",
)


async def test_llm_answers_with_the_whole_response() -> None:
    model = ScriptedModel(TextDelta("Hel"), TextDelta("lo"), Finished(ANSWER))
    assert await run("llm", {"request": {"messages": []}}, model=model) == {
        "text": "Hello",
        "tool_calls": [{"id": "c1", "name": "add", "arguments": {"a": 1}, "malformed": ""}],
        "usage": {
            "input_tokens": 3,
            "output_tokens": None,
            "cached_input_tokens": 2,
            "cache_write_input_tokens": None,
            "reasoning_tokens": None,
            "cost_micros": None,
        },
        "stop_reason": "tool_calls",
        "model": "m",
        "provider": "offline",
    }
    assert model.asked == [(DEFAULT, {"messages": []})]
    assert model.closed == 1


async def test_llm_takes_the_model_profile_that_it_is_given_and_settles_auto() -> None:
    model = ScriptedModel(Finished(ANSWER))
    profile = {"provider": "openai", "model": "gpt-x", "format": "openai_chat", "timeout_ms": 10}
    await run("llm", {"request": {}, "model_profile": profile}, model=model)
    await run("llm", {"request": {}, "model_profile": {"provider": "auto"}}, model=model)
    assert [(asked.provider, asked.model) for asked, _ in model.asked] == [
        ("openai", "gpt-x"),
        ("offline", "offline-1"),
    ]


async def test_llm_refuses_a_profile_with_unknown_fields() -> None:
    with pytest.raises(WonderError):
        await run("llm", {"request": {}, "model_profile": {"provider": "x", "api_base": "http://x"}})


async def test_llm_gives_up_on_a_model_that_does_not_finish_and_closes_it() -> None:
    model = ScriptedModel(TextDelta("Hel"), stalls=True)
    profile = {"provider": "openai", "timeout_ms": 5}
    with pytest.raises(WonderError) as caught:
        await run("llm", {"request": {}, "model_profile": profile}, model=model)
    assert caught.value.fault.reason is Reason.TIMEOUT
    assert caught.value.fault.transient
    assert model.closed == 1


async def test_llm_closes_the_request_when_it_is_cancelled() -> None:
    model = ScriptedModel(TextDelta("Hel"), stalls=True)
    running = asyncio.create_task(run("llm", {"request": {}}, model=model))
    await model.speaking.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert model.closed == 1


async def test_llm_passes_a_model_s_fault_on() -> None:
    refusal = error(Reason.MODEL_FAILED, "The provider refused the request.")
    with pytest.raises(WonderError) as caught:
        await run("llm", {"request": {}}, model=ScriptedModel(fault=refusal))
    assert caught.value is refusal


class Ledger:
    """A usage reporter that records the order of calls. ``refuses`` is raised at each start."""

    def __init__(self, model: ScriptedModel, refuses: WonderError | None = None) -> None:
        self._model = model
        self._refuses = refuses
        self.noted: list[object] = []

    async def report_start(self, scope: ExecutionContext) -> None:
        assert scope == CONTEXT
        if self._refuses is not None:
            raise self._refuses
        self.noted.append(f"begun, {len(self._model.asked)} asked")

    def report_usage(self, scope: ExecutionContext, usage: Usage) -> None:
        assert scope == CONTEXT
        self.noted.append(usage)


def billed(model: ScriptedModel, ledger: Ledger) -> ActionCall:
    call = called("llm", {"request": {}}, model, None, CONTEXT)
    return replace(
        call,
        services=replace(call.services, models=replace(call.services.models, usage_reporter=ledger)),
    )


REFUSED = error(Reason.MODEL_UNAVAILABLE, "HTTP 500.", transient=True)


@pytest.mark.parametrize(
    ("model", "used"),
    [
        (ScriptedModel(TextDelta("Hello"), Finished(ANSWER)), ANSWER.usage),
        (ScriptedModel(fault=REFUSED), NO_USAGE),
        (
            ScriptedModel(TextDelta("Hello"), fault=REFUSED),
            Usage(input_tokens=1, output_tokens=2, estimated=True),
        ),
        (ScriptedModel(TextDelta("Hello")), Usage(input_tokens=1, output_tokens=2, estimated=True)),
    ],
)
async def test_llm_counts_each_call_before_it_is_made_and_settles_it_once(
    model: ScriptedModel, used: Usage
) -> None:
    ledger = Ledger(model)
    with contextlib.suppress(WonderError):
        await ACTIONS["llm"].run(billed(model, ledger))
    assert ledger.noted == ["begun, 0 asked", used]


async def test_llm_settles_a_call_that_is_cancelled() -> None:
    model = ScriptedModel(stalls=True)
    ledger = Ledger(model)
    running = asyncio.ensure_future(ACTIONS["llm"].run(billed(model, ledger)))
    await model.speaking.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    # The provider may work on it all the same.
    assert ledger.noted == ["begun, 0 asked", Usage(input_tokens=1, output_tokens=0, estimated=True)]


async def test_llm_asks_no_model_that_cannot_be_charged() -> None:
    model = ScriptedModel(Finished(ANSWER))
    full = error(Reason.STORAGE_UNAVAILABLE, "The disk is full.", transient=True)
    ledger = Ledger(model, refuses=full)
    with pytest.raises(WonderError) as caught:
        await ACTIONS["llm"].run(billed(model, ledger))
    assert caught.value is full and model.asked == [] and ledger.noted == []


async def test_sleep_lets_time_pass() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await run("sleep", {"duration_ms": 5}) == {}
    assert loop.time() - began >= 0.004
    assert await run("sleep", {"duration_ms": 0}) == {}


async def test_a_sleep_that_its_timeout_would_end_is_refused_at_once() -> None:
    with pytest.raises(WonderError) as refused:
        await run("sleep", {"duration_ms": 30_000})
    assert (refused.value.fault.reason, refused.value.fault.field) == (Reason.INPUT_INVALID, "duration_ms")
    assert "30000" in refused.value.fault.message


@pytest.mark.parametrize("wrong", [{}, {"duration_ms": -1}, {"duration_ms": "5"}, {"duration_ms": 1, "a": 1}])
def test_a_sleep_has_a_length(wrong: JsonDict) -> None:
    assert validate(ACTIONS["sleep"].input_schema, wrong)


async def emitted(input: JsonDict) -> list[tuple[str, JsonValue]]:
    events: list[tuple[str, JsonValue]] = []
    assert validate(ACTIONS["event"].input_schema, input) == []
    call = ActionCall(
        input=input,
        context=CONTEXT,
        services=Nothing(),
        emit=lambda name, payload: events.append((name, payload)),
    )
    assert await ACTIONS["event"].run(call) == {}
    return events


async def test_an_event_is_emitted_with_its_payload() -> None:
    assert await emitted({"name": "order.shipped", "payload": {"n": 1}}) == [("order.shipped", {"n": 1})]
    assert await emitted({"name": "done"}) == [("done", {})]


async def test_an_event_has_a_bound() -> None:
    with pytest.raises(WonderError) as refused:
        await emitted({"name": "big", "payload": {"text": "x" * 70_000}})
    assert (refused.value.fault.reason, refused.value.fault.field) == (
        Reason.PAYLOAD_TOO_LARGE,
        "payload.text",
    )


@pytest.mark.parametrize(
    "wrong", [{}, {"name": ""}, {"name": "No Name"}, {"name": "a", "payload": []}, {"name": 1}]
)
def test_an_event_has_a_name(wrong: JsonDict) -> None:
    assert validate(ACTIONS["event"].input_schema, wrong)
