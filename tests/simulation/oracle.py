"""The model of what was acknowledged, and the checks of one history.

`Ledger` records each answer as a client receives it. `check_record` compares the durable record with it
at the end, when all faults are over and all work should have ended.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.definitions import MAX_TOKENS, definitions
from tests.simulation.disk import Disk
from tests.simulation.outside import Outside
from tests.simulation.requests import RequestChecks
from wonder_server.actors.runs.replay import replay
from wonder_server.adapters.in_memory.journal import StoredActor
from wonder_server.core.actor.changes import Put
from wonder_server.core.actor.planner import Planner
from wonder_server.core.budget import Account, add_accounts
from wonder_server.core.conversation.model.values import Conversation, Message, Turn, TurnStatus
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.model.values import ExecutionStatus, NodeExecution, Run, RunStatus
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.errors import Reason
from wonder_server.ports.journal import Event
from wonder_server.services.memory.large_contents import MAX_INLINE_BYTES

OPEN_RUNS = (RunStatus.RUNNING, RunStatus.WAITING)
_USAGE = ("input_tokens", "output_tokens", "cost_micros", "model_calls", "unpriced_calls")


class ViolationError(AssertionError):
    """The history contradicts a guarantee of the server."""


def require(holds: object, message: str) -> None:
    """Raise `ViolationError` unless the condition holds."""
    if not holds:
        raise ViolationError(message)


class _StoredActors:
    """The stored actors at the end, read anew from the disk, and each table and event decoded once."""

    def __init__(self, disk: Disk) -> None:
        self.actors: dict[str, StoredActor] = disk.journal.actors
        self._tables: dict[tuple[str, str], list[Put]] = {}
        self._events: dict[str, list[Event]] = {}

    def table(self, actor_id: str, name: str) -> list[Put]:
        """Return the rows of a table of an actor."""
        key = (actor_id, name)
        if key not in self._tables:
            self._tables[key] = [*self.actors[actor_id].table(name).values()]
        return self._tables[key]

    def events(self, actor_id: str) -> list[Event]:
        """Return the events of an actor."""
        if actor_id not in self._events:
            self._events[actor_id] = self.actors[actor_id].events
        return self._events[actor_id]


@dataclass
class Ledger:
    """Knowledge of the clients: the answer to each request, and the ids in the answers."""

    disk: Disk
    outside: Outside
    answers: dict[str, object] = field(default_factory=dict)
    turns: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By the marker in a message: the conversation, and the id of the turn in the answer."""
    runs: dict[str, str] = field(default_factory=dict)
    """By name: the id of the run in the answer."""
    deleted: list[str] = field(default_factory=list)
    """Conversations whose deletion was answered."""
    references: dict[str, str] = field(default_factory=dict)
    """By external reference: the id of the conversation in the answer."""
    contested: set[str] = field(default_factory=set)
    """External references that one conversation after another may have."""
    requests: list[RequestChecks] = field(default_factory=list)
    """Checks of the requests of each conversation."""
    violation: asyncio.Future[ViolationError] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    """The first violation that a reader has seen."""
    _stored: _StoredActors = field(init=False)
    """Stored actors, which `check_record` reads."""

    def delete(self, conversation_id: str) -> None:
        """Record the answer to a deletion."""
        self.deleted.append(conversation_id)
        self.turns = {marker: turn for marker, turn in self.turns.items() if turn[0] != conversation_id}

    def violated(self, problem: ViolationError) -> None:
        """Report a violation from a node's process."""
        if not self.violation.done():
            self.violation.set_result(problem)

    def answered(self, request_id: str, answer: object) -> None:
        """Record an answer. Every answer to a request must be the same."""
        self.disk.trace("answer", request_id, str(answer))
        earlier = self.answers.setdefault(request_id, answer)
        require(earlier == answer, f"{request_id} was answered with {earlier}, then with {answer}")

    # --- at the end -----------------------------------------------------------------------------

    def check_record(self, nodes: int) -> None:
        """Check everything that is durable. ``nodes`` is the number of nodes that worked at once."""
        for shard, epochs in self.disk.epochs.items():
            require(epochs == sorted(epochs), f"the epochs fall in shard {shard}: {epochs}")
        self._stored = _StoredActors(self.disk)
        for actor in self._stored.actors.values():
            self._check_actor(actor)
        self._check_conversations()
        self._check_turns()
        self._check_runs()
        self._check_requests()
        self._check_accounts()
        self._check_budgets(nodes)
        self._check_memories()

    def _check_actor(self, actor: StoredActor) -> None:
        actor_id = actor.id
        planner: Planner = RUN if actor_id.startswith("run_") else CONVERSATION
        epochs, entries = actor.epochs, actor.entries  # Each reading decodes them again.
        require(epochs == sorted(epochs), f"{actor_id}: its epochs fall: {epochs}")
        stored = {each.sequence: each for each in entries}
        known = self.disk.entries[actor_id]
        missing = [each.sequence for each in known if each != stored.get(each.sequence)]
        require(not missing, f"{actor_id} has lost its entries {missing}")
        sequences = [event.sequence for event in self._stored.events(actor_id)]
        require(sequences == [*range(1, len(sequences) + 1)], f"{actor_id}: events are numbered {sequences}")
        difference = replay(planner, entries).difference
        require(difference is None, f"{actor_id} does not replay: {difference}")
        if planner is CONVERSATION:
            self.requests.append(RequestChecks())
            self.requests[-1].check(entries)
            require(not self.requests[-1].faults, f"{actor_id}: {self.requests[-1].faults[:3]}")
        live = [put.id for put in self._stored.table(actor_id, "operations") if put.live]
        require(not live, f"{actor_id} has operations that never ended: {live}")

    def check_objects(self) -> None:
        """Check that no object is left once all conversations are restored.

        The memories of two nodes have no owner in the simulation, so their objects are not checked.
        """
        left = self.disk.blobs.contents.keys() & self.disk.archive_keys
        require(not left, f"objects that no conversation names: {sorted(left)}")

    def check_memory_objects(self) -> None:
        """Check that each object that belongs to no conversation is that of a memory."""
        left = self.disk.blobs.contents.keys() - self.disk.archive_keys - self.disk.memories.objects()
        require(not left, f"objects that no memory names: {sorted(left)}")

    def _check_conversations(self) -> None:
        conversations = {each.id: each for each in self._rows(Conversation, "conversations")}
        kept = [each.id for each in conversations.values() if each.deleted_ms or each.id in self.deleted]
        kept += [each.id for each in conversations.values() if each.called_by in self.deleted]
        require(not kept, f"conversations that were deleted and are in the record: {kept}")
        roots = [actor.id for actor in self._stored.actors.values() if actor.root in self.deleted]
        require(not roots, f"actors of deleted conversations are in the record: {roots}")
        for reference, conversation_id in self.references.items():
            holders = [each.id for each in conversations.values() if each.external_ref == reference]
            require(holders == [conversation_id], f"{reference} of {conversation_id} is held by {holders}")
        for reference in self.contested:
            holders = [each.id for each in conversations.values() if each.external_ref == reference]
            require(len(holders) <= 1, f"{reference} is held by {holders}")

    def _check_turns(self) -> None:
        contents = Counter(message.content for message in self._rows(Message, "messages"))
        turns = {turn.id: turn for turn in self._rows(Turn, "turns")}
        stuck = [turn.id for turn in turns.values() if turn.status is TurnStatus.ACTIVE]
        require(not stuck, f"turns that never ended: {stuck}")
        for marker, (_, turn_id) in self.turns.items():
            require(turn_id in turns, f"the turn {turn_id} of {marker} was acknowledged and is lost")
            require(marker in turns[turn_id].input, f"the turn {turn_id} belongs to another message")
        for turn in turns.values():
            if turn.parent is None:
                count = contents[turn.input]
                require(count == 1, f"the message {turn.input!r} is {count} times in the record")

    def _check_runs(self) -> None:
        runs = {run.id: run for run in self._rows(Run, "runs")}
        stuck = [run.id for run in runs.values() if run.status in OPEN_RUNS]
        require(not stuck, f"runs that never ended: {stuck}")
        own = [run for run in runs.values() if run.parent is None and not run.forked_from]
        names = Counter(str(run.input.get("name")) for run in own)
        for name, run_id in self.runs.items():
            require(run_id in runs, f"the run {run_id} of {name} was acknowledged and is lost")
        twice = [name for name, count in names.items() if count > 1]
        require(not twice, f"runs that one request started twice: {twice}")

    def _check_requests(self) -> None:
        """Check that nothing was done twice that must not be repeated, and that keys were kept."""
        for path, count in self.outside.requests.items():
            if path.startswith("/once/"):
                require(count == 1, f"{path} was requested {count} times and must not be repeated")
            elif path.startswith("/again/"):
                keys = self.outside.keys[path]
                require(len(keys) == 1, f"{path} was requested under the keys {sorted(keys)}")
        for execution in self._rows(NodeExecution, "executions"):
            url = execution.input.get("url") if isinstance(execution.input, dict) else None
            if isinstance(url, str) and "/once/" in url:
                self._check_once(execution, url.removeprefix("http://world"))

    def _check_once(self, execution: NodeExecution, path: str) -> None:
        """Check that an execution completed exactly if its request is known to have been received."""
        if execution.status is ExecutionStatus.COMPLETED:
            require(
                self.outside.requests[path] == 1, f"{path} is recorded as completed, and was not requested"
            )
        elif execution.status is ExecutionStatus.FAILED:
            reason = execution.fault.reason if execution.fault else None
            require(reason is Reason.OUTCOME_UNKNOWN, f"{path} failed with {reason}")

    def _check_accounts(self) -> None:
        """Check that the account of each agent is the sum of its turns."""
        sums: dict[str, list[Account]] = {}
        for turn in self.disk.turns.values():
            sums.setdefault(turn.agent_id, []).append(
                Account(**{name: getattr(turn, name) for name in _USAGE})
            )
        for agent_id, parts in sums.items():
            account = self.disk.journal.accounts.get(agent_id, Account())
            require(
                account == add_accounts(parts),
                f"the account of {agent_id} is {account}, and its turns used {add_accounts(parts)}",
            )

    def _check_budgets(self, nodes: int) -> None:
        """Check that no more was spent than a budget allows, and one call on each node."""
        turns = self.disk.turns.values()
        calls = [(turn.input_tokens + turn.output_tokens) / (turn.model_calls or 1) for turn in turns]
        allowed = MAX_TOKENS + nodes * max(calls, default=0)
        agent_id = definitions().agents["thrifty"].agent_id
        account = self.disk.journal.accounts.get(agent_id, Account())
        spent = account.input_tokens + account.output_tokens
        require(spent <= allowed, f"the agent spent {spent} tokens, more than its budget of {MAX_TOKENS}")
        for row in self._rows(Conversation, "conversations"):
            spent = row.input_tokens + row.output_tokens
            allowed_here = allowed if row.budget.max_tokens else spent
            require(spent <= allowed_here, f"{row.id} spent {spent} tokens, more than its budget")

    def _check_memories(self) -> None:
        """Check that each fact that an extraction found is remembered once."""
        contents = self.disk.memories.contents()
        twice = [content for content, count in contents.items() if count > 1]
        require(not twice, f"memories that were written twice: {twice}")
        for actor_id in self._stored.actors:
            if actor_id.startswith("conv_"):
                inputs = {put.id: put.value for put in self._stored.table(actor_id, "turns")}
                for event in self._stored.events(actor_id):
                    if event.emit.name == "memory_extraction.completed":
                        turn = inputs[event.emit.turn_id]
                        known = contents[turn.agent_id, turn.input] or len(turn.input) > MAX_INLINE_BYTES
                        require(known, f"the memory {turn.input!r} was acknowledged and is lost")

    def _rows(self, kind: type[Any], table: str) -> Iterator[Any]:
        for actor_id in self._stored.actors:
            for put in self._stored.table(actor_id, table):
                assert isinstance(put.value, kind)
                yield put.value


async def until_quiet(ledger: Ledger, seconds: float) -> None:
    """Wait until nothing is pending on the disk. Raises `ViolationError` after ``seconds``."""
    deadline = asyncio.get_running_loop().time() + seconds
    journal, pause_s = ledger.disk.journal, 0.5
    while pending := [
        *ledger.disk.unfinished(),
        *(f"object {key}" for key, _ in ledger.disk.registered),
        *(actor.id for actor in journal.actors.values() if actor.root in ledger.deleted),
    ]:
        if asyncio.get_running_loop().time() > deadline:
            raise ViolationError(f"work is stuck after {seconds} s without faults: {pending}")
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, 600)
