"""Tests of the errors for missing resources: one wording, one quoting, a next step."""

from __future__ import annotations

import re

import pytest

from tests.paths import ROOT
from wonder_server.core.errors import Fault, Reason, not_found, with_id

MISSING = [reason for reason in Reason if reason.endswith("_NOT_FOUND")]


@pytest.mark.parametrize("reason", MISSING)
def test_every_message_names_the_resource_and_the_next_step(reason: Reason) -> None:
    fault = not_found(reason, "x", field="f").fault
    assert (fault.reason, fault.field, fault.metadata) == (reason, "f", {"id": "x"})
    noun = reason.removesuffix("_NOT_FOUND").lower().replace("_", " ")
    assert re.fullmatch(
        rf"There is no {noun} 'x'\. List the [\w ]+ .*(`wonder |with List).*\.", fault.message
    )


@pytest.mark.parametrize("reason", MISSING)
def test_the_contract_shows_the_message_of_each_reason(reason: Reason) -> None:
    contract = (ROOT / "proto/wonder/v1/errors.proto").read_text()
    comment = contract.partition(f"  ERROR_REASON_{reason} = ")[0].rpartition("\n\n")[2]
    text = " ".join(line.removeprefix("  // ") for line in comment.splitlines())
    example = text.split('"')[1]
    key = example.split("'")[1]
    place = example.partition(f"'{key}'")[2].partition(".")[0]
    assert not_found(reason, key, place=place).fault.message == example


def test_a_long_name_is_cut() -> None:
    fault = not_found(Reason.AGENT_NOT_FOUND, "x" * 1_000).fault
    assert len(fault.message) < 250 and len(fault.metadata["id"]) == 100


def test_a_planners_fault_gets_the_id_of_its_actor() -> None:
    missing = Fault(reason=Reason.RUN_NOT_FOUND, message="There is none.", field="run_id")
    assert with_id(missing, "run_1").message.startswith("There is no run 'run_1'. ")
    assert with_id(missing, "run_1").field == "run_id"
    named = Fault(reason=Reason.RUN_NOT_FOUND, message="There is none.", metadata={"id": "run_2"})
    other = Fault(reason=Reason.RUN_NOT_ACTIVE, message="It has ended.")
    assert (with_id(named, "run_1"), with_id(other, "run_1")) == (named, other)
