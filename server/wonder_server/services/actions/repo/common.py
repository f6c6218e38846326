"""Parts of the ``repo.*`` actions: schemas, access to repositories, JSON form of commits."""

from __future__ import annotations

from typing import Final

from wonder_server.core.errors import Reason, error
from wonder_server.core.json_types import JsonDict
from wonder_server.ports.repositories import Change, Commit
from wonder_server.services.actions.contract.kind import ActionCall
from wonder_server.services.content.repositories import RepositoryService

REPOSITORY: Final = {
    "type": "string",
    "description": "Name of the repository. Default: the only one of the project.",
}
PATH: Final = {"type": "string", "minLength": 1, "description": "Path of the file, such as src/main.py."}
RESOLUTIONS: Final = {
    "type": "array",
    "description": "The merged content of each conflicting file. All conflicting files are required.",
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
    """Return the repositories of the server. Raises NOT_IMPLEMENTED if it has none."""
    repositories = call.services.content.repositories
    if repositories is None:
        raise error(Reason.NOT_IMPLEMENTED, "This server has no repositories: git is not set up.")
    return repositories


def resolutions_of(call: ActionCall) -> list[Change]:
    """Return the resolutions of the input. Raises INPUT_INVALID unless each has either content or delete."""
    found = []
    for number, each in enumerate(call.input.get("resolutions", ())):
        if ("content" in each) == bool(each.get("delete")):
            raise error(
                Reason.INPUT_INVALID,
                "The resolution needs either content or delete.",
                field=f"input.resolutions[{number}]",
            )
        content = each["content"].encode("utf-8", "replace") if "content" in each else None
        found.append(Change(path=each["path"], content=content))
    return found


def commit_as_json(commit: Commit | None) -> JsonDict:
    """Return the id of a commit and up to 100 of its paths."""
    if commit is None:
        return {"commit": "", "paths": []}
    return {"commit": commit.id, "paths": list(commit.paths[:100])}
