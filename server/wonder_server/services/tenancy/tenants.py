"""The projects and libraries of each tenant, in memory: the access scope of a tenant names them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from wonder_server.core.definitions.resources import STANDARD_LIBRARY, Library, Project
from wonder_server.core.tenancy.names import tenant_of
from wonder_server.ports.access import AccessScope
from wonder_server.ports.catalog import Change, Put


@dataclass(slots=True)
class _Owned:
    projects: set[str] = field(default_factory=set)
    libraries: set[str] = field(default_factory=set)


class TenantIndex:
    """The projects and libraries of each tenant, by id. ``version`` increases with each change of them."""

    def __init__(self) -> None:
        self.version = 0
        self._owned: defaultdict[str, _Owned] = defaultdict(_Owned)
        self._standard: str = ""
        self._scopes: dict[str, AccessScope] = {}

    def load(self, projects: Mapping[str, str], libraries: Mapping[str, str]) -> None:
        """Add what the catalog has: stored names by id."""
        for project_id, name in projects.items():
            self._add_project(project_id, name)
        for library_id, name in libraries.items():
            self._add_library(library_id, name)
        self._changed()

    def apply(self, changes: Sequence[Change]) -> None:
        """Follow changes of the catalog, with stored names."""
        relevant = [each for each in changes if _is_relevant(each)]
        for change in relevant:
            resource = change.resource
            assert isinstance(resource, Project | Library)
            if isinstance(change, Put):
                add = self._add_project if isinstance(resource, Project) else self._add_library
                add(resource.id, resource.name)
            else:
                owned = self._owned[tenant_of(resource.name)]
                owned.projects.discard(resource.id)
                owned.libraries.discard(resource.id)
        if relevant:
            self._changed()

    def scope_of(self, tenant_id: str) -> AccessScope:
        """Return the access scope of everything in a tenant. The standard library is in each."""
        known = self._scopes.get(tenant_id)
        if known is None:
            owned = self._owned.get(tenant_id, _Owned())
            known = self._scopes[tenant_id] = AccessScope(
                projects=frozenset(owned.projects),
                libraries=frozenset({*owned.libraries, self._standard} - {""}),
                tenant=tenant_id,
            )
        return known

    def _add_project(self, project_id: str, name: str) -> None:
        self._owned[tenant_of(name)].projects.add(project_id)

    def _add_library(self, library_id: str, name: str) -> None:
        self._owned[tenant_of(name)].libraries.add(library_id)
        if name == STANDARD_LIBRARY:
            self._standard = library_id

    def _changed(self) -> None:
        self.version += 1
        self._scopes.clear()


def _is_relevant(change: Change) -> bool:
    """Return True for a new or deleted project or library: other changes keep name and id."""
    resource = change.resource
    is_member = isinstance(resource, Project | Library)
    return is_member and (not isinstance(change, Put) or resource.version == 1)
