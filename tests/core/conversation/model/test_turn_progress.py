"""Tests of the progress of a turn: what decisions about it carry."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.replacing import replace
from wonder_server.core.actor.commands import Parent
from wonder_server.core.conversation.model.turn_progress import TurnProgress, progress_of, with_progress
from wonder_server.core.conversation.model.values import Caller, Turn, TurnStatus
from wonder_server.core.errors import Fault, Reason

START = Turn(
    id="turn_1",
    conversation_id="conv_1",
    ordinal=3,
    caller=Caller(user_id="ann"),
    agent_id="agt_1",
    agent_name="helper",
    persona="shop/helper@1",
    input="Which colour?",
    metadata={"kind": "question"},
    created_ms=5,
    call_chain=("agt_2",),
)
CHANGING = tuple(name for name in TurnProgress.__struct_fields__ if name not in ("id", "agent_id"))
COUNTS = st.integers(0, 1 << 40)
PROGRESS = st.builds(
    TurnProgress,
    id=st.just(START.id),
    agent_id=st.just(START.agent_id),
    status=st.sampled_from(TurnStatus),
    fault=st.none() | st.builds(Fault, reason=st.sampled_from(Reason), message=st.text()),
    context_assembly_run_id=st.sampled_from(("", "run_1", "run_2")),
    memory_extraction_run_id=st.sampled_from(("", "run_3")),
    memory_extraction_failed=st.booleans(),
    **{
        name: COUNTS for name in CHANGING if name.endswith(("tokens", "micros", "calls", "failures", "moves"))
    },
    completed_ms=COUNTS,
    parent=st.none() | st.builds(Parent, actor_id=st.text(), operation_id=st.text(), child_id=st.text()),
    output=st.none() | st.text(),
)


@given(PROGRESS, PROGRESS)
def test_a_turn_takes_over_every_field_of_a_progress_and_keeps_the_others(
    earlier: TurnProgress, later: TurnProgress
) -> None:
    before = with_progress(START, earlier)
    after = replace(before, **{name: getattr(later, name) for name in CHANGING})
    assert with_progress(before, later) == after
    assert progress_of(after) == later


@given(PROGRESS)
def test_a_whole_turn_of_an_older_journal_is_read_as_its_progress(progress: TurnProgress) -> None:
    whole = msgspec.json.encode(with_progress(START, progress))
    assert msgspec.json.decode(whole, type=TurnProgress) == progress


def test_defaults_are_those_of_a_turn() -> None:
    """A field that is not stored has its default, so both classes must read it alike."""
    for name in CHANGING:
        assert getattr(progress_of(START), name) == getattr(TurnProgress(id="", agent_id=""), name)


def test_a_progress_does_not_repeat_what_the_turn_started_with() -> None:
    assert b"colour" not in msgspec.json.encode(progress_of(START))
