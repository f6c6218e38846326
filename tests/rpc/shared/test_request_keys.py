"""Repeated requests, and the limits of the stored results."""

from __future__ import annotations

import pytest

from wonder.v1 import executor_service_pb2 as pb
from wonder_server.core.errors import Reason, WonderError
from wonder_server.rpc.shared.principal import current_principal
from wonder_server.rpc.shared.request_keys import RecentRequests, idempotency_key
from wonder_server.services.catalog.transactions import IdempotencyKey


def asking(request_id: str = "r-1", **fields: str) -> IdempotencyKey:
    once = idempotency_key(pb.ExecuteTaskRequest(request_id=request_id, **fields))
    assert once is not None
    return once


def reason(problem: pytest.ExceptionInfo[WonderError]) -> Reason:
    return problem.value.fault.reason


def test_a_request_without_an_id_has_no_fingerprint() -> None:
    assert idempotency_key(pb.ExecuteTaskRequest(task_id="greet")) is None


def test_equal_requests_have_equal_fingerprints_in_any_payload_order() -> None:
    one, two = (pb.ExecuteTaskRequest(request_id="r") for _ in range(2))
    names = [f"field {number}" for number in range(50)]
    for request, order in ((one, names), (two, reversed(names))):
        for name in order:
            request.input.fields[name].number_value = 1
    assert idempotency_key(one) == idempotency_key(two)


def test_method_content_and_caller_distinguish_requests() -> None:
    marks = {asking(), asking(task_id="greet"), idempotency_key(pb.StreamTaskRequest(request_id="r-1"))}
    token = current_principal.set("ada")
    marks.add(asking())
    current_principal.reset(token)
    assert len(marks) == 4


def test_two_callers_may_use_the_same_id() -> None:
    recent = RecentRequests[str]()
    recent.reserve(asking(), "anonymous")
    token = current_principal.set("ada")
    assert recent.find(asking(task_id="other")) is None
    current_principal.reset(token)
    assert recent.find(asking()) == "anonymous"


def test_an_id_of_another_request_is_refused() -> None:
    recent = RecentRequests[str]()
    recent.reserve(asking(), "first").complete()
    with pytest.raises(WonderError) as problem:
        recent.find(asking(task_id="other"))
    assert reason(problem) is Reason.REQUEST_ID_REUSED


def test_the_oldest_completed_request_is_evicted() -> None:
    recent = RecentRequests[str](limit=2)
    recent.reserve(asking("at work"), "at work")
    recent.reserve(asking("over"), "over").complete()
    recent.reserve(asking("new"), "new")
    assert recent.find(asking("over")) is None
    assert recent.find(asking("at work")) == "at work"
    with pytest.raises(WonderError) as problem:
        recent.reserve(asking("one more"), "one more")
    assert reason(problem) is Reason.LIMIT_EXCEEDED


def test_large_results_are_evicted_oldest_first() -> None:
    recent = RecentRequests[str](max_bytes=100)
    for name in ("a", "b", "c"):
        recent.reserve(asking(name), name).complete(size=60)
    assert [recent.find(asking(name)) for name in ("a", "b", "c")] == [None, None, "c"]


def test_a_failed_request_is_removed() -> None:
    recent = RecentRequests[str]()
    recent.reserve(asking(), "failed").discard()
    assert recent.find(asking(task_id="other")) is None
