"""The server flags of a command, its client, and the messages of its errors."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from wonder_sdk import environment
from wonder_sdk.cli.shared.terminal import printable
from wonder_sdk.json_types import JsonValue

if TYPE_CHECKING:
    import betterproto2

    from wonder_sdk import WonderError, sync

_TLS = "If the server uses TLS, set WONDER_CA or --tls. If it does not, remove them."

_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.%\w]+\]|[^\s/:\[\]@?#]+):([0-9]{1,5})")
_SCHEME = re.compile(r"(?:unix|unix-abstract|dns|ipv4|ipv6):")

Command = Callable[[argparse.Namespace, "sync.Client"], int]


def add_flags(parser: argparse.ArgumentParser, *, inherited: bool = False) -> None:
    """Add ``--server``, ``--ca`` and ``--tls``.

    With ``inherited``, their defaults are those of the parent command.
    """
    now = environment.target()
    group = parser.add_argument_group("server")
    group.add_argument(
        "--server",
        metavar="HOST:PORT",
        default=argparse.SUPPRESS if inherited else now,
        help=f"Connect to the server at this address (now: {now.replace('%', '%%')}) [WONDER_SERVER].",
    )
    group.add_argument(
        "--ca",
        metavar="FILE",
        default=argparse.SUPPRESS if inherited else environment.ca_certificate(),
        help="Use TLS with the certificate authority in this PEM file [WONDER_CA].",
    )
    group.add_argument(
        "--tls",
        action="store_true",
        default=argparse.SUPPRESS if inherited else False,
        help="Use TLS with the certificate authorities that this machine trusts.",
    )


def add_yes(parser: argparse.ArgumentParser) -> None:
    """Add ``--yes``."""
    text = "Skip the confirmation. Without a terminal nothing is asked, and deletions need this flag."
    parser.add_argument("-y", "--yes", action="store_true", help=text)


def connect(parser: argparse.ArgumentParser, command: Command, *, inherited: bool = False) -> None:
    """Add the server flags to a parser, which then runs ``command`` with a client."""
    add_flags(parser, inherited=inherited)
    parser.set_defaults(run=connected(command))


def add_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    text: str,
    command: Command,
    *,
    arguments: Callable[[argparse.ArgumentParser], object] = lambda parser: None,
    inherited: bool = False,
) -> argparse.ArgumentParser:
    """Add a verb that runs ``command`` with a client. ``arguments`` adds those that its siblings have too."""
    verb = verbs.add_parser(name, help=text, description=text)
    arguments(verb)
    connect(verb, command, inherited=inherited)
    return verb


def connected(command: Command) -> Callable[[argparse.Namespace], int]:
    """Return a ``run`` that passes a client to ``command``, and prints an error in one line."""

    def run(arguments: argparse.Namespace) -> int:
        if not is_address(arguments.server):
            _complain(
                f"'{arguments.server}' is not a server address. Use host:port, such as "
                f"{environment.DEFAULT_TARGET} (--server or WONDER_SERVER)."
            )
            return 2
        # gRPC would log every broken connection into the conversation.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        from wonder_sdk import WonderError, sync

        try:
            with sync.Client(arguments.server, tls_root=arguments.ca, tls=arguments.tls) as client:
                return command(arguments, client)
        except WonderError as problem:
            _complain(explain(problem, arguments.server))
        except BrokenPipeError:
            raise  # The reader of stdout closed it; `main` handles that.
        except OSError as problem:
            where = f"{problem.filename}: " if problem.filename else ""
            _complain(f"{where}{problem.strerror or problem}")
        return 1

    return run


def is_address(target: str) -> bool:
    """Return True for ``host:port`` and for a target with one of gRPC's schemes."""
    if _SCHEME.match(target):
        return True
    found = _ADDRESS.fullmatch(target)
    return found is not None and 0 < int(found[1]) < 65_536


def _complain(reason: str) -> None:
    """Print why a command failed, without control characters: a reason can quote texts of others."""
    print(f"wonder: {printable(reason)}", file=sys.stderr)


def as_json(message: betterproto2.Message) -> str:
    """Return a message of the contract as one line of JSON, with the contract's field names."""
    import betterproto2

    return json.dumps(_whole(message.to_dict(casing=betterproto2.Casing.SNAKE)), ensure_ascii=False)


def _whole(value: JsonValue) -> JsonValue:
    """Convert whole floats to int: numbers of a Struct are doubles. The order of keys is kept."""
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
    """Parse a flag's duration: at least one millisecond, at most about thirty years."""
    value = float(text)
    if not 0.001 <= value <= 10**9:
        raise ValueError
    return value


def time(text: str) -> datetime:
    """Parse a date or time in ISO 8601, for argparse; without a zone it is local."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a date or time; use 2026-05-31 or 2026-05-31T18:30"
        ) from None


def count(text: str) -> int:
    """Parse a flag's non-negative integer."""
    value = int(text)
    if not 0 <= value < 2**31:
        raise ValueError
    return value


def positive(text: str) -> int:
    """Parse a flag's positive integer."""
    if (value := count(text)) == 0:
        raise ValueError
    return value


# argparse uses these names in its error messages.
seconds.__name__, count.__name__, positive.__name__ = "number of seconds", "number", "number from 1"


def explain(problem: WonderError, server: str) -> str:
    """Return the cause, the reason and the remedy in one line.

    If a connection fails for a reason that TLS may be, a second line says so.
    """
    from wonder_sdk import UnauthenticatedError, UnavailableError, UnimplementedError

    if isinstance(problem, UnavailableError) and problem.is_untrusted:
        return problem.message
    if isinstance(problem, UnavailableError) and problem.timed_out and not problem.not_connected:
        return problem.message
    if isinstance(problem, UnavailableError) and not problem.reason and not problem.not_connected:
        return f"The connection to {server} was lost or refused: {problem.message}\n{_TLS}"
    if isinstance(problem, UnavailableError) and problem.connection_closed:
        return f"{server} closes the connection at once. {_TLS}"
    if isinstance(problem, UnavailableError) and problem.timed_out:
        return f"{problem.message}\n{_TLS}"
    if isinstance(problem, UnavailableError) and not problem.reason:
        return f"No server listens on {server}. Start one with `wonder serve`, or name another with --server."
    hints = {
        UnauthenticatedError: " Set WONDER_TOKEN to your token.",
        UnimplementedError: "" if problem.reason else f" Is {server} a Wonder server?",
    }
    hint = hints.get(type(problem), "") or _access_hint(problem)
    reason = f" ({problem.reason_name})" if problem.reason else ""
    return f"{problem.message}{hint}{reason}"


def _access_hint(problem: WonderError) -> str:
    """Return a hint that a caller with a token may not see what it names; else ""."""
    if not environment.token():
        return ""
    match problem.reason_name:
        case "PROJECT_NOT_FOUND":
            return " `wonder whoami` shows the projects that your roles reach; --project chooses one."
        case "AGENT_NOT_FOUND":
            return " You see the agents of the projects that your roles reach (`wonder agent list`)."
        case _:
            return ""
