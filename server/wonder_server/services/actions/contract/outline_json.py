"""What the ``….index`` actions share: how outlines look as JSON."""

from __future__ import annotations

from typing import Any, Final

from wonder_server.services.content.outlines import Outline

LINE: Final = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "Of a folder it ends in /."},
        "files": {"type": "integer", "description": "How many are in the folder; 0 for a file."},
        "repository": {"type": "string"},
        "text": {"type": "string", "description": "The same as text, on one line."},
    },
}
OUTLINE: Final = {
    "files": {"type": "integer", "description": "How many there are in all."},
    "truncated": {"type": "boolean", "description": "There are more than were counted."},
    "more": {"type": "integer", "description": "Lines that are left out."},
    "lines": {"type": "array", "items": LINE},
}


def outline_as_json(outline: Outline) -> dict[str, Any]:
    return {
        "files": outline.files,
        "truncated": outline.truncated,
        "more": outline.omitted_lines,
        "lines": lines_as_json(outline),
    }


def lines_as_json(
    outline: Outline, *, repository: str = "", with_repository: bool = False
) -> list[dict[str, Any]]:
    """The lines, and one that says how many are left out; ``named``: each text says its ``repository``."""
    prefix = f"{repository}: " if with_repository else ""
    result: list[dict[str, Any]] = [
        {"path": line.path, "files": line.files, "text": prefix + line.text} for line in outline.lines
    ]
    if outline.omitted_lines:
        result.append({"path": "", "files": 0, "text": f"{prefix}and {outline.omitted_lines} more"})
    return [{**line, "repository": repository} for line in result] if repository else result
