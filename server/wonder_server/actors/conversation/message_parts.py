"""Parts of a message to send: checked against the files of the conversation's project."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wonder_server.core.content.media_types import part_type
from wonder_server.core.content.parts import (
    IMAGE,
    MAX_MESSAGE_FILES,
    MAX_PARTS,
    TEXT,
    ContentPart,
    Parts,
    joined,
)
from wonder_server.core.conversation.model.inputs import MAX_CONTENT_BYTES
from wonder_server.core.errors import Reason, error, not_found
from wonder_server.ports.files import FileLookup, part_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRequest:
    """A part as a client sends it: a text, or a file with the type ``image`` or ``file``."""

    type: str
    text: str = ""
    file_id: str = ""


@dataclass(frozen=True, slots=True)
class MessageFiles:
    """The files that messages may refer to, and the maximum number of them in one message."""

    lookup: FileLookup
    max_files: int = MAX_MESSAGE_FILES

    async def resolve(self, project_id: str, content: str, given: Sequence[PartRequest]) -> tuple[str, Parts]:
        """Return the content and the parts of a message of ``project_id``.

        A message of texts alone has no parts. Errors: FIELD_INVALID, PAYLOAD_TOO_LARGE, LIMIT_EXCEEDED,
        FILE_NOT_FOUND.
        """
        if not given:
            check_content(content)
            return content, ()
        self._check_count(given)
        text = joined([part.text for part in given if part.type == TEXT])
        if content not in ("", text):
            raise error(
                Reason.FIELD_INVALID,
                "content is not the text of the parts, joined with line breaks. Leave it empty.",
                field="content",
            )
        if all(part.type == TEXT for part in given):
            check_content(text)
            return text, ()
        check_size(text)
        resolved = [await self._part(project_id, part, index) for index, part in enumerate(given)]
        return text, tuple(resolved)

    def _check_count(self, given: Sequence[PartRequest]) -> None:
        files = sum(part.type != TEXT for part in given)
        for count, limit, noun in (
            (len(given), MAX_PARTS, "parts"),
            (files, self.max_files, "images and files"),
        ):
            if count > limit:
                raise error(
                    Reason.LIMIT_EXCEEDED,
                    f"The message has {count} {noun}; the maximum is {limit}. Send several messages.",
                    field="parts",
                    limit=str(limit),
                )

    async def _part(self, project_id: str, part: PartRequest, index: int) -> ContentPart:
        if part.type == TEXT:
            return ContentPart(type=TEXT, length=len(part.text))
        field = f"parts[{index}].{part.type}.file_id"
        file = await self.lookup.file(part.file_id) if part.file_id else None
        if file is None or file.project_id != project_id:
            raise not_found(
                Reason.FILE_NOT_FOUND,
                part.file_id,
                field=field,
                place=" in the project of this conversation",
                next_step="Upload it there (`wonder files put` or UploadFile).",
            )
        kind = part_type(file.media_type)
        if part.type == IMAGE and kind != IMAGE:
            raise error(
                Reason.FIELD_INVALID,
                f"The file {file.id} is no image but {file.media_type}. Send it as `file`.",
                field=field,
            )
        return part_of(file)


def check_content(content: str) -> None:
    """Raise FIELD_INVALID or PAYLOAD_TOO_LARGE for a text that is no message."""
    if not content.strip():
        raise error(Reason.FIELD_INVALID, "content is empty. A message needs text.", field="content")
    check_size(content)


def check_size(content: str) -> None:
    """Raise PAYLOAD_TOO_LARGE for a text that is too long for a message."""
    size_bytes = len(content.encode())
    if size_bytes > MAX_CONTENT_BYTES:
        raise error(
            Reason.PAYLOAD_TOO_LARGE,
            f"content has {size_bytes} bytes; the maximum is {MAX_CONTENT_BYTES}. "
            "Put longer text into a document.",
            field="content",
            limit=str(MAX_CONTENT_BYTES),
        )
