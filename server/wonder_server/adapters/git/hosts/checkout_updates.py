"""Updates of a working folder of the host in which the target branch of a merge is checked out.

They happen only if the operator sets ``repository_update_checkouts``. git never runs in the folder: the
server compares and writes files one by one (`checkout`) and rewrites the bytes of the index. So filters,
hooks and attributes of the folder have no effect.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from wonder_server.adapters.git.storage.bare_repository import EMPTY_TREE, BareRepository
from wonder_server.adapters.git.storage.command import GitError, RunOptions
from wonder_server.adapters.git.storage.references import NEW_FILE, BrokenReferenceError, read_file
from wonder_server.adapters.git.worktree import checkout
from wonder_server.core.errors import Reason, WonderError, error

_MAX_INDEX: Final = 256 << 20
_LOCK: Final = "index.lock"


@contextlib.contextmanager
def update_checkout(
    bare: BareRepository, common: int, folder: int, target: str, old: str, new: str
) -> Iterator[None]:
    """Update the folder's files and index to the commit ``new`` around the change of the branch in the
    context.

    Undo the update if the context raises. ``old`` is the checked-out commit, "" before the first one.
    ``common`` is the open repository, ``folder`` the open working folder.

    RESOURCE_IN_USE if a file differs from ``old``, so that uncommitted work is never lost. A file that
    already equals ``new``, after a crash during an update, is accepted.
    """
    try:
        os.close(os.open(_LOCK, NEW_FILE, 0o644, dir_fd=common))
    except FileExistsError:
        raise _in_use(target, "another git process works there (index.lock)") from None
    try:
        before, after = (bare.commits([each])[0].tree if each else EMPTY_TREE for each in (old, new))
        try:
            content = read_file(common, "index", _MAX_INDEX)
            index = _rewrite_index(bare, content, before, after)
        except (BrokenReferenceError, GitError):
            raise _in_use(target, "its index cannot be read") from None
        if index is None:
            raise _in_use(target, "changes are staged there") from None
        if (path := checkout.conflicting_path(bare, folder, before, after)) is not None:
            raise _in_use(target, f"'{path[:200]}' was changed there")
        try:
            checkout.apply_tree_diff(bare, folder, before, after)
            _put_index(common, index)
            yield
        except BaseException as problem:
            checkout.apply_tree_diff(bare, folder, after, before)
            if content is not None:
                _put_index(common, content)
            if isinstance(problem, WonderError) and problem.fault.reason is Reason.FIELD_INVALID:
                raise _in_use(target, problem.fault.message.rstrip(".")) from None
            raise
    finally:
        os.unlink(_LOCK, dir_fd=common)


def _rewrite_index(bare: BareRepository, content: bytes | None, before: str, after: str) -> bytes | None:
    """Return the index with the tree ``after``; None if it contains neither ``before`` nor ``after``."""
    with tempfile.TemporaryDirectory(dir=bare.folder.parent, prefix=".new-") as draft:
        path = Path(draft) / "index"
        options = RunOptions(environment={"GIT_INDEX_FILE": str(path)})
        if content is not None:
            path.write_bytes(content)
        else:
            bare.git.run(bare.folder, "read-tree", "--empty", options=options)
        staged = bare.git.run(bare.folder, "write-tree", "--missing-ok", options=options).text
        if staged == before:
            bare.git.run(bare.folder, "read-tree", "-i", "-m", before, after, options=options)
        elif staged != after:
            return None
        return path.read_bytes()


def _put_index(common: int, content: bytes) -> None:
    """Replace the index in one step."""
    draft = "index.wonder"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(draft, dir_fd=common)
    with open(os.open(draft, NEW_FILE, 0o644, dir_fd=common), "wb") as file:
        file.write(content)
    os.rename(draft, "index", src_dir_fd=common, dst_dir_fd=common)


def _in_use(target: str, cause: str) -> WonderError:
    return error(
        Reason.RESOURCE_IN_USE,
        f"The branch '{target}' is checked out in a working folder that cannot be updated: {cause}. "
        "Commit or undo the changes there, then merge again.",
        id=target,
    )
