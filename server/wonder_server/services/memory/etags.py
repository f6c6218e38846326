"""Etags of memories and of memory blocks."""

from __future__ import annotations


def version_of(etag: str) -> int | None:
    """Return the version of an etag: None for an empty one, -1 for an invalid one."""
    if not etag:
        return None
    return int(etag) if etag.isascii() and etag.isdecimal() and len(etag) < 16 else -1
