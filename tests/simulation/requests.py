"""Checks of the requests in a journal: each message of another turn is in them once, and none is missing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from wonder_server.core.conversation.model import decisions, inputs
from wonder_server.core.conversation.model.values import Caller, Message, Operation, Request, Role
from wonder_server.ports.journal import Entry

BEGINNING = 200
"""Number of characters of a message's first line that identify it. A notice cuts longer messages."""


@dataclass
class RequestChecks:
    """The turns and messages of a journal so far. ``faults`` are sentences about requests."""

    faults: list[str] = field(default_factory=list)
    late_assemblies: int = 0
    notices: int = 0
    """Number of messages of other turns that a request was first to contain."""
    _rules: dict[str, int] = field(default_factory=dict)
    _callers: dict[str, Caller] = field(default_factory=dict)
    _messages: list[Message] = field(default_factory=list)

    def check(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            said = len(self._messages)
            is_late = any(isinstance(each, decisions.AsyncOperationCompleted) for each in entry.decisions)
            for decision in entry.decisions:
                match decision:
                    case decisions.StartTurn():
                        self._rules[decision.turn.id] = decision.work.rules
                        self._callers[decision.turn.id] = decision.turn.caller
                    case decisions.AppendMessage():
                        self._messages.append(decision.message)
                    case decisions.DispatchWorkflow():
                        self.late_assemblies += decision.operation.through > 0
                    case decisions.DispatchModel() if self._rules[decision.request.turn_id]:
                        if is_late:
                            self.faults.append(f"{decision.operation.id} has no assembly for its late result")
                        repeats = isinstance(entry.input, inputs.BudgetNearlyExhausted | inputs.Failed)
                        self._check_request(decision.operation, decision.request, 0 if repeats else said)

    def _check_request(self, operation: Operation, request: Request, said: int) -> None:
        own = next(each.ordinal for each in self._messages if each.turn_id == request.turn_id)
        newest = self._messages[said - 1].ordinal if said else 0
        if said and request.through != max(own, newest):
            self.faults.append(f"{operation.id} contains messages up to {request.through} of {newest}")
        text = json.dumps(request.body, ensure_ascii=False)
        for message in self._messages:
            # The history may contain earlier messages. Answers of agents are not unique.
            if message.turn_id == request.turn_id or message.ordinal <= own or message.role is Role.AGENT:
                continue
            calls = self._callers[message.turn_id].turn_id == request.turn_id
            expected = 0 if calls or message.ordinal > request.through else 1
            line = message.content.partition("\n")[0][:BEGINNING]
            found = text.count(f"] {json.dumps(line, ensure_ascii=False)[1:-1]}")
            self.notices += found
            if found != expected and "left out.)" not in text:
                self.faults.append(f"{operation.id} has {found} times, not {expected}, {message.content!r}")
