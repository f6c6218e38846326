"""Tests of usage that is charged to a run outside of turns."""

from __future__ import annotations

import pytest

from tests.core.coordinator.coordinator_kit import PARENT, RUN_ID, Driven, graph, node
from wonder_server.core.actor.changes import Put
from wonder_server.core.budget import CHARGES, Account, add_accounts
from wonder_server.core.coordinator.model.inputs import CancelRun, RunUsageReported
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.model import NO_USAGE, Usage

USED = Usage(input_tokens=10, output_tokens=4, cached_input_tokens=3, cost_micros=7)


def charges(driven: Driven, event: RunUsageReported) -> list[Put]:
    """Return the charges of an input, without applying it."""
    decided = RUN.plan(driven.state, event, driven.now)
    changes = [change for decision in decided for change in RUN.record(driven.state, decision)]
    assert all(isinstance(each, Put) and each.table == CHARGES for each in changes)
    return [each for each in changes if isinstance(each, Put)]


@pytest.mark.parametrize(
    ("usage", "spent"),
    [
        (
            USED,
            Account(input_tokens=10, output_tokens=4, cached_input_tokens=3, cost_micros=7, model_calls=1),
        ),
        (NO_USAGE, Account(model_calls=1)),
        (
            Usage(output_tokens=4, cost_micros=7, estimated=True),
            Account(output_tokens=4, cost_micros=7, model_calls=1, unpriced_calls=1),
        ),
        (Usage(input_tokens=2), Account(input_tokens=2, model_calls=1, unpriced_calls=1)),
    ],
)
def test_a_call_is_charged_once_to_the_run_its_project_and_its_agent(usage: Usage, spent: Account) -> None:
    driven = Driven()
    driven.start(graph(node("a")))
    began = RunUsageReported(charge_id="c1", usage=Usage(), accounts=("proj_1", "agt_1", "proj_1"))
    ended = RunUsageReported(charge_id="c2", usage=usage, calls=0, settles=True, accounts=("proj_1", "agt_1"))
    found = [*charges(driven, began), *charges(driven, ended)]
    assert len({each.id for each in found}) == len(found) == 6
    for account in (RUN_ID, "proj_1", "agt_1"):
        assert add_accounts(each.value for each in found if each.parent == account) == spent
    # A call in progress has no known price.
    assert charges(driven, began)[0].value == Account(model_calls=1, unpriced_calls=1)


def test_a_charge_changes_nothing_else_and_comes_also_after_the_end() -> None:
    driven = Driven()
    driven.start(graph(node("a")))
    event = RunUsageReported(charge_id="c1", usage=USED, accounts=("proj_1",))
    before = driven.restored()
    assert driven.step(event) == ["ChargeRun"] and driven.state == before
    assert driven.commands == []
    driven.step(CancelRun())
    assert driven.step(RunUsageReported(charge_id="c2", usage=USED, calls=0, settles=True)) == ["ChargeRun"]
    driven.replayed()


def test_a_run_that_does_not_exist_is_not_charged() -> None:
    driven = Driven()
    assert driven.step(RunUsageReported(charge_id="c1", usage=USED)) == []


def test_a_charged_run_is_written_at_once_and_in_full() -> None:
    driven = Driven()
    driven.start(graph(node("a")), parent=PARENT, volatile=True)
    assert not driven.must_commit
    driven.step(RunUsageReported(charge_id="c1", usage=USED))
    assert driven.must_commit
    decided = RUN.plan(driven.state, RunUsageReported(charge_id="c2", usage=USED), driven.now)
    assert RUN.may_be_compact is not None and not RUN.may_be_compact(decided)
