"""The export of spans: batches, a bounded queue, sampling, and collectors that fail."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from structlog.testing import capture_logs

from wonder_server.adapters.otlp.exporter import MAX_BATCH, MAX_QUEUE, OtlpExporter, encoded
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.errors import Reason, error
from wonder_server.ports.traces import Span
from wonder_server.ports.web import WebRequest, WebResponse

TRACE = "0af7651916cd43dd8448eb211c80319c"


class Collector:
    """A collector behind the port ``Web``: answers with ``status``, raises ``problem``, or is silent."""

    def __init__(self) -> None:
        self.status = 200
        self.problem: Exception | None = None
        self.is_silent = False
        self.requests: list[WebRequest] = []

    async def send(self, request: WebRequest, policy: NetworkPolicy) -> WebResponse:
        assert policy.http_allow == ("collector.example",) and policy.http_only_allowed
        self.requests.append(request)
        if self.is_silent:
            await asyncio.Event().wait()
        if self.problem is not None:
            raise self.problem
        return WebResponse(status=self.status, headers={}, body=b"")

    async def close(self) -> None: ...


def exporter(collector: Collector, percent: int = 100) -> OtlpExporter:
    endpoint = "http://collector.example:4318"
    return OtlpExporter(collector, endpoint, percent=percent, version="1", schema_url="")


def span(**fields: Any) -> Span:
    whole = {"trace_id": TRACE, "span_id": "b7ad6b7169203331", "parent_id": "", "name": "x"}
    return Span(**{**whole, "start_ms": 2, "end_ms": 5, "attributes": {}, **fields})


async def test_spans_go_in_batches_to_the_path_of_traces() -> None:
    collector = Collector()
    sender = exporter(collector)
    for _ in range(MAX_BATCH + 1):
        sender.add(span())
    await sender.flush()
    assert [request.url for request in collector.requests] == ["http://collector.example:4318/v1/traces"] * 2
    assert (sender.exported, sender.dropped) == (MAX_BATCH + 1, 0)


async def test_a_full_queue_drops_and_counts() -> None:
    sender = exporter(Collector())
    for _ in range(MAX_QUEUE + 7):
        sender.add(span())
    assert sender.dropped == 7
    await sender.flush()
    assert sender.exported == MAX_QUEUE


@pytest.mark.parametrize(
    "problem",
    [
        error(Reason.TASK_FAILED, "The connection was lost."),
        OSError("no"),
        ValueError("odd"),
        None,
    ],
)
async def test_a_collector_that_fails_costs_one_batch_and_one_line(problem: Exception | None) -> None:
    collector = Collector()
    collector.problem, collector.status = problem, 500
    sender = exporter(collector)
    with capture_logs() as lines:
        for _ in range(3):
            sender.add(span())
            await sender.flush()
    assert (sender.exported, sender.dropped) == (0, 3)
    assert [line["event"] for line in lines] == ["traces_not_exported"]


async def test_a_batch_that_a_stop_interrupts_is_counted() -> None:
    collector = Collector()
    collector.is_silent = True
    sender = exporter(collector)
    sender.add(span())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await sender.flush()
    assert sender.dropped == 1


def test_a_share_of_the_traces_is_sampled_and_always_the_same() -> None:
    traces = [f"{number * 0x9E3779B97F4A7C15 % 2**128:032x}" for number in range(1, 2_001)]
    shares = {p: sum(map(exporter(Collector(), p).wants, traces)) for p in (0, 10, 50, 100)}
    assert shares[0] == 0 and shares[100] == 2_000
    assert 100 < shares[10] < 300 and 800 < shares[50] < 1_200


def test_the_form_is_that_of_otlp_in_json() -> None:
    odd = span(parent_id="1" * 16, error="TIMEOUT", start_ms=9, attributes={"a": 1, "b": "\ud800é", "c": ""})
    (resource,) = json.loads(encoded([odd], "1", "http://schema"))["resourceSpans"]
    (found,) = resource["scopeSpans"][0]["spans"]
    assert found["traceId"] == TRACE and found["parentSpanId"] == "1" * 16
    assert found["startTimeUnixNano"] == found["endTimeUnixNano"] == "5000000", "no negative time"
    assert found["status"] == {"code": 2, "message": "TIMEOUT"}
    assert found["attributes"][0] == {"key": "a", "value": {"intValue": "1"}}
    assert [each["key"] for each in found["attributes"]] == ["a", "b", "error.type"]
