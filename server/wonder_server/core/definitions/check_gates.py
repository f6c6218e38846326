"""Validation of gates: who may answer, how long they wait, and which tool calls have one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wonder_server.core.definitions.check_rules import ExpressionScope, Rules
from wonder_server.core.definitions.fault_list import join
from wonder_server.core.definitions.tool_specs import ApprovalGate

MAX_WAIT_MS: Final = 365 * 24 * 3600 * 1000
"""Limit of waits for people, other runs and agents, and of whole workflows."""

MAX_USERS: Final = 100
MAX_USER_CHARACTERS: Final = 256


def check_answering(user_ids: Sequence[str], expire_after_ms: int, path: str, rules: Rules) -> None:
    """Refuse invalid users and times of a gate."""
    rules.count(f"{path}.user_ids", user_ids, MAX_USERS)
    for index, user in enumerate(user_ids):
        if not user.strip() or len(user) > MAX_USER_CHARACTERS:
            rules.refuse(
                f"{path}.user_ids[{index}]", f"A user's id is 1 to {MAX_USER_CHARACTERS} characters long."
            )
    rules.number(f"{path}.expire_after_ms", expire_after_ms, 0, MAX_WAIT_MS)


def check_approval(approval: str, gate: ApprovalGate, path: str, rules: Rules) -> None:
    """Refuse an invalid rule of approval and an invalid gate. ``path`` is that of the tool or source."""
    if approval not in ("", "never", "always"):
        rules.expression(join(path, "approval"), approval, ExpressionScope(("input",)))
    place = join(path, "approval_gate")
    if approval in ("", "never") and gate != ApprovalGate():
        rules.refuse(place, "No call waits for approval: set 'approval' to 'always' or to an expression.")
    check_answering(gate.user_ids, gate.expire_after_ms, place, rules)
