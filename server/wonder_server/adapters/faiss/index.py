"""One agent's FAISS index: flat while it is small, inverted lists (IVF) once it is large.

Not safe for use by several threads at once. FAISS itself (with numpy some 60 MB) is imported when the first
index is made, which is never on the event loop's thread.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Collection, Sequence
from typing import Any, Final

from wonder_server.ports.vectors import Vector

LARGE: Final = 20_000
"""From so many vectors on a search of them all takes longer (3 ms here) than one of the likeliest lists."""
_LISTS: Final = 256
_PROBED_LISTS: Final = 16
_SAMPLES_PER_LIST: Final = 40
_TRAINING_ROUNDS: Final = 6
_REBUILD_FACTOR: Final = 4
"""At how many times what it was trained on an index of lists is built anew: its lists are long by then."""

_local = threading.local()


class Index:
    """Keys and unit vectors, and what is near to one."""

    def __init__(self, dimensions: int) -> None:
        self._faiss, self._numpy = libraries()
        self._dimensions = dimensions
        self._index: Any = self._faiss.IndexIDMap2(self._faiss.IndexFlatIP(dimensions))
        self._trained_on = 0
        self.changes = 0
        """How many vectors were added or removed since it was made, or last marked as saved."""

    @classmethod
    def of_bytes(cls, data: bytes | memoryview, dimensions: int, trained_on: int) -> Index:
        """One that `to_bytes` wrote, and nobody has changed since: FAISS believes what it reads."""
        index = cls(dimensions)
        index._index = index._faiss.deserialize_index(index._numpy.frombuffer(data, dtype="uint8"))
        index._trained_on = trained_on
        if index._index.d != dimensions or not index.has_lists:
            raise ValueError("It is another kind of index.")
        index._set_lists()
        return index

    def to_bytes(self) -> bytes:
        return bytes(self._faiss.serialize_index(self._index).tobytes())

    @property
    def has_lists(self) -> bool:
        return isinstance(self._index, self._faiss.IndexIVFFlat)

    @property
    def trained_on(self) -> int:
        """How many vectors there were when its lists were made; 0: it has none."""
        return self._trained_on

    @property
    def wants_lists(self) -> bool:
        """Whether `of_lists` would make it quicker."""
        return self.count >= LARGE and self.count >= _REBUILD_FACTOR * self._trained_on

    @property
    def count(self) -> int:
        return int(self._index.ntotal)

    @property
    def size(self) -> int:
        """Bytes in memory, about."""
        return self.count * (self._dimensions * 4 + (64 if self._trained_on else 16))

    def add(self, vectors: Sequence[Vector]) -> None:
        """Keys that are not there yet."""
        if vectors:
            set_threads()
            matrix, ids = (
                self._matrix([vector for _, vector in vectors]),
                self._ids([key for key, _ in vectors]),
            )
            self._index.add_with_ids(matrix, ids)
            self.changes += len(vectors)

    def remove(self, keys: Collection[int]) -> None:
        """Those of the keys that are there."""
        if keys:
            ids = self._ids(keys)
            self._index.remove_ids(self._faiss.IDSelectorArray(ids) if self.has_lists else ids)
            self.changes += len(keys)

    def nearest(self, vector: bytes, limit: int, among: Collection[int] | None) -> list[tuple[int, float]]:
        limit = min(limit, self.count if among is None else len(among))
        if limit <= 0:
            return []
        set_threads()
        scores, keys = self._index.search(self._matrix([vector]), limit, params=self._parameters(among))
        found = zip(keys[0].tolist(), scores[0].tolist(), strict=True)
        return sorted(
            ((key, score) for key, score in found if key >= 0), key=lambda pair: (-pair[1], pair[0])
        )

    def keys(self) -> Any:
        """All keys, in no order: an int64 array."""
        return self.copy()[0] if self.has_lists else self._faiss.vector_to_array(self._index.id_map)

    def copy(self) -> tuple[Any, Any]:
        """All keys, and their vectors as rows of a matrix."""
        numpy = self._numpy
        if not self.has_lists:
            return self.keys(), self._faiss.downcast_index(self._index.index).reconstruct_n(0, self.count)
        lists = self._index.invlists
        keys, parts = [numpy.zeros(0, "int64")], [numpy.zeros((0, self._dimensions), "float32")]
        for number in range(self._index.nlist):
            if size := lists.list_size(number):
                keys.append(self._faiss.rev_swig_ptr(lists.get_ids(number), size).copy())
                codes = self._faiss.rev_swig_ptr(lists.get_codes(number), size * self._dimensions * 4)
                parts.append(codes.copy().view("float32").reshape(size, self._dimensions))
        return numpy.concatenate(keys), numpy.concatenate(parts)

    @classmethod
    def of_lists(cls, keys: Any, matrix: Any) -> Index:
        """One with lists, of what `copy` gave. Seconds of work at 100,000."""
        dimensions = int(matrix.shape[1])
        index = cls(dimensions)
        set_threads()
        faiss = index._faiss
        lists = faiss.IndexIVFFlat(
            faiss.IndexFlatIP(dimensions), dimensions, _LISTS, faiss.METRIC_INNER_PRODUCT
        )
        lists.cp.niter = _TRAINING_ROUNDS
        lists.cp.min_points_per_centroid = 1
        lists.train(matrix[:: max(1, len(keys) // (_LISTS * _SAMPLES_PER_LIST))].copy())
        index._index, index._trained_on = lists, len(keys)
        index._set_lists()
        for start in range(0, len(keys), 10_000):
            lists.add_with_ids(matrix[start : start + 10_000], keys[start : start + 10_000])
        return index

    def _set_lists(self) -> None:
        # With a hash table a vector is removed in 0.01 ms; without, all lists are gone through.
        self._index.set_direct_map_type(self._faiss.DirectMap.Hashtable)
        self._index.nprobe = _PROBED_LISTS

    def _parameters(self, among: Collection[int] | None) -> Any:
        if among is None:
            return None
        selector = self._faiss.IDSelectorBatch(self._ids(among))
        if not self.has_lists:
            return self._faiss.SearchParameters(sel=selector)
        # Few that are allowed may all lie in unlikely lists.
        probed = _PROBED_LISTS if len(among) > self.count // 4 else self._index.nlist
        return self._faiss.SearchParametersIVF(sel=selector, nprobe=probed)

    def _matrix(self, vectors: Sequence[bytes]) -> Any:
        flat = self._numpy.frombuffer(b"".join(vectors), dtype="<f4")
        return flat.reshape(len(vectors), self._dimensions)

    def _ids(self, keys: Collection[int]) -> Any:
        return self._numpy.fromiter(keys, dtype="int64", count=len(keys))


def libraries() -> tuple[Any, Any]:
    """FAISS and numpy."""
    return importlib.import_module("faiss"), importlib.import_module("numpy")


def set_threads() -> None:
    """One thread for FAISS's loops: more would compete with the event loop for two cores, for a search of
    20 µs. OpenMP keeps the number for each thread that calls."""
    if not getattr(_local, "set", False):
        importlib.import_module("faiss").omp_set_num_threads(1)
        _local.set = True
