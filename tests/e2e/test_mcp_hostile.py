"""A hostile MCP server behind a real server: the errors that a client receives, and the log."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from tests.e2e.client import Client, struct
from tests.e2e.process import serving
from tests.fakes import hostile_mcp_server as hostile
from wonder.v1 import errors_pb2
from wonder.v1 import executor_service_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="session")

LIBRARY = """
name: call
description: Calls a tool of a hostile server.
task:
  steps:
    - id: call
      action: {kind: mcp, max_attempts: 1}
      input_mapping: {server: input.server, tool: input.tool}
      output_mapping: {output.text: result.text}
"""

INTERNALS = re.compile(
    r"Traceback|[a-z]\w*(Error|Exception)\b|pydantic|validation error|JSONRPC|ExceptionGroup"
)

CALLS = {
    "huge": "PAYLOAD_TOO_LARGE",
    "deep": "TASK_FAILED",
    "deeper_than_we_take": "PAYLOAD_TOO_DEEP",
    "nan": "NUMBER_OUT_OF_RANGE",
    "big_number": "TASK_FAILED",
    "no_utf8": "TASK_FAILED",
    "exit": "OUTCOME_UNKNOWN",
    "log_flood": "OUTCOME_UNKNOWN",
    "parse_error": "TASK_FAILED",
    "noisy": "",
    "daemon": "",
}
STARTS = ("ends", "dies", "refuses", "wrong_types", "huge_start", "flood_start")


async def test_a_hostile_server_costs_its_calls_and_nothing_else(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    named = {
        start: {"command": sys.executable, "args": [hostile.__file__, start, str(pids)]}
        for start in ("well", *STARTS)
    }
    environment = {"WONDER_MCP_SERVERS": json.dumps(named)}
    async with serving(tmp_path / "data", environment=environment) as running, running.client() as client:
        await client.apply("e2e/hostile", LIBRARY)
        for tool, reason in CALLS.items():
            assert await reason_of(client, "well", tool) == reason, tool
            assert await reason_of(client, "well", "well") == "", tool
        for start in STARTS:
            assert await reason_of(client, start, "well") == "TASK_FAILED", start
        assert await reason_of(client, "well", "well") == ""
    said = [line for line in running.log if line["event"] != "born"]
    assert all("timestamp" in line for line in said), "each line is one JSON object"
    about = [line for line in said if line["event"].startswith("mcp_")]
    assert len(about) <= 60
    for line in said:
        assert line["level"] != "error", line
        assert not INTERNALS.search(json.dumps({**line, "text": ""})), line
        assert len(json.dumps(line)) < 2_000
    assert not [pid for pid in pids.read_text().split() if is_there(pid)]


def is_there(pid: str) -> bool:
    return Path(f"/proc/{pid}").exists()


async def reason_of(client: Client, server: str, tool: str) -> str:
    """Return the reason of a call's fault; empty if it has none."""
    input: dict[str, Any] = {"server": server, "tool": tool}
    request = pb.ExecuteTaskRequest(task_id="e2e/hostile/call", input=struct(**input))
    result = (await client.executor.ExecuteTask(request)).result
    if not result.HasField("error"):
        assert MessageToDict(result.output) == {"text": "fine"}
        return ""
    fault = result.error
    assert not INTERNALS.search(fault.message), fault.message
    assert len(fault.message) < 1_000 and fault.message.isprintable()
    return errors_pb2.ErrorReason.Name(fault.reason).removeprefix("ERROR_REASON_")
