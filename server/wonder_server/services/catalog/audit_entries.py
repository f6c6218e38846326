"""Audit entries of changes of the catalog: libraries, definitions, agents, projects, files.

A call has one entry, however many definitions it applies. It names what changed and has no contents.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wonder_server.core.definitions.resources import Agent, Definition, File, Library, Project, Resource
from wonder_server.core.idempotency import Origin
from wonder_server.core.ids import random_id
from wonder_server.core.json_types import JsonDict
from wonder_server.core.tenancy.audit import AuditEntry
from wonder_server.ports.catalog import Change, Drop

MAX_NAMED: Final = 50
"""Resources that an entry names. It counts all."""


def audit_entries(changes: Sequence[Change], origin: Origin, now: int) -> list[AuditEntry]:
    """Return the entry of a call's changes, which are in the tenant of its caller; nothing for the server's
    own work, and without a change."""
    if origin.call is None or not changes:
        return []
    # A library changes with each of its definitions.
    own = [each for each in changes if not isinstance(each.resource, Library)] or list(changes)
    resources = {each.resource.id for each in own}
    projects = {project for each in own for project in _projects(each.resource)}
    entry = AuditEntry(
        id=random_id("aud", now),
        at_ms=now,
        tenant_id=origin.principal.tenant,
        principal=origin.principal.text,
        method=origin.call.method,
        resource=resources.pop() if len(resources) == 1 else "",
        project_id=projects.pop() if len(projects) == 1 else "",
        key_id=origin.call.key_id,
        request_id=origin.request_id,
        peer=origin.call.peer,
        trace_id=origin.call.trace_id,
        details=_details(own),
    )
    return [entry]


def _projects(resource: Resource) -> tuple[str, ...]:
    match resource:
        case Project():
            return (resource.id,)
        case Agent():
            return resource.project_ids
        case File():
            return (resource.project_id,)
        case _:
            return ()


def _details(changes: Sequence[Change]) -> JsonDict:
    """Return the number of changes, and the names of what was created, changed and deleted, each with its
    kind."""
    named = dict[str, list[str]]()
    for change in changes[:MAX_NAMED]:
        named.setdefault(_done(change), []).append(_name(change.resource))
    return {"count": str(len(changes)), **{done: ", ".join(names) for done, names in named.items()}}


def _done(change: Change) -> str:
    if isinstance(change, Drop):
        return "deleted"
    resource = change.resource
    version = resource.revision if isinstance(resource, Definition) else resource.version
    return "created" if version == 1 else "changed"


def _name(resource: Resource) -> str:
    if isinstance(resource, Definition):
        return f"{resource.kind} {resource.library}/{resource.name}"
    return f"{type(resource).__name__.lower()} {resource.name}"
