"""`wonder chat` at a terminal: prompt, colours and Ctrl-C."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from tests.paths import ROOT
from tests.sdk.fake_server import (
    CONVERSATION,
    FakeConversation,
    completed,
    delta,
    event,
    message_event,
    serving,
)
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as service
from wonder.v1 import definition_pb2 as definition
from wonder_sdk.cli.conversation import chat, line_history
from wonder_sdk.cli.shared.terminal import Terminal

# A session leader that opens a terminal receives Ctrl-C from it.
AT_TERMINAL = """
import os, signal, sys
from wonder_sdk.cli import main
os.open(os.ttyname(0), os.O_RDWR)
# A test run in the background of a shell ignores Ctrl-C, and its processes inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main())
"""
CANCELLED = conversation.Turn(id="turn_1", ordinal=1, status=conversation.TURN_STATUS_CANCELLED)


class Patient(FakeConversation):
    """A fake conversation that streams text and then waits until its turn is cancelled."""

    def __init__(self) -> None:
        super().__init__(script=[event(2, "conversation_turn"), delta(0, "Well, let me think")])

    async def _listen(self, requests: Any, answers: Any) -> None:
        async def watched() -> Any:
            async for request in requests:
                yield request
                if request.HasField("cancel"):
                    self.script.append(event(3, "turn.cancelled", turn_cancelled=CANCELLED))

        await super()._listen(watched(), answers)


class Person:
    """A user at a terminal that runs `wonder chat` or another command."""

    def __init__(self, address: str, home: Path, *command: str, **environment: str) -> None:
        self._terminal, theirs = pty.openpty()
        paths = os.pathsep.join(str(ROOT / part) for part in ("server", "gen/python", "sdk/python"))
        self.process = subprocess.Popen(
            [sys.executable, "-c", AT_TERMINAL, *(command or ("chat",)), "--server", address],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "PYTHONPATH": paths, "HOME": str(home), "TERM": "xterm", **environment},
            start_new_session=True,
        )
        os.close(theirs)
        self.screen = ""
        self._read = 0

    def reads(self, text: str) -> None:
        """Wait until ``text`` appears after the text of the previous call."""
        while (found := self.screen.find(text, self._read)) < 0:
            self.screen += os.read(self._terminal, 4096).decode(errors="replace")
        self._read = found + len(text)

    def types(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def leaves(self) -> int:
        try:
            while more := os.read(self._terminal, 4096):
                self.screen += more.decode(errors="replace")
        except OSError:  # the terminal raises this once no process has it open
            pass
        os.close(self._terminal)
        return self.process.wait(60)


def _cancel_and_leave(person: Person) -> int:
    person.reads("you> ")
    person.types("Hello\r")
    person.reads("let me think")
    person.types("\x03")
    person.reads("cancelled")
    person.reads("you> ")
    person.types("\x04")
    return person.leaves()


async def test_ctrl_c_cancels_the_turn_and_not_the_program(tmp_path: Path) -> None:
    fake = Patient()
    async with serving(fake) as address:
        person = Person(address, tmp_path)
        code = await asyncio.to_thread(_cancel_and_leave, person)

    assert code == 0
    assert "\x1b[" in person.screen
    assert f"wonder chat -c {CONVERSATION}" in person.screen
    intents = [each.WhichOneof("intent") for each in fake.requests[1:]]
    assert intents == ["attach", "send", "cancel", "detach"]
    assert (tmp_path / ".wonder_history").read_text() == "Hello\n"


def _answer_of_critic() -> list[service.ConverseResponse]:
    turn = conversation.Turn(id="turn_1", ordinal=1, agent_id="agt_2")
    return [
        event(2, "conversation_turn", conversation_turn=turn),
        delta(0, "Never on a Friday."),
        message_event(3, "Never on a Friday."),
        completed(4),
    ]


def _ask_critic(person: Person) -> int:
    person.reads("Ctrl-D or /quit leaves, the conversation stays")
    person.reads("@assistant, @critic: write @NAME to choose who answers; assistant does otherwise")
    person.reads("you> ")
    person.types("@critik Which day?\r")
    person.reads("no agent here is called critik; assistant answers. Agents: @assistant, @critic")
    person.reads("critic> ")
    person.reads("Never on a Friday.")
    person.reads("you> ")
    person.types("\x04")
    return person.leaves()


async def test_with_several_agents_the_one_that_answers_is_named(tmp_path: Path) -> None:
    fake = FakeConversation(script=_answer_of_critic(), agents=("assistant", "critic"))
    async with serving(fake) as address:
        command = ("chat", "-a", "assistant", "-a", "critic", "--concurrent-turns", "queue")
        person = Person(address, tmp_path, *command)
        assert await asyncio.to_thread(_ask_critic, person) == 0

    created = cast(service.CreateConversationRequest, fake.requests[0]).conversation
    agents = [each.agent.agent_id for each in created.participants if each.HasField("agent")]
    assert agents == ["assistant", "critic"]
    assert created.concurrent_turns == definition.CONCURRENT_TURNS_QUEUE
    sent = [each.send for each in fake.requests[1:] if each.HasField("send")]
    assert [(each.content, each.agent_id) for each in sent] == [("@critik Which day?", "")]


async def test_a_lost_connection_is_reported_and_loses_no_message(tmp_path: Path) -> None:
    fake = FakeConversation()
    async with serving(fake) as address:
        person = Person(address, tmp_path)
        await asyncio.to_thread(person.reads, "you> ")
    person.types("Hello\r")
    await asyncio.to_thread(person.reads, f"no connection to {address}; reconnecting")
    async with serving(fake, address=address):
        await asyncio.to_thread(person.reads, "connected again")
        await asyncio.to_thread(person.reads, "is Mia.")
        await asyncio.to_thread(person.reads, "you> ")
        person.types("\x04")
        assert await asyncio.to_thread(person.leaves) == 0

    assert len(fake.started) == 1


async def test_while_disconnected_ctrl_c_drops_the_message_and_ctrl_d_exits(tmp_path: Path) -> None:
    fake = FakeConversation()
    async with serving(fake) as address:
        person = Person(address, tmp_path)
        await asyncio.to_thread(person.reads, "you> ")
    person.types("Hello\r")
    for keys, answer in (("", "no connection to"), ("\x03", "cancelled: the message"), ("", "you> ")):
        person.types(keys)
        await asyncio.to_thread(person.reads, answer)
    person.types("\x04")

    assert await asyncio.to_thread(person.leaves) == 0
    assert not fake.started
    assert "Traceback" not in person.screen and "Task" not in person.screen


async def test_a_second_ctrl_c_does_not_wait_and_the_cancel_is_sent_on_reconnect(
    tmp_path: Path,
) -> None:
    fake = Patient()
    async with serving(fake) as address:
        person = Person(address, tmp_path)
        await asyncio.to_thread(person.reads, "you> ")
        person.types("Hello\r")
        await asyncio.to_thread(person.reads, "let me think")
    for keys, answer in (("", "no connection to"), ("\x03", "cancelling"), ("\x03", "you> ")):
        person.types(keys)
        await asyncio.to_thread(person.reads, answer)
    async with serving(fake, address=address), fake.changed:
        await fake.changed.wait_for(lambda: any(each.HasField("cancel") for each in fake.requests[1:]))
    person.types("\x04")

    assert await asyncio.to_thread(person.leaves) == 0
    assert "Traceback" not in person.screen and "Task" not in person.screen


def _thinking() -> FakeConversation:
    piece = service.MessageDelta(
        message_id="msg_a", turn_id="turn_1", text="Hm, so.", kind=service.DELTA_KIND_REASONING
    )
    thought = service.ConverseResponse(delta=piece)
    return FakeConversation(
        script=[
            event(2, "conversation_turn"),
            thought,
            delta(0, "Yes."),
            message_event(3, "Yes."),
            completed(4),
        ]
    )


@pytest.mark.parametrize("flags", [(), ("--show-reasoning",)])
async def test_reasoning_is_dimmed_and_only_shown_on_request(tmp_path: Path, flags: tuple[str, ...]) -> None:
    fake = _thinking()
    async with serving(fake) as address:
        person = Person(address, tmp_path, "chat", "-m", "Hello", *flags)
        assert await asyncio.to_thread(person.leaves) == 0
    assert ("Hm, so." in person.screen) is bool(flags)
    assert ("\x1b[2mHm, so.\x1b[0m" in person.screen) is bool(flags)
    assert "Yes." in person.screen
    first = next(each for each in fake.requests if isinstance(each, service.ConverseRequest))
    assert list(first.attach.delta_kinds) == ([service.DELTA_KIND_REASONING] if flags else [])


def test_at_the_prompt_a_second_ctrl_c_exits(monkeypatch: pytest.MonkeyPatch) -> None:
    typed: list[str | type[BaseException]] = [
        "one", KeyboardInterrupt, "two", KeyboardInterrupt, KeyboardInterrupt, "never"
    ]  # fmt: skip

    def type_next(prompt: str) -> str:
        following = typed.pop(0)
        if isinstance(following, str):
            return following
        raise following

    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("builtins.input", type_next)
    monkeypatch.setattr(sys, "stdin", Screen())
    monkeypatch.setattr(line_history, "keep", lambda: None)
    screen = Screen()
    talk = chat.ChatSession(cast(Any, None), Terminal(screen), chat.ChatOptions())

    assert list(talk._lines()) == ["one", "two"]
    assert typed == ["never"]
    assert "Ctrl-C again" in screen.getvalue()
