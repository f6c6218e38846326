"""The ``wonder`` command.

Each command is a module with ``register(subparsers)``, which adds a parser and calls
``set_defaults(run=...)`` on it with a function from the parsed arguments to an exit code. Other packages add
commands in the same way through the entry point group ``wonder.commands``; the server adds ``serve``.

Command modules import the client when they run, so that ``wonder serve`` and ``--help`` do not load it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points

from wonder_sdk.cli import health, version
from wonder_sdk.cli.access import audit, keys, principals, roles, tenants, whoami
from wonder_sdk.cli.conversation import (
    chat,
    conversations,
    decisions,
    events,
    message,
    post,
    preview,
    search,
)
from wonder_sdk.cli.resources import (
    actions,
    agent,
    apply,
    artifact,
    backup,
    branch,
    definitions,
    export,
    files,
    libraries,
    memory,
    project,
    usage,
)
from wonder_sdk.cli.shared.parser import Parser
from wonder_sdk.cli.workflows import gates, run, runs, workflow

GROUP = "wonder.commands"

_LISTS = (
    ("conversations",),
    ("runs",),
    ("gates",),
    ("libraries",),
    ("definitions",),
    ("actions",),
    ("audit",),
    ("memory", "blocks"),
)
"""Commands that list without a verb."""

_EPILOG = """\
begin here:
  wonder serve                       Start a server with its data in ./wonder-data.
  wonder chat                        Talk to an agent.
  wonder chat -m "Good morning!"     Send one message, print the answer, exit.
  wonder apply -f my-library         Show the changes of a folder of definitions, and save it.
  wonder run my/library/NAME         Run a workflow of an applied folder and show its progress.
  wonder COMMAND --help              Show the options and examples of a command.

environment:
  WONDER_SERVER   Address of the server (default 127.0.0.1:50051).
  WONDER_TOKEN    Token for a server that requires one.
  WONDER_CA       PEM file of the server's certificate authority; turns on TLS.
  NO_COLOR        Turns off colours.

exit codes: 0 success, 1 failure, 2 invalid command line, 3 a tool call waits for approval, 130 interrupted
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser = build_parser()
    argv = _without_list(sys.argv[1:] if argv is None else argv)
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        _command_of(parser, argv).refuse(unknown)
    if not hasattr(arguments, "run"):
        parser.print_help()
        return 2
    try:
        return int(arguments.run(arguments))
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of stdout has closed the pipe, as `head` does. Python would print an error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _without_list(argv: Sequence[str]) -> Sequence[str]:
    """Remove the verb `list` of commands that list without a verb; the others have it."""
    for command in _LISTS:
        if tuple(argv[: len(command) + 1]) == (*command, "list"):
            return [*command, *argv[len(command) + 1 :]]
    return argv


def _command_of(parser: Parser, argv: Sequence[str]) -> Parser:
    """Return the parser of the command in ``argv``, whose usage is more specific than the main parser's."""
    for word in argv:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction) and word in action.choices:
                parser = action.choices[word]
                break
    return parser


def build_parser() -> Parser:
    """Return the parser of the whole command, including the commands of other packages."""
    parser = Parser(
        prog="wonder",
        description="Wonder: a self-hosted platform for AI agents and conversations.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=version.ShowVersion, help="Print the installed versions.")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    for command in (
        chat,
        conversations,
        run,
        runs,
        gates,
        workflow,
        actions,
        agent,
        memory,
        project,
        usage,
        backup,
        artifact,
        files,
        branch,
        libraries,
        definitions,
        apply,
        export,
        events,
        decisions,
        preview,
        post,
        whoami,
        tenants,
        principals,
        keys,
        roles,
        audit,
        message,
        search,
        health,
        version,
    ):
        command.register(subparsers)
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            register = entry.load()
        except ImportError as problem:
            print(f"wonder: cannot load the command {entry.name}: {problem}", file=sys.stderr)
            continue
        register(subparsers)
    if "serve" not in subparsers.choices:
        _register_missing_server(subparsers)
    return parser


def _register_missing_server(subparsers: argparse._SubParsersAction[Parser]) -> None:
    """Register a ``serve`` that explains, for any flags, that the server is not installed."""

    def run(arguments: argparse.Namespace) -> int:
        print("wonder: the server is not installed. Install the package wonder-server.", file=sys.stderr)
        return 1

    # A prefix character that cannot be typed turns every flag into a positional word.
    parser = subparsers.add_parser(
        "serve", help="Run a server (requires the package wonder-server).", prefix_chars="\0", add_help=False
    )
    parser.add_argument("words", nargs="*")
    parser.set_defaults(run=run)
