"""What every command that talks to a server has in common: which server, and how its errors are said."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wonder_sdk import environment

if TYPE_CHECKING:
    import betterproto2

    from wonder_sdk import WonderError, sync

_TLS = "if it runs with TLS, set WONDER_CA (or --tls); if it runs without, leave them out"

_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.%\w]+\]|[^\s/:\[\]@?#]+):([0-9]{1,5})")
_SCHEME = re.compile(r"(?:unix|unix-abstract|dns|ipv4|ipv6):")

Command = Callable[[argparse.Namespace, "sync.Client"], int]


def add_flags(parser: argparse.ArgumentParser, *, inherited: bool = False) -> None:
    """Add ``--server`` and its like. ``inherited``: what is left out is as the command before says."""
    now = environment.target()
    group = parser.add_argument_group("server")
    group.add_argument(
        "--server",
        metavar="HOST:PORT",
        default=argparse.SUPPRESS if inherited else now,
        help=f"address of the server (now: {now.replace('%', '%%')}) [WONDER_SERVER]",
    )
    group.add_argument(
        "--ca",
        metavar="FILE",
        default=argparse.SUPPRESS if inherited else environment.ca_certificate(),
        help="PEM file of the authority that vouches for the server; turns on encryption [WONDER_CA]",
    )
    group.add_argument(
        "--tls",
        action="store_true",
        default=argparse.SUPPRESS if inherited else False,
        help="encrypt, and trust the authorities that this machine trusts",
    )


def connected(command: Command) -> Callable[[argparse.Namespace], int]:
    """A ``run`` that gives ``command`` a client, and says what goes wrong in one line."""

    def run(arguments: argparse.Namespace) -> int:
        if not is_address(arguments.server):
            print(
                f"wonder: '{arguments.server}' is no address of a server: write host:port, such as "
                f"{environment.DEFAULT_TARGET} (--server or WONDER_SERVER)",
                file=sys.stderr,
            )
            return 2
        # gRPC's own log would tell of every connection that breaks, in the middle of a conversation.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        from wonder_sdk import WonderError, sync

        try:
            with sync.Client(arguments.server, tls_root=arguments.ca, tls=arguments.tls) as client:
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


def is_address(target: str) -> bool:
    """Whether this is ``host:port`` or a target with one of gRPC's own schemes."""
    if _SCHEME.match(target):
        return True
    found = _ADDRESS.fullmatch(target)
    return found is not None and 0 < int(found[1]) < 65_536


def as_json(message: betterproto2.Message) -> str:
    """A whole message of the contract as one line of JSON, with its names as the contract has them."""
    import betterproto2

    return json.dumps(_whole(message.to_dict(casing=betterproto2.Casing.SNAKE)), ensure_ascii=False)


def _whole(value: Any) -> Any:
    """JSON with whole numbers as such: off the wire each is a double. Keys stay in their order."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {key: _whole(each) for key, each in value.items()}
        case list():
            return [_whole(each) for each in value]
        case _:
            return value


def seconds(text: str) -> float:
    """The value of a flag: more than nothing, and less than thirty years."""
    value = float(text)
    if not 0.001 <= value <= 10**9:
        raise ValueError
    return value


def count(text: str) -> int:
    """The value of a flag: a sequence, an ordinal, how many."""
    value = int(text)
    if not 0 <= value < 2**31:
        raise ValueError
    return value


# What argparse calls a value that is refused.
seconds.__name__, count.__name__ = "number of seconds", "number"


def explain(problem: WonderError, server: str) -> str:
    """Plain words, on one line: what is wrong, by which reason, and what to do about it. Where no server
    can be reached, a second line says what else that may mean."""
    from wonder_sdk import UnauthenticatedError, UnavailableError, UnimplementedError

    if isinstance(problem, UnavailableError) and problem.timed_out and not problem.not_connected:
        return problem.message
    if isinstance(problem, UnavailableError) and not problem.reason and not problem.not_connected:
        return f"the connection to {server} was lost or refused: {problem.message}\n{_TLS}"
    if isinstance(problem, UnavailableError) and problem.connection_closed:
        return f"{server} hangs up at once: {_TLS}"
    if isinstance(problem, UnavailableError) and problem.timed_out:
        return f"{problem.message}\n{_TLS}"
    if isinstance(problem, UnavailableError) and not problem.reason:
        return f"no server at {server}: start one with `wonder serve`, or name another with --server\n{_TLS}"
    hints = {
        UnauthenticatedError: " Put your token into WONDER_TOKEN.",
        UnimplementedError: "" if problem.reason else f" Is {server} a Wonder server?",
    }
    reason = f" ({problem.reason_name})" if problem.reason else ""
    return f"{problem.message}{hints.get(type(problem), '')}{reason}"
