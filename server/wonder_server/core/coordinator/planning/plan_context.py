"""Planned changes of a run's context, and of its signals."""

from __future__ import annotations

from collections.abc import Container

from wonder_server.core import expressions
from wonder_server.core.coordinator.model.decisions import (
    Decision,
    KeepSignal,
    RecordSignal,
    SetContext,
    TakeSignal,
)
from wonder_server.core.coordinator.model.state import RunState
from wonder_server.core.coordinator.model.values import ContextValue, Run, Signal, Token
from wonder_server.core.coordinator.planning.plan_tokens import PlannedFanOuts
from wonder_server.core.expressions import NOW
from wonder_server.core.frozen import replace
from wonder_server.core.json_types import JsonDict, JsonValue


class PlannedSignals:
    """Signals of a run, with the changes planned so far. ``awaited`` are the names that nodes wait for."""

    __slots__ = (
        "_awaited",
        "_decided",
        "_newest",
        "_queued",
    )

    def __init__(self, state: RunState, awaited: Container[str], decided: list[Decision]) -> None:
        self._awaited = awaited
        self._decided = decided
        self._newest = state.signals
        self._queued = state.queued_signals

    def payloads(self) -> JsonDict:
        """Return the payload of the newest signal of each name."""
        return {name: signal.payload for name, signal in self._newest.items()} if self._newest else {}

    def latest(self, name: str) -> Signal | None:
        """Return the oldest signal of a name that no node has consumed, or None."""
        if queued := self._queued.get(name):
            return queued[0]
        newest = self._newest.get(name)
        return None if newest is None or newest.consumed else newest

    def receive(self, signal: Signal) -> None:
        """Record a signal. If nodes wait for its name, queue the previous one unless a node consumed it."""
        before = self._newest.get(signal.name)
        if before is not None and not before.consumed and signal.name in self._awaited:
            queue = (*self._queued.get(signal.name, ()), before)
            self._queued = {**self._queued, signal.name: queue}
            self._decided.append(KeepSignal(signal=before))
        self._newest = dict(sorted({**self._newest, signal.name: signal}.items()))
        self._decided.append(RecordSignal(signal=signal))

    def take(self, signal: Signal) -> None:
        """Let a node consume the signal."""
        if self._newest[signal.name].number == signal.number:
            consumed = replace(signal, consumed=True)
            self._newest = {**self._newest, signal.name: consumed}
            self._decided.append(TakeSignal(signal=consumed))
            return
        remaining = tuple(each for each in self._queued[signal.name] if each.number != signal.number)
        self._queued = {**self._queued, signal.name: remaining}
        self._decided.append(TakeSignal(signal=signal, newest=False))


class PlannedContext:
    """Context of a run, with the changes planned so far."""

    __slots__ = (
        "_branches",
        "_decided",
        "_fan_outs",
        "_input",
        "_now",
        "_run_id",
        "_sections",
        "_signals",
        "_state",
    )

    def __init__(
        self,
        state: RunState,
        run: Run,
        fan_outs: PlannedFanOuts,
        signals: PlannedSignals,
        decided: list[Decision],
        now: int,
    ) -> None:
        self._state = state
        self._now = now
        self._run_id = run.id
        self._input = run.input
        self._fan_outs = fan_outs
        self._signals = signals
        self._decided = decided
        self._sections = {"state": state.state, "output": state.output}
        self._branches: dict[str, JsonDict] = {}

    def scope(self, token: Token | None) -> JsonDict:
        """Return the variables of expressions at the token's node; None: outside of all branches."""
        scope: JsonDict = {
            "input": self._input,
            "state": self._sections["state"],
            "output": self._sections["output"],
            "signals": self._signals.payloads(),
            NOW: self._now,
        }
        if token is not None and token.parent_id:
            scope.update(self.branch_scope(token))
        return scope

    def branch_scope(self, token: Token) -> JsonDict:
        """Return the variables of a branch: ``branch``, ``item`` and ``index``."""
        fan_out = self._fan_outs.get(token.parent_id)
        if fan_out is None:
            return {"branch": self._values(token.id), "item": None, "index": token.branch_index}
        start = fan_out.branches[token.branch_index]
        return {"branch": self._values(token.id), "item": start.item, "index": start.index}

    def entry(self, token: Token, target: str, value: JsonValue) -> ContextValue:
        """Return the top-level entry that results from writing ``value`` to ``target``.

        ``target`` is a path that starts with ``state``, ``output`` or ``branch``, such as ``state.x.y``.
        """
        section, _, rest = target.partition(".")
        key, _, inner = rest.partition(".")
        token_id = token.id if section == "branch" else ""
        if inner:
            known = self._values(token.id) if token_id else self._sections[section]
            value = expressions.assign(known, rest, value)[key]
        return ContextValue(run_id=self._run_id, section=section, key=key, value=value, token_id=token_id)

    def set(self, entry: ContextValue) -> None:
        """Write an entry into the context."""
        if entry.token_id:
            self._branches[entry.token_id] = {**self._values(entry.token_id), entry.key: entry.value}
        else:
            self._sections[entry.section] = {**self._sections[entry.section], entry.key: entry.value}
        self._decided.append(SetContext(value=entry))

    @property
    def state(self) -> JsonDict:
        """Values of section ``state``."""
        return self._sections["state"]

    @property
    def output(self) -> JsonDict:
        """Values of section ``output``."""
        return self._sections["output"]

    def _values(self, token_id: str) -> JsonDict:
        return self._branches.get(token_id) or self._state.branches.get(token_id) or {}
