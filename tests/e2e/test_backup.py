"""End to end: backups of a server at work, restored after a kill."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from grpc import aio

from tests.e2e.client import Client
from tests.e2e.process import Server, serving
from tests.e2e.test_callers import fact
from tests.e2e.test_parts import upload
from tests.rpc.rpc_kit import rejected
from wonder.v1 import backup_service_pb2 as pb
from wonder.v1 import conversation_service_pb2 as conversations
from wonder.v1 import coordinator_service_pb2 as runs
from wonder.v1 import file_service_pb2 as files
from wonder.v1 import library_service_pb2 as library
from wonder.v1 import memory_service_pb2 as memories
from wonder_server.ports.backups import UNFINISHED

pytestmark = pytest.mark.asyncio(loop_scope="session")

OFFLINE = {"WONDER_DEFAULT_MODEL": "offline"}

WORKFLOW = """
name: waits
workflow:
  nodes:
    - {id: first, wait: {duration_ms: 50}}
    - {id: second, wait: {signal: go}}
  transitions:
    - {from_node_id: first, to_node_id: second}
"""


@dataclass
class Known:
    """Answers of the server."""

    turns: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By text: the conversation and the turn."""
    runs: list[str] = field(default_factory=list)
    memories: list[str] = field(default_factory=list)
    documents: dict[str, bytes] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    is_enough: asyncio.Event = field(default_factory=asyncio.Event)

    def copy(self) -> Known:
        return Known(
            dict(self.turns), list(self.runs), list(self.memories), dict(self.documents), dict(self.files)
        )


async def work(client: Client, known: Known, name: str) -> None:
    """Do everything once after the other, for ever, and note what was answered."""
    number = 0
    while True:
        number += 1
        text = f"say 3 words ({name}-{number})"
        conversation_id = await client.open()
        sent = await client.say(conversation_id, text)
        known.turns[text] = conversation_id, sent.turn.id
        started = await client.coordinator.StartRun(runs.StartRunRequest(workflow_id="e2e/load/waits"))
        known.runs.append(started.run.id)
        content = f"{name} likes tea {number}"
        await client.memory.WriteMemory(
            memories.WriteMemoryRequest(agent_id="assistant", memory=fact(content))
        )
        known.memories.append(content)
        path, document = f"{name}/{number}.md", content.encode()
        await client.library.WriteArtifact(
            library.WriteArtifactRequest(project_id="default", path=path, content=document)
        )
        known.documents[path] = document
        stored = await upload(client, f"{name}-{number}.txt", document, "text/plain")
        known.files[stored] = document
        if len(known.files) >= 6:
            known.is_enough.set()


async def backup(client: Client, name: str = "") -> pb.Backup:
    found = [each async for each in client.backups.CreateBackup(pb.CreateBackupRequest(name=name))]
    assert found[-1].WhichOneof("message") == "backup"
    return found[-1].backup


async def wonder(*arguments: str) -> tuple[int, str]:
    """Run a command and return its code and its output."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "wonder_sdk.cli", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


async def check(client: Client, known: Known) -> None:
    """Everything that was acknowledged is there, and the turns and runs go on."""
    for text, (conversation_id, turn_id) in known.turns.items():
        await client.settled(conversation_id, turn_id)
        messages = await client.messages(conversation_id)
        assert messages[0].content == text
        request = conversations.GetTurnRequest(turn_id=turn_id, conversation_id=conversation_id)
        assert (await client.conversations.GetTurn(request)).turn.output.string_value or len(messages) > 1
    for run_id in known.runs:
        signal = runs.SignalRunRequest(run_id=run_id, signal={"name": "go"}, request_id=f"go-{run_id}")
        await client.coordinator.SignalRun(signal)
        watched = client.coordinator.WatchRun(runs.WatchRunRequest(run_id=run_id))
        names = [each.event.name async for each in watched if each.HasField("event")]
        assert "workflow_completed" in names, names
    listed = await client.memories()
    assert set(known.memories) <= set(listed)
    for path, content in known.documents.items():
        read = library.ReadArtifactRequest(project_id="default", path=path)
        assert (await client.library.ReadArtifact(read)).artifact.content == content
    for file_id, content in known.files.items():
        pieces = [each async for each in client.files.GetFile(files.GetFileRequest(file_id=file_id))]
        assert b"".join(each.content for each in pieces) == content


async def test_a_backup_under_load_has_all_that_was_acknowledged_before_it(tmp_path: Path) -> None:
    """Clients work while two backups are made. The server is killed, and another goes on from the second."""
    data, root, known = tmp_path / "data", tmp_path / "backups", Known()
    flags = ("--backup-dir", str(root), "--shard-count", "4")
    async with serving(data, *flags, environment=OFFLINE) as server, server.client() as client:
        await client.apply("e2e/load", WORKFLOW)
        working = [asyncio.create_task(work(client, known, name)) for name in ("ann", "bob", "eve")]
        first = await backup(client)
        await known.is_enough.wait()
        before = known.copy()
        made = await backup(client)
        assert made.name == "latest" and made.files > first.files and made.new_bytes <= made.bytes
        for task in working:
            task.cancel()
        await server.kill()
        await asyncio.gather(*working, return_exceptions=True)
    code, said = await wonder("restore", "--check", str(root / "latest"), "--scratch", str(tmp_path))
    assert code == 0 and "nothing is damaged" in said, said
    code, said = await wonder("restore", str(root / "latest"), str(tmp_path / "new"))
    assert code == 0, said
    async with serving(tmp_path / "new", environment=OFFLINE) as server, server.client() as client:
        await check(client, before)
        # What came after the instant is there whole or not at all.
        for conversation in await client.all_conversations():
            listed = await client.conversations.ListTurns(
                conversations.ListTurnsRequest(conversation_id=conversation.id)
            )
            for turn in listed.turns:
                await client.settled(conversation.id, turn.id)


async def test_a_kill_in_the_middle_of_a_backup_leaves_the_earlier_one(tmp_path: Path) -> None:
    data, root = tmp_path / "data", tmp_path / "backups"
    async with serving(data, "--backup-dir", str(root), environment=OFFLINE) as server:
        async with server.client() as client:
            await client.open()
            await backup(client, "a")
            manifest = (root / "a" / "manifest.json").read_bytes()
            call = client.backups.CreateBackup(pb.CreateBackupRequest(name="a"))
            reading = asyncio.create_task(_all(call))
            await asyncio.to_thread(_wait_for_databases, root / "a", reading)
            await server.kill()
            await asyncio.gather(reading, return_exceptions=True)
    if reading.exception() is not None:
        assert (root / "a" / "manifest.json").read_bytes() == manifest
    code, said = await wonder("restore", "--check", str(root / "a"), "--scratch", str(tmp_path))
    assert code == 0, said
    async with serving(data, "--backup-dir", str(root), environment=OFFLINE) as server:
        async with server.client() as client:
            await backup(client, "a")
    assert len([*(root / "a").glob("databases-*")]) == 1


def _wait_for_databases(folder: Path, reading: asyncio.Task[None]) -> None:
    """Wait until a second backup has begun to copy."""
    while len([*folder.glob("databases-*")]) < 2 and not reading.done():
        pass


async def _all(call: aio.UnaryStreamCall[pb.CreateBackupRequest, pb.CreateBackupResponse]) -> None:
    async for _ in call:
        pass


async def test_a_backup_that_cannot_be_made_is_refused_with_the_reason(tmp_path: Path) -> None:
    root = tmp_path / "backups"
    root.mkdir()
    (root / "taken").mkdir()
    (root / "taken" / "thesis.txt").write_text("mine")
    (root / "file").write_text("x")
    async with serving(tmp_path / "data", "--backup-dir", str(root), environment=OFFLINE) as server:
        async with server.client() as client:
            for name in ("../x", "/etc", "a/b", "A", "-a", "x" * 65, "a\n", ".."):
                request = pb.CreateBackupRequest(name=name)
                assert await rejected(_all(client.backups.CreateBackup(request))) == (
                    "FIELD_INVALID",
                    ["name"],
                ), name
            for name in ("taken", "file"):
                request = pb.CreateBackupRequest(name=name)
                found = await rejected(_all(client.backups.CreateBackup(request)))
                assert found == ("STORAGE_UNAVAILABLE", [])
            both = await asyncio.gather(backup(client, "a"), backup(client, "b"), return_exceptions=True)
            assert sum(isinstance(each, BaseException) for each in both) <= 1
            # The server works after every refusal.
            await client.turn(await client.open(), "say 2 words")
            assert (await backup(client, "c")).files >= 3
    assert sorted(path.name for path in (root / "taken").iterdir()) == ["thesis.txt"]


async def test_a_server_without_a_folder_for_backups_makes_none(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", environment=OFFLINE) as server, server.client() as client:
        found = await rejected(_all(client.backups.CreateBackup(pb.CreateBackupRequest())))
        assert found == ("NOT_IMPLEMENTED", [])


async def test_a_restore_refuses_what_it_would_overwrite_and_what_is_no_backup(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")
    for arguments in (
        (str(tmp_path), str(tmp_path / "new")),
        (str(tmp_path), str(tmp_path / "full")),
        (str(tmp_path),),
        ("--check", str(tmp_path), str(tmp_path / "new")),
        ("--check", str(tmp_path / "nothing")),
    ):
        code, said = await wonder("restore", *arguments)
        assert code == 2 and said.startswith("wonder restore: "), said
    assert not (tmp_path / "new").exists()


async def test_a_refused_restore_leaves_nothing_and_a_killed_one_no_folder_that_starts(
    tmp_path: Path,
) -> None:
    backups, data = tmp_path / "backups", tmp_path / "data"
    async with serving(data, "--backup-dir", str(backups)) as server, server.client() as client:
        await client.turn(await client.open(), "say 2 words")
        await _all(client.backups.CreateBackup(pb.CreateBackupRequest()))
    made = (backups / "latest").resolve()
    victim = max((each for each in made.rglob("*") if each.is_file()), key=lambda each: each.stat().st_size)
    content, new = victim.read_bytes(), tmp_path / "new"
    victim.chmod(0o600)
    victim.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    code, said = await wonder("restore", str(made), str(new))
    assert code == 1 and "damaged" in said and not list(new.iterdir())
    victim.write_bytes(content)
    # What a kill leaves: some files, and the mark.
    (new / UNFINISHED).touch()
    (new / "catalog.db").write_bytes(b"half")
    refused = Server(new)
    await refused.begin()
    assert not await refused.is_ready() and UNFINISHED not in str(refused.log[-1])
    code, said = await wonder("restore", str(made), str(new))
    assert code == 0, said
    async with serving(new) as server, server.client() as client:
        assert await client.all_conversations()
