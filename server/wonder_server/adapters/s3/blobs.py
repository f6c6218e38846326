"""Objects in a bucket of S3: ``ab/abcdef…``, by the hash of their content, as the folder has them too.

The client waits in its own way, so it has threads of its own, few of them; whoever asks waits `DEADLINE_S` at
most, for a thread included. A request is tried again at once where the connection broke or the store had
trouble: written twice, an object is there once. Nothing is held against a store that was down: the next
request finds it up. The bucket is made when it is missing.
"""

from __future__ import annotations

import asyncio
import functools
import io
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar
from urllib.parse import urlsplit

from wonder_server.adapters.egress.dialing import Dialer
from wonder_server.adapters.egress.sessions import open_pool
from wonder_server.core.definitions.network_policy import allow_only
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.frozen import Value
from wonder_server.core.network_address import host_port_of
from wonder_server.ports.blobs import is_key, key_of

if TYPE_CHECKING:
    from minio import Minio

T = TypeVar("T")

THREADS: Final = 16
CONNECT_S: Final = 2.0
READ_S: Final = 10.0
DEADLINE_S: Final = 30.0
CHUNK: Final = 1 << 20

_KEY_MISSING_CODES: Final = frozenset({"NoSuchKey", "NoSuchObject", "NotFound"})
_BUCKET_MISSING_CODES: Final = "NoSuchBucket"
_BUCKET_EXISTS_CODES: Final = frozenset({"BucketAlreadyOwnedByYou", "BucketAlreadyExists"})
_TRANSIENT_CODES: Final = frozenset({"RequestTimeout", "SlowDown", "OperationAborted"})
"""Refusals that mean: not now."""


class S3Config(Value, frozen=True, kw_only=True):
    """Where objects are. ``endpoint`` is a URL of scheme, host and port; without keys, requests are not
    signed."""

    endpoint: str
    bucket: str
    region: str = "us-east-1"
    access_key: str = ""
    secret_key: str = ""

    def __repr__(self) -> str:
        return f"Store(endpoint={self.endpoint!r}, bucket={self.bucket!r})"


class S3Blobs:
    """Implements the port ``Blobs``. Nothing is asked of the store before the first call. `close` it."""

    def __init__(
        self, store: S3Config, *, deadline_s: float = DEADLINE_S, dialer: Dialer | None = None
    ) -> None:
        self._store = store
        self._dialer = dialer or Dialer()
        self._deadline_s = deadline_s
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="s3")

    async def put(self, content: bytes) -> str:
        key: str = await self._run(self._put, content)
        return key

    async def get(self, key: str) -> bytes | None:
        content: bytes | None = await self._run(self._get, key) if is_key(key) else None
        return content

    async def exists(self, key: str) -> bool:
        return is_key(key) and await self._run(self._exists, key)

    async def delete(self, key: str) -> None:
        if is_key(key):
            await self._run(self._delete, key)

    async def close(self) -> None:
        """Let go of the threads; what they do comes to its end by its own deadline."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, work: Callable[[T, float], Any], subject: T) -> Any:
        loop = asyncio.get_running_loop()
        until = time.monotonic() + self._deadline_s
        try:
            async with asyncio.timeout(self._deadline_s):
                return await loop.run_in_executor(self._threads, work, subject, until)
        except TimeoutError:
            raise _unavailable(f"does not answer within {self._deadline_s:g} s") from None

    # --- in a thread ----------------------------------------------------------------------------

    @functools.cached_property
    def _client(self) -> Minio:
        # The import takes a quarter of a second, and only who uses S3 has to pay for it.
        import urllib3
        from minio import Minio

        parts = urlsplit(self._store.endpoint)
        patience = urllib3.Timeout(connect=CONNECT_S, read=READ_S)
        again = urllib3.Retry(total=2, redirect=0, backoff_factor=0.1, status_forcelist=[500, 502, 503, 504])
        return Minio(
            endpoint=parts.netloc,
            access_key=self._store.access_key or None,
            secret_key=self._store.secret_key or None,
            secure=parts.scheme == "https",
            region=self._store.region,
            http_client=open_pool(
                self._dialer,
                allow_only(host_port_of(self._store.endpoint)),
                maxsize=THREADS,
                timeout=patience,
                retries=again,
            ),
        )

    def _put(self, content: bytes, until: float) -> str:
        key = key_of(content)

        def put() -> None:
            self._client.put_object(
                bucket_name=self._store.bucket, object_name=_object_name(key), data=io.BytesIO(content),
                length=len(content),
            )  # fmt: skip

        try:
            self._call(put)
        except _NoBucketError:
            self._call(self._make_bucket)
            self._call(put)
        return key

    def _get(self, key: str, until: float) -> bytes | None:
        def get() -> bytes:
            response = self._client.get_object(bucket_name=self._store.bucket, object_name=_object_name(key))
            try:
                parts = []
                for part in response.stream(CHUNK):
                    parts.append(part)
                    if time.monotonic() > until:
                        raise TimeoutError
                return b"".join(parts)
            finally:
                response.close()
                response.release_conn()

        try:
            content = self._call(get)
        except _MissingError:
            return None
        if key_of(content) != key:
            raise error(
                Reason.STORAGE_UNAVAILABLE,
                f"The object {_object_name(key)} of the bucket '{self._store.bucket}' is damaged; restore it "
                "from a backup.",
            )
        return content

    def _exists(self, key: str, until: float) -> bool:
        try:
            self._call(
                lambda: self._client.stat_object(
                    bucket_name=self._store.bucket, object_name=_object_name(key)
                )
            )
        except _MissingError:
            return False
        return True

    def _delete(self, key: str, until: float) -> None:
        try:
            self._call(
                lambda: self._client.remove_object(
                    bucket_name=self._store.bucket, object_name=_object_name(key)
                )
            )
        except _MissingError:
            return

    def _make_bucket(self) -> None:
        from minio.error import S3Error

        try:
            self._client.make_bucket(bucket_name=self._store.bucket, location=self._store.region)
        except S3Error as problem:
            if problem.code not in _BUCKET_EXISTS_CODES:
                raise

    def _call(self, work: Callable[[], T]) -> T:
        """Do it; what goes wrong becomes an error of ours, without any of the client's words: they hold
        keys and signatures."""
        import urllib3
        from minio.error import MinioException, S3Error

        try:
            return work()
        except S3Error as problem:
            self._fault_of(str(problem.code), problem.response.status)
        except (urllib3.exceptions.HTTPError, MinioException, OSError, ValueError):
            raise _unavailable("cannot be reached") from None

    def _fault_of(self, code: str, status: int) -> NoReturn:
        if code in _KEY_MISSING_CODES:
            raise _MissingError from None
        if code == _BUCKET_MISSING_CODES:
            raise _NoBucketError(self._store.bucket) from None
        if 400 <= status < 500 and status not in (408, 429) and code not in _TRANSIENT_CODES:
            raise error(
                Reason.STORAGE_UNAVAILABLE,
                f"The store of objects refuses this server ({code}): check the keys, the region and what they"
                f" may do with the bucket '{self._store.bucket}'.",
            ) from None
        raise _unavailable(f"fails ({code})") from None


class _MissingError(Exception):
    """There is no such object."""


class _NoBucketError(WonderError):
    """There is no such bucket."""

    def __init__(self, bucket: str) -> None:
        problem = error(
            Reason.STORAGE_UNAVAILABLE,
            f"The store of objects has no bucket '{bucket}'; the first object makes it.",
        )
        super().__init__(problem.fault)


def _object_name(key: str) -> str:
    return f"{key[:2]}/{key}"


def _unavailable(how: str) -> WonderError:
    return error(Reason.STORAGE_UNAVAILABLE, f"The store of objects {how}; try again.", transient=True)
