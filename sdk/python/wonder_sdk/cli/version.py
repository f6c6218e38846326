"""``wonder version``: what is installed here."""

from __future__ import annotations

import argparse
from importlib.metadata import PackageNotFoundError, version


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("version", help="show what is installed here")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    for package in ("wonder-sdk", "wonder-server"):
        try:
            print(f"{package} {version(package)}")
        except PackageNotFoundError:
            print(f"{package} is not installed")
    return 0
