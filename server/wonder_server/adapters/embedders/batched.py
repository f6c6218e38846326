"""An embedder that groups concurrent requests into few calls and caches recent vectors."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from wonder_server.ports.embedder import Embedder

MAX_TEXTS: Final = 64
"""Maximum number of texts in one call."""
MAX_CHARACTERS: Final = 100_000
"""Maximum total length of the texts in one call, in characters. A longer text gets a call of its own."""
MAX_CONCURRENT_CALLS: Final = 4
DEFAULT_CACHE_BYTES: Final = 32 << 20
_ENTRY_BYTES: Final = 200


class BatchedEmbedder:
    """Implements `Embedder` around another one with expensive calls: a provider's, or a large model's."""

    def __init__(self, inner: Embedder, cache_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self._inner = inner
        self._max_entries = max(1, cache_bytes // (4 * inner.dimensions + _ENTRY_BYTES))
        self._cache: OrderedDict[bytes, bytes] = OrderedDict()
        self._waiting: dict[str, asyncio.Future[bytes]] = {}
        """Texts that wait for a call."""
        self._inflight: dict[str, asyncio.Future[bytes]] = {}
        """Texts of running calls."""
        self._call_slots = asyncio.Semaphore(MAX_CONCURRENT_CALLS)
        self._calls: set[asyncio.Task[None]] = set()

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def dimensions(self) -> int:
        return self._inner.dimensions

    @property
    def share(self) -> float:
        return self._inner.share

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        found = [self._cached(text) for text in texts]
        missing = {text for text, vector in zip(texts, found, strict=True) if vector is None}
        if not missing:
            return [vector for vector in found if vector is not None]
        futures = {text: self._request_vector(text) for text in missing}
        # Shielded: other callers may wait for the same text. Gathered, so that every exception is retrieved.
        results = await asyncio.gather(*map(asyncio.shield, futures.values()), return_exceptions=True)
        computed: dict[str, bytes] = {}
        for text, result in zip(futures, results, strict=True):
            if isinstance(result, BaseException):
                raise result
            computed[text] = result
        return [vector or computed[text] for text, vector in zip(texts, found, strict=True)]

    async def close(self) -> None:
        for call in list(self._calls):
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        await self._inner.close()

    def _request_vector(self, text: str) -> asyncio.Future[bytes]:
        future = self._waiting.get(text) or self._inflight.get(text)
        if future is None:
            if not self._waiting:
                # The batch starts after this iteration of the event loop, with all requests made in it.
                asyncio.get_running_loop().call_soon(self._start_batches)
            future = self._waiting[text] = asyncio.get_running_loop().create_future()
            future.add_done_callback(lambda done: done.cancelled() or done.exception())
        return future

    def _start_batches(self) -> None:
        batch: dict[str, asyncio.Future[bytes]] = {}
        size = 0
        waiting, self._waiting = self._waiting, {}
        for text, future in waiting.items():
            if batch and (len(batch) == MAX_TEXTS or size + len(text) > MAX_CHARACTERS):
                self._start(batch)
                batch, size = {}, 0
            batch[text] = future
            size += len(text)
        self._start(batch)

    def _start(self, batch: dict[str, asyncio.Future[bytes]]) -> None:
        self._inflight.update(batch)
        call = asyncio.create_task(self._run_batch(batch))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _run_batch(self, batch: dict[str, asyncio.Future[bytes]]) -> None:
        try:
            async with self._call_slots:
                vectors = await self._inner.embed(list(batch))
            for (text, future), vector in zip(batch.items(), vectors, strict=True):
                self._store(text, vector)
                if not future.done():
                    future.set_result(vector)
        except BaseException as failure:
            for future in batch.values():
                if isinstance(failure, asyncio.CancelledError):
                    future.cancel()
                elif not future.done():
                    future.set_exception(failure)
            if isinstance(failure, asyncio.CancelledError):
                raise
        finally:
            for text in batch:
                self._inflight.pop(text, None)

    def _cached(self, text: str) -> bytes | None:
        key = _cache_key(text)
        vector = self._cache.get(key)
        if vector is not None:
            self._cache.move_to_end(key)
        return vector

    def _store(self, text: str, vector: bytes) -> None:
        self._cache[_cache_key(text)] = vector
        if len(self._cache) > self._max_entries:
            self._cache.popitem(last=False)


def _cache_key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
