"""Objects in an S3 bucket: ``ab/abcdef…``, named by the hash of their content, as in a folder.

The client blocks, so it runs in `THREADS` threads of its own. A caller waits at most `DEADLINE_S`, including
the wait for a thread. The client retries immediately after a broken connection or a server error; writing an
object twice has no effect. The adapter remembers no failures, so the first request after an outage succeeds.
It creates the bucket if it is missing.
"""

from __future__ import annotations

import asyncio
import functools
import io
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar
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
S = TypeVar("S")

THREADS: Final = 16
CONNECT_S: Final = 2.0
READ_S: Final = 10.0
DEADLINE_S: Final = 30.0
CHUNK: Final = 1 << 20

_KEY_MISSING_CODES: Final = frozenset({"NoSuchKey", "NoSuchObject", "NotFound"})
_BUCKET_MISSING_CODES: Final = "NoSuchBucket"
_BUCKET_EXISTS_CODES: Final = frozenset({"BucketAlreadyOwnedByYou", "BucketAlreadyExists"})
_TRANSIENT_CODES: Final = frozenset({"RequestTimeout", "SlowDown", "OperationAborted"})
"""Error codes of S3 for requests that may succeed later."""


class S3Config(Value, frozen=True, kw_only=True):
    """Location and credentials of the bucket. ``endpoint`` is a URL of scheme, host and port.

    Without keys, requests are not signed.
    """

    endpoint: str
    bucket: str
    region: str = "us-east-1"
    access_key: str = ""
    secret_key: str = ""

    def __repr__(self) -> str:
        return f"S3Config(endpoint={self.endpoint!r}, bucket={self.bucket!r})"


class S3Blobs:
    """Implements the port ``Blobs``. The first call connects to the store. `close` releases the threads."""

    def __init__(
        self, config: S3Config, *, deadline_s: float = DEADLINE_S, dialer: Dialer | None = None
    ) -> None:
        self._config = config
        self._dialer = dialer or Dialer()
        self._deadline_s = deadline_s
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="s3")

    async def put(self, content: bytes) -> str:
        return await self._run(self._put, content)

    async def get(self, key: str) -> bytes | None:
        return await self._run(self._get, key) if is_key(key) else None

    async def exists(self, key: str) -> bool:
        return is_key(key) and await self._run(self._exists, key)

    async def delete(self, key: str) -> None:
        if is_key(key):
            await self._run(self._delete, key)

    async def close(self) -> None:
        """Release the threads. Running requests end at their own deadline."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, work: Callable[[S, float], T], subject: S) -> T:
        loop = asyncio.get_running_loop()
        until = time.monotonic() + self._deadline_s
        try:
            async with asyncio.timeout(self._deadline_s):
                return await loop.run_in_executor(self._threads, work, subject, until)
        except TimeoutError:
            raise _unavailable(f"did not answer within {self._deadline_s:g} s") from None

    # --- run in a thread ------------------------------------------------------------------------

    @functools.cached_property
    def _client(self) -> Minio:
        # The import takes a quarter of a second, so only servers with S3 import it.
        import urllib3
        from minio import Minio

        parts = urlsplit(self._config.endpoint)
        timeout = urllib3.Timeout(connect=CONNECT_S, read=READ_S)
        retries = urllib3.Retry(
            total=2, redirect=0, backoff_factor=0.1, status_forcelist=[500, 502, 503, 504]
        )
        return Minio(
            endpoint=parts.netloc,
            access_key=self._config.access_key or None,
            secret_key=self._config.secret_key or None,
            secure=parts.scheme == "https",
            region=self._config.region,
            http_client=open_pool(
                self._dialer,
                allow_only(host_port_of(self._config.endpoint)),
                maxsize=THREADS,
                timeout=timeout,
                retries=retries,
            ),
        )

    def _put(self, content: bytes, until: float) -> str:
        key = key_of(content)

        def put() -> None:
            self._client.put_object(
                bucket_name=self._config.bucket, object_name=_object_name(key), data=io.BytesIO(content),
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
            response = self._client.get_object(bucket_name=self._config.bucket, object_name=_object_name(key))
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
                f"The object {_object_name(key)} of the bucket '{self._config.bucket}' is damaged. Restore "
                "it from a backup.",
                object=key,
            )
        return content

    def _exists(self, key: str, until: float) -> bool:
        try:
            self._call(
                lambda: self._client.stat_object(
                    bucket_name=self._config.bucket, object_name=_object_name(key)
                )
            )
        except _MissingError:
            return False
        return True

    def _delete(self, key: str, until: float) -> None:
        try:
            self._call(
                lambda: self._client.remove_object(
                    bucket_name=self._config.bucket, object_name=_object_name(key)
                )
            )
        except _MissingError:
            return

    def _make_bucket(self) -> None:
        from minio.error import S3Error

        try:
            self._client.make_bucket(bucket_name=self._config.bucket, location=self._config.region)
        except S3Error as problem:
            if problem.code not in _BUCKET_EXISTS_CODES:
                raise

    def _call(self, work: Callable[[], T]) -> T:
        """Call ``work`` and translate its errors. The client's messages contain keys and signatures, so drop
        them."""
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
            raise _NoBucketError(self._config.bucket) from None
        if 400 <= status < 500 and status not in (408, 429) and code not in _TRANSIENT_CODES:
            raise error(
                Reason.STORAGE_UNAVAILABLE,
                f"The object store refused the server's request ({code}). Check the keys, the region and the"
                f" permissions for the bucket '{self._config.bucket}'.",
            ) from None
        raise _unavailable(f"failed ({code})") from None


class _MissingError(Exception):
    """The object does not exist."""


class _NoBucketError(WonderError):
    """The bucket does not exist."""

    def __init__(self, bucket: str) -> None:
        problem = error(
            Reason.STORAGE_UNAVAILABLE,
            f"The object store has no bucket '{bucket}'. The server creates it with the first object.",
        )
        super().__init__(problem.fault)


def _object_name(key: str) -> str:
    return f"{key[:2]}/{key}"


def _unavailable(failure: str) -> WonderError:
    return error(Reason.STORAGE_UNAVAILABLE, f"The object store {failure}. Try again.", transient=True)
