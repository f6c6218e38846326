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
from wonder_server.core.identity import ACT_AS, ADMIN, SEARCH_ALL, Principal, PrincipalKind
from wonder_server.rpc.shared.principal import current_principal
from wonder_server.settings import Settings

WORK_BRANCH_PREFIX: Final = "wonder/"
"""Prefix of the branches of conversations and runs; naming one gives access to their files."""


class ScopeGrants:
    """Names of the tokens that hold each scope. They become the scopes of principals.

    The setting that grants a scope is named after it: WONDER_MEMORY_SEARCH_ALL grants `memory.search_all`.
    """

    def __init__(self, granted: Mapping[str, Collection[str]]) -> None:
        """Store the names that hold each scope."""
        self._granted = {scope: frozenset(names) for scope, names in granted.items()}
        self._principals: dict[str, Principal] = {}
        """Principals by name of their token, which takes 5 µs to make for each call."""

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

    def principal_of(self, name: str) -> Principal:
        """Return the principal of the token ``name`` with its scopes."""
        known = self._principals.get(name)
        if known is None:
            scopes = frozenset(scope for scope, names in self._granted.items() if name in names)
            known = Principal(kind=PrincipalKind.TOKEN, subject=name, scopes=scopes)
            self._principals[name] = known
        return known


def require_scope(scope: str, reason: str = "", field: str = "") -> None:
    """Raise PERMISSION_DENIED unless the current principal holds ``scope``.

    ``reason`` begins the message.
    """
    principal = current_principal.get()
    if scope not in principal.scopes:
        setting = f"WONDER_{scope.replace('.', '_').upper()}"
        message = (
            f"The token '{principal.subject}' does not have the scope {scope}. The operator grants it with "
            f"the setting {setting}."
        )
        raise error(Reason.PERMISSION_DENIED, f"{reason} {message}".strip(), field=field, permission=scope)


def resolve_user(given: str, field: str) -> str:
    """Return the user that a request acts for: the caller, or ``given`` if the caller has `act_as`.

    Raises PERMISSION_DENIED if ``given`` differs from the caller's name and the caller lacks the scope.
    """
    name = current_principal.get().caller
    if given and name not in ("", given):
        require_scope(ACT_AS, f"{field} is '{given}'. Leave it empty or use the token's name.", field)
    return given or name


def require_context(given: ExecutionContext) -> None:
    """Raise PERMISSION_DENIED unless the current principal may execute work in this context.

    Work as an agent needs `admin`, because it can delete the agent's memories. The other fields need
    `act_as`.
    """
    if given.agent_id:
        require_scope(ADMIN, "context.agent_id lets the work act as the agent.", "context.agent_id")
    for name in ("conversation_id", "turn_id", "run_id"):
        if getattr(given, name):
            field, resource = f"context.{name}", name.removesuffix("_id")
            require_scope(ACT_AS, f"{field} makes the work part of another {resource}.", field)
    if given.branch.startswith(WORK_BRANCH_PREFIX):
        reason = f"context.branch '{given.branch[:100]}' belongs to a conversation or a run."
        require_scope(ACT_AS, reason, "context.branch")


def scope_for(method: str) -> str:
    """Return the scope that a method needs for every request; "" for none."""
    return ADMIN if method.startswith("Delete") else ""
