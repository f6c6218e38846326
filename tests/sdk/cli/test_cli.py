"""The `wonder` command against fake servers."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from tests.sdk.fake_server import CONVERSATION, FakeConversation, event, serving
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as conversations
from wonder.v1 import definition_pb2 as definition
from wonder.v1 import errors_pb2 as errors
from wonder.v1 import event_pb2 as events
from wonder.v1 import library_pb2 as library
from wonder.v1 import library_service_pb2 as service
from wonder.v1 import library_service_pb2_grpc as rpc
from wonder_sdk import cli
from wonder_sdk.cli.conversation.preview import shown_model
from wonder_sdk.cli.shared.listing import aligned
from wonder_sdk.cli.shared.terminal import Terminal, printable
from wonder_sdk.cli.shared.text_summary import one_line
from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.rpc.server.error_codes import to_rpc_status

ANSWER = """\
Let me look …
Your cät 🐈 is Mia.
"""
NOTES = """\
  → recall query: the cat
  ← recall Mia
  turn 1 · 2 moves
  continue with: wonder chat -c conv_1
"""
REPLY = """\
assistant> Let me look …
  → recall query: the cat
  ← recall Mia
assistant> Your dog
  the answer restarts
assistant> Your cät 🐈 is Mia.
  turn 1 · 2 moves
"""


class FakeLibrary(rpc.LibraryServiceServicer):
    """One library, kept in memory; two definitions of one name are what it finds fault with."""

    def __init__(self) -> None:
        self.description: str | None = None
        self.clashes = 0
        self.definitions: dict[str, definition.Definition] = {}

    async def CreateLibrary(
        self, request: service.CreateLibraryRequest, context: object
    ) -> service.CreateLibraryResponse:
        if self.description is not None:
            self.clashes += 1
        self.description = request.library.description
        return service.CreateLibraryResponse(library=request.library)

    async def GetLibrary(
        self, request: service.GetLibraryRequest, context: object
    ) -> service.GetLibraryResponse:
        if self.description is None:
            fault = Fault(reason=Reason.LIBRARY_NOT_FOUND, message="There is no such library.")
            output = to_rpc_status(WonderError(fault))
            await context.abort(output.code, output.message, output.trailers)
        found = library.Library(name=request.library_id, description=self.description or "")
        return service.GetLibraryResponse(library=found)

    async def ExportDefinitions(
        self, request: service.ExportDefinitionsRequest, context: object
    ) -> service.ExportDefinitionsResponse:
        """List in two pages, so that clients must request the second."""
        names = sorted(self.definitions)
        first = not request.page_token
        return service.ExportDefinitionsResponse(
            definitions=[self.definitions[name] for name in (names[:1] if first else names[1:])],
            next_page_token="more" if first else "",
        )

    async def ListAgents(
        self, request: service.ListAgentsRequest, context: object
    ) -> service.ListAgentsResponse:
        return service.ListAgentsResponse()

    async def ListProjects(
        self, request: service.ListProjectsRequest, context: object
    ) -> service.ListProjectsResponse:
        return service.ListProjectsResponse()

    async def ApplyDefinitions(
        self, request: service.ApplyDefinitionsRequest, context: object
    ) -> service.ApplyDefinitionsResponse:
        for index, each in enumerate(request.definitions):
            if each.name == "bad":
                fault = Fault(
                    reason=Reason.DEFINITION_INVALID,
                    message="unknown name `x`",
                    field=f"definitions[{index}].action.kind",
                )
                output = to_rpc_status(WonderError(fault, faults=(fault,)))
                await context.abort(output.code, output.message, output.trailers)
        changes = [self._change(each) for each in request.definitions]
        names = {each.name for each in request.definitions}
        if request.prune:
            changes += [
                service.DefinitionChange(
                    action=service.DEFINITION_CHANGE_ACTION_DELETED,
                    kind=definition.DEFINITION_KIND_ACTION,
                    name=name,
                )
                for name in sorted(self.definitions.keys() - names)
            ]
        if not request.validate_only:
            kept = {} if request.prune else self.definitions
            self.definitions = {**kept, **{each.name: each for each in request.definitions}}
        return service.ApplyDefinitionsResponse(changes=changes)

    def _change(self, each: definition.Definition) -> service.DefinitionChange:
        old = self.definitions.get(each.name)
        if old == each:
            action, diff = service.DEFINITION_CHANGE_ACTION_UNCHANGED, []
        elif old is None:
            action, diff = service.DEFINITION_CHANGE_ACTION_CREATED, [f"+name: {each.name}"]
        else:
            action, diff = service.DEFINITION_CHANGE_ACTION_UPDATED, ["-  kind: a", "+  kind: b"]
        return service.DefinitionChange(
            action=action, kind=definition.DEFINITION_KIND_ACTION, name=each.name, new_revision=2, diff=diff
        )


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("GRPC_VERBOSITY", "NONE")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    yield


async def wonder(*argv: str) -> int:
    """Run the command in a thread; the event loop serves the fake server."""
    return await asyncio.to_thread(cli.main, argv)


def without_trailing_spaces(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


async def test_a_message_and_its_answer_are_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("What is my cat called?\n"))
    async with serving(FakeConversation()) as address:
        code = await wonder("chat", "--server", address)
    assert without_trailing_spaces(capsys.readouterr().out) == REPLY
    assert code == 0


async def test_the_stdout_of_one_message_is_only_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    async with serving(FakeConversation()) as address:
        code = await wonder("chat", "-m", "What is my cat called?", "--server", address)
    captured = capsys.readouterr()
    assert without_trailing_spaces(captured.out) == ANSWER
    assert without_trailing_spaces(captured.err) == NOTES
    assert code == 0


@pytest.mark.parametrize(
    ("token", "flags", "member", "speaker"),
    [
        ("", (), ["user"], ""),
        ("token-of-ann-0123456789", (), [], ""),
        ("token-of-proxy-0123456789", ("--user", "bob"), ["bob"], "bob"),
    ],
)
async def test_the_server_chooses_the_user_without_a_flag(
    monkeypatch: pytest.MonkeyPatch, token: str, flags: tuple[str, ...], member: list[str], speaker: str
) -> None:
    monkeypatch.setenv("WONDER_TOKEN", token)
    fake = FakeConversation()
    async with serving(fake) as address:
        assert await wonder("chat", "-m", "Hello", *flags, "--server", address) == 0
    created, _, output = fake.requests[:3]
    people = created.conversation.participants
    assert [each.user.user_id for each in people if each.HasField("user")] == member
    assert output.send.user_id == speaker


async def test_a_conversation_is_created_in_a_project_and_listed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Listing(FakeConversation):
        async def ListConversations(
            self, request: service.ListConversationsRequest, context: Any
        ) -> conversations.ListConversationsResponse:
            self.requests.append(request)
            listed = conversation.Conversation(id=f"{CONVERSATION}{request.page_token}", turn_count=1)
            listed.participants.add().user.user_id = "ada"
            listed.participants.add().agent.name = "developer"
            token = "" if request.page_token else "0"
            return conversations.ListConversationsResponse(conversations=[listed], next_page_token=token)

    monkeypatch.setattr(sys, "stdin", io.StringIO("Hello\n"))
    fake = Listing()
    async with serving(fake) as address:
        assert await wonder("chat", "--project", "shop", "--server", address) == 0
        captured = capsys.readouterr()
        assert fake.requests[0].conversation.project_id == "shop"
        assert captured.err == f"  continue with: wonder chat -c {CONVERSATION}\n"
        assert await wonder("chat", "-c", CONVERSATION, "--project", "shop", "--server", address) == 2
        listing = ["conversations", "-a", "developer", "--project", "shop", "--server", address]
        assert await wonder(*listing) == 0
        assert await wonder(*listing, "-n", "1", "--json") == 0
    first, second, whole = capsys.readouterr().out.splitlines()
    assert first.split("\t") == [CONVERSATION, "", "1 turn", "ada, developer"]
    assert second.startswith(f"{CONVERSATION}0\t") and json.loads(whole)["id"] == CONVERSATION
    assert (fake.requests[-1].agent_id, fake.requests[-1].project_id) == ("developer", "shop")
    assert not fake.requests[-1].include_archived


async def test_archived_conversations_are_listed_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    class Listing(FakeConversation):
        async def ListConversations(
            self, request: service.ListConversationsRequest, context: Any
        ) -> conversations.ListConversationsResponse:
            kept = conversation.Conversation(id="conv_1", title="Kept")
            away = conversation.Conversation(id="conv_2", title="Away", archive_time=Timestamp(seconds=86400))
            listed = [kept, away] if request.include_archived else [kept]
            return conversations.ListConversationsResponse(conversations=listed)

    async with serving(Listing()) as address:
        assert await wonder("conversations", "--server", address) == 0
        assert capsys.readouterr().out.splitlines() == ["conv_1\t\t0 turns\t\tKept"]
        assert await wonder("conversations", "--archived", "--server", address) == 0
    kept, away = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert kept == ["conv_1", "", "0 turns", "", "", "Kept"]
    assert away[4].startswith("archived 1970-01-") and away[5] == "Away"


async def test_each_line_of_the_input_is_a_message(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("/help\n\n/what now\nHello\n/quit\nnever said\n"))
    fake = FakeConversation()
    async with serving(fake) as address:
        code = await wonder("chat", "--conversation", CONVERSATION, "--server", address)
    printed = capsys.readouterr().out
    assert "/quit    Exit" in printed
    assert "/what is not a command" in printed
    assert "is Mia." in printed
    assert [each.send.content for each in fake.requests if each.HasField("send")] == ["Hello"]
    assert code == 0


async def test_piped_input_is_appended_to_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("a diff"))
    fake = FakeConversation()
    async with serving(fake) as address:
        await wonder("chat", "-m", "Review this:", "-", "--server", address)
    assert fake.requests[2].send.content == "Review this:\n\na diff"


async def test_a_failed_turn_prints_its_error_and_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    turn = conversation.Turn(id="turn_1", ordinal=1, status=conversation.TURN_STATUS_FAILED)
    turn.error.CopyFrom(
        errors.Fault(reason=errors.ERROR_REASON_MODEL_FAILED, message="The key is not valid.")
    )
    fake = FakeConversation(script=[event(2, "turn.failed", turn_failed=turn)])
    async with serving(fake) as address:
        code = await wonder("chat", "-m", "Hello", "--server", address)
    captured = capsys.readouterr()
    assert "The key is not valid." in captured.err
    assert captured.out == ""
    assert code == 1


async def test_a_refused_message_prints_one_line_without_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Refusing(FakeConversation):
        def _take(self, request_id: str, answers: Any) -> None:
            self.refuse[request_id] = errors.Fault(
                reason=errors.ERROR_REASON_CONVERSATION_NOT_ACTIVE,
                message="This \x1b[2Jconversation is completed.",
            )
            super()._take(request_id, answers)

    async with serving(Refusing()) as address:
        code = await wonder("chat", "-m", "Hello", "--server", address)
    captured = capsys.readouterr()
    assert captured.err == "wonder: This [2Jconversation is completed. (CONVERSATION_NOT_ACTIVE)\n"
    assert code == 1


@pytest.mark.parametrize(
    "command", [["health"], ["chat", "-m", "hi"], ["events", "conv_1"], ["export", "a", "-o", "b"]]
)
async def test_without_a_server_the_command_explains_the_start(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert await wonder(*command, "--server", "127.0.0.1:1") == 1
    assert capsys.readouterr().err == (
        "wonder: No server listens on 127.0.0.1:1. Start one with `wonder serve`, or name another with "
        "--server.\n"
    )


async def test_health(capsys: pytest.CaptureFixture[str]) -> None:
    async with serving() as address:
        assert await wonder("health", "--server", address) == 0
    assert capsys.readouterr().out == f"{address}: serving\n"


async def test_events_are_listed_as_text_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    fake = FakeConversation(started=["r-1"])
    fake.past += fake.script
    async with serving(fake) as address:
        await wonder("events", CONVERSATION, "--after", "8", "--server", address)
        await wonder("events", CONVERSATION, "--after", "9", "--json", "--server", address)
        await wonder("events", CONVERSATION, "--after", "7", "--server", address)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[:2]] == [
        ["9", "turn.completed", "turn_1"],
        ["10", "memory_extraction.completed", "turn_1"],
    ]
    assert '"memory_extraction_completed": {"run_id": "run_1"}' in lines[2]
    assert lines[3].split()[2:4] == ["turn_1", "msg_b"] and lines[3].endswith("  Your cät 🐈 is Mia.")


async def test_events_of_failures_show_the_error_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    down = errors.Fault(reason=errors.ERROR_REASON_MODEL_UNAVAILABLE, message="It is\ndown.")
    hook = events.HookOutcome(run_id="run_1", error=down)
    denied = conversation.ToolError(code=conversation.TOOL_ERROR_CODE_NOT_FOUND, message="No such tool.")
    refused = events.ToolOutcome(tool_result=conversation.ToolResult(error=denied))
    fake = FakeConversation()
    fake.past += [
        event(2, "context_assembly.failed", context_assembly_failed=hook),
        event(3, "memory_extraction.failed", memory_extraction_failed=hook),
        event(4, "tool.failed", tool_failed=events.ToolOutcome(error=down)),
        event(5, "tool.failed", tool_failed=refused),
        event(6, "workflow_failed", workflow_failed=events.WorkflowProgress(error=down)),
        event(7, "agent_call_completed", agent_call_completed=events.AgentCallProgress(error=down)),
        event(8, "agent_call_completed", agent_call_completed=events.AgentCallProgress()),
        event(9, "turn.failed", turn_failed=conversation.Turn(error=down)),
        event(10, "turn.failed", turn_failed=conversation.Turn(error=errors.Fault(message="Odd."))),
    ]
    async with serving(fake) as address:
        assert await wonder("events", CONVERSATION, "--after", "1", "--server", address) == 0
    output = [line.partition("turn_1")[2].strip() for line in capsys.readouterr().out.splitlines()]
    reason = "It is down. (MODEL_UNAVAILABLE)"
    assert output == [
        reason,
        reason,
        reason,
        "No such tool. (NOT_FOUND)",
        reason,
        reason,
        "",
        reason,
        "Odd. (UNSPECIFIED)",
    ]


async def test_a_preview_shows_the_parts_of_a_request(capsys: pytest.CaptureFixture[str]) -> None:
    async with serving(FakeConversation()) as address:
        assert await wonder("preview", CONVERSATION, "What is it?", "--server", address) == 0
        assert await wonder("preview", CONVERSATION, "What is it?", "--json", "--server", address) == 0
    memory, output, source, notice, extraction, total, whole = capsys.readouterr().out.splitlines()
    assert (source, notice) == ("2 tools of files, list 0a1b", "    It is slow.")
    assert memory.split()[:2] == ["memory", "mem_1"] and memory.endswith("…")
    assert output.split()[:2] == ["message", "3"] and output.endswith("What is it?")
    assert extraction == "memory extraction with offline/s (a/cheap@2)"
    assert total == "about 1,234 of 8,000 tokens for offline/m"
    assert shown_model("offline", "") == "offline"
    assert '"input_tokens": "1234"' in whole or '"input_tokens": 1234' in whole


async def test_an_applied_folder_is_exported_without_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "library.yaml").write_text("name: acme/tools\ndescription: Ours.\n")
    (tmp_path / "all.yaml").write_text("name: a\naction: {kind: http}\n---\nname: b\naction: {kind: http}\n")
    fake = FakeLibrary()
    async with serving(library=fake) as address:
        at = ("--server", address)
        assert await wonder("apply", "-f", str(tmp_path), "--dry-run", "-v", *at) == 0
        assert not fake.definitions
        assert await wonder("apply", "-f", str(tmp_path), *at) == 0
        assert await wonder("export", "acme/tools", "-o", str(tmp_path / "copy"), *at) == 0
        assert await wonder("apply", "-f", str(tmp_path / "copy"), *at) == 0
        (tmp_path / "all.yaml").write_text("name: a\naction: {kind: assert}\n")
        assert await wonder("apply", "-f", str(tmp_path / "all.yaml"), "--prune", "-v", *at) == 2
        assert sorted(fake.definitions) == ["a", "b"]
        assert await wonder("apply", "-f", str(tmp_path / "all.yaml"), "--prune", "--yes", *at) == 0

    assert sorted(fake.definitions) == ["a"]
    assert fake.description == "Ours."
    assert fake.clashes == 0
    printed = capsys.readouterr()
    assert "--prune would delete 1 definition" in printed.err and "Add --yes to delete." in printed.err
    assert printed.out == (
        "+ action a\n"
        "    +name: a\n"
        "+ action b\n"
        "    +name: b\n"
        "library acme/tools: 2 created; nothing was saved\n"
        "+ action a\n"
        "+ action b\n"
        "library acme/tools applied: 2 created\n"
        f"library acme/tools: 3 files in {tmp_path}/copy\n"
        "library acme/tools: nothing to change (2 definitions)\n"
        "~ action a (revision 2)\n"
        "    -  kind: a\n"
        "    +  kind: b\n"
        "- action b\n"
        "~ action a (revision 2)\n"
        "    -  kind: a\n"
        "    +  kind: b\n"
        "- action b\n"
        "library acme/tools applied: 1 updated, 1 deleted\n"
    )


async def test_faults_of_the_server_are_shown_with_file_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("name: bad\naction:\n  kind: x\n")
    async with serving(library=FakeLibrary()) as address:
        code = await wonder("apply", "-f", str(file), "--library", "acme", "--server", address)
    assert capsys.readouterr().err == f"{file}:3: action.kind: unknown name `x`\n"
    assert code == 1


async def test_faults_of_files_and_of_the_server_are_shown_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("name: bad\naction:\n  kind: x\n  timeout: 5\n")
    unread = f"{file}:4: action.timeout: the field does not exist; did you mean 'timeout_ms'?\n"
    async with serving(library=FakeLibrary()) as address:
        code = await wonder("apply", "-f", str(file), "--library", "acme", "--server", address)
        assert capsys.readouterr().err == f"{file}:3: action.kind: unknown name `x`\n{unread}"
    assert code == 1
    assert await wonder("apply", "-f", str(file), "--library", "acme", "--server", address) == 1
    assert capsys.readouterr().err == unread  # the server has gone


async def test_files_that_cannot_be_read_never_reach_a_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text("name: [")
    assert await wonder("apply", "-f", str(tmp_path)) == 1
    which, fault, *_ = capsys.readouterr().err.splitlines()
    assert which == f"wonder: the library is not named. Set --library or `name:` in {tmp_path}/library.yaml."
    assert fault.startswith(f"{tmp_path}/a.yaml:1: ")
    (tmp_path / "a.yaml").write_text("name: a\naction: {kind: context, timeout: 5}\n")
    assert await wonder("apply", "-f", str(tmp_path)) == 1
    which, fault = capsys.readouterr().err.splitlines()
    assert "the library is not named" in which and fault.endswith("did you mean 'timeout_ms'?")
    (tmp_path / "library.yaml").write_text("name: acme\n")
    assert await wonder("apply", "-f", str(tmp_path), "--server", "127.0.0.1:1") == 1
    assert "the library is not named" not in capsys.readouterr().err
    (tmp_path / "library.yaml").unlink()
    (tmp_path / "a.yaml").write_text("name: a\ntask: {}\n")
    assert await wonder("apply", "-f", str(tmp_path)) == 2
    assert "the library is not named" in capsys.readouterr().err
    assert await wonder("apply", "-f", str(tmp_path / "nowhere")) == 1
    assert capsys.readouterr().err == f"wonder: {tmp_path}/nowhere: No such file or directory\n"


async def test_a_message_is_printed_whole_by_default_the_latest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Long(FakeConversation):
        async def ListMessages(
            self, request: conversations.ListMessagesRequest, context: object
        ) -> conversations.ListMessagesResponse:
            assert request.page_size == 1
            latest = conversation.Message(id="msg_b")
            return conversations.ListMessagesResponse(messages=[latest] if self.script else [])

        async def ReadMessage(self, request: conversations.ReadMessageRequest, context: object) -> Any:
            for piece in ("Your cät ", f"is {request.message_id}."):
                yield conversations.ReadMessageResponse(content=piece)

    async with serving(Long()) as address:
        assert await wonder("message", CONVERSATION, "--server", address) == 0
        assert await wonder("message", CONVERSATION, "msg_a", "--server", address) == 0
    assert capsys.readouterr().out == "Your cät is msg_b.\nYour cät is msg_a.\n"
    async with serving(Long(script=[])) as address:
        assert await wonder("message", CONVERSATION, "--server", address) == 1
        assert capsys.readouterr().err == f"wonder: {CONVERSATION} has no message\n"
        for more, named in (([], "CONVERSATION"), ([CONVERSATION], CONVERSATION)):
            assert await wonder("message", "msg_a", *more, "--server", address) == 2
            output = capsys.readouterr().err
            assert output.startswith("wonder: 'msg_a' is the id of a message. ")
            assert output.endswith(f"first: wonder message {named} msg_a\n")


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("chat", "apply", "export", "events", "message", "preview", "health"):
        with pytest.raises(SystemExit) as left:
            cli.main([command, "--help"])
        assert left.value.code == 0
        assert f"wonder {command} " in capsys.readouterr().out.replace(f"usage: wonder {command} ", "")
    assert cli.main([]) == 2
    assert "wonder serve" in capsys.readouterr().out
    assert cli.main(["version"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("wonder-sdk ")
    with pytest.raises(SystemExit) as left:
        cli.main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out == shown


def test_serve_without_the_server_package_names_the_package(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "entry_points", lambda group: [])
    assert cli.main(["serve", "--data-dir", "here", "--help"]) == 1
    assert (
        capsys.readouterr().err == "wonder: the server is not installed. Install the package wonder-server.\n"
    )


def test_agents_are_listed_in_columns() -> None:
    rows = aligned([("a", "acme/x", "agt_1"), ("longer", "p", "agt_2")])
    assert rows == [("a     ", "acme/x", "agt_1"), ("longer", "p     ", "agt_2")]


def test_other_packages_add_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        def __init__(self, name: str, register: Any) -> None:
            self.name, self._register = name, register

        def load(self) -> Any:
            if self._register is None:
                raise ImportError("it is broken")
            return self._register

    def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
        subparsers.add_parser("seven").set_defaults(run=lambda arguments: 7)

    monkeypatch.setattr(cli, "entry_points", lambda group: [Entry("seven", register), Entry("broken", None)])
    assert cli.main(["seven"]) == 7


def test_text_of_the_server_cannot_control_the_terminal() -> None:
    assert printable("\x1b[31mred\x1b[0m\a\r\n\tok") == "[31mred[0m\n\tok"


def test_colours_need_a_terminal_and_respect_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Terminal(Screen()).style("x", "dim") == "\x1b[2mx\x1b[0m"
    assert Terminal(io.StringIO()).style("x", "dim") == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Terminal(Screen()).style("x", "dim") == "x"


def test_compact_json_is_one_line() -> None:
    assert (
        one_line({"a": "b", "n": 3.0, "l": ["x", True], "o": {"k": None}})
        == "a: b, n: 3, l: [x, true], o: {k: null}"
    )
    assert one_line("long " * 50).endswith("…")
    assert one_line(None) == ""
