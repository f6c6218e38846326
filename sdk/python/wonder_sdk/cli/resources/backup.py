"""``wonder backup``: make a backup on the server's machine."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared import connection
from wonder_sdk.cli.shared.terminal import Terminal
from wonder_sdk.cli.shared.text_summary import counted

if TYPE_CHECKING:
    from wonder_sdk import sync

_EXAMPLES = """\
examples:
  wonder serve --backup-dir /mnt/backups
      Start a server that can make backups, in folders below /mnt/backups.
  wonder backup
      Make the backup /mnt/backups/latest, or bring it up to date.
  wonder backup monday
      Make another one, /mnt/backups/monday.
  wonder restore /mnt/backups/latest new-data
      Restore it to a new data folder. `wonder restore --check /mnt/backups/latest` verifies it.
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "backup",
        help="Make a backup while the server works.",
        description="Make a backup of everything that the server stores, while it works. The server writes "
        "it to its own machine, below the folder of its setting backup_dir.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "name", nargs="?", default="", metavar="NAME", help="Name the backup (default: latest)."
    )
    parser.add_argument("--json", action="store_true", help="Print the backup as JSON.")
    parser.add_argument("--quiet", action="store_true", help="Show no progress.")
    connection.connect(parser, run)


def run(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Make the backup and print what it has."""
    from wonder_sdk import v1

    terminal = Terminal()
    for message in client.backups.create_backup(v1.CreateBackupRequest(name=arguments.name)):
        if message.progress is not None and not arguments.quiet:
            terminal.note(f"{message.progress.step}: {counted(message.progress.bytes >> 20, 'MiB', 'MiB')}")
        made = message.backup
        if made is None:
            continue
        if arguments.json:
            terminal.line(connection.as_json(made))
            continue
        size = f"{made.bytes >> 20:,} MiB, {made.new_bytes >> 20:,} MiB of them new"
        terminal.line(f"backup {made.name}: {counted(made.files, 'file')}, {size}")
        if made.objects_elsewhere:
            terminal.note("The objects are in a bucket and not in this backup.")
    return 0
