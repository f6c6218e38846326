"""``wonder health``: check that a server is serving."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared import connection

if TYPE_CHECKING:
    from wonder_sdk import sync


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "health",
        help="Check that a server is serving.",
        description="Check that a server is serving. Exit code 0 if it is, 1 if not.",
        epilog="example:\n  wonder health && wonder chat",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="Fail after this time without an answer (default: 5).",
    )
    connection.connect(parser, run)


def run(arguments: argparse.Namespace, client: sync.Client) -> int:
    status = client.health(timeout=arguments.timeout)
    print(f"{arguments.server}: {status.lower().replace('_', ' ')}")
    return 0 if status == "SERVING" else 1
