"""Messages with images and files, on a terminal."""

from __future__ import annotations

from wonder_sdk import v1


def readable(message: v1.Message) -> str:
    """Return the text of a message, with a line in place of each image and file."""
    if not message.parts:
        return message.content
    return "\n".join(part.text or file_line(part) for part in message.parts)


def file_line(part: v1.ContentPart) -> str:
    """Return ``[image: file_…]`` or ``[file: file_…]``; "" for a text."""
    if part.image is not None:
        return f"[image: {part.image.file_id}]"
    return "" if part.file is None else f"[file: {part.file.file_id}]"
