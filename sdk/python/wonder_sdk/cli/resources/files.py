"""``wonder files``: upload, download, list and delete the files of projects."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared import connection, deletion, listing, uploads
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync

_EXAMPLES = """\
examples:
  wonder files put cat.png notes.md
      Upload files to the project `default` and print their ids.
  wonder files list --project acme
      List the files of a project: id, size, media type, name, time.
  wonder files get file_01J9... -o cat.png
      Download a file. Without -o, print it to a pipe.
  wonder files delete file_01J9...
      Delete a file; --yes skips the confirmation. Messages keep its description.

To send a file to an agent: wonder chat -m "What is this?" --file cat.png
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "files",
        help="Upload, download, list and delete files.",
        description="Upload, download, list and delete the files of projects, which messages refer to.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    put = _command(
        commands,
        "put",
        "Upload files and print their ids.",
        "wonder files put cat.png notes.md",
    )
    put.add_argument("paths", nargs="+", metavar="PATH", help="Upload this file.")
    put.add_argument(
        "--project", default="", metavar="NAME", help="Upload to this project (default: default)."
    )
    put.add_argument("--type", default="", metavar="TYPE", help="Declare this media type, such as text/csv.")
    connection.connect(put, _put)
    get = _command(commands, "get", "Download a file.", "wonder files get file_01J9... -o cat.png")
    get.add_argument("file", metavar="ID", help="Download this file.")
    get.add_argument("-o", "--output", metavar="PATH", help="Write to this new file.")
    connection.connect(get, _get)
    listed = _command(commands, "list", "List files.", "wonder files list --project acme")
    listed.add_argument("--project", default="", metavar="NAME", help="List this project only.")
    listed.add_argument("--json", action="store_true", help="Print one JSON object per line.")
    connection.connect(listed, _list)
    delete = _command(commands, "delete", "Delete a file.", "wonder files delete file_01J9...")
    delete.add_argument("file", metavar="ID", help="Delete this file.")
    deletion.add_yes(delete)
    connection.connect(delete, _delete)


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, does: str, example: str
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=does,
        description=does,
        epilog=f"examples:\n  {example}\n      {does}\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _put(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Upload the files in order, up to the first that the server rejects."""
    terminal = Terminal()
    if not uploads.check(arguments.paths):
        return 1
    for path in arguments.paths:
        made = uploads.upload(client, path, media_type=arguments.type, project=arguments.project)
        terminal.line(made.id)
    return 0


def _get(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Write a file to a new path or to a pipe. A terminal gets nothing: the content may control it."""
    if not arguments.output and sys.stdout.isatty():
        print(
            "wonder: A terminal may obey what a file contains. Name a file with -o, or use a pipe.",
            file=sys.stderr,
        )
        return 2
    content = client.download(arguments.file)
    if not arguments.output:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return 0
    try:
        with Path(arguments.output).open("xb") as file:
            file.write(content)
    except OSError as problem:
        print(f"wonder: {arguments.output} cannot be written: {problem.strerror}.", file=sys.stderr)
        return 1
    return 0


def _list(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print one line for each file."""
    found, terminal = client.list_files(project=arguments.project), Terminal()
    if arguments.json:
        for each in found:
            terminal.line(connection.as_json(each))
        return 0
    rows = (
        (each.id, str(each.size_bytes), each.media_type, each.name, listing.local(each.create_time))
        for each in found
    )
    listing.show(terminal, rows, nothing="there are no files")
    return 0


def _delete(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Delete one file after confirmation; see `deletion.refusal`."""
    if code := deletion.refusal(arguments, f"{arguments.file} for good"):
        return code
    client.delete_file(arguments.file)
    return 0
