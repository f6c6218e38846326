"""Train a dictionary for packed values: ``python tools/train_dictionary.py OUT FOLDER [FOLDER ...]``.

The values are those in the shards of the data folders, whose servers must be stopped. Use folders with all
kinds of work (turns, tools, memories, workflows) and varied texts: a dictionary should hold the structure of
values, not the words of a benchmark. A shipped dictionary never changes, because stored values need it; see
`wonder_server.codec.packing`. A new one gets the next number.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import zstandard

from wonder_server.codec.packing import MIN_BYTES, unpack
from wonder_server.codec.tables import PACKED_TABLES

DICTIONARY_BYTES = 16 * 1024
MOST_BYTES = 12 << 20
"""Bytes of values to train with. More take longer and give no better dictionary."""
MOST_VALUE_BYTES = 4 * 1024
"""Of a longer value only its beginning is used: the rest is texts and repetitions."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="file of the dictionary; it must not exist")
    parser.add_argument("folders", type=Path, nargs="+", help="data folders of stopped servers")
    given = parser.parse_args()
    if given.out.exists():
        parser.error(f"{given.out} exists. A dictionary never changes: use the next number.")
    values = [value[:MOST_VALUE_BYTES] for folder in given.folders for value in _values(folder)]
    random.Random(0).shuffle(values)
    used, size = 0, 0
    while used < len(values) and size < MOST_BYTES:
        size += len(values[used])
        used += 1
    dictionary = zstandard.train_dictionary(DICTIONARY_BYTES, values[:used])
    given.out.write_bytes(dictionary.as_bytes())
    print(f"{given.out}: {len(dictionary)} bytes from {used} of {len(values)} values, {size >> 10} KiB")


def _values(folder: Path) -> Iterator[bytes]:
    """Yield the contents of all packed tables."""
    for path in sorted((folder / "shards").glob("*.db")):
        with closing(sqlite3.connect(path)) as connection:
            for table in sorted(PACKED_TABLES):
                column = "input" if table == "entries" else "data"
                for (data,) in connection.execute(f"SELECT CAST({column} AS BLOB) FROM {table}"):
                    value = unpack(data)
                    if len(value) >= MIN_BYTES:
                        yield value


if __name__ == "__main__":
    main()
