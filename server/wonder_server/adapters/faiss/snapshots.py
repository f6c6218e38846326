"""Saved indexes, so that a restart need not rebuild large ones. One file per agent, verified before use.

Format: ``magic, SHA-256 of the rest, length of the head, head (JSON), keys (int64), index in FAISS's
format``. With a flipped bit, FAISS more often returns wrong results or crashes than raises an error. So FAISS
gets the bytes only after the checksum matches and the head names this agent, embedder and dimensions. The
rows in SQLite are authoritative: `FaissVectors` compares the keys of a snapshot with those of the rows.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from wonder_server.adapters.faiss.index import Index, libraries
from wonder_server.core.json_types import JsonDict

if TYPE_CHECKING:
    from wonder_server.adapters.faiss.index import Keys

_MAGIC: Final = b"wonder-index-1\n\0"
_CHECKSUM: Final = hashlib.sha256().digest_size


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A saved index, and its keys in ascending order."""

    index: Index
    keys: Keys


class Snapshots:
    """A folder of snapshots. Every method does blocking I/O, so call it in a thread."""

    def __init__(self, folder: Path, embedder: str, dimensions: int) -> None:
        self._folder = folder
        self._embedder = embedder
        self._dimensions = dimensions

    def path(self, agent_id: str) -> Path:
        """Return the path of an agent's file."""
        return self._folder / f"{hashlib.sha256(agent_id.encode()).hexdigest()[:32]}.index"

    def save(self, agent_id: str, index: Index) -> None:
        """Replace the agent's file atomically. Raises `OSError`."""
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
        draft = path.with_suffix(".new")
        with draft.open("wb") as file:
            file.writelines((_MAGIC, checksum.digest(), *parts))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def load(self, agent_id: str) -> Snapshot | None:
        """Read the agent's file. Return None if it is missing or invalid; an invalid file is deleted."""
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
        """Delete the agent's file."""
        with contextlib.suppress(OSError):
            self.path(agent_id).unlink(missing_ok=True)

    def _head(self, agent_id: str) -> JsonDict:
        return {"agent": agent_id, "embedder": self._embedder, "dimensions": self._dimensions}

    def _read(self, agent_id: str, data: memoryview) -> Snapshot:
        start = len(_MAGIC) + _CHECKSUM
        body = data[start:]
        if bytes(data[: len(_MAGIC)]) != _MAGIC or hashlib.sha256(body).digest() != bytes(
            data[len(_MAGIC) : start]
        ):
            raise ValueError("the checksum does not match")
        end = 4 + int.from_bytes(body[:4], "big")
        head = json.loads(bytes(body[4:end]))
        if any(head[name] != value for name, value in self._head(agent_id).items()):
            raise ValueError("the file belongs to another agent, embedder or number of dimensions")
        _, numpy = libraries()
        keys = numpy.frombuffer(body[end : end + 8 * head["keys"]], dtype="<i8")
        index = Index.of_bytes(body[end + 8 * head["keys"] :], self._dimensions, head["trained_on"])
        if index.count != len(keys):
            raise ValueError(f"the file has {len(keys)} keys and {index.count} vectors")
        return Snapshot(index, keys)
