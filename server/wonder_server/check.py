"""The command ``wonder check``: verify the data folder of a stopped server."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from wonder_server.data_folder import DataFolder, DataFolderError

_EXIT_USAGE = 2

_EXAMPLES = """\
Reads every record and changes nothing. What is checked:

  shards/, catalog.db, memory.db   the pages of the files, the checksum of each record, the numbers of
                                   journals and events, and that whatever a record refers to is there
  blobs/                           each object against its name, which is the hash of its content
  artifacts/, repositories/        git fsck

Each damaged record is one line on standard output; progress goes to standard error. Records that were written
by a version without checksums are counted as unchecked: they get one when they are written again.

examples:
  wonder check /var/lib/wonder
  wonder check wonder-data > damaged.txt || mail -s 'wonder: damaged records' me < damaged.txt
  wonder check /var/lib/wonder --objects-elsewhere
      where objects lie in a bucket (WONDER_S3_ENDPOINT)

What to do: restore the named file from a backup, or the whole folder. A server starts with damaged records
and serves all others; what needs a damaged one answers STORAGE_UNAVAILABLE and names it.

exit codes: 0 nothing is damaged, 1 something is, 2 the folder is none or a server has it
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``check`` to the ``wonder`` command."""
    parser = subparsers.add_parser(
        "check",
        help="verify the data folder of a stopped server",
        description="Verify the data folder of a stopped server, record by record.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "data", metavar="DIR", type=Path, help="data folder, as given to `wonder serve --data-dir`"
    )
    parser.add_argument(
        "--objects-elsewhere",
        action="store_true",
        help="do not look for objects in DIR/blobs, since they lie in a bucket",
    )
    parser.add_argument("--quiet", action="store_true", help="do not show progress")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Check the folder. Returns the exit code."""
    data: Path = arguments.data
    if not (data / "shards" / "COUNT").is_file():
        print(f"wonder check: {data} is not a data folder: it has no shards/COUNT.", file=sys.stderr)
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
    print(
        f"{report.records} records ({report.unchecked} unchecked), {report.objects} objects, "
        f"{report.repositories} repositories: "
        + ("nothing is damaged." if not count else f"{count} {'problem' if count == 1 else 'problems'}."),
        file=sys.stderr,
    )
    return 1 if count else 0


def _print_progress(step: str) -> None:
    print(step, file=sys.stderr, flush=True)
