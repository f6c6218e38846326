"""The services that the LibraryService calls, for the principal of the current call."""

from __future__ import annotations

from dataclasses import dataclass

from wonder_server.ports.access import ByPrincipal
from wonder_server.ports.hook_failures import FailedHooks
from wonder_server.ports.scoped import ScopedAccounts
from wonder_server.rpc.shared.principal import current_principal
from wonder_server.services.catalog.library import Library
from wonder_server.services.content.artifacts import Artifacts


@dataclass(frozen=True, slots=True)
class LibraryParts:
    """The library, the documents, and the usage and failing hooks of agents for one access scope."""

    library: Library
    artifacts: Artifacts
    accounts: ScopedAccounts | None = None
    failed_hooks: FailedHooks | None = None


class LibraryMethods:
    """Base of the methods of the LibraryServicer: the parts for the principal of the call."""

    def __init__(self, parts: ByPrincipal[LibraryParts]) -> None:
        self._parts = parts

    @property
    def _own(self) -> LibraryParts:
        return self._parts.of(current_principal.get())
