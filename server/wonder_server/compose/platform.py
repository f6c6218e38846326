"""Everything that a server takes from its machine, in one value.

A whole server can therefore be built on stores in memory and virtual time. Timers, sleeps and timeouts belong
to the running event loop: to move time by hand, run the server on an event loop with a time of its own, and
pass a clock that reads it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from wonder_server.adapters.egress.proxy import Egress
from wonder_server.adapters.git.storage.command import new_threads
from wonder_server.compose.clients import Clients, open_clients
from wonder_server.compose.clock import SystemClock
from wonder_server.compose.git import ExecutorFactory
from wonder_server.compose.interpreter import tune_interpreter
from wonder_server.compose.stores import Stores, open_stores, open_vectors
from wonder_server.ports.clock import Clock
from wonder_server.ports.embedder import Embedder
from wonder_server.ports.failpoints import NO_FAILPOINTS, Failpoints
from wonder_server.ports.vectors import Vectors, VectorSource
from wonder_server.settings import Settings

StoresFactory = Callable[[Settings, Egress, Failpoints], AbstractAsyncContextManager[Stores]]
VectorsFactory = Callable[[Settings, VectorSource, Embedder], AbstractAsyncContextManager[Vectors]]
ClientsFactory = Callable[[Settings, Egress, ExecutorFactory], AbstractAsyncContextManager[Clients]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """Clock, randomness, threads, stores and clients. The defaults are those of a server in production."""

    clock: Clock = field(default_factory=SystemClock)
    entropy: Callable[[int], bytes] = os.urandom
    """Return so many random bytes. Ids are made of them."""
    new_executor: ExecutorFactory = new_threads
    open_stores: StoresFactory = open_stores
    open_vectors: VectorsFactory = open_vectors
    open_clients: ClientsFactory = open_clients
    failpoints: Failpoints = NO_FAILPOINTS
    tune_interpreter: Callable[[], None] = tune_interpreter
    """Set up the process: thread switches and garbage collection."""
