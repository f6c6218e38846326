"""Transcripts on the command line: imported with their times, exported, forked, and imported again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.client import Client
from tests.e2e.process import Server
from wonder_sdk import cli, sync

pytestmark = pytest.mark.asyncio(loop_scope="session")

TRANSCRIPT: list[dict[str, Any]] = [
    {"role": "user", "content": "Six times seven?", "name": "mia", "create_time": "2023-11-14T22:13:20.000Z"},
    {
        "role": "assistant",
        "content": "I calculate.",
        "name": "assistant",
        "create_time": "2023-11-14T22:13:21.500Z",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "times", "arguments": '{"a":6,"b":7}'}},
            {"id": "c2", "type": "function", "function": {"name": "look", "arguments": "{}"}},
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "42"},
    {"role": "tool", "tool_call_id": "c2", "content": '{"found":["ü"]}'},
    {
        "role": "assistant",
        "content": None,
        "name": "assistant",
        "create_time": "2023-11-14T22:13:22.000Z",
        "tool_calls": [{"id": "c3", "type": "function", "function": {"name": "wait", "arguments": "{}"}}],
    },
    {
        "role": "assistant",
        "content": "It is 42.",
        "name": "assistant",
        "create_time": "2023-11-14T22:13:23.000Z",
    },
    {"role": "user", "content": "Why?\nReally.", "name": "bob", "create_time": "2023-11-14T22:14:00.000Z"},
    {
        "role": "assistant",
        "content": "Who knows.",
        "name": "gpt-4",
        "create_time": "2023-11-14T22:14:01.000Z",
    },
]


async def wonder(
    server: Server, capsys: pytest.CaptureFixture[str], *words: str, code: int = 0
) -> tuple[str, str]:
    """Run ``wonder conversations``; return what it prints."""
    command = ["conversations", *words, "--server", server.address]
    assert await asyncio.to_thread(cli.main, command) == code
    printed = capsys.readouterr()
    return printed.out, printed.err


async def test_a_transcript_survives_import_export_and_import(
    server: Server, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = tmp_path / "given.json"
    given.write_text(json.dumps([{"role": "system", "content": "Be kind."}, *TRANSCRIPT]), "utf-8")
    conv, notes = await wonder(
        server, capsys, "import", str(given), "--title", "Numbers", "--request-id", "cli-import"
    )
    assert "left out: 1 × system message" in notes
    conv = conv.strip()
    [again, _] = await wonder(
        server, capsys, "import", str(given), "--title", "Numbers", "--request-id", "cli-import"
    )
    assert again.strip() == conv
    written = tmp_path / "written.json"
    await wonder(server, capsys, "export", conv, "-o", str(written))
    assert json.loads(written.read_text("utf-8")) == TRANSCRIPT
    await wonder(server, capsys, "export", conv, "-o", str(written), code=1)
    second, _ = await wonder(server, capsys, "import", str(written))
    exported, _ = await wonder(server, capsys, "export", second.strip())
    assert json.loads(exported) == TRANSCRIPT

    messages = await client.messages(conv)
    forked, started = await wonder(
        server, capsys, "fork", conv, messages[3].id, "--before", "-m", "say 2 words", "--title", "Other"
    )
    fork = forked.strip()
    await client.settled(fork, started.split()[-1])
    assert [m.content for m in await client.messages(fork)][3:] == ["say 2 words", "word1 word2"]
    regenerated, _ = await wonder(server, capsys, "fork", fork, "--regenerate", "--json")
    assert json.loads(regenerated)["conversation"]["forked_from"]["conversation_id"] == fork
    listed, _ = await wonder(server, capsys, "-n", "0")
    assert conv in listed and fork in listed


async def test_what_cannot_be_imported_is_explained(
    server: Server, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = len(await client.all_conversations())
    file = tmp_path / "x.json"
    for text, problem in (
        ("{", "not JSON"),
        ("3", "a transcript is a JSON list"),
        ('[{"role": "tool", "tool_call_id": "x", "content": "y"}]', "messages[0]: `tool_call_id` names no"),
        ('[{"role": "user", "content": "x", "create_time": 4102444800}]', "in the future"),
        ("[" * 100_000, "x.json"),
    ):
        file.write_text(text, "utf-8")
        _, shown = await wonder(server, capsys, "import", str(file), code=1)
        assert problem in shown and "Traceback" not in shown
    _, shown = await wonder(server, capsys, "import", str(tmp_path / "none.json"), code=1)
    assert "No such file" in shown
    _, shown = await wonder(server, capsys, "fork", "conv_x", "-m", "x", "--regenerate", code=2)
    assert "not both" in shown
    assert len(await client.all_conversations()) == before


async def test_the_sdk_forks_and_imports(server: Server) -> None:
    def program() -> list[str]:
        from wonder_sdk import read_transcripts

        with sync.Client(server.address) as wonder:
            [transcript] = read_transcripts(TRANSCRIPT, ["assistant"])  # type: ignore[arg-type]
            conv = wonder.create_conversation(user="mia", messages=transcript.messages)
            fork = wonder.fork_conversation(conv, title="Other", metadata={"a": 1}).conversation
            assert fork is not None and fork.forked_from is not None and fork.title == "Other"
            assert fork.forked_from.conversation_id == conv
            answer = wonder.fork_conversation(conv, send="say 2 words", request_id="sdk-fork")
            assert answer.turn is not None
            return [str(each["content"]) for each in wonder.export_transcript(fork.id)]

    shown = await asyncio.to_thread(program)
    assert shown == [str(each["content"]) for each in TRANSCRIPT]
