"""Planned changes of a run's tokens, and of the fan-outs that join them."""

from __future__ import annotations

from collections.abc import Sequence

from wonder_server.core.coordinator.model.decisions import (
    CloseFanOut,
    CountBranches,
    Decision,
    JoinBranches,
    MoveToken,
    OpenFanOut,
)
from wonder_server.core.coordinator.model.state import BUSY, RunState
from wonder_server.core.coordinator.model.values import ENDED_TOKEN_STATUSES, FanOut, Token, TokenStatus
from wonder_server.core.coordinator.planning.plan_operations import PlannedOperations
from wonder_server.core.frozen import replace

_COMPLETED, _WAITING_FOR_SIBLINGS = TokenStatus.COMPLETED, TokenStatus.WAITING_FOR_SIBLINGS
"""Module variables: reading a member of an enum class is slower."""


class PlannedTokens:
    """Tokens of a run, with the changes planned so far."""

    __slots__ = (
        "_created",
        "_decided",
        "_now",
        "_state",
        "_tokens",
    )

    def __init__(self, state: RunState, now: int, decided: list[Decision]) -> None:
        self._state = state
        self._now = now
        self._decided = decided
        self._tokens: dict[str, Token] = {}
        self._created: dict[str, list[str]] = {}

    def get(self, token_id: str) -> Token:
        """Return a token that is live or ended by this input."""
        return self._tokens.get(token_id) or self._state.tokens[token_id]

    def live(self, token_id: str) -> Token | None:
        """Return the token if it has not ended, else None."""
        token = self._tokens.get(token_id) or self._state.tokens.get(token_id)
        return None if token is None or token.status in ENDED_TOKEN_STATUSES else token

    def move(self, token: Token, status: TokenStatus) -> Token:
        """Set the token's status and return the changed token."""
        moved = replace(token, status=status, updated_ms=self._now)
        self._tokens[moved.id] = moved
        self._decided.append(MoveToken(token=moved))
        return moved

    def put(self, token: Token) -> None:
        """Replace a token, where another decision than `MoveToken` contains the change."""
        self._tokens[token.id] = token

    def create(self, token: Token) -> None:
        """Add a token. The same planning step decides where it moves."""
        self._tokens[token.id] = token
        self._created.setdefault(token.parent_id, []).append(token.id)

    def join(self, tokens: list[Token]) -> None:
        """Complete branches that wait at their fan-in."""
        ended = tuple([replace(token, status=_COMPLETED, updated_ms=self._now) for token in tokens])
        self._tokens.update({token.id: token for token in ended})
        self._decided.append(JoinBranches(tokens=ended))

    def count_branches(self, token: Token) -> Token:
        """Replace a forked token whose branch counters changed, and return it."""
        self._tokens[token.id] = token
        self._decided.append(CountBranches(token=token))
        return token

    def children(self, token_id: str) -> list[Token]:
        """Return the live branches of a token, ordered by index."""
        known = [*self._state.children.get(token_id, ()), *self._created.get(token_id, ())]
        live = [token for each in known if (token := self.live(each)) is not None]
        return sorted(live, key=lambda each: each.branch_index)

    @property
    def live_count(self) -> int:
        """Upper bound of the number of live tokens."""
        return len(self._state.tokens) + sum(map(len, self._created.values()))

    @property
    def any_busy(self) -> bool:
        """True if a token keeps the run in status ``running``."""
        before, busy = self._state.tokens, self._state.busy_tokens
        for token_id, token in self._tokens.items():
            busy += token.status in BUSY
            known = before.get(token_id)
            if known is not None:
                busy -= known.status in BUSY
        return busy > 0


class PlannedFanOuts:
    """Open fan-outs of a run and the branches at their fan-ins, with the changes planned so far."""

    __slots__ = (
        "_arrived",
        "_decided",
        "_fan_outs",
        "_operations",
        "_state",
        "_tokens",
    )

    def __init__(
        self, state: RunState, tokens: PlannedTokens, operations: PlannedOperations, decided: list[Decision]
    ) -> None:
        self._state = state
        self._tokens = tokens
        self._operations = operations
        self._decided = decided
        self._fan_outs: dict[str, FanOut | None] = {}
        self._arrived: dict[str, list[str]] = {}

    def get(self, token_id: str) -> FanOut | None:
        """Return the open fan-out of a token, or None."""
        if token_id in self._fan_outs:
            return self._fan_outs[token_id]
        return self._state.fan_outs.get(token_id)

    def open(self, fan_out: FanOut) -> None:
        """Open a fan-out."""
        self._fan_outs[fan_out.token_id] = fan_out
        self._arrived[fan_out.token_id] = []
        self._decided.append(OpenFanOut(fan_out=fan_out))

    def close(self, token_id: str) -> None:
        """Close a fan-out and clear its timer."""
        self._operations.clear_timer(self._tokens.get(token_id))
        self._fan_outs[token_id] = None
        self._decided.append(CloseFanOut(token_id=token_id))

    def arrived(self, token_id: str) -> list[str]:
        """Return the ids of the branches that wait at the fan-in, in order of arrival."""
        return [*self._arrived_before(token_id), *self._arrived.get(token_id, ())]

    def arrived_count(self, token_id: str) -> int:
        """Return the number of branches that wait at the fan-in."""
        return len(self._arrived_before(token_id)) + len(self._arrived.get(token_id, ()))

    def _arrived_before(self, token_id: str) -> Sequence[str]:
        """Return the branches that arrived before this input. A fan-out opened by this input has none."""
        return () if self._fan_outs.get(token_id) is not None else self._state.arrived.get(token_id, ())

    def arrive(self, token: Token, node_id: str) -> int:
        """Let the token wait at the fan-in ``node_id``; return the number of branches that now wait there."""
        self._arrived.setdefault(token.parent_id, []).append(token.id)
        arrived = self.arrived_count(token.parent_id)
        self._tokens.move(
            replace(token, node_id=node_id, arrival=arrived, waits_for_id=""), _WAITING_FOR_SIBLINGS
        )
        return arrived

    def wait_at_node(self, token: Token) -> None:
        """Let a token copied from another run wait at the fan-in where it waited there."""
        siblings = self._arrived.setdefault(token.parent_id, [])
        siblings.append(token.id)
        siblings.sort(key=lambda each: self._tokens.get(each).arrival)
        self._tokens.move(token, _WAITING_FOR_SIBLINGS)
