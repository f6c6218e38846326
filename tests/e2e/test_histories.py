"""Conversations that start with a history: imports and forks."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.archived import AHEAD, is_away
from tests.e2e.background import call
from tests.e2e.client import Client, View
from tests.e2e.deaths import at_every, through_deaths
from tests.e2e.process import serving
from tests.e2e.scripted import Scripted
from tests.e2e.test_archive import until
from tests.e2e.test_artifacts import write
from tests.e2e.test_conversations import deletion, get
from tests.e2e.test_kill_conversations import written_beside
from tests.e2e.test_large_results import FILE, LINES, NOTICE, TOOLS, environment
from tests.fakes.provider import Provider, Script
from tests.rpc.rpc_kit import rejected
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import library_service_pb2 as library

pytestmark = pytest.mark.asyncio(loop_scope="session")

LAST_YEAR = 1_700_000_000
UNUSED = "01M80B4FQSR67S4TVYMV1BGX37"
PERSON, AGENT, COMPLETED = "user_id", "agent_id", conversation.TURN_STATUS_COMPLETED

FAILED = '{"error":{"code":"EXECUTION_FAILED","message":"no power","retriable":false}}'
STORY: list[dict[str, Any]] = [
    {PERSON: "mia", "content": "What is six times seven?", "create_time": {"seconds": LAST_YEAR}},
    {
        AGENT: "",
        "content": "I calculate.",
        "tool_calls": [
            {"id": "c1", "tool_name": "times", "input": {"term": "6 * 7"}, "result": {"number_value": 42}},
            {"id": "c2", "tool_name": "check", "error": "no power"},
        ],
        "create_time": {"seconds": LAST_YEAR + 1},
    },
    {AGENT: "", "tool_calls": [{"id": "c3", "tool_name": "sleep"}]},
    {AGENT: "", "content": "It is 42.", "create_time": {"seconds": LAST_YEAR + 2}},
    {PERSON: "bob", "content": "And why?", "create_time": {"seconds": LAST_YEAR + 60}},
    {"other_agent": "deep-thought", "content": "It is unknown."},
    {PERSON: "mia", "content": "Thanks both.", "create_time": {"seconds": LAST_YEAR + 90}},
]
"""A history: two people, an agent with tools, and a program that is no agent here."""


def creation(agent: str, messages: list[dict[str, Any]], **fields: Any) -> pb.CreateConversationRequest:
    people: list[dict[str, Any]] = [{"user": {"user_id": "mia"}}]
    if agent:
        people.append({"agent": {"agent_id": agent}})
    return pb.CreateConversationRequest(
        conversation={"participants": people, **fields.pop("conversation", {})}, messages=messages, **fields
    )


async def imported(client: Client, agent: str, messages: list[dict[str, Any]], **fields: Any) -> str:
    made = await client.conversations.CreateConversation(creation(agent, messages, **fields))
    return str(made.conversation.id)


async def forked(client: Client, conv: str, message_id: str = "", **fields: Any) -> Any:
    request = pb.ForkConversationRequest(conversation_id=conv, message_id=message_id, **fields)
    return await client.conversations.ForkConversation(request)


def said(messages: list[conversation.Message]) -> list[str]:
    return [message.content for message in messages]


def talk(count: int) -> list[dict[str, Any]]:
    """Return a history of so many questions and answers."""
    pairs = [({PERSON: "", "content": f"q{n}"}, {AGENT: "", "content": f"a{n}"}) for n in range(count // 2)]
    return [message for pair in pairs for message in pair]


# --- imports ----------------------------------------------------------------------------------------


async def test_a_history_is_imported_forked_in_the_middle_and_continued(
    client: Client, provider: Provider
) -> None:
    scripted = Scripted(client, provider, "openai")
    agent = await scripted.agent(Script(text="You are welcome."), Script(text="In the fork."), tools=())
    conv = await imported(client, agent, STORY)
    messages = await client.messages(conv)
    assert [(m.ordinal, m.content, m.create_time.seconds - LAST_YEAR) for m in messages] == [
        (1, "What is six times seven?", 0),
        (2, "I calculate.", 1),
        (3, "It is 42.", 2),
        (4, "And why?", 60),
        (5, "It is unknown.", 60),
        (6, "Thanks both.", 90),
    ]
    made = await get(client, conv)
    assert made.turn_count == 3 and not made.active_turn_ids and not made.HasField("forked_from")
    assert not made.usage.model_calls and not made.usage.input_tokens
    events = await client.events(conv)
    names = [event.name for event in events]
    assert names[0] == "conversation_started" and names[-1] == "conversation.updated"
    assert names.count("message.appended") == 6 and names.count("move.recorded") == 2
    assert said([e.message_appended for e in events if e.name == "message.appended"]) == said(messages)
    found = await client.conversations.SearchMessages(
        pb.SearchMessagesRequest(conversation_id=conv, query="unknown")
    )
    assert [match.message.author for match in found.matches] == ["deep-thought"]

    answer = await forked(client, conv, messages[2].id, conversation={"title": "A branch"})
    fork = answer.conversation
    assert fork.title == "A branch" and fork.turn_count == 1 and not answer.HasField("turn")
    assert fork.forked_from == conversation.ForkSource(conversation_id=conv, message_id=messages[2].id)
    assert (await get(client, fork.id)).forked_from == fork.forked_from
    copies = await client.messages(fork.id)
    assert said(copies) == said(messages[:3])
    assert [m.create_time for m in copies] == [m.create_time for m in messages[:3]]
    assert not {m.id for m in copies} & {m.id for m in messages}

    turn, _ = await client.turn(fork.id, "And seven times seven?")
    assert turn.status == COMPLETED and turn.ordinal == 2
    assert scripted.requests[-1]["messages"][1:] == [  # type: ignore[index]
        {"role": "user", "content": "What is six times seven?"},
        {
            "role": "assistant",
            "content": "I calculate.",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "times", "arguments": '{"term":"6 * 7"}'},
                },
                {"id": "c2", "type": "function", "function": {"name": "check", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
        {"role": "tool", "tool_call_id": "c2", "content": FAILED},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c3", "type": "function", "function": {"name": "sleep", "arguments": "{}"}}
            ],
        },
        {
            "role": "tool",
            "tool_call_id": "c3",
            "content": "(No result: the turn ended before this call did.)",
        },
        {"role": "assistant", "content": "It is 42."},
        {"role": "user", "content": "And seven times seven?"},
    ]
    # The source is as it was, and goes on by itself.
    assert said(await client.messages(conv)) == said(messages)
    turn, _ = await client.turn(conv, "Bye.")
    shown = str(scripted.requests[-1]["messages"])
    assert "agent deep-thought" in shown and "user bob" in shown and "Thanks both." in shown


def changed(index: int, **fields: Any) -> list[dict[str, Any]]:
    """Return the history with other fields in one message."""
    return [{**message, **(fields if at == index else {})} for at, message in enumerate(STORY)]


BAD: dict[str, tuple[list[dict[str, Any]], str, str]] = {
    "no speaker": ([{"content": "x"}], "FIELD_INVALID", "messages[0].user_id"),
    "empty": ([{PERSON: "mia"}], "FIELD_INVALID", "messages[0].content"),
    "blank": ([{PERSON: "mia", "content": " \n"}], "FIELD_INVALID", "messages[0].content"),
    "huge": ([{PERSON: "mia", "content": "x" * (1 << 20) + "x"}], "PAYLOAD_TOO_LARGE", "messages[0].content"),
    "a long name": ([{PERSON: "m" * 129, "content": "x"}], "FIELD_INVALID", "messages[0].user_id"),
    "a nameless agent": ([{"other_agent": " ", "content": "x"}], "FIELD_INVALID", "messages[0].other_agent"),
    "an unknown agent": ([{AGENT: "eve", "content": "x"}], "AGENT_NOT_FOUND", "messages[0].agent_id"),
    "a forged agent": (
        [{"other_agent": f"agt_{UNUSED}", "content": "x"}],
        "FIELD_INVALID",
        "messages[0].other_agent",
    ),
    "out of order": (
        changed(4, create_time={"seconds": LAST_YEAR}),
        "FIELD_INVALID",
        "messages[4].create_time",
    ),
    "the future": (
        changed(6, create_time={"seconds": 32_000_000_000}),
        "FIELD_INVALID",
        "messages[6].create_time",
    ),
    "before 1970": (
        [{PERSON: "mia", "content": "x", "create_time": {"seconds": -5}}],
        "FIELD_INVALID",
        "messages[0].create_time",
    ),
    "a user's call": (
        [{PERSON: "mia", "content": "x", "tool_calls": [{"id": "a", "tool_name": "b"}]}],
        "FIELD_INVALID",
        "messages[0].tool_calls",
    ),
    "a call without an id": (
        [{AGENT: "", "content": "x", "tool_calls": [{"tool_name": "b"}]}],
        "FIELD_INVALID",
        "messages[0].tool_calls[0].id",
    ),
    "two calls of one id": (
        [{AGENT: "", "content": "x", "tool_calls": [{"id": "a", "tool_name": "b"}] * 2}],
        "FIELD_INVALID",
        "messages[0].tool_calls",
    ),
    "too many calls": (
        [{AGENT: "", "content": "x", "tool_calls": [{"id": "a", "tool_name": "b"}] * 129}],
        "LIMIT_EXCEEDED",
        "messages[0].tool_calls",
    ),
    "a call out of nothing": (
        [{AGENT: "", "tool_calls": [{"id": "a", "tool_name": "b"}]}],
        "FIELD_INVALID",
        "messages[0].content",
    ),
    "a missing file": (
        [{PERSON: "mia", "parts": [{"file": {"file_id": f"file_{UNUSED}"}}]}],
        "FILE_NOT_FOUND",
        "messages[0].parts[0].file.file_id",
    ),
    "too many": (talk(10_002), "LIMIT_EXCEEDED", "messages"),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_history_creates_nothing(client: Client, name: str) -> None:
    messages, reason, field = BAD[name]
    before = len(await client.all_conversations())
    for only_checked in (True, False):
        request = creation("assistant", messages, validate_only=only_checked)
        assert await rejected(client.conversations.CreateConversation(request)) == (reason, [field])
    assert len(await client.all_conversations()) == before


async def test_a_history_of_an_agent_needs_one(client: Client) -> None:
    request = creation("", [{AGENT: "", "content": "x"}])
    assert (await rejected(client.conversations.CreateConversation(request)))[0] == "NO_AGENT"
    conv = await imported(client, "", [{PERSON: "", "content": "x"}, {PERSON: "bob", "content": "y"}])
    assert [m.author for m in await client.messages(conv)] == ["mia", "bob"]


async def test_a_repeated_import_is_the_first(client: Client) -> None:
    first = await imported(client, "assistant", STORY, request_id="import-1")
    assert await imported(client, "assistant", STORY, request_id="import-1") == first
    other = creation("assistant", STORY[:-1], request_id="import-1")
    assert (await rejected(client.conversations.CreateConversation(other)))[0] == "REQUEST_ID_REUSED"
    named = {"conversation": {"external_ref": "import-ref"}}
    held = await imported(client, "assistant", STORY, **named)
    again = creation("assistant", STORY, **named)
    assert (await rejected(client.conversations.CreateConversation(again)))[0] == "ALREADY_EXISTS"
    assert await imported(client, "assistant", STORY, return_existing=True, **named) == held
    assert len(await client.messages(held)) == 6


async def test_ten_thousand_messages_are_imported_paged_searched_forked_and_continued(data: Path) -> None:
    # A server of its own: searches in all conversations of the common one would read these messages too.
    async with (
        serving(data, environment={"WONDER_DEFAULT_MODEL": "offline"}) as server,
        server.client() as client,
    ):
        await ten_thousand(client)


async def ten_thousand(client: Client) -> None:
    conv = await imported(client, "assistant", talk(10_000))
    found: list[str] = []
    request = pb.ListMessagesRequest(conversation_id=conv, oldest_first=True, page_size=500)
    while True:
        page = await client.conversations.ListMessages(request)
        found += said(list(page.messages))
        request.page_token = page.next_page_token
        if not page.next_page_token:
            break
    assert found == [message["content"] for message in talk(10_000)]
    search = pb.SearchMessagesRequest(conversation_id=conv, query="q4999")
    assert [m.message.ordinal for m in (await client.conversations.SearchMessages(search)).matches] == [9_999]
    fork = (await forked(client, conv)).conversation
    assert fork.turn_count == 5_000
    for each in (conv, fork.id):
        turn, _ = await client.turn(each, "say 3 words")
        assert turn.status == COMPLETED and turn.ordinal == 5_001


# --- forks ------------------------------------------------------------------------------------------


async def test_a_fork_gives_the_model_the_same_request_byte_for_byte(
    client: Client, provider: Provider
) -> None:
    scripted = Scripted(client, provider, "openai")
    agent = await scripted.agent(
        Script(calls=(call("read_document", path="fork.txt"),)),
        Script(text="Long."),
        Script(text="You are welcome."),
        Script(text="You are welcome, too."),
        tools=TOOLS,
    )
    await write(client, "fork.txt", FILE)
    conv = await client.open(agent)
    await client.turn(conv, "Read it.")
    answer = (await client.messages(conv))[-1]
    await client.turn(conv, "Thanks.")
    wanted = scripted.requests[-1]
    fork = (await forked(client, conv, answer.id)).conversation.id
    await client.turn(fork, "Thanks.")
    assert scripted.requests[-1] == wanted

    # A cut result is read on under the id that the history names, in a fork of the fork too.
    [first, *_] = await client.moves((await client.messages(conv))[0].turn_id, conv)
    result_id = first.tool_results[0].result_id
    assert NOTICE.search(str(wanted["messages"])) and result_id in str(wanted["messages"])
    second = (await forked(client, fork)).conversation.id
    reads = Script(calls=(call("read_result", result_id=result_id, offset=100_000, length=500),))
    provider.script(scripted.model, reads, Script(text="Read."))
    await client.conversations.DeleteConversation(deletion(conv))
    await client.turn(second, "Read on.")
    read: Any = scripted.requests[-1]["messages"]
    assert all(line in read[-1]["content"] for line in LINES[4_000:4_018])
    copied = await get(client, second)
    assert copied.usage.model_calls == 2


async def test_an_edit_and_another_answer(client: Client, provider: Provider) -> None:
    scripted = Scripted(client, provider, "openai")
    agent = await scripted.agent(*(Script(text=f"Answer {n}.") for n in range(1, 5)), tools=())
    conv = await client.open(agent)
    for text in ("One?", "Two?"):
        await client.turn(conv, text)
    messages = await client.messages(conv)
    wanted = scripted.requests[-1]

    for number, named in enumerate((messages[3], messages[2])):
        again = await forked(client, conv, named.id, regenerate=True, request_id=f"again-{named.id}")
        await client.settled(again.conversation.id, again.turn.id)
        assert scripted.requests[-1] == wanted
        now = said(await client.messages(again.conversation.id))
        assert now == ["One?", "Answer 1.", "Two?", f"Answer {3 + number}."]
        assert again.conversation.forked_from.message_id == messages[1].id
        same = await forked(client, conv, named.id, regenerate=True, request_id=f"again-{named.id}")
        assert (same.conversation.id, same.turn.id) == (again.conversation.id, again.turn.id)

    provider.script(scripted.model, Script(text="Edited."))
    edit = await forked(client, conv, messages[2].id, before=True, send={"content": "Three?"})
    await client.settled(edit.conversation.id, edit.turn.id)
    assert said(await client.messages(edit.conversation.id)) == ["One?", "Answer 1.", "Three?", "Edited."]
    assert said(await client.messages(conv)) == said(messages)
    used = (await get(client, edit.conversation.id)).usage
    assert used.model_calls == 1
    turns = (
        await client.conversations.ListTurns(pb.ListTurnsRequest(conversation_id=edit.conversation.id))
    ).turns
    assert [turn.usage.model_calls for turn in turns] == [1, 0]

    empty = await forked(client, conv, messages[0].id, before=True)
    assert empty.conversation.turn_count == 0 and not empty.conversation.forked_from.message_id


async def test_a_busy_source_is_forked_and_goes_on(client: Client, provider: Provider) -> None:
    scripted = Scripted(client, provider, "openai")
    agent = await scripted.agent(
        Script(text="never", stall="first_token"), Script(text="Two words."), tools=()
    )
    conv = await client.open(agent)
    turn = (await client.say(conv, "Be slow.")).turn
    await provider.wait_until(lambda: len(scripted.requests) == 1)
    fork = (await forked(client, conv)).conversation
    assert fork.turn_count == 1 and not fork.active_turn_ids
    [copied] = (await client.conversations.ListTurns(pb.ListTurnsRequest(conversation_id=fork.id))).turns
    assert copied.status == COMPLETED and copied.agent_id == ""
    answered, _ = await client.turn(fork.id, "And now?")
    assert answered.status == COMPLETED
    assert (await get(client, conv)).active_turn_ids == [turn.id]
    await client.conversations.CancelTurn(pb.CancelTurnRequest(conversation_id=conv, turn_id=turn.id))
    assert said(await client.messages(fork.id)) == ["Be slow.", "And now?", "Two words."]


async def test_a_fork_outlives_its_source_and_its_agent(client: Client) -> None:
    await client.apply("forks", "name: gone\npersona: {system_prompt: x}")
    agent = await client.agent("gone", "forks/gone")
    conv = await imported(client, "gone", STORY, conversation={"metadata": {"k": "v"}, "title": "t"})
    await client.library.DeleteAgent(library.DeleteAgentRequest(agent_id=agent))
    fork = (await forked(client, conv)).conversation
    assert fork.title == "t" and fork.metadata["k"] == "v"
    await client.conversations.DeleteConversation(deletion(conv))
    assert len(await client.messages(fork.id)) == 6
    assert (await rejected(client.say(fork.id, "x")))[0] == "AGENT_NOT_FOUND"


async def test_a_bad_fork_makes_nothing(client: Client) -> None:
    conv = await imported(client, "assistant", STORY)
    strange = (await client.messages(await imported(client, "assistant", STORY)))[0].id
    own = (await client.messages(conv))[0].id
    before = len(await client.all_conversations())
    bad: list[tuple[dict[str, Any], tuple[str, list[str]]]] = [
        ({"conversation_id": ""}, ("FIELD_INVALID", ["conversation_id"])),
        ({"conversation_id": f"conv_{UNUSED}"}, ("CONVERSATION_NOT_FOUND", ["conversation_id"])),
        ({"message_id": f"msg_{UNUSED}"}, ("MESSAGE_NOT_FOUND", ["message_id"])),
        ({"message_id": strange}, ("MESSAGE_NOT_FOUND", ["message_id"])),
        ({"message_id": "x" * 5_000}, ("FIELD_INVALID", ["message_id"])),
        ({"before": True}, ("FIELD_INVALID", ["before"])),
        ({"before": True, "message_id": own, "regenerate": True}, ("FIELD_INVALID", ["before"])),
        ({"conversation": {"project_id": "nowhere"}}, ("PROJECT_NOT_FOUND", ["project_id"])),
        (
            {"conversation": {"participants": [{"agent": {"agent_id": "eve"}}]}},
            ("AGENT_NOT_FOUND", ["conversation.participants[0].agent"]),
        ),
        ({"send": {"content": ""}}, ("FIELD_INVALID", ["content"])),
        ({"send": {"content": "x", "agent_id": "eve"}}, ("AGENT_NOT_FOUND", ["agent_id"])),
        ({"send": {"content": "x", "start_turn": False}}, ("FIELD_INVALID", ["send.start_turn"])),
        (
            {"send": {"content": "x", "reply_to_message_id": own}},
            ("FIELD_INVALID", ["send.reply_to_message_id"]),
        ),
    ]
    for fields, wanted in bad:
        request = pb.ForkConversationRequest(**{"conversation_id": conv, **fields})
        assert await rejected(client.conversations.ForkConversation(request)) == wanted, fields
    assert len(await client.all_conversations()) == before
    nothing = await client.open("assistant")
    again = client.conversations.ForkConversation(
        pb.ForkConversationRequest(conversation_id=nothing, regenerate=True)
    )
    assert await rejected(again) == ("FIELD_INVALID", ["regenerate"])
    assert (await forked(client, nothing)).conversation.turn_count == 0


async def test_an_archived_source_is_forked_and_the_fork_is_archived_too(
    data: Path, provider: Provider
) -> None:
    offline = environment(provider, WONDER_DEFAULT_MODEL="offline")
    async with serving(data, environment=offline) as server, server.client() as client:
        conv = await imported(client, "assistant", STORY)
    async with (
        serving(data, environment={**offline, "CLOCK_AHEAD_S": AHEAD}) as server,
        server.client() as client,
    ):
        await until(lambda: is_away(client, conv))
        fork = (await forked(client, conv)).conversation.id
        assert len(await client.messages(fork)) == 6
        await client.conversations.DeleteConversation(deletion(conv))
    later = str(2 * int(AHEAD))
    async with (
        serving(data, environment={**offline, "CLOCK_AHEAD_S": later}) as server,
        server.client() as client,
    ):
        await until(lambda: is_away(client, fork))
        turn, _ = await client.turn(fork, "say 1 word")
        assert turn.status == COMPLETED and turn.ordinal == 4


# --- deaths -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["in-commit", "committed"])
async def test_an_import_and_a_fork_that_die_are_whole_or_not_there(
    tmp_path: Path, fresh: Path, point: str
) -> None:
    count = 620

    async def tell(data: Path, doom: str) -> int:
        convs: dict[str, str] = {}

        async def story(client: Client, _: View) -> None:
            for each in await client.all_conversations():
                # Nothing half made is there, acknowledged or not.
                assert (
                    each.turn_count >= count // 2 and each.status == conversation.CONVERSATION_STATUS_ACTIVE
                )
            conv = await imported(client, "assistant", talk(count), request_id="import")
            assert convs.setdefault("import", conv) == conv
            fork = await forked(client, conv, send={"content": "say 2 words"}, request_id="fork")
            assert convs.setdefault("fork", fork.conversation.id) == fork.conversation.id
            await client.settled(fork.conversation.id, fork.turn.id)

        deaths = await through_deaths(data, story, View(), doom, "")
        async with serving(data) as server, server.client() as client:
            assert {each.id for each in await client.all_conversations()} == set(convs.values())
            assert (await get(client, convs["import"])).turn_count == count // 2
            fork = await get(client, convs["fork"])
            assert fork.turn_count == count // 2 + 1
            last = await client.conversations.ListMessages(pb.ListMessagesRequest(conversation_id=fork.id))
            assert len(last.messages[0].content.split()) == 2
            await client.conversations.DeleteConversation(deletion(fork.id))
        assert written_beside(data, convs["import"]) == {}
        return deaths

    assert await at_every(point, tell, fresh=fresh, folder=tmp_path, chosen=6) >= 8


async def test_a_client_that_leaves_leaves_nothing_half_made(data: Path) -> None:
    async with serving(data) as server, server.client() as client:
        for patience in (0.02, 0.1, 0.2, 0.4):
            request = creation("assistant", talk(4_000), request_id=f"left-{patience}")
            leaving = client.conversations.CreateConversation(request)
            # A quick machine may be done before the client has left.
            with suppress(asyncio.CancelledError, asyncio.TimeoutError):
                await asyncio.wait_for(leaving, patience)
            for each in await client.all_conversations():
                assert each.turn_count == 2_000
            whole = await client.conversations.CreateConversation(request)
            assert whole.conversation.turn_count == 2_000
        made = await client.all_conversations()
        assert len(made) == 4
        for each in made[1:]:
            await client.conversations.DeleteConversation(deletion(each.id))
    assert written_beside(data, made[0].id) == {}
