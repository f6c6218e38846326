"""The reserve for a full disk: released when little else is free, filled again when enough is free."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from wonder_server.adapters.files.disk_space import RESERVE_NAME, DiskSpaceGuard
from wonder_server.core.errors import Reason

KIB = 1024
RESERVE = 64 * KIB


class Disk:
    """A disk with a set number of free bytes besides the reserve."""

    def __init__(self, folder: Path, free: int) -> None:
        self.free = free
        self.guard = DiskSpaceGuard(folder, RESERVE, lambda _: self.free)

    def look(self) -> bool:
        with capture_logs():
            return self.guard.update()


def reserved(folder: Path) -> int:
    file = folder / RESERVE_NAME
    return file.stat().st_size if file.exists() else 0


def test_with_free_space_there_is_a_reserve_and_nothing_is_rejected(tmp_path: Path) -> None:
    disk = Disk(tmp_path, 10 * RESERVE)
    assert not disk.look()
    assert reserved(tmp_path) == RESERVE
    assert disk.guard.write_rejection() is None


def test_the_reserve_is_released_below_a_quarter_and_filled_again_with_a_margin(
    tmp_path: Path,
) -> None:
    disk = Disk(tmp_path, 10 * RESERVE)
    disk.look()
    disk.free = RESERVE // 4
    assert not disk.look()
    disk.free -= 1
    assert disk.look()
    assert reserved(tmp_path) == 0
    refused = disk.guard.write_rejection()
    assert refused is not None
    assert refused.fault.reason is Reason.STORAGE_UNAVAILABLE
    assert refused.fault.transient
    assert "0.1 MiB must be free there, and 0.07 are." in refused.fault.message
    disk.free = RESERVE + RESERVE // 4
    assert disk.look(), "less would release it again immediately"
    disk.free = RESERVE + RESERVE // 2
    assert not disk.look()
    assert reserved(tmp_path) == RESERVE
    assert disk.guard.write_rejection() is None


@pytest.mark.parametrize("left", [0, RESERVE])
def test_a_start_on_a_full_disk_rejects_writes(tmp_path: Path, left: int) -> None:
    if left:
        Disk(tmp_path, 10 * RESERVE).look()
    disk = Disk(tmp_path, 0)
    assert disk.look()
    assert reserved(tmp_path) == 0


def test_a_start_after_a_full_disk_wants_the_same_margin_as_the_server_that_stopped(tmp_path: Path) -> None:
    before = Disk(tmp_path, 10 * RESERVE)
    before.look()
    before.free = 0
    assert before.look()
    disk = Disk(tmp_path, RESERVE + RESERVE // 4)
    assert disk.look(), "a filled reserve would leave too little for the work that waits"
    assert reserved(tmp_path) == 0
    disk.free = RESERVE + RESERVE // 2
    assert not disk.look()
    assert reserved(tmp_path) == RESERVE


def test_without_a_reserve_nothing_is_rejected(tmp_path: Path) -> None:
    guard = DiskSpaceGuard(tmp_path, 0, lambda _: 0)
    assert not guard.update()
    assert guard.write_rejection() is None
    assert not (tmp_path / RESERVE_NAME).exists()


def test_logs_of_stores_may_be_long_only_while_much_space_is_free(tmp_path: Path) -> None:
    disk = Disk(tmp_path, 1 << 30)
    assert disk.guard.max_log_bytes() is None
    disk.free -= 1
    assert disk.guard.max_log_bytes() == RESERVE // 2, "a checkpoint must fit in the reserve"


def test_without_a_reserve_logs_may_be_long(tmp_path: Path) -> None:
    assert DiskSpaceGuard(tmp_path, 0, lambda _: 0).max_log_bytes() is None


def test_logs_are_short_if_the_free_space_is_unknown(tmp_path: Path) -> None:
    def unknown(_: Path) -> int:
        raise OSError

    assert DiskSpaceGuard(tmp_path, RESERVE, unknown).max_log_bytes() == RESERVE // 2
