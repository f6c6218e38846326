"""Decisions as clients list them."""

from __future__ import annotations

import re
from typing import get_args

from tests.core.conversation.conversation_kit import ASSEMBLED, Driven, call, text_answer
from tests.paths import ROOT
from wonder_server.core.conversation.model.decisions import Decision, Refuse, WriteMemory
from wonder_server.core.conversation.model.values import Operation, OperationKind
from wonder_server.core.conversation.output.decision_lines import (
    MAX_SUMMARY_CHARACTERS,
    TYPES,
    UPDATE_MEMORY,
    DecisionLine,
    line_of,
)
from wonder_server.core.errors import Fault, Reason

SPECIFIED = set(
    "START_TURN COMPLETE_TURN FAIL_TURN APPEND_MESSAGE CALL_LLM DISPATCH_TASK DISPATCH_WORKFLOW"
    " DISPATCH_AGENT TRACK_ASYNC_OPERATION ASYNC_OPERATION_COMPLETED MARK_WAITING RESUME_FROM_TOOL"
    " WRITE_MEMORY".split()
)


def test_every_decision_has_a_type_of_its_own() -> None:
    assert set(TYPES) == set(get_args(Decision))
    assert len(set(TYPES.values())) == len(TYPES)
    assert SPECIFIED <= set(TYPES.values()) and UPDATE_MEMORY not in TYPES.values()


def test_every_type_is_documented() -> None:
    text = (ROOT / "docs" / "events.md").read_text().partition("## Decisions")[2]
    assert {*TYPES.values(), UPDATE_MEMORY} == set(re.findall(r"`([A-Z]+(?:_[A-Z]+)*)`", text))


def memory(**item: str) -> DecisionLine:
    return line_of(
        WriteMemory(operation=Operation(id="op_1", turn_id="turn_1", kind=OperationKind.MEMORY, input=item))
    )


def test_a_memory_operation_writes_or_updates() -> None:
    assert memory(content="likes tea") == DecisionLine(
        "WRITE_MEMORY", "turn_1", "op_1", '{"content": "likes tea"}'
    )
    assert memory(op="write", content="x").type == "WRITE_MEMORY"
    for op in ("update", "supersede", "archive", "delete", "other"):
        assert memory(op=op, id="mem_1") == DecisionLine(
            UPDATE_MEMORY, "turn_1", "op_1", f'{{"op": "{op}", "id": "mem_1"}}'
        )


def test_a_summary_is_one_bounded_line() -> None:
    long = line_of(Refuse(fault=Fault(reason=Reason.FIELD_INVALID, message="a\n b" * 1_000_000)))
    assert len(long.summary) == MAX_SUMMARY_CHARACTERS and long.summary.endswith("…")
    assert long.summary.startswith("FIELD_INVALID: a ba b") and "\n" not in long.summary


def test_each_decision_of_a_turn_names_its_turn() -> None:
    driven = Driven()
    driven.succeed(OperationKind.ASSEMBLY, ASSEMBLED)
    driven.answer(text_answer("", call("find")))
    driven.succeed(OperationKind.TASK, {"n": 1})
    driven.answer(text_answer("Done."))
    lines = [line_of(each) for each in driven.decided]
    about = {line.type: line for line in lines if line.turn_id}
    assert {line.turn_id for line in about.values()} == {driven.turn.id}
    assert about["RESUME_FROM_TOOL"].summary == "find: success · move 1, end: find"
    assert about["RECORD_MOVE"].summary == "move 2, end"
    assert [line.type for line in lines if not line.turn_id] == ["START_CONVERSATION", "ADD_PARTICIPANT"]
