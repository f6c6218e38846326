"""The server of ``wonder serve`` on a free port, which also reports on itself.

For each line on standard input it writes one line of JSON to standard output::

    {"commits": {"00.db": 12, "catalog.db": 3}, "tasks": 7, "threads": 9}
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import threading
import time

from wonder_server.core.json_types import JsonDict

_BEGAN = time.monotonic()


def report() -> JsonDict:
    """Return the commits of every open database and the numbers of asyncio tasks and threads."""
    from wonder_server.adapters.sqlite.database import Database

    databases = [thing for thing in gc.get_objects() if isinstance(thing, Database)]
    return {
        "commits": {database.path.name: database.commits for database in databases},
        "tasks": len(asyncio.all_tasks()),
        "threads": threading.active_count(),
    }


def answer() -> None:
    if not sys.stdin.readline():
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        return
    print(json.dumps(report()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shard-count")
    parser.add_argument("--environ", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("data")
    given = parser.parse_args()

    from wonder_server import compose, logs
    from wonder_server.lifecycle import run_server
    from wonder_server.settings import load

    flags = {"data_dir": given.data, "listen": "127.0.0.1:0", "shard_count": given.shard_count}
    environ = dict(entry.split("=", 1) for entry in given.environ)
    settings = load(
        flags, environ={"WONDER_DEFAULT_MODEL": "offline", "WONDER_LOG_LEVEL": "warning", **environ}
    )
    logs.configure(settings.log_format, settings.log_level)

    async def serve() -> None:
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), answer)
        await run_server(settings, compose.open_application, started_at=_BEGAN)

    asyncio.run(serve())


if __name__ == "__main__":
    main()
