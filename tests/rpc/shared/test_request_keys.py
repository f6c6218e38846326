"""Keys of requests."""

from __future__ import annotations

from tests.rpc.rpc_kit import token_principal
from wonder.v1 import executor_service_pb2 as pb
from wonder_server.core.idempotency import IdempotencyKey
from wonder_server.rpc.shared.principal import current_principal
from wonder_server.rpc.shared.request_keys import idempotency_key


def asking(request_id: str = "r-1", **fields: str) -> IdempotencyKey:
    once = idempotency_key(pb.ExecuteTaskRequest(request_id=request_id, **fields))
    assert once is not None
    return once


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
    token = current_principal.set(token_principal("ada"))
    marks.add(asking())
    current_principal.reset(token)
    assert len(marks) == 4
