"""JSON form of outlines, for the ``….index`` actions."""

from __future__ import annotations

from typing import Final

from wonder_server.core.json_types import JsonDict
from wonder_server.services.content.outlines import Outline

LINE: Final = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "The path of a folder ends in /."},
        "files": {"type": "integer", "description": "Number of files in the folder; 0 for a file."},
        "repository": {"type": "string"},
        "text": {"type": "string", "description": "Path and number as text, on one line."},
    },
}
OUTLINE: Final = {
    "files": {"type": "integer", "description": "Number of all files."},
    "truncated": {"type": "boolean", "description": "True if there are more files than were counted."},
    "more": {"type": "integer", "description": "Number of omitted lines."},
    "lines": {"type": "array", "items": LINE},
}


def outline_as_json(outline: Outline) -> JsonDict:
    """Return an outline as `OUTLINE` describes it."""
    return {
        "files": outline.files,
        "truncated": outline.truncated,
        "more": outline.omitted_lines,
        "lines": lines_as_json(outline),
    }


def lines_as_json(outline: Outline, *, repository: str = "", with_repository: bool = False) -> list[JsonDict]:
    """Return the lines, and one more with the number of omitted lines. With ``with_repository``, each text
    starts with the ``repository``."""
    prefix = f"{repository}: " if with_repository else ""
    result: list[JsonDict] = [
        {"path": line.path, "files": line.files, "text": prefix + line.text} for line in outline.lines
    ]
    if outline.omitted_lines:
        result.append({"path": "", "files": 0, "text": f"{prefix}and {outline.omitted_lines} more"})
    return [{**line, "repository": repository} for line in result] if repository else result
