"""The identity of a shard file: its index and the number of files of its folder, stored inside the file."""

from __future__ import annotations

from typing import Final, TypeAlias

Identity: TypeAlias = tuple[int, int]
"""The index of a file and the number of files."""

COUNT_FILE: Final = "COUNT"
"""The file beside the shards that stores their number. The first start writes it after all shards exist."""

STORED_IDENTITY: Final = "SELECT shard, shards FROM identity"


def identity_problem(stored: Identity | None, index: int, count: int) -> str | None:
    """Return the end of a sentence that names the mismatch of a file, or None if it is file ``index``."""
    if stored == (index, count):
        return None
    content = "is empty" if stored is None else f"is shard {stored[0]:02} of {stored[1]}"
    return f"{content}, not shard {index:02} of {count}"
