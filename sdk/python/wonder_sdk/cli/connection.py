"""What every command that talks to a server has in common: which server, and how its errors are said."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wonder_sdk import WonderError, sync

_TLS = "if it runs with TLS, set WONDER_CA (or --tls); if it runs without, leave them out"

Command = Callable[[argparse.Namespace, "sync.Client"], int]


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add ``--server`` and its like."""
    group = parser.add_argument_group("server")
    group.add_argument(
        "--server",
        metavar="HOST:PORT",
        default=os.environ.get("WONDER_SERVER") or "127.0.0.1:50051",
        help="address of the server (now: %(default)s) [WONDER_SERVER]",
    )
    group.add_argument(
        "--ca",
        metavar="FILE",
        default=os.environ.get("WONDER_CA") or None,
        help="PEM file of the authority that vouches for the server; turns on encryption [WONDER_CA]",
    )
    group.add_argument(
        "--tls", action="store_true", help="encrypt, and trust the authorities that this machine trusts"
    )


def connected(command: Command) -> Callable[[argparse.Namespace], int]:
    """A ``run`` that gives ``command`` a client, and says what goes wrong in one line."""

    def run(arguments: argparse.Namespace) -> int:
        # gRPC's own log would tell of every connection that breaks, in the middle of a conversation.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        from wonder_sdk import WonderError, sync

        token = os.environ.get("WONDER_TOKEN") or None
        try:
            with sync.Client(
                arguments.server, token=token, tls_root=arguments.ca, tls=arguments.tls
            ) as client:
                return command(arguments, client)
        except WonderError as problem:
            print(f"wonder: {explain(problem, arguments.server)}", file=sys.stderr)
        except BrokenPipeError:
            raise  # our reader left; not the server's doing
        except OSError as problem:
            where = f"{problem.filename}: " if problem.filename else ""
            print(f"wonder: {where}{problem.strerror or problem}", file=sys.stderr)
        return 1

    return run


def explain(problem: WonderError, server: str) -> str:
    """Plain words, on one line: what is wrong, by which reason, and what to do about it. Where no server
    can be reached, a second line says what else that may mean."""
    from wonder_sdk import UnauthenticatedError, UnavailableError, UnimplementedError

    if isinstance(problem, UnavailableError) and not problem.reason:
        return f"no server at {server}: start one with `wonder serve`, or name another with --server\n{_TLS}"
    hints = {
        UnauthenticatedError: " Put your token into WONDER_TOKEN.",
        UnimplementedError: "" if problem.reason else f" Is {server} a Wonder server?",
    }
    reason = f" ({problem.reason_name})" if problem.reason else ""
    return f"{problem.message}{hints.get(type(problem), '')}{reason}"
