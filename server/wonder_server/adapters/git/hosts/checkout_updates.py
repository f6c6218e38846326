"""Updates of a working folder of the host in which the target of a merge is checked out.

Only where the operator has turned on ``repository_update_checkouts``. git never runs in the folder: files
are compared and written one by one (`checkouts`), and the index is rewritten from its bytes. So no filter,
hook or attribute of the folder counts.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from wonder_server.adapters.git.storage.bare_repository import EMPTY_TREE, BareRepository
from wonder_server.adapters.git.storage.command import GitError
from wonder_server.adapters.git.storage.references import NEW_FILE, BrokenReferenceError, read_file
from wonder_server.adapters.git.worktree import checkout
from wonder_server.core.errors import Reason, WonderError, error

_MAX_INDEX: Final = 256 << 20
_LOCK: Final = "index.lock"


@contextlib.contextmanager
def update_checkout(
    bare: BareRepository, common: int, folder: int, target: str, old: str, new: str
) -> Iterator[None]:
    """Give the folder the files and the index of the commit ``new``, then let the branch be changed; take
    them back if that fails. ``old`` is the commit that is checked out, "" before the first. ``common`` is the
    open repository, ``folder`` the open working folder.

    RESOURCE_IN_USE if a file differs from ``old`` there, so that uncommitted work is never lost. A file that
    is as in ``new`` already, after a crash in the middle, is no difference.
    """
    try:
        os.close(os.open(_LOCK, NEW_FILE, 0o644, dir_fd=common))
    except FileExistsError:
        raise _in_use(target, "another git is at work there (index.lock)") from None
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
    """Return the index with the tree ``after``, or None if it holds neither ``before`` nor ``after``."""
    with tempfile.TemporaryDirectory(dir=bare.folder.parent, prefix=".new-") as draft:
        place = Path(draft) / "index"
        also = {"GIT_INDEX_FILE": str(place)}
        if content is not None:
            place.write_bytes(content)
        else:
            bare.git.run(bare.folder, "read-tree", "--empty", environment=also)
        staged = bare.git.run(bare.folder, "write-tree", "--missing-ok", environment=also).text
        if staged == before:
            bare.git.run(bare.folder, "read-tree", "-i", "-m", before, after, environment=also)
        elif staged != after:
            return None
        return place.read_bytes()


def _put_index(common: int, content: bytes) -> None:
    """Replace the index in one step."""
    draft = "index.wonder"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(draft, dir_fd=common)
    with open(os.open(draft, NEW_FILE, 0o644, dir_fd=common), "wb") as file:
        file.write(content)
    os.rename(draft, "index", src_dir_fd=common, dst_dir_fd=common)


def _in_use(target: str, why: str) -> WonderError:
    return error(
        Reason.RESOURCE_IN_USE,
        f"The branch '{target}' is checked out in a working folder, which cannot follow the merge: {why}. "
        "Commit or undo the changes there, then merge again.",
        id=target,
    )
