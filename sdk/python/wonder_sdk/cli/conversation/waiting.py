"""Turns of ``wonder chat`` whose tool calls wait for an answer while the person goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from wonder_sdk import sync, v1
from wonder_sdk.cli.conversation import approval
from wonder_sdk.cli.conversation.turn_printer import AnswerPrinter, TurnPrinter
from wonder_sdk.cli.shared.terminal import Terminal

_READY_SECONDS = 0.05
"""Time for an item that has arrived to be taken from the thread of the client."""


@dataclass(slots=True)
class FollowedTurn:
    """A turn that the chat prints, and the gates that the person left open."""

    reply: sync.Reply
    printer: TurnPrinter | AnswerPrinter
    gates: dict[str, v1.Gate] = field(default_factory=dict)

    @property
    def is_completed(self) -> bool:
        turn = self.reply.turn
        return turn is not None and turn.status is v1.TurnStatus.COMPLETED

    def ask_again(self, client: sync.Client, approve: Callable[[v1.Gate], None]) -> None:
        """Ask about each open gate. Raises `CallWaitsError` at one that the person leaves open again."""
        for gate in list(self.gates.values()):
            if client.find_gate(gate.id).status is v1.GateStatus.PENDING:
                self.printer.fresh_line()
                approve(gate)
            self.gates.pop(gate.id, None)

    def catch_up(self, terminal: Terminal) -> bool:
        """Print what has arrived, and name new gates without asking. Return True if the turn has ended."""
        while self.reply.ready(within=_READY_SECONDS):
            try:
                item = next(self.reply)
            except StopIteration:
                return True
            match item:
                case v1.Event(gate_opened=v1.Gate() as gate):
                    self.gates[gate.id] = gate
                    terminal.line(f"  {waits(gate)}; /approve answers it", "dim")
                    continue
                case v1.Event(gate_resolved=v1.Gate(id=gate_id)):
                    self.gates.pop(gate_id, None)
                case _:
                    pass
            self.printer.show([item])
        return False


def waits(gate: v1.Gate) -> str:
    """Return what waits for an answer."""
    return f"{gate.tool_name or gate.node_id} waits for approval ({gate.id})"


def show_deferred(terminal: Terminal, gate: v1.Gate, *, returns: bool) -> None:
    """Print how to answer a gate that was left open; ``returns`` says that the prompt returns."""
    terminal.fresh_line()
    terminal.line(f"  it waits: {approval.command(gate)}", "dim")
    if returns:
        terminal.line(
            "  /approve asks again, an empty line shows what is new; Ctrl-D or /quit leaves, the call stays",
            "dim",
        )


def show_left(terminal: Terminal, gates: list[v1.Gate]) -> None:
    """Print which calls go on waiting after the chat."""
    for gate in gates:
        terminal.line(f"  {waits(gate)}: {approval.command(gate)}", "dim")
