"""Expiry and the archive, as clients see them: what has expired goes away, and comes back when asked for."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from google.protobuf.timestamp_pb2 import Timestamp
from grpc import StatusCode, aio

from tests.e2e.archived import AHEAD, Populated, is_away, objects, populate, shown
from tests.e2e.client import Client, View, struct
from tests.e2e.process import Server, serving
from tests.e2e.test_conversations import add, complete, deletion, get, reopen, reset, user
from tests.e2e.test_lost_stores import wonder
from tests.rpc.rpc_kit import rejected
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import coordinator_service_pb2 as runs

pytestmark = pytest.mark.asyncio(loop_scope="session")

ARCHIVED = {"CLOCK_AHEAD_S": AHEAD}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def populated(tmp_path_factory: pytest.TempPathFactory) -> Populated:
    return await populate(tmp_path_factory.mktemp("populated") / "data")


@asynccontextmanager
async def archived(populated: Populated, data: Path) -> AsyncIterator[tuple[Client, Server]]:
    """A server on a copy, for which the conversation has expired and lies in the archive."""
    await asyncio.to_thread(shutil.copytree, populated.data, data)
    async with serving(data, environment=ARCHIVED) as server, server.client() as client:
        await until(lambda: is_away(client, populated.doomed.conv))
        yield client, server


async def until(seen: Callable[[], Awaitable[Any]]) -> None:
    """Poll until a state holds that no event reports."""
    async with asyncio.timeout(60):
        while True:
            if await seen():
                return
            await asyncio.sleep(0.01)


async def listed(client: Client, **asked: Any) -> list[str]:
    request = pb.ListConversationsRequest(page_size=200, **asked)
    return [each.id for each in (await client.conversations.ListConversations(request)).conversations]


async def test_a_conversation_expires_while_the_server_runs_and_each_turn_moves_that_on(data: Path) -> None:
    """The test only waits; the server sweeps every second."""
    environment = {"WONDER_CONVERSATION_TTL_SECONDS": "2", "WONDER_SWEEP_INTERVAL_SECONDS": "1"}
    async with serving(data, environment=environment) as server, server.client() as client:
        conv = await client.open()
        first = (await get(client, conv)).expire_time.ToMilliseconds()
        await client.turn(conv, "say 3 words")
        later = (await get(client, conv)).expire_time.ToMilliseconds()
        assert first < later
        async with client.listening(conv) as listener:
            await listener.until(lambda v: "conversation.updated" in v.names)
        assert time.time() * 1000 >= later
        await until(lambda: is_away(client, conv))
        assert len(objects(data)) == 1
        assert (await client.turn(conv, "say 4 words"))[0].status == conversation.TURN_STATUS_COMPLETED
        assert [m.content for m in await client.messages(conv)][1] == "word1 word2 word3"


async def test_it_is_looked_at_and_listed_without_being_brought_back(
    populated: Populated, tmp_path: Path
) -> None:
    doomed = populated.doomed
    async with archived(populated, tmp_path / "data") as (client, server):
        stub = await get(client, doomed.conv)
        assert stub.HasField("archive_time") and stub.turn_count == 1 and stub.external_ref == "doomed"
        assert stub.status == conversation.CONVERSATION_STATUS_ACTIVE
        assert doomed.conv not in await listed(client)
        assert doomed.conv in await listed(client, include_archived=True)
        assert await get(client, doomed.conv) == stub and len(objects(server.data)) == 2


async def read(client: Client, doomed: Any) -> None:
    assert await shown(client, doomed.conv, doomed.turn) == doomed.before


async def subscribe(client: Client, doomed: Any) -> None:
    async with client.listening(doomed.conv) as listener:
        view = await listener.until(lambda v: v.words and v.words[-1].HasField("caught_up"))
    assert [e for e in view.events if e.turn_id == doomed.turn] == doomed.before[4]


async def send(client: Client, doomed: Any) -> None:
    turn, _ = await client.turn(doomed.conv, "say 2 words")
    assert turn.status == conversation.TURN_STATUS_COMPLETED and turn.ordinal == 2


async def preview(client: Client, doomed: Any) -> None:
    request = pb.PreviewContextRequest(conversation_id=doomed.conv, send=pb.ConverseSend(content="And now?"))
    assert "ask_helper" in str(await client.conversations.PreviewContext(request))


async def change(client: Client, doomed: Any) -> None:
    joined = await add(client, doomed.conv, user("zoe"))
    assert joined.participants[-1].user.user_id == "zoe"


async def close(client: Client, doomed: Any) -> None:
    done = await complete(client, doomed.conv)
    assert done.status == conversation.CONVERSATION_STATUS_COMPLETED
    await reopen(client, doomed.conv)
    await reset(client, doomed.conv, keep_system_message=True)


async def list_runs(client: Client, doomed: Any) -> None:
    request = runs.ListRunsRequest(conversation_id=doomed.conv)
    found = [run.id for run in (await client.coordinator.ListRuns(request)).runs]
    assert doomed.before[0].context_assembly_run_id in found


@pytest.mark.parametrize("ask", [read, subscribe, send, preview, change, close, list_runs])
async def test_a_request_for_an_archived_conversation_restores_it(
    populated: Populated, data: Path, ask: Callable[[Client, Any], Awaitable[None]]
) -> None:
    doomed = populated.doomed
    async with archived(populated, data) as (client, _):
        await ask(client, doomed)
        conv = await get(client, doomed.conv)
        assert not conv.HasField("archive_time") and doomed.conv in await listed(client)
        # Its time to live starts again. The delegated conversation stays archived until a request names it.
        assert conv.expire_time.ToSeconds() > time.time() + int(AHEAD)
        assert len(objects(data)) == 1
        await read(client, doomed)
        await read(client, populated.delegated)
        assert objects(data) == []


async def test_without_its_conversation_nothing_is_found_and_the_error_says_what_to_name(
    populated: Populated, tmp_path: Path
) -> None:
    doomed, run_id = populated.doomed, populated.doomed.before[0].context_assembly_run_id
    async with archived(populated, tmp_path / "data") as (client, _):
        stub, coordinator = client.conversations, client.coordinator
        for asking, reason in (
            (stub.GetTurn(pb.GetTurnRequest(turn_id=doomed.turn)), "TURN_NOT_FOUND"),
            (stub.CancelTurn(pb.CancelTurnRequest(turn_id=doomed.turn)), "TURN_NOT_FOUND"),
            (stub.ListMoves(pb.ListMovesRequest(turn_id=doomed.turn)), "TURN_NOT_FOUND"),
            (coordinator.GetRun(runs.GetRunRequest(run_id=run_id)), "RUN_NOT_FOUND"),
        ):
            assert (await rejected(asking))[0] == reason
            said = await asking.details()
            assert "archived" in said and "conversation_id" in said
        # What is asked of all conversations passes over it.
        turns = (await stub.ListTurns(pb.ListTurnsRequest(page_size=200))).turns
        assert {turn.conversation_id for turn in turns} == {populated.kept}
        messages = pb.ListMessagesRequest(turn_id=doomed.turn)
        assert not (await stub.ListMessages(messages)).messages
        listed_runs = runs.ListRunsRequest(include_children=True, page_size=200)
        found = (await coordinator.ListRuns(listed_runs)).runs
        assert found and {run.context.conversation_id for run in found} == {populated.kept}
        assert await is_away(client, doomed.conv)
        # Of a conversation that is named nothing lies in the archive any more.
        wrong = pb.GetTurnRequest(turn_id=doomed.turn, conversation_id=populated.kept)
        with pytest.raises(aio.AioRpcError, match=r"There is no turn .* in this conversation"):
            await stub.GetTurn(wrong)
        named = pb.GetTurnRequest(turn_id=doomed.turn, conversation_id=doomed.conv)
        assert (await stub.GetTurn(named)).turn == doomed.before[0]
        assert (await stub.GetTurn(pb.GetTurnRequest(turn_id=doomed.turn))).turn == doomed.before[0]
        assert (await stub.ListMoves(pb.ListMovesRequest(turn_id=doomed.turn, oldest_first=True))).moves
        assert (await coordinator.GetRun(runs.GetRunRequest(run_id=run_id))).run == doomed.before[3]


async def test_many_who_ask_at_once_bring_it_back_once(populated: Populated, tmp_path: Path) -> None:
    doomed = populated.doomed
    async with archived(populated, tmp_path / "data") as (client, _):
        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(client.say(doomed.conv, f"say {number + 1} words", f"r{number}"))
                group.create_task(subscribe(client, doomed))
        events = await client.events(doomed.conv)
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        names = [event.name for event in events]
        assert names.count("conversation.updated") == 2 and names.count("conversation_turn") == 9


async def test_a_stream_resumes_by_its_cursor_over_the_archive(populated: Populated, tmp_path: Path) -> None:
    """A client that was there before sees what it missed, and nothing twice."""
    doomed = populated.doomed
    async with archived(populated, tmp_path / "data") as (client, _):
        old = list(doomed.before[4])
        view = View(cursor=old[-1].sequence)
        async with client.listening(doomed.conv, view) as listener:
            said = await client.say(doomed.conv, "say 2 words")
            await listener.until(lambda v: v.settled(said.turn.id))
        assert view.names[:2] == ["conversation.updated", "conversation.updated"]
        assert view.events[0].conversation_updated.HasField("archive_time")


@pytest.mark.parametrize("return_existing", [False, True])
async def test_it_is_found_by_its_external_ref_until_a_new_conversation_takes_it(
    populated: Populated, tmp_path: Path, return_existing: bool
) -> None:
    doomed, data = populated.doomed, tmp_path / "data"
    request = pb.GetConversationRequest(external_ref="doomed")
    async with archived(populated, data) as (client, server):
        assert (await client.conversations.GetConversation(request)).conversation.id == doomed.conv
        draft = conversation.Conversation(external_ref="doomed")
        creation = pb.CreateConversationRequest(conversation=draft, return_existing=return_existing)
        created = await client.conversations.CreateConversation(creation)
        assert not created.existed and created.conversation.id != doomed.conv
        await server.kill()
    async with serving(data, environment=ARCHIVED) as server, server.client() as client:
        found = await client.conversations.GetConversation(request)
        assert found.conversation.id == created.conversation.id
        assert (await rejected(client.open(external_ref="doomed")))[0] == "ALREADY_EXISTS"
        assert await is_away(client, doomed.conv), "taking its reference does not restore it"
        await read(client, doomed)
        await send(client, doomed)
        old = await get(client, doomed.conv)
        assert (old.external_ref, old.former_external_ref) == ("", "doomed")
        found = await client.conversations.GetConversation(request)
        assert found.conversation.id == created.conversation.id
    code, said = await wonder("check", str(data), "--quiet")
    assert code == 0, said


async def test_it_is_deleted_with_its_objects(populated: Populated, tmp_path: Path) -> None:
    doomed = populated.doomed
    async with archived(populated, tmp_path / "data") as (client, server):
        await client.conversations.DeleteConversation(deletion(doomed.conv))
        await until(lambda: is_gone(client, populated))
        assert objects(server.data) == []
        assert (await rejected(get(client, doomed.conv)))[0] == "CONVERSATION_NOT_FOUND"
        assert await client.open(external_ref="doomed")


async def is_gone(client: Client, populated: Populated) -> bool:
    turns = (await client.conversations.ListTurns(pb.ListTurnsRequest(page_size=200))).turns
    return {turn.conversation_id for turn in turns} == {populated.kept}


@pytest.mark.parametrize("loss", ["lost", "damaged", "cut"])
async def test_what_is_lost_or_damaged_is_said_comes_back_and_can_be_deleted(
    populated: Populated, tmp_path: Path, loss: str
) -> None:
    doomed = populated.doomed
    async with archived(populated, tmp_path / "data") as (client, server):
        whole = {path: path.read_bytes() for path in objects(server.data)}
        for path, content in whole.items():
            if loss == "lost":
                path.unlink()
            else:
                path.write_bytes(content[: len(content) // 2] + (b"" if loss == "cut" else b"?" * 9))
        for ask in (read, subscribe, send, change):
            with pytest.raises(aio.AioRpcError) as problem:
                await ask(client, doomed)
            assert problem.value.code() is StatusCode.UNAVAILABLE
            said = str(problem.value.details())
            assert ("is missing" if loss == "lost" else "damaged") in said
        # It can be looked at; and what a backup brings back is there.
        assert (await get(client, doomed.conv)).HasField("archive_time")
        for path, content in whole.items():
            path.write_bytes(content)
        await read(client, doomed)
        # The other one is still away. Where that is lost for good, the rest can be deleted, and it with it.
        for path in objects(server.data):
            path.unlink()
        await client.conversations.DeleteConversation(deletion(doomed.conv))
        await until(lambda: is_gone(client, populated))


REPEATED = """
name: echo
task: {steps: [{id: say, action: {kind: context}, output_mapping: {output.text: input.text}}]}
---
name: quick
workflow:
  nodes: [{id: a, task_id: echo, input_mapping: {text: input.text}}]
---
name: quiet
persona: {system_prompt: You answer., memory_extraction_workflow_id: none}
"""


async def send_all(client: Client, expiry: Timestamp) -> dict[str, str]:
    """Send requests that create conversations and runs. Return the id of each answer by request id."""
    call = pb.CallAgentRequest(agent_id="quiet", input={"string_value": "say 2 words"}, request_id="call")
    found = {
        "plain": await create(client, "plain", title="plain"),
        "named": await create(client, "named", external_ref="crm-7"),
        "timed": await create(client, "timed", expire_time=expiry),
        "call": (await client.conversations.CallAgent(call)).turn.id,
    }
    start = runs.StartRunRequest(
        workflow_id="e2e/repeated/quick",
        input=struct(text="x"),
        context={"conversation_id": found["plain"]},
        request_id="start",
        wait_ms=10_000,
    )
    found["start"] = (await client.coordinator.StartRun(start)).run.id
    fork = runs.ForkRunRequest(run_id=found["start"], after_sequence=1, request_id="fork")
    found["fork"] = (await client.coordinator.ForkRun(fork)).run.id
    return found


async def create(client: Client, request_id: str, **fields: Any) -> str:
    request = pb.CreateConversationRequest(
        request_id=request_id, conversation=conversation.Conversation(**fields)
    )
    return (await client.conversations.CreateConversation(request)).conversation.id


@pytest.mark.parametrize("files", ["1", "4"])
async def test_a_repeated_request_finds_what_it_created_in_the_archive(tmp_path: Path, files: str) -> None:
    data = tmp_path / "data"
    flags = ("--shard-count", files, "--conversation-ttl-seconds", "2", "--sweep-interval-seconds", "1")
    async with serving(data, *flags) as server, server.client() as client:
        await client.apply("e2e/repeated", REPEATED)
        await client.agent("quiet", "e2e/repeated/quiet")
        expiry = Timestamp(seconds=int(time.time()) + 3)
        first = await send_all(client, expiry)
        for name in ("plain", "named", "timed"):
            await until(lambda name=name: is_away(client, first[name]))
        assert time.time() > expiry.seconds
        for _ in range(2):  # from the archive, and after the runs are back
            assert await send_all(client, expiry) == first
        with pytest.raises(aio.AioRpcError, match="was used for a different request"):
            await create(client, "plain", title="other")
        await until(lambda: is_away(client, first["plain"]))
        await client.conversations.DeleteConversation(deletion(first["plain"]))
        await server.stop()
    code, said = await wonder("check", str(data), "--quiet")
    assert code == 0, said


async def test_a_time_that_has_passed_is_refused_and_never_is_possible(client: Client) -> None:
    past = Timestamp(seconds=int(time.time()) - 5)
    assert await rejected(client.open(expire_time=past)) == ("FIELD_INVALID", ["conversation.expire_time"])
    conv = await client.open()
    assert not (await get(client, conv)).HasField("expire_time")
