"""Every event of the contract has one name, a payload field of that name, and a row in docs/events.md."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from google.protobuf.descriptor import Descriptor

from tests.paths import ROOT
from wonder.v1 import event_pb2, run_pb2
from wonder_server.core.actor.planner import Planner
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.planner import RUN

PAGE = ROOT / "docs" / "events.md"
PROTO = ROOT / "proto" / "wonder" / "v1"
CORE = ROOT / "server" / "wonder_server" / "core"
ROW = re.compile(r"^\| `([a-z_.]+)` \| (●?) ?\| `(\w+)` \|", re.M)
FORM = re.compile(r"[a-z]+(_[a-z]+)*\.([a-z]+(ed|en)|left|reset)")

FIXED = {
    *("conversation_started", "conversation_turn", "conversation_ended"),
    *("workflow_started", "workflow_completed", "workflow_failed"),
    *("agent_call_started", "agent_call_completed"),
    *("turn.completed", "turn.failed", "tool.failed"),
    *("context_assembly.failed", "memory_extraction.failed"),
}
"""Names that never change; some do not have the form of the others."""

STREAMS = [
    pytest.param(
        "Conversations", event_pb2.Event.DESCRIPTOR, "event.proto", CONVERSATION, id="conversations"
    ),
    pytest.param("Runs", run_pb2.RunEvent.DESCRIPTOR, "run.proto", RUN, id="runs"),
]
every_stream = pytest.mark.parametrize(("heading", "message", "file", "planner"), STREAMS)


def rows(heading: str) -> list[tuple[str, str, str]]:
    """Return name, mark and payload of each row below a heading of the page."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n### {heading}\n")[1].split("\n### ")[0]
    return ROW.findall(section)


def commented(file: str, message: str) -> Iterator[tuple[str, str]]:
    """Yield each payload field of a message, and the name of the event that its comment begins with."""
    body = (PROTO / file).read_text(encoding="utf-8").split(f"\nmessage {message} {{\n")[1].split("\n}\n")[0]
    payload = body.split("oneof payload {")[1]
    for comment, field in re.findall(r"((?: *//.*\n)+) *\w+ (\w+) = \d+;", payload):
        found = re.match(r" *// `([a-z_.]+)`:", comment)
        yield field, found[1] if found else ""


@every_stream
def test_the_page_lists_the_events_of_the_contract(
    heading: str, message: Descriptor, file: str, planner: Planner
) -> None:
    fields = message.oneofs_by_name["payload"].fields
    listed = {name.replace(".", "_"): payload for name, _, payload in rows(heading)}
    assert listed == {field.name: field.message_type.name for field in fields}
    assert listed.keys() == planner.event_types.keys()


@every_stream
def test_the_contract_and_the_page_give_each_event_the_same_name(
    heading: str, message: Descriptor, file: str, planner: Planner
) -> None:
    names = {name.replace(".", "_"): name for name, _, _ in rows(heading)}
    assert dict(commented(file, message.name)) == names


@every_stream
def test_a_name_is_fixed_or_a_resource_and_a_past_participle(
    heading: str, message: Descriptor, file: str, planner: Planner
) -> None:
    for name, mark, _ in rows(heading):
        assert bool(mark) == (name in FIXED), name
        assert mark or FORM.fullmatch(name), name


def test_every_fixed_name_is_an_event_of_conversations() -> None:
    assert {name for name, _, _ in rows("Conversations")} >= FIXED


def test_planners_emit_names_of_the_page_only() -> None:
    listed = {name for heading in ("Conversations", "Runs") for name, _, _ in rows(heading)}
    emitted = {
        name
        for path in CORE.rglob("*record.py")
        for name in re.findall(r'Emit\("([^"]+)"', path.read_text(encoding="utf-8"))
    }
    assert emitted and emitted <= listed
