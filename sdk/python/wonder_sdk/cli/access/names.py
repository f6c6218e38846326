"""Names of principals and roles on the command line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared import listing

if TYPE_CHECKING:
    from wonder_sdk import sync, v1

KINDS = ("user", "service", "worker", "node")
ROLES = ("admin", "developer", "member", "viewer", "worker")
_UNITS = {"m": 60, "h": 3600, "d": 86400}


class NotAName(Exception):
    """An argument that names nothing. The message is a sentence for the user."""


def add_tenant(verb: argparse.ArgumentParser) -> None:
    """Add the option ``--tenant``, for administrators of the server."""
    verb.add_argument(
        "--tenant", default="", metavar="NAME", help="Name or id of a tenant (default: that of the caller)."
    )


def principals(client: sync.Client, tenant: str = "") -> Iterator[v1.StoredPrincipal]:
    """Yield all principals of a tenant, empty for that of the caller."""
    from wonder_sdk import v1

    request = v1.ListPrincipalsRequest(tenant=tenant, page_size=500)
    for page in listing.pages(client.identity.list_principals, request):
        yield from page.principals


def principal_id(client: sync.Client, name: str, tenant: str = "") -> str:
    """Return the id that ``name`` means: an id, ``kind:name``, or a name that one principal has."""
    if name.startswith("prin_"):
        return name
    found = [each for each in principals(client, tenant) if name in (each.name, described(each))]
    if len(found) == 1:
        return str(found[0].id)
    if not found:
        raise NotAName(f"there is no principal {name}; `wonder principals list` shows those there are")
    choices = ", ".join(described(each) for each in found)
    raise NotAName(f"{name} is the name of several principals; use one of {choices}")


def bindings(client: sync.Client, tenant: str, project: str) -> list[v1.RoleBinding]:
    """Return the roles of a tenant, of one project (and everywhere) if it is named."""
    from wonder_sdk import v1

    request = v1.ListRoleBindingsRequest(tenant=tenant, project=project, page_size=500)
    pages = listing.pages(client.identity.list_role_bindings, request)
    return [each for page in pages for each in page.role_bindings]


def member_of(binding: v1.RoleBinding, names: Mapping[str, str]) -> str:
    """Return the group or the principal of a role. A principal that ``names`` does not have is its id."""
    if binding.group:
        return f"group {binding.group}"
    return names.get(binding.principal_id or "", binding.principal_id or "")


def place(client: sync.Client, binding: v1.RoleBinding) -> str:
    """Return where a role holds; a project by its name, or by its id if the caller does not see it."""
    from wonder_sdk import WonderError, v1

    if not binding.project_id:
        return "of the server" if binding.server else "everywhere"
    try:
        found = client.library.get_project(v1.GetProjectRequest(project_id=binding.project_id)).project
    except WonderError:
        return f"in {binding.project_id}"
    return f"in {found.name}"


def described(principal: v1.StoredPrincipal) -> str:
    """Return ``kind:name``."""
    return f"{word(principal.kind)}:{principal.name}"


def word(value: object) -> str:
    """Return an enum value as users write it: the part of its name after the type, in small letters."""
    return str(getattr(value, "name", value)).rpartition("_")[2].lower()


def timespan(text: str) -> timedelta:
    """Return the span that ``90d``, ``12h``, ``30m`` or ``0`` means."""
    found = re.fullmatch(r"([0-9]{1,5})([mhd])|0", text)
    if found is None:
        raise NotAName(f"{text} is not a time; write 90d, 12h or 30m")
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]] if found[1] else 0)
