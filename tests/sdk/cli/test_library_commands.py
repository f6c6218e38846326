"""`wonder project`, `wonder agent` and `wonder actions` against the server's services."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.fakes.repositories import no_artifacts
from tests.services.catalog.library_kit import STANDARD, make
from tests.views import ForAll
from wonder.v1 import executor_service_pb2 as executor
from wonder.v1 import executor_service_pb2_grpc as rpc
from wonder.v1 import task_pb2
from wonder_sdk import cli, v1
from wonder_sdk.cli.resources.usage import usage_lines
from wonder_sdk.cli.shared.terminal import Terminal
from wonder_server.adapters.in_memory.catalog import MemoryCatalog
from wonder_server.core.budget import Account
from wonder_server.core.errors import Fault, Reason
from wonder_server.ports.hook_failures import Hook, HookFailure
from wonder_server.rpc.library.parts import LibraryParts
from wonder_server.rpc.library.servicer import LibraryServicer
from wonder_server.rpc.server.server import RpcServer
from wonder_server.settings import Settings


class FakeExecutor(rpc.ExecutorServiceServicer):
    """A fake executor that lists two kinds on two pages: one of the server, one of a worker."""

    async def list_action_kinds(self, request: Any, context: object) -> executor.ListActionKindsResponse:
        if not request.page_token:
            kind = task_pb2.ActionKind(name="http", description="Sends a request.", available=True)
            kind.input_schema.update(
                {
                    "properties": {
                        "body": {"description": "What to send."},
                        "url": {"type": "string", "description": "Where to."},
                        "method": {"enum": ["GET", "PUT"]},
                    },
                    "required": ["url"],
                }
            )
            kind.output_schema.update({"properties": {"status": {"type": "integer"}}})
            return executor.ListActionKindsResponse(action_kinds=[kind], next_page_token="more")
        remote = task_pb2.ActionKind(
            name="resize", description="Resizes.", remote=True, worker_count=2, idempotent=True
        )
        return executor.ListActionKindsResponse(action_kinds=[remote])


class FakeAccounts:
    """A fake usage service that reports the same usage for every agent."""

    async def accounts(self, agent_ids: Sequence[str], *, lenient: bool = False) -> dict[str, Account]:
        spent = Account(input_tokens=1_200, output_tokens=34, cost_micros=5_600, model_calls=7)
        return dict.fromkeys(agent_ids, spent)


class FakeHooks:
    """Counts by which one hook of every agent fails."""

    def of_agent(self, agent_id: str) -> list[HookFailure]:
        fault = Fault(reason=Reason.TIMEOUT, message="The run took longer than 30 s.")
        ids = {"conversation_id": "conv_1", "turn_id": "turn_1", "run_id": "run_1"}
        failure = HookFailure(
            hook=Hook.EXTRACTION, workflow="team/extract@3", fault=fault, count=7, first_ms=60_000, **ids
        )
        return [failure]


@pytest_asyncio.fixture
async def address(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    library, spent = make(MemoryCatalog()), FakeAccounts()
    await library.ensure_standard(STANDARD)
    services = {
        "wonder.v1.LibraryService": LibraryServicer(
            ForAll(LibraryParts(library, no_artifacts(), spent, FakeHooks()))
        ),
        "wonder.v1.ExecutorService": FakeExecutor(),
    }
    server = RpcServer(Settings(listen="127.0.0.1:0"))
    target = server.bind()
    await server.start(services)
    monkeypatch.setenv("WONDER_SERVER", target)
    yield target
    await server.stop(0)


def out(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the printed text without the lines of the server log."""
    return "".join(line for line in capsys.readouterr().out.splitlines(keepends=True) if "[debug" not in line)


async def wonder(*argv: str) -> int:
    return await asyncio.to_thread(cli.main, argv)


async def test_the_allowed_hosts_of_a_project_are_set_and_removed(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await wonder("project", "create", "shop", "--description", "Sells.") == 0
    assert await wonder("project", "list") == 0
    output = out(capsys)
    assert "project shop created (proj_" in output
    assert [line.split("\t")[0] for line in output.splitlines()[1:]] == ["shop", "default"]
    assert await wonder("project", "allow", "shop", "127.0.0.1:8099", "ci.internal", "127.0.0.1:8099") == 0
    assert await wonder("project", "allow", "shop", "ci.internal") == 0
    assert "reach: public addresses, 127.0.0.1:8099, ci.internal\n" in out(capsys)
    assert await wonder("project", "allow", "shop", "--only") == 0
    assert await wonder("project", "disallow", "shop", "ci.internal") == 0
    assert await wonder("project", "show", "shop") == 0
    assert out(capsys).endswith("Sells.\nhttp and mcp reach: 127.0.0.1:8099\n")
    assert await wonder("project", "shell", "shop", "on") == 0
    assert out(capsys).endswith(
        "127.0.0.1:8099\nshell reaches the same, over HTTP and CONNECT through the server's egress proxy\n"
    )
    assert await wonder("project", "shell", "shop", "off") == 0
    assert out(capsys).endswith("Sells.\nhttp and mcp reach: 127.0.0.1:8099\n")


TRIVIA = """\
name: {name}
description: {description}
persona:
  system_prompt: You ask questions.
"""


async def test_libraries_definitions_and_revisions_are_listed_and_shown(
    address: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "library.yaml").write_text("name: acme/trivia\ndescription: Quizzes.\n")
    for description in ("Asks.", "Asks well."):
        for name in ("host", "guest"):
            text = TRIVIA.format(name=name, description=description if name == "host" else "Answers.")
            (tmp_path / f"{name}.yaml").write_text(text)
        assert await wonder("apply", "-f", str(tmp_path), "--yes") == 0
    out(capsys)

    assert await wonder("libraries") == 0
    listed = [line.split("\t") for line in out(capsys).splitlines()]
    assert [row[0] for row in listed] == ["acme/trivia", "wonder/std"]
    assert listed[0][1] == "2 definitions" and listed[0][3] == "Quizzes."
    assert await wonder("libraries", "--json") == 0
    assert [json.loads(line)["name"] for line in out(capsys).splitlines()] == ["acme/trivia", "wonder/std"]

    assert await wonder("definitions", "--library", "acme/trivia") == 0
    rows = [line.split("\t") for line in out(capsys).splitlines()]
    assert [(*row[:3], row[4]) for row in rows] == [
        ("acme/trivia/guest", "persona", "@1", "Answers."),
        ("acme/trivia/host", "persona", "@2", "Asks well."),
    ]
    assert await wonder("definitions", "--kind", "model_profile", "--kind", "persona", "--json") == 0
    kinds = {json.loads(line)["kind"] for line in out(capsys).splitlines()}
    assert kinds == {"DEFINITION_KIND_MODEL_PROFILE", "DEFINITION_KIND_PERSONA"}
    assert await wonder("definitions", "--library", "acme/trivia", "--kind", "task") == 0
    captured = capsys.readouterr()
    assert "no matching definitions" in captured.err

    assert await wonder("definitions", "revisions", "acme/trivia/host") == 0
    rows = [line.split("\t") for line in out(capsys).splitlines()]
    assert [row[0] for row in rows] == ["acme/trivia/host@2", "acme/trivia/host@1"]
    assert rows[0][3] != rows[1][3] and len(rows[0][3]) == 12
    assert await wonder("definitions", "revisions", "acme/trivia/host", "--json") == 0
    assert [json.loads(line)["revision"] for line in out(capsys).splitlines()] == [2, 1]

    assert await wonder("definitions", "show", "acme/trivia/host@1") == 0
    comment, _, shown = out(capsys).partition("\n")
    assert comment.startswith("# acme/trivia/host@1, saved ")
    assert shown == TRIVIA.format(name="host", description="Asks.")
    assert await wonder("definitions", "show", "acme/trivia/host", "--json") == 0
    assert json.loads(out(capsys))["description"] == "Asks well."


async def test_a_definition_or_library_that_does_not_exist_is_an_error(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for argv, reason in (
        (("definitions", "--library", "acme/nowhere"), "LIBRARY_NOT_FOUND"),
        (("definitions", "show", "wonder/std/nothing"), "DEFINITION_NOT_FOUND"),
        (("definitions", "show", "wonder/std/assistant@99"), "DEFINITION_NOT_FOUND"),
        (("definitions", "revisions", "nothing"), ""),
    ):
        assert await wonder(*argv) == 1
        assert reason in capsys.readouterr().err
    with pytest.raises(SystemExit) as refused:
        await wonder("definitions", "--kind", "nonsense")
    assert refused.value.code == 2


async def test_invalid_arguments_are_refused_and_change_nothing(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await wonder("project", "allow", "default", "http://nonsense/") == 1
    assert "'http://nonsense/' is no entry of http_allow" in capsys.readouterr().err
    assert await wonder("project", "allow", "default") == 2
    assert await wonder("project", "disallow", "default", "10.0.0.1") == 1
    assert "does not allow 10.0.0.1; it allows: nothing" in capsys.readouterr().err
    assert await wonder("project", "show", "nowhere") == 1
    assert "PROJECT_NOT_FOUND" in capsys.readouterr().err
    assert await wonder("project", "show", "default") == 0
    assert out(capsys).endswith("reach: public addresses\n")


async def test_a_declined_deletion_says_that_nothing_was_deleted(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await wonder("project", "create", "shop") == 0
    monkeypatch.setattr(Terminal, "can_ask", True)
    monkeypatch.setattr(Terminal, "confirm", lambda self, question: False)
    out(capsys)
    for argv in (("project", "delete", "shop"), ("agent", "delete", "assistant")):
        assert await wonder(*argv) == 1
        assert out(capsys) == "nothing was deleted\n"


async def test_kinds_of_action_are_listed_and_shown(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert await wonder("actions") == 0
    assert out(capsys) == (
        "http\ttakes url*, body, method\tgives status\tSends a request.\n"
        "resize\ttakes anything\tgives anything\tResizes. (2 workers)\n"
    )
    assert await wonder("actions", "http") == 0
    output = [" ".join(line.split()) for line in out(capsys).splitlines()]
    assert "url string required Where to." in output
    assert 'method any one of: "GET", "PUT".' in output
    assert output[output.index("gives:") + 1] == "status integer"
    assert any("executes it again only if the action says so" in line for line in output)
    assert await wonder("actions", "resize") == 0
    assert "executes it again only if the action says so" in out(capsys), "a worker's work is not repeated"
    assert await wonder("actions", "htp") == 1
    assert capsys.readouterr().err == (
        "wonder: There is no action kind 'htp' (did you mean 'http'?). "
        "List the action kinds with `wonder actions`.\n"
    )
    assert await wonder("actions", "resize", "--json") == 0
    assert json.loads(out(capsys))["worker_count"] == 2


async def test_agents_and_projects_can_be_deleted(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert await wonder("project", "create", "shop") == 0
    assert (
        await wonder("agent", "create", "bot", "--persona", "wonder/std/assistant", "--project", "shop") == 0
    )
    capsys.readouterr()
    assert await wonder("project", "delete", "shop", "--yes") == 1
    assert "RESOURCE_IN_USE" in capsys.readouterr().err
    for argv in (("agent", "delete", "bot"), ("project", "delete", "shop")):
        assert await wonder(*argv) == 2
        assert "Add --yes to delete." in capsys.readouterr().err
    assert await wonder("agent", "delete", "bot", "--yes") == 0
    assert await wonder("project", "delete", "shop", "--yes") == 0
    assert out(capsys) == "agent bot deleted\nproject shop deleted\n"
    assert await wonder("agent", "delete", "bot", "--yes") == 1
    assert "AGENT_NOT_FOUND" in capsys.readouterr().err


async def test_the_usage_of_agents_and_projects_is_shown(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await wonder("usage", "assistant") == 0
    assert "calls: 7\n" in (output := out(capsys)) and "cost: $0.0056\n" in output
    assert await wonder("usage", "assistant", "--json") == 0
    assert json.loads(out(capsys))["model_calls"] == 7
    assert await wonder("usage") == 0
    assert out(capsys).startswith("calls: 7\n")
    assert await wonder("usage", "nobody") == 1
    assert "AGENT_NOT_FOUND" in capsys.readouterr().err


def test_a_cost_that_is_not_known_says_why() -> None:
    usage = v1.Usage(model_calls=3, input_tokens=5, cost_unknown=2)
    assert usage_lines(usage)[-1] == "cost: unknown, since 2 calls had no known price"


async def test_the_usage_of_an_agent_is_shown_and_limited(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await wonder("agent", "show", "assistant", "--json") == 0
    assert json.loads(out(capsys))["name"] == "assistant"
    assert await wonder("agent", "show", "assistant") == 0
    output = out(capsys)
    assert "usage: 1,234 tokens in 7 model calls, cost $0.0056\n" in output
    assert "budget: unlimited\n" in output
    assert (
        "memory extraction failed 7 times in a row since 1970-01-01 00:01 UTC (team/extract@3): "
        "The run took longer than 30 s.\n  the last run: wonder runs show run_1\n"
    ) in output
    assert (
        await wonder("agent", "budget", "assistant", "--tokens", "5e6", "--cost", "20", "--time", "90") == 0
    )
    assert "budget: 5,000,000 tokens, $20.00, 90 s\n" in out(capsys)
    assert await wonder("agent", "budget", "assistant", "--cost", "0.5") == 0
    assert "budget: $0.50\n" in out(capsys)
    assert await wonder("agent", "budget", "assistant", "--none") == 0
    assert "budget: unlimited\n" in out(capsys)
    for wrong in ((), ("--none", "--cost", "1")):
        assert await wonder("agent", "budget", "assistant", *wrong) == 2
    assert "or --none" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        await wonder("agent", "budget", "assistant", "--tokens", "-3")
