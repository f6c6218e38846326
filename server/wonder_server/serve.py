"""The command ``wonder serve``.

The ``wonder`` command is part of the SDK, which does not import the server. It finds further commands through
the entry point group ``wonder.commands``. Each is a function ::

    def register(subparsers: argparse._SubParsersAction) -> None

that adds one parser and calls its ``set_defaults(run=...)`` with a function from the parsed arguments to an
exit code. Every ``wonder`` command imports this module, so the import must stay cheap: the modules of a
server are imported at its start.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from wonder_server import logs
from wonder_server.core.errors import WonderError
from wonder_server.data_folder import DataFolderError
from wonder_server.settings import TABLE, Group, Setting, Settings, SettingsError, load, set_default_variable
from wonder_server.settings.kinds import is_loopback

if TYPE_CHECKING:
    from wonder_server.lifecycle import App, OpenApp

_STARTED_AT = time.monotonic()
_EXIT_REFUSED = 2

_EXAMPLES = """\
examples:
  wonder serve
      Store data in ./wonder-data and listen on 127.0.0.1:50051, for this machine only.

  wonder serve --data-dir /var/lib/wonder --listen 0.0.0.0:50051 \\
      --tls-cert server.pem --tls-key server.key --auth-tokens-file tokens.txt
      Listen for other machines, with TLS and tokens.

  wonder serve --listen 127.0.0.1:0
      Listen on a free port. The log event 'ready' and the file ADDRESS in the data folder name it.

Each flag is also an environment variable (in brackets) and a key of the --config file. A flag goes before
a variable, a variable before the file. Keys of providers have no flag: set OPENAI_API_KEY, ANTHROPIC_API_KEY
or GEMINI_API_KEY. SIGTERM or Ctrl-C stops the server gracefully; a second one stops it at once.
exit codes: 0 stopped by a signal, 1 failed or forced to stop, 2 invalid settings or data folder.
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``serve`` to the ``wonder`` command."""
    parser = subparsers.add_parser(
        "serve",
        help="Run a server.",
        description="Run a Wonder server: one process, one data folder, one port.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for group in Group:
        heading = parser.add_argument_group(group.value)
        for row in TABLE:
            if row.flag and row.group is group:
                _add_flag(heading, row)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, open_app: OpenApp | None = None) -> int:
    """Run a server until a signal stops it. Return the exit code.

    ``open_app`` starts another application than Wonder's; for tests.
    """
    flags = {row.name: getattr(arguments, row.name, None) for row in TABLE if row.flag}
    try:
        settings = load(flags)
        check_exposure(settings)
    except SettingsError as problem:
        return _refuse(problem)
    logs.configure(settings.log_format, settings.log_level, secrets=settings.secrets())

    # The log of gRPC has another format and repeats the errors in this server's log.
    set_default_variable("GRPC_VERBOSITY", "NONE")
    from wonder_server.lifecycle import run_server
    from wonder_server.rpc.server.server import ListenError

    try:
        asyncio.run(run_server(settings, open_app or _open_application, started_at=_STARTED_AT))
    except (SettingsError, DataFolderError, ListenError) as problem:
        return _refuse(problem)
    except WonderError as problem:
        # A store that cannot be opened, or a standard library that cannot be applied.
        return _refuse(problem.fault.message)
    return 0


def check_exposure(settings: Settings) -> None:
    """Raise `SettingsError` if other machines can reach the server without TLS and tokens.

    The setting ``insecure`` permits it.
    """
    if settings.insecure:
        return
    _check_metrics(settings)
    if settings.is_loopback:
        return
    missing = []
    if not settings.has_tls:
        missing.append("encryption (--tls-cert and --tls-key)")
    if not settings.has_auth:
        missing.append("authentication (--require-auth or --auth-tokens-file)")
    if missing:
        raise SettingsError(
            f"{settings.listen} can be reached from other machines, and {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not set up. Set up what is missing, listen on "
            "127.0.0.1, or set --insecure if every client that can connect may do everything."
        )


def _check_metrics(settings: Settings) -> None:
    address = settings.metrics_address
    if address and not is_loopback(address) and not (settings.has_tls and settings.metrics_token_file):
        raise SettingsError(
            f"metrics_address: {address} can be reached from other machines. Set tls_cert, tls_key and "
            "metrics_token_file, listen on 127.0.0.1, or set --insecure if everyone who can connect may read "
            "the metrics."
        )


def _add_flag(heading: argparse._ArgumentGroup, row: Setting) -> None:
    default = f" Default: {row.default_text}." if row.default_text else ""
    text = f"{row.help}{default} [{row.env}]".replace("%", "%%")
    if row.kind.name == "true / false":
        heading.add_argument(row.flag, action=argparse.BooleanOptionalAction, default=None, help=text)
    else:
        heading.add_argument(
            row.flag, default=None, metavar=row.kind.name.upper().replace(" / ", "|"), help=text
        )


def _open_application(settings: Settings) -> AbstractAsyncContextManager[App]:
    from wonder_server.compose import open_application

    return open_application(settings)


def _refuse(problem: Exception | str) -> int:
    print(f"wonder serve: {problem}", file=sys.stderr)
    return _EXIT_REFUSED
