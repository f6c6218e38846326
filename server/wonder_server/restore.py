"""The command ``wonder restore``: make a data folder from a backup, or verify a backup."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from wonder_server.compose.restoring import Restored

_EXIT_DAMAGED = 1
_EXIT_REFUSED = 2

_EXAMPLES = """\
Restore a backup of `wonder backup` to a new data folder. Every file is compared with the hash that the backup
has of it. No server needs to run.

examples:
  wonder restore /mnt/backups/latest /var/lib/wonder-new
      Restore to a folder that is missing or empty. Then: wonder serve --data-dir /var/lib/wonder-new
  wonder restore --check /mnt/backups/latest
      Restore to a temporary folder, check every record and reference as `wonder check` does, replay journals,
      and remove the folder. It needs as much space as the backup, below --scratch.

The server that starts on a restored folder goes on from the instant of the backup, as after a kill: it
resumes turns and runs that were in progress. Do not start it while the server that was backed up still
works: both would go on with the same runs.

exit codes: 0 restored or intact, 1 damage found, 2 not a backup, a newer version, or not an empty folder
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``restore`` to the ``wonder`` command."""
    parser = subparsers.add_parser(
        "restore",
        help="Restore or verify a backup.",
        description="Restore a backup to a new data folder, or verify it.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("backup", metavar="BACKUP", type=Path, help="Folder of the backup.")
    parser.add_argument(
        "data", metavar="DIR", type=Path, nargs="?", help="New data folder: missing or empty."
    )
    parser.add_argument("--check", action="store_true", help="Verify the backup instead.")
    parser.add_argument(
        "--scratch", metavar="DIR", type=Path, help="With --check: place of the temporary folder."
    )
    parser.add_argument("--quiet", action="store_true", help="Show no progress.")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Restore or verify the backup and return the exit code."""
    from wonder_server.compose.restoring import BackupError, DamagedBackupError

    if arguments.check == (arguments.data is not None):
        return _refuse("Give a new data folder, or --check.")
    try:
        return _check(arguments) if arguments.check else _restore(arguments)
    except DamagedBackupError as problem:
        _refuse(str(problem))
        return _EXIT_DAMAGED
    except BackupError as problem:
        return _refuse(str(problem))


def _restore(arguments: argparse.Namespace) -> int:
    from wonder_server.compose.restoring import UNFINISHED, restore_backup

    data: Path = arguments.data
    is_used = data.exists() and (not data.is_dir() or any(data.iterdir()))
    if is_used and not (data / UNFINISHED).is_file():
        return _refuse(f"{data} is not empty. Restore to a new folder.")
    done = restore_backup(arguments.backup, data, _progress(arguments))
    print(_text(done, f"restored to {data}"), file=sys.stderr)
    if done.manifest.objects_elsewhere:
        print("The objects are in a bucket. Start the server with its settings.", file=sys.stderr)
    return 0


def _check(arguments: argparse.Namespace) -> int:
    from wonder_server.compose.restoring import check_restored, restore_backup

    scratch = Path(tempfile.mkdtemp(prefix="wonder-restore-", dir=arguments.scratch))
    try:
        done = restore_backup(arguments.backup, scratch / "data", _progress(arguments))
        report = check_restored(scratch / "data", done.manifest, _progress(arguments))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    for line in report.problems:
        print(line)
    count = len(report.problems)
    outcome = f"{count} problems" if count else "nothing is damaged"
    amount = f"{report.records:,} records, {report.replayed:,} journals replayed"
    print(f"{_text(done, 'checked')}; {amount}: {outcome}.", file=sys.stderr)
    return 1 if count else 0


def _text(done: Restored, what: str) -> str:
    size = sum(each.size for each in done.manifest.files) >> 20
    return f"{len(done.manifest.files):,} files ({size:,} MiB) of {done.made_at} {what}"


def _progress(arguments: argparse.Namespace) -> Callable[[str], None]:
    return (lambda _: None) if arguments.quiet else _print


def _print(step: str) -> None:
    print(step, file=sys.stderr, flush=True)


def _refuse(problem: str) -> int:
    print(f"wonder restore: {problem}", file=sys.stderr)
    return _EXIT_REFUSED
