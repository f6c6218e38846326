"""The division of an actor's inputs after a failure."""

from __future__ import annotations

import asyncio

import pytest

from tests.actors.kit import NoHome
from tests.actors.toy import TOY, Note, OperationSucceeded, ToyState
from wonder_server.actors.runtime.actor import Actor, Envelope
from wonder_server.actors.runtime.recovery import RecoveryPlan, plan_recovery
from wonder_server.core.actor.commands import RunTask, Scope
from wonder_server.core.conversation.model.lifecycle_inputs import BeginDeletion
from wonder_server.core.errors import Fault, Reason

TRANSIENT = Fault(reason=Reason.STORAGE_UNAVAILABLE, message="Full.", transient=True)
PERMANENT = Fault(reason=Reason.INTERNAL, message="No.")


def result(operation_id: str) -> Envelope:
    return Envelope(OperationSucceeded(operation_id=operation_id))


def request() -> Envelope:
    return Envelope(Note(text="hi"), asyncio.get_running_loop().create_future())


def failed_batch(*envelopes: Envelope, fault: Fault, culprit: Envelope | None = None) -> RecoveryPlan:
    """Return the plan after the commit of these inputs has failed."""
    actor = Actor("run_a0", TOY, NoHome(), state=ToyState())
    batch = actor.open_batch()
    batch.inputs += envelopes
    batch.early_commands.append(
        RunTask(operation_id="op_early", task=None, input={}, scope=Scope())  # type: ignore[arg-type]
    )
    actor.batch = None
    return plan_recovery(actor, batch, fault, culprit)


async def test_after_a_transient_fault_callers_get_the_error_and_results_are_retried() -> None:
    asked, reported = request(), result("op_1")
    plan = failed_batch(asked, reported, fault=TRANSIENT)
    assert (plan.reject, plan.retry, plan.fail, plan.isolate) == ([asked], [reported], [], 0)


async def test_after_a_permanent_fault_without_a_culprit_each_input_is_committed_alone() -> None:
    asked, reported = request(), result("op_1")
    plan = failed_batch(asked, reported, fault=PERMANENT)
    assert (plan.reject, plan.retry, plan.fail, plan.isolate) == ([], [asked, reported], [], 2)


async def test_only_the_culprit_fails() -> None:
    asked, reported = request(), result("op_1")
    plan = failed_batch(asked, reported, fault=PERMANENT, culprit=reported)
    assert (plan.reject, plan.retry, plan.fail, plan.isolate) == ([], [asked], [reported], 0)


@pytest.mark.parametrize("fault", [TRANSIENT, PERMANENT])
async def test_results_of_early_commands_are_dropped(fault: Fault) -> None:
    plan = failed_batch(result("op_early"), fault=fault)
    assert (plan.reject, plan.retry, plan.fail) == ([], [], [])
    assert [command.operation_id for command in plan.abort if isinstance(command, RunTask)] == ["op_early"]


@pytest.mark.parametrize("loaded", [True, False])
async def test_a_deletion_behind_a_refused_result_goes_first(loaded: bool) -> None:
    actor = Actor("conv_a0", TOY, NoHome(), state=ToyState())
    reported, asked = result("op_1"), request()
    deletion = Envelope(BeginDeletion(), asyncio.get_running_loop().create_future())
    batch = actor.open_batch()
    batch.inputs.append(reported)
    actor.batch = None
    actor.mailbox += [asked, deletion]
    plan = plan_recovery(actor, batch if loaded else None, TRANSIENT, None)
    if loaded:
        assert (plan.retry, plan.reject) == ([deletion, reported], [asked])
    else:
        assert (plan.retry, plan.reject) == ([], [asked, deletion]), "a caller does not wait for a lost disk"


async def test_a_deletion_whose_own_commit_failed_is_answered() -> None:
    deletion = Envelope(BeginDeletion(), asyncio.get_running_loop().create_future())
    plan = failed_batch(deletion, fault=TRANSIENT)
    assert (plan.retry, plan.reject) == ([], [deletion])


async def test_all_inputs_of_an_actor_that_cannot_be_loaded_fail() -> None:
    actor = Actor("run_a0", TOY, NoHome())
    asked = request()
    actor.mailbox.append(asked)
    plan = plan_recovery(actor, None, PERMANENT, None)
    assert (plan.retry, plan.fail) == ([], [asked])
