"""Traces: read from what callers bring, or named after what everything began with."""

from __future__ import annotations

import pytest

from wonder_server.core.actor import trace
from wonder_server.core.actor.commands import Scope

ID = "0af7651916cd43dd8448eb211c80319c"
TURN, RUN, CHILD = (f"{kind}_01HF7YAT0000000000000000{tail}" for kind, tail in
                    (("turn", "A1"), ("run", "B1"), ("run", "C1")))  # fmt: skip


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (f"00-{ID}-b7ad6b7169203331-01", ID),
        (f" 00-{ID}-b7ad6b7169203331-00 ", ID),
        (f"cc-{ID}-b7ad6b7169203331-01-what-comes", ID),
        (f"00-{ID}-b7ad6b7169203331-01-more", ""),
        (f"ff-{ID}-b7ad6b7169203331-01", ""),
        (f"00-{ID.upper()}-b7ad6b7169203331-01", ""),
        (f"00-{'0' * 32}-b7ad6b7169203331-01", ""),
        (f"00-{ID}-{'0' * 16}-01", ""),
        (f"00-{ID}", ""),
        ("", ""),
        ("x" * 10_000, ""),
    ],
)
def test_a_traceparent_names_a_trace_or_a_new_one_begins(header: str, found: str) -> None:
    assert trace.parse_traceparent(header) == found


def test_a_trace_is_named_after_the_turn_or_run_that_it_begins_with() -> None:
    names = {trace.root_trace_id(each) for each in (TURN, RUN, CHILD)}
    assert len(names) == 3 and all(
        trace.parse_traceparent(f"00-{name}-b7ad6b7169203331-01") == name for name in names
    )
    largest = "turn_7ZZZZZZZZZZZZZZZZZZZZZZZZZ"
    assert trace.root_trace_id(largest) == "f" * 32
    assert trace.root_trace_id("exec_1") != trace.root_trace_id("exec_2")


def test_what_a_turn_or_a_run_leads_to_is_in_its_trace() -> None:
    tool = Scope(turn_id=TURN, run_id=RUN, key="op_1")
    assert trace.scope_trace_id(tool) == trace.root_trace_id(TURN)
    below = Scope(run_id=CHILD, root_id=RUN, key="k")
    assert trace.scope_trace_id(below) == trace.scope_trace_id(Scope(run_id=RUN)) == trace.root_trace_id(RUN)
    assert trace.scope_trace_id(Scope(turn_id=TURN, trace_id=ID)) == ID


def test_a_worker_is_given_a_span_for_each_operation() -> None:
    first, second = (trace.traceparent(Scope(turn_id=TURN, key=key)) for key in ("op_1", "op_2"))
    assert trace.parse_traceparent(first) == trace.parse_traceparent(second) == trace.root_trace_id(TURN)
    assert first != second
