"""The question of ``wonder chat`` about a tool call that waits for approval."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared.terminal import Terminal
from wonder_sdk.values import from_struct

if TYPE_CHECKING:
    from wonder_sdk import sync, v1
    from wonder_sdk.json_types import JsonDict


_QUESTION = "approve? [y/e/n] (e: edit, Enter: later, Ctrl-C: cancel the turn) "
_LATER = ("", "l", "later")


class CallWaitsError(Exception):
    """The person answers later, or cannot answer: the call waits."""

    def __init__(self, gate: v1.Gate) -> None:
        super().__init__(gate.id)
        self.gate = gate


def command(gate: v1.Gate) -> str:
    """Return the command that answers the gate from anywhere."""
    return f"wonder gates approve {gate.id}  (or reject, with --comment)"


def ask(client: sync.Client, terminal: Terminal, gate: v1.Gate, user: str) -> None:
    """Ask the user at the terminal and send the answer. Raises `CallWaitsError` without an answer."""
    from wonder_sdk import FailedPreconditionError, InvalidArgumentError, PermissionDeniedError

    terminal.line(json.dumps(from_struct(gate.shown), ensure_ascii=False, indent=2))
    while True:
        try:
            if _answer(client, terminal, gate, user):
                return
        except InvalidArgumentError as problem:
            terminal.line(str(problem), "red")
        except FailedPreconditionError as problem:
            terminal.note(str(problem))  # Another user has answered.
            return
        except PermissionDeniedError as problem:
            terminal.line(str(problem), "red")
            raise CallWaitsError(gate) from None
        except EOFError:
            terminal.line()
            raise CallWaitsError(gate) from None


def _answer(client: sync.Client, terminal: Terminal, gate: v1.Gate, user: str) -> bool:
    """Send the answer. Return False to ask again."""
    match answer := input(_QUESTION).strip().lower():
        case "y" | "yes":
            client.approve(gate, user=user)
        case "e" | "edit":
            edited = _edited(terminal)
            if edited is None:
                return False
            client.approve(gate, edited, user=user)
        case "n" | "no":
            client.reject(gate, comment=input("reason for the model: ").strip(), user=user)
        case _ if answer in _LATER:
            raise CallWaitsError(gate)
        case _:
            terminal.line(
                f"  {answer} is no answer: y approves, e edits, n rejects, Enter answers later.", "dim"
            )
            return False
    return True


def _edited(terminal: Terminal) -> JsonDict | None:
    """Return the arguments that the user types; None if they are no JSON object."""
    try:
        value = json.loads(input("arguments as JSON: "))
    except ValueError as problem:
        terminal.line(f"This is no JSON: {problem}", "red")
        return None
    if isinstance(value, dict):
        return value
    terminal.line("The arguments are a JSON object.", "red")
    return None
