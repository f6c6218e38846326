"""Export of spans to a collector: OTLP over HTTP, as JSON.

Spans wait in a bounded queue. A task sends them in batches, and the encoding runs in a thread. A slow or dead
collector costs spans, which are counted, and nothing else.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from wonder_server.core.definitions.network_policy import allow_only
from wonder_server.core.errors import WonderError
from wonder_server.core.json_types import JsonDict
from wonder_server.logs import logger
from wonder_server.ports.traces import Span
from wonder_server.ports.web import Web, WebRequest

_log = logger("traces")

MAX_QUEUE: Final = 4_096
MAX_BATCH: Final = 512
EXPORT_AFTER_S: Final = 2.0
"""Seconds between two batches, unless the queue holds a whole one."""
TIMEOUT_S: Final = 10.0
FLUSH_S: Final = 2.0
"""Time that the last batches have when the server stops."""
LOG_INTERVAL_S: Final = 60.0

_MAX_ANSWER_BYTES: Final = 64 << 10
_STATUS_ERROR: Final = 2
_KIND_INTERNAL: Final = 1
_KIND_CLIENT: Final = 3


class OtlpExporter:
    """Sends spans to ``endpoint``. Implements the port `wonder_server.ports.traces.Spans`.

    ``percent`` is the share of traces that are exported. ``version`` is that of the server, and
    ``schema_url`` that of the names.
    """

    def __init__(self, web: Web, endpoint: str, *, percent: int, version: str, schema_url: str) -> None:
        self._web = web
        self._url = f"{endpoint.rstrip('/')}/v1/traces"
        self._policy = allow_only(urlsplit(endpoint).hostname or "")
        self._below = percent * 2**64 // 100
        self._version = version
        self._schema_url = schema_url
        self._queue: deque[Span] = deque()
        self._is_batch_full = asyncio.Event()
        self._silent_until_s = 0.0
        self.exported = 0
        """Spans that the collector has taken, since the start."""
        self.dropped = 0
        """Spans that were dropped, since the start."""

    def wants(self, trace_id: str) -> bool:
        return int(trace_id[16:], 16) < self._below

    def add(self, span: Span) -> None:
        if len(self._queue) >= MAX_QUEUE:
            self.dropped += 1
            return
        self._queue.append(span)
        if len(self._queue) >= MAX_BATCH:
            self._is_batch_full.set()

    async def run(self) -> None:
        """Export until cancelled."""
        while True:
            try:
                async with asyncio.timeout(EXPORT_AFTER_S):
                    await self._is_batch_full.wait()
            except TimeoutError:
                pass
            self._is_batch_full.clear()
            await self.flush()

    async def flush(self) -> None:
        """Export what waits now."""
        while self._queue:
            batch = [self._queue.popleft() for _ in range(min(MAX_BATCH, len(self._queue)))]
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    problem = await self._send(batch)
            except WonderError as failure:
                problem = failure.fault.message
            except TimeoutError:
                problem = f"The collector did not answer within {TIMEOUT_S:g} s."
            except asyncio.CancelledError:
                self.dropped += len(batch)
                raise
            except Exception as failure:
                problem = type(failure).__name__
            if not problem:
                self.exported += len(batch)
                continue
            self.dropped += len(batch)
            self._warn(problem)
            return

    async def _send(self, batch: Sequence[Span]) -> str:
        """Send one batch. Return the problem, "" for none."""
        body = await asyncio.to_thread(encoded, batch, self._version, self._schema_url)
        request = WebRequest(
            method="POST",
            url=self._url,
            headers={"content-type": "application/json"},
            body=body,
            max_bytes=_MAX_ANSWER_BYTES,
        )
        response = await self._web.send(request, self._policy)
        return "" if 200 <= response.status < 300 else f"The collector answers with status {response.status}."

    def _warn(self, problem: str) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._silent_until_s:
            self._silent_until_s = now + LOG_INTERVAL_S
            _log.warning("traces_not_exported", url=self._url, problem=problem, dropped=self.dropped)


def encoded(spans: Sequence[Span], version: str, schema_url: str) -> bytes:
    """Return the body of an export request (``ExportTraceServiceRequest`` in the JSON form of OTLP)."""
    resource = {"service.name": "wonder", "service.version": version}
    document = {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes(resource)},
                "schemaUrl": schema_url,
                "scopeSpans": [
                    {
                        "scope": {"name": "wonder", "version": version},
                        "spans": [_span(each) for each in spans],
                    }
                ],
            }
        ]
    }
    return json.dumps(document, separators=(",", ":")).encode()


def _span(span: Span) -> JsonDict:
    error = {"error.type": span.error} if span.error else {}
    found: JsonDict = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "name": span.name,
        "kind": _KIND_CLIENT if span.is_client else _KIND_INTERNAL,
        "startTimeUnixNano": str(min(span.start_ms, span.end_ms) * 1_000_000),
        "endTimeUnixNano": str(span.end_ms * 1_000_000),
        "attributes": _attributes({**span.attributes, **error}),
        "status": {"code": _STATUS_ERROR, "message": span.error} if span.error else {},
    }
    if span.parent_id:
        found["parentSpanId"] = span.parent_id
    return found


def _attributes(values: dict[str, str | int] | dict[str, str]) -> list[JsonDict]:
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in values.items()
        if value != ""
    ]
