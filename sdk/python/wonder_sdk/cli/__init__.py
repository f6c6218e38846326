"""The ``wonder`` command.

Each command is a module with ``register(subparsers)``, which adds a parser and on it
``set_defaults(run=...)``: a function from the parsed arguments to an exit code. Other packages add
commands in the same way through the entry point group ``wonder.commands``; the server adds ``serve``.

Modules of commands import what they need when they run, so that ``wonder serve`` and ``--help`` do not
load the client.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points

from wonder_sdk.cli import health, version
from wonder_sdk.cli.conversation import chat, conversations, events, message, preview
from wonder_sdk.cli.resources import actions, agent, apply, artifact, branch, export, memory, project
from wonder_sdk.cli.shared.parser import Parser
from wonder_sdk.cli.workflows import gates, run, runs, workflow

GROUP = "wonder.commands"

_EPILOG = """\
begin here:
  wonder serve                       start a server in this folder (from the package wonder-server)
  wonder chat                        talk to its agent
  wonder chat -m "Good morning!"     one message, one answer; good for scripts
  wonder run acme/flows/release      run a workflow, and see its graph move
  wonder apply -f my-library         save a folder of definitions; shows what changes first
  wonder COMMAND --help              more about each, with examples

environment:
  WONDER_SERVER   address of the server (default 127.0.0.1:50051)
  WONDER_TOKEN    token to show, where the server wants one
  WONDER_CA       PEM file of the authority that vouches for the server; turns on encryption
  NO_COLOR        no colours, whatever the terminal can do

exit codes: 0 it worked, 1 it did not, 2 the command line makes no sense, 130 interrupted
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    parser = build_parser()
    argv = sys.argv[1:] if argv is None else argv
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
        # Whoever read our output has left, as `head` does. Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _command_of(parser: Parser, argv: Sequence[str]) -> Parser:
    """The parser of the command that was called, whose usage helps more than that of all."""
    for word in argv:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction) and word in action.choices:
                parser = action.choices[word]
                break
    return parser


def build_parser() -> Parser:
    """The parser of the whole command, with what other packages add."""
    parser = Parser(
        prog="wonder",
        description="Wonder: a self-hosted platform for AI agents and conversations.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=version.ShowVersion, help="show what is installed here")
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
        artifact,
        branch,
        apply,
        export,
        events,
        preview,
        message,
        health,
        version,
    ):
        command.register(subparsers)
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            register = entry.load()
        except ImportError as problem:
            print(f"wonder: the command {entry.name} cannot be loaded: {problem}", file=sys.stderr)
            continue
        register(subparsers)
    if "serve" not in subparsers.choices:
        _register_missing_server(subparsers)
    return parser


def _register_missing_server(subparsers: argparse._SubParsersAction[Parser]) -> None:
    """A ``serve`` for where only the client is installed, which says so whatever flags it is given."""

    def run(arguments: argparse.Namespace) -> int:
        print("wonder: to run a server, install the package wonder-server", file=sys.stderr)
        return 1

    # With a prefix that nobody types, every flag is just a word.
    parser = subparsers.add_parser(
        "serve", help="run a server (needs the package wonder-server)", prefix_chars="\0", add_help=False
    )
    parser.add_argument("words", nargs="*")
    parser.set_defaults(run=run)
