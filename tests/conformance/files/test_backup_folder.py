"""Folders of backups: incremental, complete or not there, and checked as they are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wonder_server.adapters.backup.folder import BackupFolder, open_folder
from wonder_server.adapters.backup.manifest import FORMAT, BackupError, Manifest, StoredFile, read_manifest
from wonder_server.adapters.backup.restoring import open_backup, restore

KNOWN = {"shards": ["1", "2"]}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "shards").mkdir(parents=True)
    (folder / "shards" / "COUNT").write_text("1")
    objects = folder / "artifacts" / "p.git" / "objects" / "ab"
    objects.mkdir(parents=True)
    (objects / "cdef").write_bytes(b"object")
    (folder / "artifacts" / "p.git" / "HEAD").write_text("ref: refs/heads/main")
    (folder / "artifacts" / "p.git" / "link").symlink_to("/etc/hostname")
    return folder


def manifest_of(folder: BackupFolder, files: list[StoredFile], **fields: object) -> Manifest:
    given = {"format": FORMAT, "version": "1", "created_ms": 1, "migrations": {"shards/00.db": ("1",)}}
    return Manifest(**{**given, "generation": folder.generation, "files": tuple(files), **fields})  # type: ignore[arg-type]


def make(data: Path, target: Path, database: bytes = b"database", **fields: object) -> int:
    """Make a backup and return the number of its new bytes."""
    with open_folder(target) as folder:
        copy = folder.databases / "shards-00.db"
        copy.write_bytes(database)
        files = [folder.add_database("shards/00.db", copy)]
        count = folder.add_file(data / "shards" / "COUNT", "shards/COUNT")
        assert count is not None
        files += [count, *folder.add_tree(data, "artifacts", lambda size: None)]
        folder.finish(manifest_of(folder, files, **fields))
        return folder.new_bytes


def restored(target: Path, data: Path) -> dict[str, str]:
    restore(target, open_backup(target, KNOWN), data, lambda file: None)
    found = {}
    for path in sorted(data.rglob("*")):
        if path.is_symlink():
            found[str(path.relative_to(data))] = f"-> {path.readlink()}"
        elif path.is_file():
            found[str(path.relative_to(data))] = path.read_text()
    return found


def test_a_backup_is_restored_with_every_file_and_link(data: Path, tmp_path: Path) -> None:
    make(data, tmp_path / "backup")
    assert restored(tmp_path / "backup", tmp_path / "new") == {
        "artifacts/p.git/HEAD": "ref: refs/heads/main",
        "artifacts/p.git/link": "-> /etc/hostname",
        "artifacts/p.git/objects/ab/cdef": "object",
        "shards/00.db": "database",
        "shards/COUNT": "1",
    }


def test_a_repeated_backup_copies_what_is_new_and_keeps_nothing_else(data: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    make(data, target)
    (data / "artifacts" / "p.git" / "new").write_bytes(b"12345")
    (data / "artifacts" / "p.git" / "HEAD").unlink()
    assert make(data, target, b"another") == len(b"another") + 5
    assert len([*target.glob("databases-*")]) == 1
    names = {each.place for each in read_manifest(target).files if each.place.startswith("files/")}
    assert {
        str(path.relative_to(target)) for path in (target / "files").rglob("*") if path.is_file()
    } == names
    assert "artifacts/p.git/HEAD" not in restored(target, tmp_path / "new")


def test_a_backup_that_fails_leaves_the_earlier_one(data: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    make(data, target)
    with pytest.raises(BackupError, match="No space left"), open_folder(target) as folder:
        (folder.databases / "shards-00.db").write_bytes(b"half")
        raise OSError(28, "No space left on device")
    assert restored(target, tmp_path / "new")["shards/00.db"] == "database"
    assert len([*target.glob("databases-*")]) == 1


def test_what_a_kill_left_is_no_backup_and_the_next_one_removes_it(data: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    (target / "databases-killed").mkdir(parents=True)
    (target / "files").mkdir()
    (target / "files" / "new-killed").write_bytes(b"half")
    with pytest.raises(BackupError, match="has no manifest"):
        read_manifest(target)
    make(data, target)
    assert not (target / "databases-killed").exists() and not (target / "files" / "new-killed").exists()


def test_two_backups_into_one_folder_are_refused(tmp_path: Path) -> None:
    with (
        open_folder(tmp_path / "backup"),
        pytest.raises(BackupError, match="in progress"),
        open_folder(tmp_path / "backup"),
    ):
        pass


def test_a_folder_with_other_contents_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(BackupError, match=r"thesis\.txt"), open_folder(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_disk_without_space_for_the_databases_is_refused_before_they_are_copied(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="Free some disk space"), open_folder(tmp_path / "b") as folder:
        folder.require_space(1 << 60)
    assert not [*(tmp_path / "b").glob("databases-*")]


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(BackupError, match="cannot be written"), open_folder(tmp_path / "file"):
        pass


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_damaged_content_is_found(data: Path, tmp_path: Path, damage: str) -> None:
    make(data, tmp_path / "backup")
    stored = next(each for each in read_manifest(tmp_path / "backup").files if each.path.endswith("cdef"))
    place = tmp_path / "backup" / stored.place
    place.unlink() if damage == "missing" else place.write_bytes(b"objecT")
    with pytest.raises(BackupError, match="is damaged"):
        restored(tmp_path / "backup", tmp_path / "new")
    assert not (tmp_path / "new" / "shards" / "COUNT").exists(), "a half restored folder is no data folder"


@pytest.mark.parametrize("migrations", [{"shards/00.db": ("1", "2", "3")}, {"shards/00.db": ("1", "x")}])
def test_a_backup_of_a_newer_version_is_refused(
    data: Path, tmp_path: Path, migrations: dict[str, tuple[str, ...]]
) -> None:
    make(data, tmp_path / "backup", migrations=migrations)
    with pytest.raises(BackupError, match="newer version"):
        open_backup(tmp_path / "backup", KNOWN)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"files": [{"path": "../out", "place": "files/ab/x"}]},
        {"files": [{"path": "/etc/out", "place": "files/ab/x"}]},
        {"files": [{"path": "in", "place": "../../secret"}]},
        {"files": "none"},
        {"generation": None},
    ],
)
def test_a_manifest_that_another_wrote_leads_nowhere(
    data: Path, tmp_path: Path, change: dict[str, object]
) -> None:
    make(data, tmp_path / "backup")
    path = tmp_path / "backup" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(BackupError):
        open_backup(tmp_path / "backup", KNOWN)


def test_a_link_of_a_backup_leads_no_file_out_of_the_folder(data: Path, tmp_path: Path) -> None:
    make(data, tmp_path / "backup")
    found = open_backup(tmp_path / "backup", KNOWN)
    file = next(each for each in found.files if each.path.endswith("cdef"))
    (tmp_path / "outside").mkdir()
    link = StoredFile(path="a", link=str(tmp_path / "outside"))
    inside = StoredFile(path="a/b", place=file.place, size=file.size, sha256=file.sha256)
    broken = Manifest(
        format=FORMAT, version="1", created_ms=1, generation="x", files=(link, inside), migrations={}
    )
    with pytest.raises(BackupError, match="link out of the folder"):
        restore(tmp_path / "backup", broken, tmp_path / "new", lambda file: None)
    assert not [*(tmp_path / "outside").iterdir()]
