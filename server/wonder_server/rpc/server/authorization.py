"""Scopes of named callers. A server without tokens grants every scope to every caller.

- ``act_as``: act for another: send a ``user_id`` or ``author`` other than the token's name, name an agent or
  a run as the caller, or name the conversation, turn or run in which a task or run works.
- ``admin``: call a ``Delete…`` method, prune, delete an artifact, execute a task that deletes, let a task or
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
"""Prefix of the branches of conversations and runs; naming one gives access to their files."""
ADMIN: Final = "admin"
SEARCH_ALL: Final = "memory.search_all"


class ScopeGrants:
    """Names of the tokens that hold each scope.

    The setting that grants a scope is named after it: WONDER_MEMORY_SEARCH_ALL grants `memory.search_all`.
    """

    def __init__(self, granted: Mapping[str, Collection[str]]) -> None:
        """Store the names that hold each scope."""
        self._granted = {scope: frozenset(names) for scope, names in granted.items()}

    @classmethod
    def from_settings(cls, settings: Settings) -> ScopeGrants:
        """Read the names of each scope from its setting, separated by commas."""
        settings_by_scope = {
            ACT_AS: settings.act_as,
            ADMIN: settings.admin,
            SEARCH_ALL: settings.memory_search_all,
        }
        return cls(
            {
                scope: [name.strip() for name in names.split(",") if name.strip()]
                for scope, names in settings_by_scope.items()
            }
        )

    def unused_grants(self, names: Collection[str]) -> list[tuple[str, str]]:
        """Return each scope and name of a grant whose name is not in ``names``."""
        granted = self._granted.items()
        return [(scope, name) for scope, holders in granted for name in sorted(holders - set(names))]

    def require(self, scope: str, reason: str = "", field: str = "") -> None:
        """Raise PERMISSION_DENIED unless the current caller holds ``scope``.

        ``reason`` begins the message.
        """
        name = current_principal.get()
        if name != ANONYMOUS and name not in self._granted.get(scope, ()):
            setting = f"WONDER_{scope.replace('.', '_').upper()}"
            message = (
                f"The token '{name}' does not have the scope {scope}. The operator grants it with the "
                f"setting {setting}."
            )
            raise error(
                Reason.PERMISSION_DENIED, f"{reason} {message}".strip(), field=field, permission=scope
            )

    def resolve_user(self, given: str, field: str) -> str:
        """Return the user that a request acts for: the caller, or ``given`` if the caller has `act_as`.

        Raises PERMISSION_DENIED if ``given`` differs from the caller's name and the caller lacks the scope.
        """
        name = current_principal.get()
        if given and name not in (ANONYMOUS, given):
            self.require(ACT_AS, f"{field} is '{given}'. Leave it empty or use the token's name.", field)
        return given or name

    def require_context(self, given: ExecutionContext) -> None:
        """Raise PERMISSION_DENIED unless the current caller may execute work in this context.

        Work as an agent needs `admin`, because it can delete the agent's memories. The other fields need
        `act_as`.
        """
        if given.agent_id:
            self.require(ADMIN, "context.agent_id lets the work act as the agent.", "context.agent_id")
        for name in ("conversation_id", "turn_id", "run_id"):
            if getattr(given, name):
                field, resource = f"context.{name}", name.removesuffix("_id")
                self.require(ACT_AS, f"{field} makes the work part of another {resource}.", field)
        if given.branch.startswith(WORK_BRANCH_PREFIX):
            reason = f"context.branch '{given.branch[:100]}' belongs to a conversation or a run."
            self.require(ACT_AS, reason, "context.branch")


NO_GRANTS: Final = ScopeGrants({})
"""Grants under which no named caller holds a scope."""


def scope_for(method: str) -> str:
    """Return the scope that a method needs for every request; "" for none."""
    return ADMIN if method.startswith("Delete") else ""
