"""Large histories that are refused for one message, and forks from messages that are not there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.client import Client
from tests.e2e.process import serving
from tests.e2e.test_conversations import deletion
from tests.e2e.test_histories import AGENT, LAST_YEAR, PERSON, STORY, UNUSED, creation, forked, imported, talk
from tests.e2e.test_kill_conversations import written_beside
from tests.rpc.rpc_kit import rejected
from wonder.v1 import conversation_service_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="session")

MOST = 10_000
LATER = {"create_time": {"seconds": LAST_YEAR + MOST}}


def timed() -> list[dict[str, Any]]:
    """Return the longest history, a second between its messages."""
    return [{**message, "create_time": {"seconds": LAST_YEAR + at}} for at, message in enumerate(talk(MOST))]


ONE_WRONG: dict[str, tuple[int, dict[str, Any], str, str]] = {
    "the last before the first": (MOST - 1, {"create_time": {"seconds": 1}}, "FIELD_INVALID", "create_time"),
    "the first after the last": (0, LATER, "FIELD_INVALID", "create_time"),
    "two exchanged": (5_000, LATER, "FIELD_INVALID", "create_time"),
    "the last from the future": (
        MOST - 1,
        {"create_time": {"seconds": 32_000_000_000}},
        "FIELD_INVALID",
        "create_time",
    ),
    "the last with a missing file": (
        MOST - 1,
        {"parts": [{"file": {"file_id": f"file_{UNUSED}"}}], "content": ""},
        "FILE_NOT_FOUND",
        "parts[0].file.file_id",
    ),
    "an unknown agent": (MOST - 1, {"agent_id": "eve"}, "AGENT_NOT_FOUND", "agent_id"),
}


async def test_ten_thousand_messages_of_which_one_is_wrong_leave_nothing(data: Path) -> None:
    """Not in the lists, not on disk, not under the request id or the reference that the history had."""
    async with (
        serving(data, environment={"WONDER_DEFAULT_MODEL": "offline"}) as server,
        server.client() as client,
    ):
        kept = await client.open()
        for name, (at, fields, reason, field) in ONE_WRONG.items():
            messages = timed()
            messages[at] = {**messages[at], **fields}
            # A message that is too late makes the next one the first that is out of order.
            named = at + (name in ("the first after the last", "two exchanged"))
            request = creation(
                "assistant", messages, request_id="seed", conversation={"external_ref": "seeded"}
            )
            found = await rejected(client.conversations.CreateConversation(request))
            assert found == (reason, [f"messages[{named}].{field}"]), name
        assert [each.id for each in await client.all_conversations()] == [kept]
        request = creation("assistant", timed(), request_id="seed", conversation={"external_ref": "seeded"})
        made = (await client.conversations.CreateConversation(request)).conversation
        assert made.turn_count == MOST // 2
        await client.conversations.DeleteConversation(deletion(made.id))
    assert written_beside(data, kept) == {}


async def test_a_history_may_not_be_of_tomorrow_but_of_now(client: Client) -> None:
    """Clocks of two machines differ a little; a day is no difference of clocks."""
    conv = await client.open()
    sent = (await client.turn(conv, "say 1 word"))[0].create_time.seconds
    for seconds in (86_400, 3_600):
        message = {PERSON: "mia", "content": "x", "create_time": {"seconds": sent + seconds}}
        refused = client.conversations.CreateConversation(creation("assistant", [message]))
        assert await rejected(refused) == ("FIELD_INVALID", ["messages[0].create_time"])
    message = {PERSON: "mia", "content": "x", "create_time": {"seconds": sent}}
    assert await imported(client, "assistant", [message, {AGENT: "", "content": "y"}])


async def test_a_fork_from_a_message_that_is_not_there_any_more_or_not_yet(client: Client) -> None:
    """Of a deleted source, of the source of a fork, of its own fork, and twenty times at once."""
    source = await imported(client, "assistant", STORY)
    own = await client.messages(source)
    fork = (await forked(client, source, own[2].id)).conversation.id
    copies = await client.messages(fork)
    before = len(await client.all_conversations())

    async def refused(conv: str, message: str, **fields: Any) -> tuple[str, list[str]]:
        request = pb.ForkConversationRequest(conversation_id=conv, message_id=message, **fields)
        return await rejected(client.conversations.ForkConversation(request))

    missing = ("MESSAGE_NOT_FOUND", ["message_id"])
    sent: dict[str, Any] = {"send": {"content": "say 1 word"}}
    for fields in ({}, {"before": True}, sent, {"before": True, **sent}, {"request_id": "never"}):
        assert await refused(fork, own[2].id, **fields) == missing
        assert await refused(source, copies[0].id, **fields) == missing
    many = await asyncio.gather(*(refused(fork, f"msg_{UNUSED}", request_id="many") for _ in range(20)))
    assert many == [missing] * 20
    assert len(await client.all_conversations()) == before
    # The id of a refused request is free.
    assert (await forked(client, fork, copies[0].id, request_id="never")).conversation.turn_count == 1
    await client.conversations.DeleteConversation(deletion(source))
    assert await refused(source, own[2].id) == ("CONVERSATION_NOT_FOUND", ["conversation_id"])
    assert len(await client.messages(fork)) == 3
