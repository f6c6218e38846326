"""Requests of two callers that upload and delete a file, for the tests of callers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from wonder.v1 import file_service_pb2 as pb


def upload(client: Any, who: str) -> Any:
    start = pb.UploadFileStart(name="notes.txt", request_id="r-UploadFile")
    pieces = [pb.UploadFileRequest(start=start), pb.UploadFileRequest(content=who.encode())]
    return client.files.UploadFile(iter(pieces))


async def delete(house: Any, client: Any) -> Any:
    if not house.file:
        (file, *_) = (await client.files.ListFiles(pb.ListFilesRequest())).files
        house.file = file.id
    return await client.files.DeleteFile(pb.DeleteFileRequest(request_id="r-DeleteFile", file_id=house.file))


FILE_REQUESTS: Mapping[str, Callable[[Any, Any, str], Any]] = {
    "UploadFile": lambda _, client, who: upload(client, who),
    "DeleteFile": lambda house, client, _: delete(house, client),
}
