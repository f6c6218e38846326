"""Rights of named callers. A server without tokens grants every right to every caller.

- ``act_as``: speak for another: give a ``user_id`` or ``author`` other than the token's name, an agent or a
  run as a caller, or the conversation, turn or run that a task or run works in.
- ``admin``: call a ``Delete…`` method, prune, delete an artifact, execute a task that deletes, have a task or
  a run work as an agent, and change a project's network policy and repositories.
- ``memory.search_all``: search the memories of all agents together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from wonder.v1.task_pb2 import ExecutionContext
from wonder_server.core.errors import Reason, error
from wonder_server.rpc.shared.principal import ANONYMOUS, current_principal
from wonder_server.settings import Settings

ACT_AS: Final = "act_as"
WORK_BRANCH_PREFIX: Final = "wonder/"
"""Branches below are those of conversations and runs: who names one works among another's files."""
ADMIN: Final = "admin"
SEARCH_ALL: Final = "memory.search_all"


class ScopeGrants:
    """Names of the tokens that hold each right.

    The setting that grants a right is named after it: `memory.search_all` by WONDER_MEMORY_SEARCH_ALL.
    """

    def __init__(self, granted: Mapping[str, Collection[str]]) -> None:
        """``granted``: for each right the names that hold it."""
        self._granted = {right: frozenset(names) for right, names in granted.items()}

    @classmethod
    def from_settings(cls, settings: Settings) -> ScopeGrants:
        """Read the rights from their settings: names with commas between."""
        settings_by_scope = {
            ACT_AS: settings.act_as,
            ADMIN: settings.admin,
            SEARCH_ALL: settings.memory_search_all,
        }
        return cls(
            {
                right: [name.strip() for name in names.split(",") if name.strip()]
                for right, names in settings_by_scope.items()
            }
        )

    def unused_grants(self, names: Collection[str]) -> list[tuple[str, str]]:
        """Return pairs of a right and a name that it is granted to, but that is not among ``names``."""
        granted = self._granted.items()
        return [(right, name) for right, holders in granted for name in sorted(holders - set(names))]

    def require(self, scope: str, reason: str = "", field: str = "") -> None:
        """Raise PERMISSION_DENIED unless the current caller holds ``right``; ``why`` begins the message."""
        name = current_principal.get()
        if name != ANONYMOUS and name not in self._granted.get(scope, ()):
            setting = f"WONDER_{scope.replace('.', '_').upper()}"
            message = (
                f"The token '{name}' does not have the right {scope}; the operator grants it to names by the "
                f"setting {setting}."
            )
            raise error(
                Reason.PERMISSION_DENIED, f"{reason} {message}".strip(), field=field, permission=scope
            )

    def resolve_user(self, given: str, field: str) -> str:
        """Return the person that a request speaks for: the caller, or ``given`` if the caller has `act_as`.

        PERMISSION_DENIED if ``given`` is another name than the caller's.
        """
        name = current_principal.get()
        if given and name not in (ANONYMOUS, given):
            self.require(
                ACT_AS, f"{field} is '{given}': leave it empty, or give the token's own name.", field
            )
        return given or name

    def require_context(self, given: ExecutionContext) -> None:
        """Raise PERMISSION_DENIED unless the current caller may have work done in this context.

        As the agent with `admin`, since it may delete the agent's memories; in the rest with `act_as`.
        """
        if given.agent_id:
            self.require(ADMIN, "context.agent_id makes the work the agent's own.", "context.agent_id")
        for name in ("conversation_id", "turn_id", "run_id"):
            if getattr(given, name):
                field, whole = f"context.{name}", name.removesuffix("_id")
                self.require(ACT_AS, f"{field} makes the work part of another {whole}.", field)
        if given.branch.startswith(WORK_BRANCH_PREFIX):
            reason = f"context.branch '{given.branch[:100]}' is a conversation's or a run's."
            self.require(ACT_AS, reason, "context.branch")


NO_GRANTS: Final = ScopeGrants({})
"""No named caller holds any right."""


def scope_for(method: str) -> str:
    """Return the right that a method of the contract needs whatever its request says; "" for none."""
    return ADMIN if method.startswith("Delete") else ""
