"""Indexes on disk, so that a restart need not build large ones anew: a file each, never trusted unseen.

``magic, SHA-256 of what follows, length of the head, head (JSON), keys (int64), FAISS's own bytes``. A
flipped bit makes FAISS answer wrongly or crash more often than it makes it complain, so nothing is handed to
it before the checksum is right and the head says that it is this agent's, of this embedder and this format.
The rows in SQLite stay the truth: whoever reads a snapshot compares its keys with theirs.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from wonder_server.adapters.faiss.index import Index, libraries

_MAGIC: Final = b"wonder-index-1\n\0"
_CHECKSUM: Final = hashlib.sha256().digest_size


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was read: the index, and the keys in it, ascending (an int64 array)."""

    index: Index
    keys: Any


class Snapshots:
    """A folder of them. Every method works on files, and so belongs in a thread."""

    def __init__(self, folder: Path, embedder: str, dimensions: int) -> None:
        self._folder = folder
        self._embedder = embedder
        self._dimensions = dimensions

    def path(self, agent_id: str) -> Path:
        """Where an agent's lies."""
        return self._folder / f"{hashlib.sha256(agent_id.encode()).hexdigest()[:32]}.index"

    def save(self, agent_id: str, index: Index) -> None:
        """Replace the agent's file, whole or not at all. Raises `OSError`."""
        _, numpy = libraries()
        keys = numpy.sort(index.keys())
        head = json.dumps(
            {**self._head(agent_id), "trained_on": index.trained_on, "keys": len(keys)}
        ).encode()
        parts = (len(head).to_bytes(4, "big"), head, keys.astype("<i8").tobytes(), index.to_bytes())
        checksum = hashlib.sha256()
        for part in parts:
            checksum.update(part)
        path = self.path(agent_id)
        self._folder.mkdir(parents=True, exist_ok=True)
        waiting = path.with_suffix(".new")
        with waiting.open("wb") as file:
            file.writelines((_MAGIC, checksum.digest(), *parts))
            file.flush()
            os.fsync(file.fileno())
        waiting.replace(path)
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def load(self, agent_id: str) -> Snapshot | None:
        """The agent's, or None where there is none that can be trusted; the file is removed then."""
        path = self.path(agent_id)
        try:
            data = memoryview(path.read_bytes())
        except OSError:
            return None
        try:
            return self._read(agent_id, data)
        except (ValueError, KeyError, RuntimeError):
            self.delete(agent_id)
            return None

    def delete(self, agent_id: str) -> None:
        """Remove the agent's file."""
        with contextlib.suppress(OSError):
            self.path(agent_id).unlink(missing_ok=True)

    def _head(self, agent_id: str) -> dict[str, Any]:
        return {"agent": agent_id, "embedder": self._embedder, "dimensions": self._dimensions}

    def _read(self, agent_id: str, data: memoryview) -> Snapshot:
        start = len(_MAGIC) + _CHECKSUM
        body = data[start:]
        if bytes(data[: len(_MAGIC)]) != _MAGIC or hashlib.sha256(body).digest() != bytes(
            data[len(_MAGIC) : start]
        ):
            raise ValueError("It is damaged.")
        end = 4 + int.from_bytes(body[:4], "big")
        head = json.loads(bytes(body[4:end]))
        if any(head[name] != value for name, value in self._head(agent_id).items()):
            raise ValueError("It is another's, or of another embedder.")
        _, numpy = libraries()
        keys = numpy.frombuffer(body[end : end + 8 * head["keys"]], dtype="<i8")
        index = Index.of_bytes(body[end + 8 * head["keys"] :], self._dimensions, head["trained_on"])
        if index.count != len(keys):
            raise ValueError("Keys and index do not agree.")
        return Snapshot(index, keys)
