"""Copies of host repositories, and merges into them, without obeying their content (see `host_folders`).

A merge is one pack and one compare-and-swap of a branch. The server writes both into folders that it opened.
It does not use ``git push``, which would start ``git receive-pack`` in the host repository, and so run that
repository's hooks and read its configuration.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from wonder_server.adapters.git.hosts import checkout_updates, object_stores
from wonder_server.adapters.git.hosts.host_folders import HostFolders
from wonder_server.adapters.git.storage import references
from wonder_server.adapters.git.storage.bare_repository import BareRepository, RefConflictError
from wonder_server.adapters.git.storage.command import RunOptions
from wonder_server.adapters.git.storage.references import RefLockedError
from wonder_server.core.errors import Reason, WonderError, error


class LocalOrigins:
    """Repositories in folders of the host. Every method blocks.

    Errors: `HostRepositoryError`, `BrokenReferenceError`, `GitError`; FIELD_INVALID outside the roots.
    """

    def __init__(self, hosts: HostFolders, *, updates_checkouts: bool) -> None:
        self._hosts = hosts
        self._updates_checkouts = updates_checkouts

    def copy(self, bare: BareRepository, url: str, seconds: float) -> str:
        """Update the copy ``bare``. Return the branch that the repository's HEAD names, or ""."""
        with self._hosts.open(url) as host, object_stores.open_view(bare, host.object_stores) as view:
            default, branches = host.default_branch(), host.branches()
            view.set_branches(
                {name: each for name, each in branches.items() if not name.startswith("wonder/")},
                default if default in branches else "",
            )
            bare.git.fetch(
                bare.folder, view.folder, "+refs/heads/*:refs/heads/origin/*",
                seconds=seconds, handles=view.handles,
            )  # fmt: skip
            return default

    def push(
        self, bare: BareRepository, url: str, target: str, merged: str, ours: str, seconds: float
    ) -> None:
        """Move the host's branch ``target`` from the commit ``ours`` ("": no such branch) to ``merged``.

        `RefConflictError` if it is not at ``ours``. RESOURCE_IN_USE if it is checked out and may not be
        updated.
        """
        with self._hosts.open(url) as host, ExitStack() as stack:
            if host.branch(target) != ours:
                raise RefConflictError
            checkout = host.checkout_of(target)
            if checkout is not None and not (self._updates_checkouts and checkout.folder is not None):
                raise _checked_out_error(target, may_update=self._updates_checkouts)
            pack = stack.enter_context(_make_pack(bare, merged, ours, seconds))
            stack.enter_context(object_stores.add_pack(host.object_stores[0], pack))
            if checkout is not None and checkout.folder is not None:
                stack.enter_context(
                    checkout_updates.update_checkout(
                        bare, host.common_dir, checkout.folder, target, ours, merged
                    )
                )
            try:
                if not references.set_branch(host.common_dir, target, merged, ours):
                    raise RefConflictError
            except RefLockedError:
                raise RefConflictError from None


@contextmanager
def _make_pack(bare: BareRepository, merged: str, ours: str, seconds: float) -> Iterator[Path]:
    """Create a pack of the objects of ``merged`` without those of ``ours``, for the duration of the context.

    One pack instead of loose objects: a group that shares the repository then needs no rights to new folders.
    """
    with tempfile.TemporaryDirectory(dir=bare.folder.parent, prefix=".new-") as draft:
        wanted = f"{merged}\n" + (f"^{ours}\n" if ours else "")
        result = bare.git.run(
            bare.folder, "pack-objects", "--revs", "--quiet", f"{draft}/pack",
            options=RunOptions(input=wanted.encode(), seconds=seconds),
        )  # fmt: skip
        yield Path(draft) / f"pack-{result.text}.pack"


def _checked_out_error(target: str, *, may_update: bool) -> WonderError:
    ways: Sequence[str] = (
        "check out another branch there (`git switch --detach`)",
        "merge into another branch",
        "use a bare repository",
    )
    if not may_update:
        ways = (*ways, "or ask the operator to enable the setting repository_update_checkouts")
    return error(
        Reason.RESOURCE_IN_USE,
        f"The branch '{target}' is checked out in a working folder, so nothing was merged: "
        f"{'; '.join(ways)}.",
        id=target,
    )
