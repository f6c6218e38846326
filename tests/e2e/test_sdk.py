"""The Python SDK against real servers: plain values as requests, turns that fail, crashes of the program and
of the server, and a server that is frozen."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import client as raw
from tests.e2e.process import Server, serving
from tests.e2e.scripted import Scripted
from tests.fakes.provider import Provider, Script
from wonder_sdk import Client, ReconnectPolicy, RequestError, TurnFailedError, UnavailableError, v1

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_plain_values_reach_the_server_and_nothing_goes_out_emptied(server: Server) -> None:
    async with Client(server.address) as wonder:
        create: Any = wonder.conversations.create_conversation
        participants = [{"user": {"user_id": "ann"}}, {"agent": {"name": "assistant"}}]
        made = await create(
            {"conversation": {"title": "Cats", "participants": participants, "metadata": {"a": [1, None]}}}
        )
        assert made.conversation.title == "Cats" and len(made.conversation.participants) == 2
        assert made.conversation.metadata.to_dict() == {"a": [1, None]}
        with pytest.raises(RequestError, match=r"conversation\.participants\[0\]\.usr"):
            await create({"conversation": {"participants": [{"usr": {}}]}})
        asked = await wonder.conversations.call_agent({"agent_id": "assistant", "input": "say 2 words"})  # type: ignore[arg-type]
        assert asked.turn is not None and asked.turn.output is not None


async def test_a_turn_that_fails_raises_with_all_that_the_server_says(
    server: Server, client: raw.Client, provider: Provider
) -> None:
    agent = await Scripted(client, provider, "openai").agent(Script(status=401))
    async with Client(server.address) as wonder:
        async with wonder.converse(await wonder.create_conversation(agent=agent)) as chat:
            names = []
            with pytest.raises(TurnFailedError) as failed:
                async for item in chat.send("Hello"):
                    names += [item.name] if isinstance(item, v1.Event) else []
            assert names[-1] == "turn.failed"
            assert failed.value.reason is v1.ErrorReason.MODEL_FAILED
            assert failed.value.metadata["kind"] == "auth" and failed.value.turn_id.startswith("turn_")
            reply = chat.send("Again", check=False)
            assert [item async for item in reply]
            assert reply.turn is not None and reply.turn.status is v1.TurnStatus.FAILED


async def test_a_program_that_crashes_at_any_event_handles_each_while_its_server_dies_too(data: Path) -> None:
    conversation_id, stored, handled = "", 0, list[int]()
    sent = 0
    while sent < 2 or stored < handled_in_all(sent):
        server = await Server(data).start()
        try:
            async with Client(server.address) as wonder:
                conversation_id = conversation_id or await wonder.create_conversation()
                async with wonder.converse(conversation_id, after_sequence=stored) as chat:
                    everything = chat.events()
                    if sent < 2:
                        sent += 1
                        await chat.send("say 3 words", request_id=f"say {sent}").started()
                    crash_after = 3
                    async for item in everything:
                        if isinstance(item, v1.Event):
                            stored = chat.cursor  # as the program would, before it is done with this one
                            assert item.sequence == stored + 1
                            if crash_after == 0:
                                break
                            crash_after -= 1
                            handled.append(item.sequence)
                            if item.sequence == handled_in_all(sent):
                                stored = item.sequence
                                break
        finally:
            await server.kill()
    # What was in hand at a crash came again; nothing was left out.
    assert sorted({*handled}) == [*range(1, handled_in_all(2) + 1)]


def handled_in_all(turns: int) -> int:
    """Events of a conversation after so many turns in which the agent only speaks."""
    return 1 + 7 * turns


async def test_a_frozen_server_is_noticed_and_is_there_again_when_it_thaws(data: Path) -> None:
    # While the server lives, a slow machine must not make it look frozen.
    patient, hasty = ReconnectPolicy(silent_ms=600_000, timeout_ms=600_000), ReconnectPolicy(silent_ms=1_000)
    async with serving(data) as server, Client(server.address, reconnect=patient) as wonder:
        conversation_id = await wonder.create_conversation()
        os.kill(server._pid, signal.SIGSTOP)
        try:
            async with Client(server.address, reconnect=hasty) as other:
                with pytest.raises(UnavailableError, match=r"(does|did) not answer") as problem:
                    await other.create_conversation()
            assert server.address in str(problem.value)
        finally:
            os.kill(server._pid, signal.SIGCONT)
        async with asyncio.timeout(raw.PATIENCE_S), wonder.converse(conversation_id) as chat:
            assert await chat.send("say 2 words").text() == "word1 word2"
