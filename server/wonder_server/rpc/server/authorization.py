"""Permissions of calls.

Each method names its permission as an option; `EXTRA` of `core/access/permissions` lists those that some
requests need beside it. A server without tokens grants all permissions to every caller. A token has those of
a developer without deletions. Settings name the tokens that have more:

- ``WONDER_ACT_AS``: `act_as`.
- ``WONDER_MEMORY_SEARCH_ALL``: `memories.search_all`.
- ``WONDER_ADMIN``: all others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from google.protobuf.descriptor import MethodDescriptor

from wonder.v1 import access_pb2
from wonder.v1.task_pb2 import ExecutionContext
from wonder_server.core.access.permissions import (
    ACT_AS,
    ALL,
    EXECUTE_ANYTHING,
    PERMISSIONS_OF,
    SEARCH_ALL,
    Role,
)
from wonder_server.core.errors import Reason, error
from wonder_server.core.identity import Principal, PrincipalKind
from wonder_server.rpc.shared.principal import current_caller, current_principal
from wonder_server.settings import Settings

WORK_BRANCH_PREFIX: Final = "wonder/"
"""Prefix of the branches of conversations and runs; naming one gives access to their files."""

_OF_EVERY_TOKEN: Final = frozenset(
    permission
    for permission in PERMISSIONS_OF[Role.DEVELOPER] | {"libraries.write", "projects.create", "tasks.work"}
    if not permission.endswith(".delete")
)
_SETTINGS: Final = {ACT_AS: "WONDER_ACT_AS", SEARCH_ALL: "WONDER_MEMORY_SEARCH_ALL"}
"""The setting that grants a permission to tokens. WONDER_ADMIN grants the others."""


class TokenGrants:
    """The permissions of tokens, by the settings that name them."""

    def __init__(self, granted: Mapping[str, Collection[str]]) -> None:
        """Store the names of the tokens that each setting lists."""
        self._granted = {setting: frozenset(names) for setting, names in granted.items()}
        self._principals: dict[str, Principal] = {}
        """Principals by name of their token, which takes 5 µs to make for each call."""

    @classmethod
    def from_settings(cls, settings: Settings) -> TokenGrants:
        """Read the names of each setting, separated by commas."""
        lists = {
            "WONDER_ACT_AS": settings.act_as,
            "WONDER_ADMIN": settings.admin,
            "WONDER_MEMORY_SEARCH_ALL": settings.memory_search_all,
        }
        return cls(
            {
                setting: [name.strip() for name in names.split(",") if name.strip()]
                for setting, names in lists.items()
            }
        )

    def unused_grants(self, names: Collection[str]) -> list[tuple[str, str]]:
        """Return each setting and listed name that is not in ``names``."""
        granted = self._granted.items()
        return [(setting, name) for setting, listed in granted for name in sorted(listed - set(names))]

    def principal_of(self, name: str) -> Principal:
        """Return the principal of the token ``name`` with its permissions."""
        known = self._principals.get(name)
        if known is None:
            permissions = frozenset(
                permission
                for permission in ALL
                if permission in _OF_EVERY_TOKEN or name in self._granted.get(_setting(permission), ())
            )
            known = Principal(kind=PrincipalKind.TOKEN, subject=name, permissions=permissions)
            self._principals[name] = known
        return known


def permission_of(method: MethodDescriptor) -> str:
    """Return the permission that a method names; "" for a method of another contract, such as health."""
    return str(method.GetOptions().Extensions[access_pb2.permission])  # type: ignore[index]


def require_permission(permission: str, reason: str = "", field: str = "") -> None:
    """Raise PERMISSION_DENIED unless the current principal has ``permission``.

    ``reason`` begins the message.
    """
    principal = current_principal.get()
    if permission not in principal.permissions:
        if principal.kind is PrincipalKind.TOKEN:
            message = (
                f"The token '{principal.subject}' does not have the permission {permission}. The operator "
                f"grants it with the setting {_setting(permission)}."
            )
        else:
            message = f"The permission {permission} is missing."
        raise error(
            Reason.PERMISSION_DENIED, f"{reason} {message}".strip(), field=field, permission=permission
        )


def narrow_to(permission: str) -> None:
    """Let the stored principal of the call reach only the projects in which it has ``permission``."""
    caller = current_caller.get()
    if caller is not None:
        current_principal.set(caller.narrowed(permission))


def resolve_user(given: str, field: str) -> str:
    """Return the user that a request acts for: the caller, or ``given`` if the caller has `act_as`.

    Raises PERMISSION_DENIED if ``given`` differs from the caller's name and the caller lacks the permission.
    """
    name = current_principal.get().user
    if given and name not in ("", given):
        require_permission(ACT_AS, f"{field} is '{given}'. Leave it empty or use the token's name.", field)
    return given or name


def require_context(given: ExecutionContext) -> None:
    """Raise PERMISSION_DENIED unless the current principal may execute work in this context.

    Work as an agent needs `tasks.execute_any`, because it can delete the agent's memories. The other fields
    need `act_as`.
    """
    if given.agent_id:
        reason = "context.agent_id lets the work act as the agent."
        require_permission(EXECUTE_ANYTHING, reason, "context.agent_id")
    for name in ("conversation_id", "turn_id", "run_id"):
        if getattr(given, name):
            field, resource = f"context.{name}", name.removesuffix("_id")
            require_permission(ACT_AS, f"{field} makes the work part of another {resource}.", field)
    if given.branch.startswith(WORK_BRANCH_PREFIX):
        reason = f"context.branch '{given.branch[:100]}' belongs to a conversation or a run."
        require_permission(ACT_AS, reason, "context.branch")


def _setting(permission: str) -> str:
    return _SETTINGS.get(permission, "WONDER_ADMIN")
