"""The section of docs/definitions.md that tries an MCP server, followed literally in a shell.

The port and the folder in /tmp are replaced, so that the test runs beside others.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.test_newcomers_hour import free_ports, shell, steps
from tests.paths import ROOT

pytestmark = pytest.mark.asyncio(loop_scope="session")

SECTION = (ROOT / "docs" / "definitions.md").read_text(encoding="utf-8").split("#### A server to try")[1]


async def test_the_server_to_try_runs_as_written(tmp_path: Path) -> None:
    # The paths of the section are below the folder of the repository.
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    port, *_ = free_ports()
    found = steps(SECTION.partition("\n## ")[0])
    assert len(found) == 9
    async with shell(tmp_path) as bash:
        await bash.run(f"export WONDER_SERVER=127.0.0.1:{port} WONDER_DEFAULT_MODEL=offline")
        for step in found:
            command = step.command.replace("50061", port).replace("/tmp/wonder-mcp", f"{tmp_path}/mcp")
            ended = ["0"] if command.startswith("kill") else []
            command = f"{command}; echo $?" if ended else command
            assert await bash.run(command) == [*step.shown, *ended], step.command
