"""A program that others wrote knows the contract from reflection: grpcurl lists, describes and calls."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from tests.e2e.process import Server
from tests.paths import ROOT
from wonder_server.rpc.server.server import contract_services

pytestmark = pytest.mark.asyncio(loop_scope="session")

Curl: TypeAlias = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
def curl(server: Server) -> Curl:
    """Runs grpcurl against the shared server; exit code, output, and what it said of errors."""
    path = f"{ROOT / '.tools' / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    program = shutil.which("grpcurl", path=path)
    if program is None:
        pytest.skip("grpcurl is neither in .tools/bin, where .ci/run puts it, nor on the PATH")

    async def run(*words: str, flags: tuple[str, ...] = ()) -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            program, "-plaintext", *flags, server.address, *words,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await process.communicate()
        return process.returncode or 0, out.decode(), err.decode()

    return run


async def test_it_lists_services_and_their_methods(curl: Curl) -> None:
    code, listed, problem = await curl("list")
    assert code == 0, problem
    assert {service.full_name for service in contract_services()} < {*listed.split()}
    for service in contract_services():
        code, listed, problem = await curl("list", service.full_name)
        assert code == 0, problem
        assert {*listed.split()} == {f"{service.full_name}.{method.name}" for method in service.methods}


async def test_it_describes_everything_and_one_of_each_kind(curl: Curl) -> None:
    code, described, problem = await curl("describe")
    assert code == 0, problem
    assert "grpc.reflection.v1.ServerReflection is a service" in described
    for symbol, kind in (
        ("wonder.v1.LibraryService", "a service"),
        ("wonder.v1.LibraryService.GetProject", "a method"),
        ("wonder.v1.ConverseRequest", "a message"),
        ("wonder.v1.ConverseRequest.attach", "a field"),
        ("wonder.v1.ErrorReason", "an enum"),
        ("wonder.v1.ErrorReason.ERROR_REASON_FIELD_INVALID", "an enum value"),
    ):
        code, described, problem = await curl("describe", symbol)
        assert code == 0, problem
        assert described.startswith(f"{symbol} is {kind}:"), described
    code, _, problem = await curl("describe", "wonder.v1.LibraryService.Nothing")
    assert code != 0 and "not found" in problem.lower()


async def test_it_calls_methods_that_it_finds_by_reflection(curl: Curl) -> None:
    made = {"conversation": {"participants": [{"agent": {"name": "assistant"}}]}}
    flags = ("-d", json.dumps(made))
    code, answer, problem = await curl("wonder.v1.ConversationService/CreateConversation", flags=flags)
    assert code == 0, problem
    assert json.loads(answer)["conversation"]["id"].startswith("conv_")
    flags = ("-d", '{"agentId": "absent"}')
    code, _, problem = await curl("wonder.v1.LibraryService/GetAgent", flags=flags)
    assert code != 0 and "NotFound" in problem
    assert "google.rpc.ErrorInfo" in problem and "AGENT_NOT_FOUND" in problem


async def test_one_call_is_a_whole_chat(curl: Curl) -> None:
    said = {"new_conversation": {}, "send": {"agent_id": "assistant", "content": "say 3 words"}}
    code, streamed, problem = await curl(
        "wonder.v1.ConversationService/StreamTurn", flags=("-d", json.dumps(said))
    )
    assert code == 0, problem
    assert (
        '"accepted"' in streamed and "word1 word2 word3" in streamed and "TURN_STATUS_COMPLETED" in streamed
    )
