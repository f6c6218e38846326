"""A server without artifacts, for tests of other features."""

from __future__ import annotations

from typing import NoReturn

from wonder_server.services.content.artifacts import Artifacts


class NoRepositories:
    """A store without repositories, from which anything can be removed."""

    def of(self, name: str) -> NoReturn:
        raise AssertionError(name)

    def id_of(self, content: bytes) -> str:
        raise AssertionError(content)

    async def remove(self, name: str) -> None:
        """Do nothing: the store is empty."""

    async def names(self) -> list[str]:
        return []


def no_artifacts() -> Artifacts:
    async def project_id(key: str) -> str:
        return key

    return Artifacts(NoRepositories(), project_id)
