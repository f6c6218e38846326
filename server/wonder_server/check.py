"""The command ``wonder check``: verify the data folder of a stopped server."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from wonder_server.data_folder import DataFolder, DataFolderError

_EXIT_USAGE = 2

_EXAMPLES = """\
Read every record and change nothing. The command checks:

  shards/, catalog.db, memory.db   the pages of the files, the checksum of each record, the sequences of
                                   journals and events, and the targets of all references
  shards/                          the number of the files and the name of each
  blobs/                           each object against its name, which is the hash of its content
  artifacts/, repositories/        git fsck

Each damaged record is one line on standard output; progress goes to standard error. The report counts records
without a checksum, from a version before checksums, as unchecked. They get one with their next write.

examples:
  wonder check /var/lib/wonder
      Check a folder; print the damaged records and a summary.
  wonder check wonder-data > damaged.txt || mail -s 'wonder: damaged records' me < damaged.txt
      Send a mail if records are damaged, as a daily job does.
  wonder check /var/lib/wonder --objects-elsewhere
      Check the folder of a server that keeps its objects in a bucket (WONDER_S3_ENDPOINT).

To repair a folder, restore the named file or the whole folder from a backup. A server starts with damaged
records and serves all others; a request that needs a damaged one fails with STORAGE_UNAVAILABLE and its name.

exit codes: 0 no damage, 1 damage found, 2 not a data folder, or in use by a server
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``check`` to the ``wonder`` command."""
    parser = subparsers.add_parser(
        "check",
        help="Verify the data folder of a stopped server.",
        description="Verify the data folder of a stopped server, record by record.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "data", metavar="DIR", type=Path, help="Data folder, as given to `wonder serve --data-dir`."
    )
    parser.add_argument(
        "--objects-elsewhere",
        action="store_true",
        help="Require no objects in DIR/blobs, since a bucket has them.",
    )
    parser.add_argument("--quiet", action="store_true", help="Show no progress.")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Check the folder and return the exit code."""
    data: Path = arguments.data
    shards = data / "shards"
    if not (shards / "COUNT").is_file():
        files = len(list(shards.glob("[0-9][0-9].db")))
        print(
            f"wonder check: {shards} has {files} files and no COUNT, so a file may be missing unnoticed."
            " Restore COUNT from a backup, or write the number of shard files into it."
            if files
            else f"wonder check: {data} is not a data folder: it has no shards/COUNT.",
            file=sys.stderr,
        )
        return _EXIT_USAGE
    try:
        folder = DataFolder.lock(data)
    except DataFolderError as problem:
        print(f"wonder check: {problem}", file=sys.stderr)
        return _EXIT_USAGE
    try:
        from wonder_server.compose.checking import check_folder

        report = check_folder(
            data.resolve(),
            (lambda _: None) if arguments.quiet else _print_progress,
            objects_elsewhere=arguments.objects_elsewhere,
        )
    finally:
        folder.release()
    for line in report.problems:
        print(line)
    count = len(report.problems)
    repositories = _counted(report.repositories, "repository", "repositories")
    print(
        f"{_counted(report.records, 'record')} ({report.unchecked} unchecked), "
        f"{_counted(report.objects, 'object')}, {repositories}: "
        + (f"{_counted(count, 'problem')}." if count else "nothing is damaged."),
        file=sys.stderr,
    )
    return 1 if count else 0


def _counted(number: int, noun: str, plural: str = "") -> str:
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def _print_progress(step: str) -> None:
    print(step, file=sys.stderr, flush=True)
