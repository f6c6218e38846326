"""Views for tests of parts that know no access scopes."""

from __future__ import annotations

from typing import Generic, TypeVar

from wonder_server.core.identity import Principal

T = TypeVar("T")


class ForAll(Generic[T]):
    """One object for every principal. Implements `wonder_server.ports.access.ByPrincipal`."""

    def __init__(self, view: T) -> None:
        self.view = view

    def of(self, principal: Principal) -> T:
        return self.view
