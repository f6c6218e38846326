"""Asynchronous tools (feature C4): the turn continues without their results and stays active until they
arrive.

The model receives the result "running" at once, since the provider requires an answer to each call. A
notice reports the real result before the turn's next model call. The unreported results follow from the
moves alone::

    invocations with ``is_async`` and a result, minus the invocations in some move's ``reported``
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wonder_server.core.conversation.model.values import Invocation, Move


def running(moves: Iterable[Move]) -> list[Invocation]:
    """Return the asynchronous calls without a result."""
    return [entry for move in moves for entry in move.invocations if entry.is_async and entry.result is None]


def unreported(moves: Sequence[Move]) -> list[Invocation]:
    """Return the asynchronous calls with results that no request contains yet, in the order of arrival."""
    reported = {entry.operation_id for move in moves for entry in move.reported}
    news = [
        (entry.result.created_ms, entry.operation_id, entry)
        for move in moves
        for entry in move.invocations
        if entry.is_async and entry.result is not None and entry.operation_id not in reported
    ]
    return [entry for _, _, entry in sorted(news, key=lambda item: item[:2])]


def unknown(moves: Sequence[Move]) -> list[Invocation]:
    """Return the asynchronous calls whose results the requests of ``moves`` do not contain."""
    reported = {entry.operation_id for move in moves for entry in move.reported}
    entries = [entry for move in moves[:-1] for entry in move.invocations if entry.is_async]
    return [entry for entry in entries if entry.operation_id not in reported]


def of_operations(moves: Iterable[Move], operation_ids: Sequence[str]) -> tuple[Invocation, ...]:
    """Return the invocations of these operations, in the order of the ids."""
    found = {entry.operation_id: entry for move in moves for entry in move.invocations}
    return tuple(found[each] for each in operation_ids if each in found)
