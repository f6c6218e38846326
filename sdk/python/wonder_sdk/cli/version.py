"""``wonder version``: what is installed here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any


class ShowVersion(argparse.Action):
    """``--version``."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        show()
        parser.exit()


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("version", help="show what is installed here")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    show()
    return 0


def show() -> None:
    """One line a package."""
    for package in ("wonder-sdk", "wonder-server"):
        try:
            print(f"{package} {version(package)}")
        except PackageNotFoundError:
            print(f"{package} is not installed")
