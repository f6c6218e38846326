"""An object store in memory, for tests and for servers that store nothing."""

from __future__ import annotations

from wonder_server.core.errors import Reason, error
from wonder_server.ports.blobs import key_of


class MemoryBlobs:
    """Implements the port ``Blobs``."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    async def put(self, content: bytes) -> str:
        key = key_of(content)
        self.contents[key] = bytes(content)
        return key

    async def get(self, key: str) -> bytes | None:
        content = self.contents.get(key)
        if content is not None and key_of(content) != key:
            message = f"The object {key} is damaged. Restore it from a backup."
            raise error(Reason.STORAGE_UNAVAILABLE, message, object=key)
        return content

    async def exists(self, key: str) -> bool:
        return key in self.contents

    async def delete(self, key: str) -> None:
        self.contents.pop(key, None)
