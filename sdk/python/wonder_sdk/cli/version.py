"""``wonder version``: print the installed versions."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version


class ShowVersion(argparse.Action):
    """The ``--version`` flag."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        show()
        parser.exit()


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("version", help="Print the installed versions.")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    show()
    return 0


def show() -> None:
    """Print one line for each package."""
    for package in ("wonder-sdk", "wonder-server"):
        try:
            print(f"{package} {version(package)}")
        except PackageNotFoundError:
            print(f"{package} is not installed")
