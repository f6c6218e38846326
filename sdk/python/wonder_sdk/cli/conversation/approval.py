"""The question of ``wonder chat`` about a tool call that waits for approval."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared.terminal import Terminal
from wonder_sdk.values import from_struct

if TYPE_CHECKING:
    from wonder_sdk import sync, v1
    from wonder_sdk.json_types import JsonDict


def ask(client: sync.Client, terminal: Terminal, gate: v1.Gate, user: str) -> None:
    """Ask the user at the terminal and send the answer. Without one the call goes on waiting."""
    from wonder_sdk import FailedPreconditionError, InvalidArgumentError, PermissionDeniedError

    terminal.line(json.dumps(from_struct(gate.shown), ensure_ascii=False, indent=2))
    while True:
        try:
            answered = _answer(client, terminal, gate, user)
        except InvalidArgumentError as problem:
            terminal.line(str(problem), "red")
            continue
        except FailedPreconditionError as problem:
            terminal.note(str(problem))  # Another user has answered.
            return
        except PermissionDeniedError as problem:
            terminal.line(str(problem), "red")
            answered = False
        except EOFError:
            answered = False
        if not answered:
            terminal.note(f"it waits: wonder gates approve {gate.id}  (or reject, with --comment)")
        return


def _answer(client: sync.Client, terminal: Terminal, gate: v1.Gate, user: str) -> bool:
    match input("approve? [y/e/n] (e: edit, Enter: later) ").strip().lower():
        case "y" | "yes":
            client.approve(gate, user=user)
        case "e" | "edit":
            edited = _edited(terminal)
            if edited is None:
                return _answer(client, terminal, gate, user)
            client.approve(gate, edited, user=user)
        case "n" | "no":
            client.reject(gate, comment=input("reason for the model: ").strip(), user=user)
        case _:
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
