"""Access scopes: the part of the record that a principal reads and changes.

Every store is reached through a view that is limited to one access scope. A view of less than everything
behaves as if the rest did not exist. An access scope differs from `Principal.scopes`, the permissions of a
token, and from the `Scope` of a command, the identity and place of its work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Generic, Protocol, TypeVar

from wonder_server.core.identity import SERVER, Principal, PrincipalKind, recorded_principal

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

MAX_VIEWS: Final = 1_000
"""Access scopes whose views are kept. A view costs some kilobytes and is built again in microseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessScope:
    """The ids of the projects and of the libraries that a principal reaches; None is every one.

    A conversation or run belongs to its project, with all its rows and events. An agent belongs to each of
    its projects, and its memories and usage belong to the agent. A definition belongs to its library.

    ``tenant`` is the id of the tenant in which names are looked up; None on a server without tenants, and for
    the server itself. ``whole`` is the scope of everything in the tenant, None if this is it.
    """

    projects: frozenset[str] | None = None
    libraries: frozenset[str] | None = None
    tenant: str | None = None
    whole: AccessScope | None = field(default=None, compare=False, repr=False)

    def has_project(self, project_id: str) -> bool:
        """Return True if the scope has this project."""
        return self.projects is None or project_id in self.projects

    def has_any_project(self, project_ids: Iterable[str]) -> bool:
        """Return True if the scope has one of these projects."""
        return self.projects is None or not self.projects.isdisjoint(project_ids)

    @property
    def is_whole(self) -> bool:
        """True for everything of a tenant, or of the server: new projects and libraries belong to it."""
        return self.whole is None and (self.tenant is not None or self.projects is None)

    def has_library(self, library_id: str) -> bool:
        """Return True if the scope has this library."""
        return self.libraries is None or library_id in self.libraries


ALL_RECORDS: Final = AccessScope()
"""The access scope of everything: that of the server's own work."""

_SERVER_KIND: Final = PrincipalKind.SERVER
"""Each access to a member of an enumeration takes as long as a dictionary lookup."""

ScopeOf = Callable[[Principal], AccessScope]
"""Returns the access scope of a caller."""


def all_records(_principal: Principal) -> AccessScope:
    """Return `ALL_RECORDS`: the access scope of every principal of a server without roles."""
    return ALL_RECORDS


class ByPrincipal(Protocol[T_co]):
    """A store or service that is reached only through its view for a principal."""

    def of(self, principal: Principal) -> T_co:
        """Return the view for the access scope of this principal."""
        ...


class PerScope(Generic[T]):
    """Views of one thing, one for each access scope. Principals with one access scope share a view."""

    def __init__(self, build: Callable[[AccessScope], T], scope_of: ScopeOf = all_records) -> None:
        self._build = build
        self._scope_of = scope_of
        self._views: dict[AccessScope, T] = {}
        self._recent: tuple[AccessScope | None, T | None] = (None, None)
        """The last scope and its view. Nearly all calls of a server have one scope; its hash takes 0.4 µs."""

    def of(self, principal: Principal) -> T:
        """Return the view for this principal. The server itself has the view of everything, and for its work
        in a tenant that of the tenant."""
        is_server = principal.kind is _SERVER_KIND and not principal.tenant
        return self.within(ALL_RECORDS if is_server else self._scope_of(principal))

    def within(self, scope: AccessScope) -> T:
        """Return the view for an access scope."""
        known, recent = self._recent
        if scope is known and recent is not None:
            return recent
        view = self._views.get(scope)
        if view is None:
            if len(self._views) >= MAX_VIEWS:
                self._views.clear()
            view = self._views[scope] = self._build(scope)
        self._recent = scope, view
        return view


@lru_cache(maxsize=1024)
def working_principal(text: str) -> Principal:
    """Return the principal for which work is done, from its record: that which started the work.

    Work that an earlier version started has no recorded principal. The server does it for itself.
    """
    return recorded_principal(text) or SERVER
