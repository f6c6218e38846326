"""The FAISS index of one agent: flat while small, with inverted lists (IVF) once large.

Not thread-safe. FAISS, which needs about 60 MB with numpy, is imported for the first index, never on the
event loop's thread.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from wonder_server.ports.vectors import Vector

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Keys = NDArray[numpy.int64]
    Matrix = NDArray[numpy.float32]

Library: TypeAlias = Any
"""A module or object of FAISS or numpy, which are imported at the first use. FAISS has no types."""

LARGE: Final = 20_000
"""Number of vectors from which searching all of them (3 ms) takes longer than searching the most likely
lists."""
_LISTS: Final = 256
_PROBED_LISTS: Final = 16
_SAMPLES_PER_LIST: Final = 40
_TRAINING_ROUNDS: Final = 6
_REBUILD_FACTOR: Final = 4
"""An index with lists is rebuilt at this multiple of the vectors it was trained on, because its lists are
long."""

_local = threading.local()


class Index:
    """An index of keys and unit vectors that returns the keys nearest to a vector."""

    def __init__(self, dimensions: int) -> None:
        self._faiss, self._numpy = libraries()
        self._dimensions = dimensions
        self._index: Library = self._faiss.IndexIDMap2(self._faiss.IndexFlatIP(dimensions))
        self._trained_on = 0
        self.changes = 0
        """Number of vectors added or removed after the index was created or saved."""

    @classmethod
    def of_bytes(cls, data: bytes | memoryview, dimensions: int, trained_on: int) -> Index:
        """Restore an index from `to_bytes`. The bytes must be unchanged: FAISS does not validate its
        input."""
        index = cls(dimensions)
        index._index = index._faiss.deserialize_index(index._numpy.frombuffer(data, dtype="uint8"))
        index._trained_on = trained_on
        if index._index.d != dimensions or not index.has_lists:
            raise ValueError(f"the index is not an IVF index of {dimensions} dimensions")
        index._set_lists()
        return index

    def to_bytes(self) -> bytes:
        return bytes(self._faiss.serialize_index(self._index).tobytes())

    @property
    def has_lists(self) -> bool:
        return isinstance(self._index, self._faiss.IndexIVFFlat)

    @property
    def trained_on(self) -> int:
        """Return the number of vectors at the time the lists were built; 0 without lists."""
        return self._trained_on

    @property
    def wants_lists(self) -> bool:
        """Return True if `of_lists` would make searches faster."""
        return self.count >= LARGE and self.count >= _REBUILD_FACTOR * self._trained_on

    @property
    def count(self) -> int:
        return int(self._index.ntotal)

    @property
    def size(self) -> int:
        """Return the approximate bytes in memory."""
        return self.count * (self._dimensions * 4 + (64 if self._trained_on else 16))

    def add(self, vectors: Sequence[Vector]) -> None:
        """Add vectors. Their keys must be new."""
        if vectors:
            set_threads()
            matrix, ids = (
                self._matrix([vector for _, vector in vectors]),
                self._ids([key for key, _ in vectors]),
            )
            self._index.add_with_ids(matrix, ids)
            self.changes += len(vectors)

    def remove(self, keys: Collection[int]) -> None:
        """Remove vectors. Unknown keys are ignored."""
        if keys:
            ids = self._ids(keys)
            self._index.remove_ids(self._faiss.IDSelectorArray(ids) if self.has_lists else ids)
            self.changes += len(keys)

    def nearest(self, vector: bytes, limit: int, among: Collection[int] | None) -> list[tuple[int, float]]:
        """Return at most ``limit`` keys with their cosines, best first; only keys of ``among`` if given."""
        limit = min(limit, self.count if among is None else len(among))
        if limit <= 0:
            return []
        set_threads()
        scores, keys = self._index.search(self._matrix([vector]), limit, params=self._parameters(among))
        found = zip(keys[0].tolist(), scores[0].tolist(), strict=True)
        return sorted(
            ((key, score) for key, score in found if key >= 0), key=lambda pair: (-pair[1], pair[0])
        )

    def keys(self) -> Keys:
        """Return all keys, unordered."""
        if self.has_lists:
            return self.copy()[0]
        found: Keys = self._faiss.vector_to_array(self._index.id_map)
        return found

    def copy(self) -> tuple[Keys, Matrix]:
        """Return all keys, and their vectors as rows of a matrix."""
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
    def of_lists(cls, keys: Keys, matrix: Matrix) -> Index:
        """Build an index with lists from the result of `copy`. Takes seconds at 100,000 vectors."""
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
        # With a hash table, removing a vector takes 0.01 ms. Without one, FAISS searches all lists.
        self._index.set_direct_map_type(self._faiss.DirectMap.Hashtable)
        self._index.nprobe = _PROBED_LISTS

    def _parameters(self, among: Collection[int] | None) -> Library:
        if among is None:
            return None
        selector = self._faiss.IDSelectorBatch(self._ids(among))
        if not self.has_lists:
            return self._faiss.SearchParameters(sel=selector)
        # If ``among`` has few keys, all of them may be in unlikely lists, so search every list.
        probed = _PROBED_LISTS if len(among) > self.count // 4 else self._index.nlist
        return self._faiss.SearchParametersIVF(sel=selector, nprobe=probed)

    def _matrix(self, vectors: Sequence[bytes]) -> Matrix:
        flat: Matrix = self._numpy.frombuffer(b"".join(vectors), dtype="<f4")
        return flat.reshape(len(vectors), self._dimensions)

    def _ids(self, keys: Collection[int]) -> Keys:
        ids: Keys = self._numpy.fromiter(keys, dtype="int64", count=len(keys))
        return ids


def libraries() -> tuple[Library, Library]:
    """Import and return FAISS and numpy."""
    return importlib.import_module("faiss"), importlib.import_module("numpy")


def set_threads() -> None:
    """Limit FAISS to one thread for the calling thread.

    A search takes 20 µs; more threads would compete with the event loop for two cores. OpenMP keeps the
    number per calling thread.
    """
    if not getattr(_local, "set", False):
        importlib.import_module("faiss").omp_set_num_threads(1)
        _local.set = True
