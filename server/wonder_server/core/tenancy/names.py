"""Names of tenants' resources as stores keep them. Pure.

A name is unique in its tenant. A store knows one name space, so it keeps the name with the id of the tenant
before it; names of the tenant ``default`` stay as they are. No name of a resource has the separator.
"""

from __future__ import annotations

from typing import Final

from wonder_server.core.tenancy.resources import DEFAULT_TENANT

_SEPARATOR: Final = ":"
STANDARD_LIBRARY: Final = "wonder/std"
"""The library that belongs to every tenant."""


def stored_name(tenant_id: str, name: str) -> str:
    """Return the name by which a store keeps the resource ``name`` of a tenant."""
    return f"{tenant_id}{_SEPARATOR}{name}" if tenant_id and name else name


def stored_library(tenant_id: str, name: str) -> str:
    """Return the name by which a store keeps a library. That of the standard library is as it is."""
    return name if name == STANDARD_LIBRARY else stored_name(tenant_id, name)


def own_name(stored: str) -> str:
    """Return the name as its tenant knows it."""
    return stored.rpartition(_SEPARATOR)[2]


def tenant_of(stored: str) -> str:
    """Return the id of the tenant of a stored name."""
    return stored.rpartition(_SEPARATOR)[0] or DEFAULT_TENANT
