"""The parts through which entry points and handlers reach actors."""

from __future__ import annotations

from dataclasses import dataclass

from wonder_server.actors.directory import Directory
from wonder_server.actors.streaming.hub import StreamHub
from wonder_server.ports.clock import Clock
from wonder_server.ports.journal import Journals
from wonder_server.ports.records import Records


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorAccess:
    """Access to actors: send inputs, read journals and rows, follow live streams."""

    directory: Directory
    journals: Journals
    records: Records
    streams: StreamHub
    clock: Clock
