"""The SDK's methods and the command ``wonder memory blocks`` (feature M13)."""

from __future__ import annotations

import json

import pytest

from tests.sdk.methods.test_memories import address, wonder
from wonder_sdk import Client, InvalidArgumentError, NotFoundError

__all__ = ["address"]


async def test_a_block_is_set_listed_changed_and_deleted(address: str) -> None:
    async with Client() as client:
        made = await client.set_memory_block("rules", "Be kind.", agent="ada", description="What holds.")
        about = await client.set_memory_block("human", "Likes tea.", agent="ada", subject="mia")
        assert [each async for each in client.list_memory_blocks(agent="ada")] == [made, about]
        assert [each async for each in client.list_memory_blocks(agent="ada", subject="mia")] == [about]
        assert await client.get_memory_block("rules", agent="ada") == made
        changed = await client.set_memory_block(
            "rules", "Be brief.", agent="ada", etag=made.etag, read_only=True
        )
        assert changed.read_only and changed.etag != made.etag
        contents = [each.content async for each in client.list_memory_block_changes("rules", agent="ada")]
        assert contents == ["Be brief.", "Be kind."]
        with pytest.raises(InvalidArgumentError):
            await client.set_memory_block("rules", "x" * 2_001, agent="ada")
        with pytest.raises(TypeError):
            await client.set_memory_block("rules", "x", agent="ada", limit=3)  # type: ignore[call-arg]
        await client.delete_memory_block("rules", agent="ada")
        with pytest.raises(NotFoundError):
            await client.get_memory_block("rules", agent="ada")


async def test_the_command_manages_blocks(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def said(*argv: str) -> str:
        assert await wonder("blocks", *argv) == 0
        lines = capsys.readouterr().out.splitlines()
        # The server of the test logs to the same place.
        return "\n".join(line for line in lines if "rpc_completed" not in line)

    assert await said("set", "rules", "Be kind.", "--description", "What holds.") == "rules of ada has etag 1"
    assert "Be kind." in await said("list") and "8 of 2000 characters" in await said("show", "rules")
    assert json.loads(await said("show", "rules", "--json"))["content"] == "Be kind."
    await said("set", "human", "Likes tea.", "--subject", "mia")
    assert (await said("list", "--subject", "mia")).split()[:2] == ["human", "mia"]
    assert "set" in await said("changes", "rules")
    assert await said() == await said("list")
    assert json.loads((await said("--subject", "mia", "--json")).splitlines()[0])["label"] == "human"
    assert await wonder("blocks", "changes", "human") == 1
    assert "There is no such block. Is it about a user? Use --subject." in capsys.readouterr().err
    assert await wonder("blocks", "set", "rules", "x" * 2_001) == 1
    assert "Set another maximum with --max-characters." in capsys.readouterr().err
    assert await wonder("blocks", "delete", "rules") == 2
    assert "Add --yes to delete." in capsys.readouterr().err
    assert await said("delete", "rules", "--yes") == "rules deleted"
