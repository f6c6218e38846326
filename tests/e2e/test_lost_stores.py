"""A store that is lost while there are conversations: the server starts only with explicit consent."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.e2e.process import Server, serving

pytestmark = pytest.mark.asyncio(loop_scope="session")

OFFLINE = {"WONDER_DEFAULT_MODEL": "offline"}
MAIN = "import sys; from wonder_sdk.cli import main; sys.exit(main())"


async def wonder(*arguments: str) -> tuple[int | None, str]:
    """Run the command with ``arguments``; return its exit code and output."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", MAIN, *arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    said, _ = await process.communicate()
    return process.returncode, said.decode()


def lose(path: Path, how: str) -> None:
    path.unlink()
    if how == "empty":
        path.touch()
    elif how == "without tables":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA user_version = 1")


@pytest.mark.parametrize("how", ["missing", "empty", "without tables"])
@pytest.mark.parametrize("name", ["catalog.db", "memory.db"])
async def test_a_lost_store_is_refused_until_the_operator_goes_on_without_it(
    data: Path, name: str, how: str
) -> None:
    async with serving(data, environment=OFFLINE) as server, server.client() as client:
        conv = await client.open()
        await client.turn(conv, "Hello.")
    lose(data / name, how)

    for _ in range(2):
        refused = Server(data)
        await refused.begin()
        assert await refused.ended() == 2
        said = "\n".join(line["event"] for line in refused.log)
        assert f"The store {name} is missing or empty" in said
        assert f"{name}.new" in said
        assert "Traceback" not in said

    (data / f"{name}.new").touch()
    async with serving(data, environment=OFFLINE) as server, server.client() as client:
        assert len(await client.messages(conv)) == 2
    assert not (data / f"{name}.new").exists()
    code, said = await wonder("check", str(data), "--quiet")
    if name == "catalog.db":
        assert code == 1
        assert f"of conversation {conv} is missing" in said
    else:
        assert code == 0, said
