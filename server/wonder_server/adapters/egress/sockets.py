"""`EgressSocket`: the proxy as a socket in the file system, for sandboxes, which have no other network."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

from wonder_server.adapters.egress.proxy import Egress, Lease
from wonder_server.core.definitions.resources import NetworkPolicy


class EgressSocket:
    """A socket at ``path``. Its connections use the proxy with one lease and need no credential.

    Access to the file is the right to use it. Its folder is closed to other users of the machine.
    """

    def __init__(self, lease: Lease, server: asyncio.Server, path: Path) -> None:
        """Internal; use `open`."""
        self.path = path
        self._lease = lease
        self._server = server

    @classmethod
    async def open(cls, egress: Egress, policy: NetworkPolicy, owner: str) -> EgressSocket:
        """Open a socket for connections that ``policy`` allows. The caller closes it.

        Raises `OSError`, and SERVER_DRAINING after the proxy was closed.
        """
        lease = await egress.lease(policy, owner, chained=True)
        folder = None
        try:
            folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="wonder-egress-"))
            path = folder / "socket"
            return cls(lease, await egress.listen_at(path, lease), path)
        except BaseException:
            lease.close()
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            raise

    async def close(self) -> None:
        """Close the socket and its connections. Idempotent."""
        self._server.close()
        self._lease.close()
        await asyncio.to_thread(shutil.rmtree, self.path.parent, ignore_errors=True)
