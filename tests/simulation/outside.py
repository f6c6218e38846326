"""The world outside the nodes: the model and the receiver of HTTP requests.

Each client belongs to one node and one process: a node may die before a request leaves it and after the other
side has received it.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import NoReturn

from tests.simulation.disk import Trace
from tests.simulation.event_loop import Process
from wonder_server.adapters.models.offline.model import OfflineModel
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Reason, error
from wonder_server.core.json_types import JsonDict
from wonder_server.ports.model import Chunk
from wonder_server.ports.web import WebRequest, WebResponse


@dataclass(slots=True, kw_only=True)
class OutsideFaults:
    """Probabilities of faults outside the nodes."""

    model_fails: float = 0.0
    dies_at_request: float = 0.0
    max_delay_s: float = 0.02


@dataclass
class Outside:
    """Everything that the nodes have done outside, over all their lives."""

    trace: Trace
    requests: Counter[str] = field(default_factory=Counter)
    """Received HTTP requests by path."""
    keys: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Idempotency keys by path."""


async def _wait_for_ever() -> NoReturn:
    await asyncio.get_running_loop().create_future()
    raise AssertionError


class OutsideClient:
    """The clients of one node. Implements the ports ``Web`` and ``Model``."""

    def __init__(
        self, outside: Outside, faults: OutsideFaults, dice: random.Random, process: Process
    ) -> None:
        self._outside = outside
        self._faults = faults
        self._dice = dice
        self._process = process
        self._offline = OfflineModel()

    async def close(self) -> None:
        """Do nothing: there is no connection."""

    # --- HTTP -----------------------------------------------------------------------------------

    async def send(self, request: WebRequest, policy: NetworkPolicy) -> WebResponse:
        """Receive a request. Its path says what happens: ``/busy/N/…`` answers the first N requests with
        status 503, ``/hang/…`` never answers, any other path answers with status 200."""
        path = request.url.removeprefix("http://world")
        await self._travel()
        self._outside.requests[path] += 1
        self._outside.keys[path].add(request.headers.get("Idempotency-Key", ""))
        self._outside.trace("request", path)
        await self._travel()
        kind, *rest = path.strip("/").split("/")
        if kind == "hang":
            await _wait_for_ever()
        busy = kind == "busy" and self._outside.requests[path] <= int(rest[0])
        return WebResponse(status=503 if busy else 200, headers={}, body=b"")

    async def _travel(self) -> None:
        await self._pause()
        if self._dice.random() < self._faults.dies_at_request:
            self._process.die()
            await _wait_for_ever()

    async def _pause(self) -> None:
        await asyncio.sleep(self._dice.random() * self._faults.max_delay_s)

    async def network_policy(self, project_id: str) -> NetworkPolicy:
        """Allow everything; implements ``NetworkPolicies``."""
        return NetworkPolicy()

    # --- models ---------------------------------------------------------------------------------

    async def stream(self, profile: ModelProfile, request: JsonDict) -> AsyncGenerator[Chunk, None]:
        await self._pause()
        self._fail_at_times()
        chunks = self._offline.stream(profile, request)
        try:
            async for chunk in chunks:
                yield chunk
                self._fail_at_times()
        finally:
            await chunks.aclose()

    def _fail_at_times(self) -> None:
        if self._dice.random() < self._faults.model_fails:
            raise error(Reason.MODEL_UNAVAILABLE, "The simulated model is busy.", transient=True)
