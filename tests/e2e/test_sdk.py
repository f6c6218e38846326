"""The Python SDK against real servers: plain values as requests, turns that fail, crashes of the program and
of the server, and a server that is frozen."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import client as raw
from tests.e2e.launch import PATH
from tests.e2e.process import Server, serving
from tests.e2e.scripted import Scripted
from tests.fakes.provider import Provider, Script
from wonder_sdk import (
    Client,
    InvalidArgumentError,
    NotFoundError,
    ReconnectPolicy,
    RequestError,
    TurnFailedError,
    UnavailableError,
    v1,
)

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


async def test_a_file_goes_up_into_a_message_and_down_again(
    server: Server, client: raw.Client, provider: Provider, tmp_path: Path
) -> None:
    scripted = Scripted(client, provider, "openai")
    agent = await scripted.agent(Script(text="A cat."), tools=(), accepts=["image"])
    content = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 9_000
    path = tmp_path / "cat.png"
    path.write_bytes(content)
    async with Client(server.address) as wonder:
        cat = await wonder.upload(path, request_id="sdk cat")
        assert (cat.name, cat.media_type, cat.size_bytes) == ("cat.png", "image/png", len(content))
        assert await wonder.upload(content, name="cat.png", request_id="sdk cat") == cat
        notes = await wonder.upload(b"- one", name="notes.md")
        assert notes.media_type == "text/markdown"
        async with wonder.converse(await wonder.create_conversation(agent=agent)) as chat:
            assert await chat.send("What is this?", parts=[cat, notes, "Be brief."]).text() == "A cat."
            messages = [each async for each in _messages(wonder, chat.conversation.id)]
        [message] = [each for each in messages if each.parts]
        assert message.content == "What is this?\nBe brief."
        assert message.parts[1].image is not None and message.parts[1].image.file_id == cat.id
        assert message.parts[2].file is not None and message.parts[2].file.file_id == notes.id
        assert await wonder.download(cat.id) == content
        assert cat.id in [each.id async for each in wonder.list_files(project=cat.project_id)]
        await wonder.delete_file(cat.id)
        with pytest.raises(NotFoundError):
            await wonder.download(cat.id)
        with pytest.raises(InvalidArgumentError, match="declared type image/gif"):
            await wonder.upload(path, media_type="image/gif")


async def test_an_attached_image_is_a_part_in_the_project_of_its_conversation(
    server: Server, client: raw.Client, provider: Provider, tmp_path: Path
) -> None:
    scripted = Scripted(client, provider, "openai")
    agent = await scripted.agent(*[Script(text="A cat.")] * 2, tools=(), accepts=["image"])
    content = b"\x89PNG\r\n\x1a\n" + bytes(1_000)
    path = tmp_path / "cat.png"
    path.write_bytes(content)
    async with Client(server.address) as wonder:
        project = await wonder.library.create_project(
            v1.CreateProjectRequest(project=v1.Project(name="sdk-attached"))
        )
        assert project.project is not None
        for given, name in [(path, "cat.png"), (str(path), "cat.png"), (content, "image.png")]:
            part = await wonder.attach(given, project=project.project.id)
            assert part.image is not None
            file = await wonder.describe_file(part.image.file_id)
            assert (file.name, file.media_type, file.project_id) == (name, "image/png", project.project.id)
        assert (await wonder.attach(b"- one")).file is not None
        conversation = await wonder.create_conversation(agent=agent)
        parts = [await wonder.attach(given, conversation=conversation) for given in (path, content)]
        turn = wonder.stream_turn("What is this?", conversation=conversation, parts=parts)
        assert await turn.text() == "A cat."
        with pytest.raises(InvalidArgumentError, match="declared type image/gif"):
            await wonder.attach(content, media_type="image/gif")
        with pytest.raises(NotFoundError):
            await wonder.attach(content, conversation="conv_01ARZ3NDEKTSV4RRFFQ69G5FAV")
        with pytest.raises(FileNotFoundError):
            await wonder.attach(tmp_path / "none.png")


async def _messages(wonder: Client, conversation_id: str) -> AsyncIterator[v1.Message]:
    page = await wonder.conversations.list_messages(v1.ListMessagesRequest(conversation_id=conversation_id))
    for message in page.messages:
        yield message


async def run_wonder(server: Server, *words: str) -> tuple[int | None, bytes, str]:
    environment = {**os.environ, "PYTHONPATH": PATH, "WONDER_SERVER": server.address}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "wonder_sdk.cli", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    out, err = await process.communicate()
    return process.returncode, out, err.decode()


async def test_a_rejected_file_is_named_and_leaves_nothing_behind(
    server: Server, client: raw.Client, provider: Provider, tmp_path: Path
) -> None:
    agent = await Scripted(client, provider, "openai").agent(tools=())
    good, bad = tmp_path / "good.md", tmp_path / "bad.bin"
    good.write_text("- one")
    bad.write_bytes(b"\x00\x01")
    chat = ("chat", "-a", agent, "-m", "Look:", "--file", str(good), "--file")
    async with Client(server.address) as wonder:
        with pytest.raises(IsADirectoryError):
            await wonder.upload(tmp_path)
        before = [each.id async for each in wonder.list_files()]
        for words in (chat, ("files", "put", str(good))):
            assert await run_wonder(server, *words, str(tmp_path)) == (
                1,
                b"",
                f"wonder: {tmp_path} is a folder; name a file.\n",
            )
            code, _, err = await run_wonder(server, *words, str(tmp_path / "none"))
            assert (
                code == 1 and err == f"wonder: {tmp_path}/none cannot be read: No such file or directory.\n"
            )
        code, _, err = await run_wonder(server, *chat, str(bad))
        assert code == 1 and err.startswith(f"wonder: {bad}: The content shows no type"), err
        assert "Use `wonder files put --type TYPE`." in err
        assert [each.id async for each in wonder.list_files()] == before
        listed = await wonder.conversations.list_conversations(v1.ListConversationsRequest(agent_id=agent))
        assert not listed.conversations


async def test_the_command_puts_lists_gets_and_sends_files(
    server: Server, client: raw.Client, provider: Provider, tmp_path: Path
) -> None:
    scripted = Scripted(client, provider, "openai")
    agent = await scripted.agent(Script(text="A cat."), tools=(), accepts=["image"])
    content = b"\x89PNG\r\n\x1a\ncat"
    path, copy = tmp_path / "cat.png", tmp_path / "copy.png"
    path.write_bytes(content)

    async def wonder(*words: str) -> tuple[int | None, bytes]:
        code, out, _ = await run_wonder(server, *words)
        return code, out

    code, out = await wonder("files", "put", str(path))
    file_id = out.decode().strip()
    assert code == 0 and file_id.startswith("file_")
    code, out = await wonder("files", "list")
    assert code == 0 and f"{file_id}\t11\timage/png\tcat.png" in out.decode()
    assert await wonder("files", "get", file_id) == (0, content)
    assert (await wonder("files", "get", file_id, "-o", str(copy)))[0] == 0 and copy.read_bytes() == content
    assert (await wonder("files", "get", file_id, "-o", str(copy)))[0] == 1
    assert (await wonder("files", "put", str(tmp_path / "nothing")))[0] == 1
    assert (await wonder("chat", "-a", agent, "--file", str(path)))[0] == 2
    code, out = await wonder("chat", "-a", agent, "-m", "What is this?", "--file", str(path))
    assert code == 0 and b"A cat." in out
    assert "data:image/png;base64," in str(scripted.requests[0])
    assert (await wonder("files", "delete", file_id))[0] == 2
    assert await wonder("files", "get", file_id) == (0, content)
    assert (await wonder("files", "delete", file_id, "--yes"))[0] == 0
    assert (await wonder("files", "get", file_id))[0] == 1
