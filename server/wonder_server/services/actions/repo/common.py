"""What the ``repo.*`` actions share: the repositories, and how files and differences look as JSON."""

from __future__ import annotations

from typing import Any, Final

from wonder_server.core.errors import Reason, error
from wonder_server.ports.repositories import Change, Commit
from wonder_server.services.actions.contract.kind import ActionCall
from wonder_server.services.content.repositories import RepositoryService

REPOSITORY: Final = {
    "type": "string",
    "description": "Name of the repository; left out: the project's only one.",
}
PATH: Final = {"type": "string", "minLength": 1, "description": "Such as src/main.py."}
RESOLUTIONS: Final = {
    "type": "array",
    "description": "What each file in conflict becomes; they count if they name all of them.",
    "items": {
        "type": "object",
        "properties": {
            "path": PATH,
            "content": {"type": "string"},
            "delete": {"type": "boolean"},
        },
        "required": ["path"],
        "additionalProperties": False,
    },
}


def repositories_of(call: ActionCall) -> RepositoryService:
    """The repositories of the server. NOT_IMPLEMENTED where it has none."""
    repositories = call.services.content.repositories
    if repositories is None:
        raise error(Reason.NOT_IMPLEMENTED, "This server has no repositories: git is not set up.")
    return repositories


def resolutions_of(call: ActionCall) -> list[Change]:
    """What files in conflict become. INPUT_INVALID unless each says exactly one thing."""
    found = []
    for number, each in enumerate(call.input.get("resolutions", ())):
        if ("content" in each) == bool(each.get("delete")):
            raise error(
                Reason.INPUT_INVALID, "Give content, or say delete.", field=f"input.resolutions[{number}]"
            )
        content = each["content"].encode("utf-8", "replace") if "content" in each else None
        found.append(Change(path=each["path"], content=content))
    return found


def commit_as_json(commit: Commit | None) -> dict[str, Any]:
    if commit is None:
        return {"commit": "", "paths": []}
    return {"commit": commit.id, "paths": list(commit.paths[:100])}
