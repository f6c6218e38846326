"""The files of a folder: each of the 32 shards has one, for any number of files."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.conformance.ports.journal_subjects import commit, conversation, put_conversation
from tests.replacing import replace
from tests.sqlite_journals import SqliteJournals
from wonder_server.adapters.sqlite.shard.check import check_shard
from wonder_server.adapters.sqlite.shard.shard import SqliteShard
from wonder_server.codec.seals import seal
from wonder_server.core import ids
from wonder_server.core.conversation.model.inputs import CancelTurn
from wonder_server.core.errors import Reason, WonderError
from wonder_server.ports.journal import Entry, StaleEpochError

LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def identifier(letter: str) -> str:
    return f"conv_01HF7YAT0000000000000000A{letter}"


def change(path: Path, statement: str) -> None:
    """Execute a statement in a file that no server has open."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


async def write(shards: SqliteJournals, identifier: str) -> None:
    value = replace(conversation(1), id=identifier)
    await shards.of(identifier).commit([commit(identifier, put_conversation(value))])


@pytest.mark.parametrize("count", [1, 3, 8, 32])
async def test_every_shard_has_one_file(tmp_path: Path, count: int) -> None:
    shards = await SqliteJournals.open(tmp_path, count)
    for letter in LETTERS:
        await write(shards, identifier(letter))
    await shards.close()
    shards = await SqliteJournals.open(tmp_path, 1)
    for index, letter in enumerate(LETTERS):
        assert shards.of(identifier(letter)) is shards.files[index % count]
        assert await shards.head(identifier(letter)) == 0
    await shards.close()


def test_new_ids_name_all_shards() -> None:
    assert ids.SHARDS == len(LETTERS)
    assert {ids.spread(f"key {number}") for number in range(1000)} == set(range(ids.SHARDS))
    assert [ids.shard_of(identifier(letter)) for letter in LETTERS] == list(range(ids.SHARDS))


@pytest.mark.parametrize(("count", "text"), [(2, "not complete"), (1, "not complete"), (4, "cannot change")])
async def test_another_number_of_files_is_refused(tmp_path: Path, count: int, text: str) -> None:
    shards = await SqliteJournals.open(tmp_path, 3)
    await shards.close()
    (tmp_path / "COUNT").write_text(f"{count}\n")
    if count == 4:
        (tmp_path / "03.db").touch()
    with pytest.raises(WonderError, match=text) as refused:
        await SqliteJournals.open(tmp_path, 1)
    assert refused.value.fault.reason is Reason.STORAGE_UNAVAILABLE


@pytest.mark.parametrize("use", ["actors", "epochs"])
@pytest.mark.parametrize("lost", [0, 1, 3])
async def test_a_lost_file_is_refused_without_the_count_too(tmp_path: Path, lost: int, use: str) -> None:
    shards = await SqliteJournals.open(tmp_path, 4)
    if use == "actors":
        for letter in LETTERS:
            await write(shards, identifier(letter))
    else:
        await shards.raise_epochs(range(ids.SHARDS))
    await shards.close()
    (tmp_path / f"{lost:02}.db").rename(tmp_path / "elsewhere")
    (tmp_path / "COUNT").unlink()
    for _ in range(2):
        with pytest.raises(WonderError, match=rf"0{lost}\.db is empty, not shard 0{lost} of 4\. Restore"):
            await SqliteJournals.open(tmp_path, 4)
    assert not (tmp_path / "COUNT").exists()
    (tmp_path / "elsewhere").replace(tmp_path / f"{lost:02}.db")
    shards = await SqliteJournals.open(tmp_path, 4)
    assert [await shards.head(identifier(letter)) for letter in "0123"] == [
        0 if use == "actors" else None
    ] * 4
    await shards.close()


@pytest.mark.parametrize("named", [0, 1, 3])
async def test_a_first_start_that_was_killed_goes_on(tmp_path: Path, named: int) -> None:
    for index in range(3):
        shard = await SqliteShard.open(tmp_path / f"{index:02}.db")
        if index < named:
            await shard.identify(index, 4)
        await shard.close()
    shards = await SqliteJournals.open(tmp_path, 4)
    assert [await shard.identity() for shard in shards.shards.files] == [(index, 4) for index in range(4)]
    await shards.close()
    assert (tmp_path / "COUNT").read_text() == "4\n"


async def test_the_number_of_files_is_flushed_before_and_after_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "shards"
    flushed: list[tuple[str, str]] = []
    fsync = os.fsync

    def recorded(handle: int) -> None:
        place = Path(os.readlink(f"/proc/self/fd/{handle}"))
        flushed.append((str(place.relative_to(tmp_path)), place.read_text() if place.is_file() else ""))
        if place.is_dir():
            assert (folder / "COUNT").exists()
        fsync(handle)

    monkeypatch.setattr(os, "fsync", recorded)
    for _ in range(2):
        await (await SqliteJournals.open(folder, 2)).close()
    assert flushed == [("shards/COUNT.new", "2\n"), ("shards", ""), (".", "")]


@pytest.mark.parametrize("stopped", [0, 1, 2])
async def test_used_files_without_identities_get_theirs_after_any_interruption(
    tmp_path: Path, stopped: int
) -> None:
    """Versions before 0.1.0 stored neither COUNT nor identities."""
    shards = await SqliteJournals.open(tmp_path, 3)
    await write(shards, identifier("1"))
    await shards.close()
    (tmp_path / "COUNT").unlink()
    for index in range(3):
        change(tmp_path / f"{index:02}.db", "DELETE FROM identity")
    file = tmp_path / f"{stopped:02}.db"
    change(
        file, "CREATE TRIGGER stop BEFORE INSERT ON identity BEGIN SELECT RAISE(ABORT, 'interrupted'); END"
    )
    with pytest.raises((WonderError, sqlite3.Error), match="interrupted"):
        await SqliteJournals.open(tmp_path, 3)
    change(file, "DROP TRIGGER stop")
    shards = await SqliteJournals.open(tmp_path, 3)
    assert await shards.head(identifier("1")) == 0
    await shards.close()


async def test_epochs_rise_at_each_opening_and_refuse_earlier_commits(tmp_path: Path) -> None:
    value = replace(conversation(1), id=identifier("Q"))
    for start in (1, 2, 3):
        shards = await SqliteJournals.open(tmp_path, 3)
        assert await shards.raise_epochs(range(ids.SHARDS)) == dict.fromkeys(range(ids.SHARDS), start)
        made, late = commit(value.id, put_conversation(value)), commit(value.id, put_conversation(value))
        made.epoch, late.epoch = start, start - 1
        accepted = shards.of(value.id).submit([made])
        refused = shards.of(value.id).submit([late])
        await accepted
        with pytest.raises(
            StaleEpochError, match=f"has epoch {start}, above that of the commit, {start - 1}"
        ):
            await refused
        await shards.close()


async def test_entries_of_earlier_versions_have_epoch_zero_and_their_seals_hold(tmp_path: Path) -> None:
    entry = Entry(1, 5, CancelTurn(turn_id="turn_1"), ())
    shards = await SqliteJournals.open(tmp_path, 1)
    file, actor = shards.files[0], identifier("0")
    await file.commit([commit(actor, put_conversation(replace(conversation(1), id=actor)), entries=(entry,))])

    def age(connection: sqlite3.Connection) -> None:
        """Give the entry the seal that it had before it had an epoch."""
        data, decisions = connection.execute("SELECT input, decisions FROM entries").fetchone()
        old = seal(("entries", actor, 1, 5), f"{data}\n{decisions}".encode())
        connection.execute("UPDATE entries SET seal = ?", (old,))

    await file.database.write(age)
    assert await file.entries(actor, 0, 9) == [entry]
    assert (await file.load(actor)) is not None
    # An epoch above 0 is sealed with the row.
    await file.database.write(lambda connection: connection.execute("UPDATE entries SET epoch = 7").rowcount)
    with pytest.raises(WonderError, match="is damaged"):
        await file.entries(actor, 0, 9)
    await shards.close()
    assert check_shard(tmp_path / "00.db").problems


async def test_the_check_finds_a_journal_whose_epochs_fall(tmp_path: Path) -> None:
    shards = await SqliteJournals.open(tmp_path, 1)
    actor = identifier("0")
    for sequence, epoch in enumerate((1, 1, 3, 2), start=1):
        entry = Entry(sequence, 5, CancelTurn(turn_id="turn_1"), ())
        made = commit(actor, put_conversation(replace(conversation(1), id=actor)), entries=(entry,))
        made.epoch = epoch
        await shards.of(actor).commit([made])
    await shards.close()
    assert check_shard(tmp_path / "00.db").problems == [
        f"{tmp_path.name}/00.db: the entry {actor}/4 has epoch 2, the one before it 3"
    ]
