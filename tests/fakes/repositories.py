"""A server that keeps no artifacts, for tests of everything else."""

from __future__ import annotations

from typing import NoReturn

from wonder_server.services.content.artifacts import Artifacts


class NoRepositories:
    """Nothing is there, so that everything can be removed."""

    def of(self, name: str) -> NoReturn:
        raise AssertionError(name)

    async def remove(self, name: str) -> None:
        """It never was there."""

    async def names(self) -> list[str]:
        return []


def no_artifacts() -> Artifacts:
    async def project_id(key: str) -> str:
        return key

    return Artifacts(NoRepositories(), project_id)
