"""`FilledRequests`: the contents of files in requests to models, and images in their answers.

Requests are stored with the ids of files. Just before a call, the contents take their places, in the form
that the format of the request has for them. Texts are given as text to every model. If a tool of the request
takes ids of files, the model gets the id of each.
"""

from __future__ import annotations

import asyncio
import base64
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from wonder_server.core.content.answer_images import AnswerImage
from wonder_server.core.content.labels import file_label
from wonder_server.core.content.media_types import PDF, is_text, part_type
from wonder_server.core.content.parts import IMAGE, ContentPart, stand_in, unknown_file
from wonder_server.core.definitions.resources import File
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.json_types import JsonDict
from wonder_server.core.printable import printable
from wonder_server.core.request_formats import FALLBACK, FORMATS
from wonder_server.core.request_formats.files import filled, labelled, places, takes_file_ids
from wonder_server.core.request_formats.format import FileContent, RequestFormat, ShownFile
from wonder_server.core.token_estimates import MAX_TEXT_FILE_BYTES
from wonder_server.ports.model import FilledRequest
from wonder_server.services.content.answer_images import store_image
from wonder_server.services.content.files import FileContents

MAX_REQUEST_BYTES: Final = 24 << 20
"""Bytes of files in one request, a third more in base64: providers accept requests of 20 to 50 MB. Files of
older messages are left out first."""
MAX_TOTAL_BYTES: Final = 96 << 20
"""Bytes of files in all requests in progress; further requests wait. Each byte needs four times its memory:
as read, in base64, in the body of the request, and while that is sent."""
ENCODED_AT_ONCE: Final = 192 << 10
"""Bytes of one call of base64, which holds the interpreter lock for 0.1 ms. A multiple of three."""

_LEFT_OUT: Final = "left out, since newer files fill the request"
_MISSING: Final = "this project has no such file"
"""Remark on a file that was deleted, never existed, or is of another project: all get the same words."""
_AFTER: Final = "shown after the tool results"


@dataclass(frozen=True, slots=True)
class _Reader:
    """The model that gets a request, and True if it gets the ids of files."""

    profile: ModelProfile
    request_format: RequestFormat
    names_ids: bool

    def words(self, file: File, remark: str = "") -> str:
        """Return the description of a file on one line."""
        stored = {"name": file.name, "media_type": file.media_type, "size_bytes": file.size_bytes}
        facts = [f"file_id: {file.id}" if self.names_ids else "", remark]
        return stand_in(stored, "; ".join(filter(None, facts)))


class FilledRequests:
    """Implements the port ``RequestFiles``."""

    def __init__(self, files: FileContents, max_total_bytes: int = MAX_TOTAL_BYTES) -> None:
        """``files`` reads every project: each request is checked against its own."""
        self._files = files
        self._memory = _Memory(max_total_bytes)

    async def store_image(self, project_id: str, principal: str, key: str, image: AnswerImage) -> ContentPart:
        """See `ports.files.RequestFiles.store_image`."""
        return await store_image(self._files, project_id, principal, key, image)

    @asynccontextmanager
    async def filled(
        self, project_id: str, profile: ModelProfile, request: JsonDict
    ) -> AsyncIterator[JsonDict]:
        """See `ports.files.RequestFiles.filled`."""
        request_format = FORMATS.get(profile.format, FALLBACK)
        named = places(request_format, request)
        if not named:
            yield request
            return
        reader = _Reader(profile, request_format, names_ids=takes_file_ids(request))
        chosen, described = await self._choose(project_id, reader, named)
        size = sum(_sent_bytes(file) for file in chosen.values())
        await self._memory.acquire(size)
        try:
            shown = described | await self._contents(reader, chosen)

            def show(file: JsonDict) -> ShownFile:
                found = shown.get(str(file.get("file_id")))
                return found or ShownFile(words=_absent(file))

            yield FilledRequest(filled(request_format, request, show), request)
        finally:
            self._memory.release(size)

    async def labelled(self, project_id: str, profile: ModelProfile, request: JsonDict) -> JsonDict:
        """See `ports.files.RequestFiles.labelled`."""
        request_format = FORMATS.get(profile.format, FALLBACK)
        if not takes_file_ids(request) or not (named := places(request_format, request)):
            return request
        reader = _Reader(profile, request_format, names_ids=True)
        chosen, _ = await self._choose(project_id, reader, named)
        shown = {key: reader.words(file) for key, file in chosen.items() if not is_text(file.media_type)}
        return labelled(request_format, request, shown)

    async def _choose(
        self, project_id: str, reader: _Reader, named: list[JsonDict]
    ) -> tuple[dict[str, File], dict[str, ShownFile]]:
        """Return the files whose content the request gets, and descriptions of the others in the project."""
        chosen, described, left = dict[str, File](), dict[str, ShownFile](), MAX_REQUEST_BYTES
        counts = Counter(str(file.get("file_id")) for file in named)
        # An image of an answer that was not stored has no id.
        for file_id in dict.fromkeys(str(file["file_id"]) for file in reversed(named) if "file_id" in file):
            file = await self._files.descriptions.find(file_id)
            if file is None or file.project_id != project_id:
                continue
            if refusal := _refusal(file, reader.profile, reader.request_format):
                described[file_id] = ShownFile(words=reader.words(file, refusal))
            elif (size := _sent_bytes(file) * counts[file_id]) > left:
                described[file_id] = ShownFile(words=reader.words(file, _LEFT_OUT))
            else:
                chosen[file_id] = file
                left -= size
        return chosen, described

    async def _contents(self, reader: _Reader, chosen: Mapping[str, File]) -> dict[str, ShownFile]:
        """Return the files with their contents, without those that are deleted meanwhile."""
        shown: dict[str, ShownFile] = {}
        for file_id, file in chosen.items():
            try:
                shown[file_id] = await self._content(reader, file)
            except WonderError as problem:
                if problem.fault.reason is not Reason.FILE_NOT_FOUND:
                    raise
        return shown

    async def _content(self, reader: _Reader, file: File) -> ShownFile:
        if is_text(file.media_type):
            return await self._text(reader, file)
        data = await asyncio.to_thread(encoded, await self._files.read(file))
        content = FileContent(media_type=file.media_type, name=file_label(file.name), data=data)
        part = reader.request_format.write_file(content)
        label = reader.words(file) if reader.names_ids else ""
        return ShownFile(words=reader.words(file, _AFTER), content=content, part=part, label=label)

    async def _text(self, reader: _Reader, file: File) -> ShownFile:
        """Return the beginning of a text file, with its description."""
        content = b""
        async for piece in self._files.download(file):
            content += piece
            if len(content) >= MAX_TEXT_FILE_BYTES:
                break
        text = content[:MAX_TEXT_FILE_BYTES].decode("utf-8", "ignore")
        is_cut = file.size_bytes > MAX_TEXT_FILE_BYTES
        remark = f"the first {MAX_TEXT_FILE_BYTES:,} bytes follow" if is_cut else "its content follows"
        return ShownFile(words=reader.words(file, remark), text=text)


def encoded(content: bytes) -> str:
    """Return base64 of a content, encoded piece by piece."""
    pieces = range(0, len(content), ENCODED_AT_ONCE)
    return "".join([base64.b64encode(content[at : at + ENCODED_AT_ONCE]).decode() for at in pieces])


def _refusal(file: File, profile: ModelProfile, request_format: RequestFormat) -> str:
    """Return the reason in words why the model gets only a description of a file; "" if it gets the
    content."""
    if is_text(file.media_type):
        return ""
    kind = part_type(file.media_type)
    if kind == IMAGE and kind not in profile.accepts:
        return "this model cannot see images"
    if kind != IMAGE and (file.media_type != PDF or kind not in profile.accepts):
        return "this model cannot read such files"
    return "" if file.media_type in request_format.media_types else "this model cannot read this type"


def _sent_bytes(file: File) -> int:
    return min(file.size_bytes, MAX_TEXT_FILE_BYTES) if is_text(file.media_type) else file.size_bytes


def _absent(file: JsonDict) -> str:
    """Return the words for a file that is not in the project. An image of an answer that the server did not
    store has the server's remark."""
    remark = file.get("remark")
    return unknown_file(file, _MISSING) if remark is None else stand_in(file, printable(str(remark)))


class _Memory:
    """A number of bytes that requests take and give back, in the order of their arrival."""

    def __init__(self, total: int) -> None:
        self._total = self._free = total
        self._waiting = deque[tuple[int, asyncio.Future[None]]]()

    async def acquire(self, size: int) -> None:
        """Take ``size`` bytes, at most all of them; wait until they are free."""
        size = min(size, self._total)
        if not self._waiting and size <= self._free:
            self._free -= size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(size)
            else:
                self._waiting.remove((size, turn))
                self._wake()
            raise

    def release(self, size: int) -> None:
        """Give the bytes back."""
        self._free += min(size, self._total)
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free:
            size, turn = self._waiting.popleft()
            self._free -= size
            turn.set_result(None)
