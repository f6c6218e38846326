"""The writer under every SQLite store: group commit, isolation of writes, migrations, failures."""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from wonder_server.adapters.sqlite.database import Database
from wonder_server.core.errors import Reason, WonderError

SCHEMA = [
    (
        "0001 notes",
        "CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);",
    ),
    (
        "0002 links",
        """
        CREATE TABLE links (note INTEGER REFERENCES notes (id) DEFERRABLE INITIALLY DEFERRED);
        CREATE TRIGGER t AFTER DELETE ON notes BEGIN DELETE FROM links WHERE note = old.id; END;
        """,
    ),
]


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await Database.open(tmp_path / "notes.db", SCHEMA)
    yield opened
    await opened.close()


def note(text: str) -> Callable[[sqlite3.Connection], int]:
    def insert(connection: sqlite3.Connection) -> int:
        return connection.execute("INSERT INTO notes (text) VALUES (?)", (text,)).lastrowid or 0

    return insert


def texts(connection: sqlite3.Connection) -> list[str]:
    return [row[0] for row in connection.execute("SELECT text FROM notes ORDER BY id")]


async def hold(database: Database) -> Callable[[], None]:
    """Keep the writer thread busy until the returned function is called."""
    gate, is_held = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait(_: sqlite3.Connection) -> None:
        loop.call_soon_threadsafe(is_held.set)
        gate.wait(10)

    waiting = asyncio.ensure_future(database.read(wait))
    await is_held.wait()  # Otherwise the thread could take the first write before.

    def release() -> None:
        gate.set()
        waiting.add_done_callback(lambda _: None)

    return release


async def test_a_write_returns_what_its_function_returned_and_is_on_disk(
    tmp_path: Path,
) -> None:
    first = await Database.open(tmp_path / "notes.db", SCHEMA)
    assert await first.write(note("one")) == 1
    await first.close()
    second = await Database.open(tmp_path / "notes.db", SCHEMA)
    assert await second.read(texts) == ["one"]
    await second.close()


async def test_writes_that_wait_together_share_one_commit_in_the_order_they_came(
    database: Database,
) -> None:
    release = await hold(database)
    writes = [database.submit(note(f"n{i}")) for i in range(50)]
    release()
    assert await asyncio.gather(*writes) == list(range(1, 51))
    assert database.commits == 1
    assert await database.read(texts) == [f"n{i}" for i in range(50)]


async def test_a_write_that_raises_is_undone_alone_and_only_its_caller_gets_the_error(
    database: Database,
) -> None:
    def half(connection: sqlite3.Connection) -> None:
        note("half")(connection)
        raise LookupError("stop here")

    release = await hold(database)
    writes = [database.submit(fn) for fn in (note("a"), half, note("a"), note("b"))]
    release()
    results = await asyncio.gather(*writes, return_exceptions=True)
    assert results[0] == 1
    assert isinstance(results[1], LookupError)
    assert isinstance(results[2], sqlite3.IntegrityError)
    assert not isinstance(results[3], BaseException)
    assert database.commits == 1
    assert await database.read(texts) == ["a", "b"]


async def test_a_write_passes_a_burst_of_reads_and_all_are_answered(database: Database) -> None:
    """A thousand small lists would otherwise delay the commit of every turn by all of their time."""
    order: list[str] = []

    def read(connection: sqlite3.Connection, name: str) -> list[str]:
        time.sleep(0.002)  # The reads take longer together than one slice of them.
        order.append(name)
        return texts(connection)

    def write(connection: sqlite3.Connection) -> int:
        order.append("write")
        return note("a")(connection)

    release = await hold(database)
    names = [f"r{number}" for number in range(150)]
    reads = [asyncio.ensure_future(database.read(partial(read, name=name))) for name in names]
    await asyncio.sleep(0)
    written = database.submit(write)
    after = asyncio.ensure_future(database.read(partial(read, name="after")))
    await asyncio.sleep(0)
    release()
    assert await written == 1
    found = await asyncio.gather(*reads)
    assert await after == ["a"]
    place = order.index("write")
    assert 0 < place < len(names), "some reads before the write, not all"
    assert [name for name in order if name.startswith("r")] == names
    # Each read sees what was committed when it ran.
    assert found == [[]] * place + [["a"]] * (len(names) - place)


class Together:
    """Notes that one call writes, for any number of writes."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def __call__(self, connection: sqlite3.Connection, found: list[str]) -> int:
        self.calls.append(found)
        for text in found:
            note(text)(connection)
            if text == "broken":
                raise LookupError("stop here")
        return len(found)


async def test_adjacent_writes_of_one_kind_share_one_call(database: Database) -> None:
    one, other = Together(), Together()
    release = await hold(database)
    writes = [
        database.submit_with(one, ["a"]),
        database.submit_with(one, ["b", "c"]),
        database.submit(note("d")),
        database.submit_with(one, ["e"]),
        database.submit_with(other, ["f"]),
    ]
    release()
    assert await asyncio.gather(*writes) == [3, 3, 4, 1, 1]
    assert (one.calls, other.calls) == ([["a", "b", "c"], ["e"]], [["f"]])
    assert database.commits == 1
    assert await database.read(texts) == ["a", "b", "c", "d", "e", "f"]


async def test_after_a_failed_group_each_write_is_tried_alone(database: Database) -> None:
    together = Together()
    release = await hold(database)
    writes = [database.submit_with(together, [text]) for text in ("a", "broken", "b", "a", "c")]
    release()
    results = await asyncio.gather(*writes, return_exceptions=True)
    assert [type(result) for result in results] == [int, LookupError, int, sqlite3.IntegrityError, int]
    assert together.calls[1:] == [["a"], ["broken"], ["b"], ["a"], ["c"]]
    assert database.commits == 1
    assert await database.read(texts) == ["a", "b", "c"]


@pytest.mark.parametrize("kinds", [*product(("alone", "together"), repeat=3)])
async def test_writes_that_raise_do_not_affect_the_others(database: Database, kinds: tuple[str, ...]) -> None:
    """The first write of a transaction is undone in another way than later ones."""
    together, expected = Together(), list[str]()

    def alone(text: str) -> Callable[[sqlite3.Connection], int]:
        return lambda connection: together(connection, [text])

    for broken in product((False, True), repeat=3):
        names = ["broken" if bad else f"{broken} {at}" for at, bad in enumerate(broken)]
        release = await hold(database)
        writes = [
            database.submit(alone(name)) if kind == "alone" else database.submit_with(together, [name])
            for kind, name in zip(kinds, names, strict=True)
        ]
        release()
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert [isinstance(result, LookupError) for result in results] == list(broken)
        expected += [name for name in names if name != "broken"]
        assert await database.read(texts) == expected


async def test_a_read_sees_every_write_submitted_before_it(database: Database) -> None:
    release = await hold(database)
    early = asyncio.ensure_future(database.read(texts))
    await asyncio.sleep(0)  # Queues the write.
    write = database.submit(note("one"))
    late = asyncio.ensure_future(database.read(texts))
    await asyncio.sleep(0)
    release()
    assert await early == []
    assert await late == ["one"]
    assert await write == 1


async def test_no_result_is_delivered_before_the_commit(database: Database) -> None:
    """A second connection finds the write in the file by the time its caller gets the result."""
    commits: list[int] = []
    write = database.submit(note("one"))
    write.add_done_callback(lambda _: commits.append(database.commits))
    await write
    await asyncio.sleep(0)
    assert commits == [1]


async def test_a_commit_that_fails_fails_all_its_writes_and_the_next_one_works(
    database: Database,
) -> None:
    def dangling(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO links (note) VALUES (999)")  # SQLite checks this at COMMIT.

    release = await hold(database)
    writes = [database.submit(fn) for fn in (note("a"), dangling)]
    release()
    for result in await asyncio.gather(*writes, return_exceptions=True):
        assert isinstance(result, WonderError)
        assert result.fault.reason is Reason.STORAGE_UNAVAILABLE
        assert result.fault.transient
    assert database.commits == 0
    await database.write(note("b"))
    assert await database.read(texts) == ["b"]


async def test_a_full_disk_is_storage_unavailable_and_passes(
    database: Database,
) -> None:
    await database.write(note("before"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = (database.path.parent / "notes.db-wal").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        with pytest.raises(WonderError) as caught:
            await database.write(note("x" * 100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.fault.reason is Reason.STORAGE_UNAVAILABLE
    assert caught.value.fault.transient
    assert "notes.db" not in caught.value.fault.message
    await database.write(note("after"))
    assert await database.read(texts) == ["before", "after"]


async def test_a_full_disk_fails_the_transaction_and_keeps_earlier_commits(
    database: Database,
) -> None:
    """SQLite rolls back the whole transaction if there is no space for a page."""

    def pages(most: int) -> Callable[[sqlite3.Connection], object]:
        return lambda connection: connection.execute(f"PRAGMA max_page_count = {most}").fetchone()

    async def written(*names: str) -> list[bool]:
        release = await hold(database)
        writes = [database.submit(note(name)) for name in names]
        release()
        return [
            isinstance(result, WonderError)
            for result in await asyncio.gather(*writes, return_exceptions=True)
        ]

    await database.read(pages(20))
    assert await written("x" * 100_000, "a", "b") == [True, False, False]
    assert await written("c", "x" * 100_000, "d") == [True, True, False]
    await database.read(pages(1000))
    assert await written("e", "x" * 100_000) == [False, False]
    assert [text[0] for text in await database.read(texts)] == ["a", "b", "d", "e", "x"]


async def test_a_read_that_writes_is_a_bug_and_says_so(database: Database) -> None:
    with pytest.raises(AssertionError, match="write"):
        await database.read(note("sneaked in"))


async def test_a_cancelled_caller_does_not_affect_the_others(
    database: Database,
) -> None:
    release = await hold(database)
    lost = asyncio.ensure_future(database.write(note("lost")))
    await asyncio.sleep(0)
    kept = database.submit(note("kept"))
    lost.cancel()
    release()
    await kept
    assert await database.read(texts) == ["lost", "kept"]
    with pytest.raises(asyncio.CancelledError):
        await lost


async def test_close_finishes_submitted_writes_and_rejects_later_ones(
    tmp_path: Path,
) -> None:
    database = await Database.open(tmp_path / "notes.db", SCHEMA)
    write = database.submit(note("last"))
    await database.close()
    await database.close()
    assert await write == 1
    with pytest.raises(WonderError) as caught:
        await database.write(note("late"))
    assert caught.value.fault.reason is Reason.STORAGE_UNAVAILABLE
    assert os.listdir(tmp_path) == ["notes.db"], "close has checkpointed the WAL"


async def test_migrations_run_once_and_new_ones_are_added(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    await (await Database.open(path, SCHEMA[:1])).close()
    database = await Database.open(path, SCHEMA)
    names = await database.read(lambda c: c.execute("SELECT name FROM migrations").fetchall())
    assert names == [("0001 notes",), ("0002 links",)]
    await database.close()


async def test_a_migration_that_fails_leaves_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    broken = [
        *SCHEMA[:1],
        ("0002 bad", "CREATE TABLE more (id); INSERT INTO nowhere VALUES (1);"),
    ]
    with pytest.raises(WonderError) as caught:
        await Database.open(path, broken)
    assert caught.value.fault.reason is Reason.STORAGE_UNAVAILABLE
    database = await Database.open(path, SCHEMA)
    tables = await database.read(lambda c: c.execute("SELECT name FROM sqlite_schema").fetchall())
    assert ("more",) not in tables
    await database.close()


async def test_a_file_of_a_newer_version_is_refused_in_plain_words(
    tmp_path: Path,
) -> None:
    path = tmp_path / "notes.db"
    await (await Database.open(path, SCHEMA)).close()
    with pytest.raises(WonderError, match="newer version"):
        await Database.open(path, SCHEMA[:1])


async def test_a_second_connection_to_the_same_file_is_refused(
    database: Database,
) -> None:
    def peek() -> None:
        other = sqlite3.connect(database.path, timeout=0)
        try:
            other.execute("SELECT * FROM notes").fetchall()
        finally:
            other.close()

    with pytest.raises(sqlite3.OperationalError, match="locked"):
        peek()


async def test_a_file_that_is_no_database_is_refused_in_plain_words(
    tmp_path: Path,
) -> None:
    path = tmp_path / "notes.db"
    path.write_bytes(b"not a database, but long enough to be looked at " * 100)
    with pytest.raises(WonderError, match="damaged") as caught:
        await Database.open(path, SCHEMA)
    assert caught.value.fault.reason is Reason.STORAGE_UNAVAILABLE
    assert not caught.value.fault.transient


# --- a full disk --------------------------------------------------------------------------------------


async def filled_and_emptied(database: Database, kept: int) -> int:
    """Write about a megabyte and delete all but ``kept`` notes. Return the size of the file."""

    def fill(connection: sqlite3.Connection) -> None:
        rows = [(f"{number} {'x' * 4_000}",) for number in range(256)]
        connection.executemany("INSERT INTO notes (text) VALUES (?)", rows)

    def empty(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM notes WHERE id > ?", (kept,))

    await database.write(fill)
    await database.write(empty, frees_space=True)
    return await database.read(
        lambda connection: connection.execute(
            "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
        ).fetchone()[0]
    )


async def test_shrinking_releases_deleted_pages_and_keeps_the_rest(database: Database) -> None:
    size = await filled_and_emptied(database, kept=3)
    given = await database.shrink(1 << 20)
    assert given > size * 3 // 4
    assert database.path.stat().st_size == size - given
    assert database.path.with_name("notes.db-wal").stat().st_size == 0
    assert [text.split()[0] for text in await database.read(texts)] == ["0", "1", "2"]
    assert await database.read(lambda c: c.execute("PRAGMA integrity_check").fetchone()[0]) == "ok"
    await database.write(note("after"))
    assert await database.shrink(1 << 20) == 0, "no unused pages are left"


async def test_shrinking_is_skipped_for_little_gain_or_too_little_space(database: Database) -> None:
    size = await filled_and_emptied(database, kept=240)
    assert await database.shrink(1 << 30) == 0, "most pages are used"
    await database.write(lambda c: c.execute("DELETE FROM notes WHERE id > 100").rowcount, frees_space=True)
    assert await database.shrink(4_096) == 0, "the used pages do not fit into the free space"
    assert await database.shrink(1 << 20) > 0
    assert database.path.stat().st_size < size


async def test_shrinking_that_fails_keeps_everything_and_says_so(database: Database) -> None:
    await filled_and_emptied(database, kept=100)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8_192, before[1]))
    try:
        with pytest.raises(WonderError) as refused:
            await database.shrink(1 << 20)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert refused.value.fault.reason is Reason.STORAGE_UNAVAILABLE
    assert refused.value.fault.transient
    assert len(await database.read(texts)) == 100
    await database.write(note("after"))
    assert await database.shrink(1 << 20) > 0


async def test_the_log_is_checkpointed_at_its_limit(database: Database) -> None:
    async def write_pages(count: int) -> int:
        """Write this many pages in commits of one page, and return the bytes of the log."""
        for _ in range(count):
            await database.write(note(os.urandom(3_000).hex()))
        return database.log_bytes()

    assert await write_pages(40) > 40 * 4096
    await database.limit_log(8 * 4096)
    # The first commit after a checkpoint truncates the log to `journal_size_limit`, which is 96 pages longer.
    assert await write_pages(120) < (8 + 96 + 16) * 4096
    await database.limit_log(None)
    assert await write_pages(120) > (8 + 96 + 16) * 4096


async def test_damage_with_an_undecodable_sqlite_message_is_reported_plainly(
    tmp_path: Path,
) -> None:
    path = tmp_path / "notes.db"
    await (await Database.open(path, SCHEMA)).close()
    path.write_bytes(path.read_bytes().replace(b"tablelinks", b"tablelin\xffs"))
    with pytest.raises(WonderError) as refused:
        await Database.open(path, SCHEMA)
    assert refused.value.fault.reason is Reason.STORAGE_UNAVAILABLE
    assert refused.value.fault.message.startswith("The store notes.db is damaged")


async def test_invalid_text_is_read_with_replacement_characters(database: Database) -> None:
    await database.write(
        lambda connection: (
            connection.execute("INSERT INTO notes (text) VALUES (CAST(x'61ff62' AS TEXT))").rowcount
        )
    )
    assert await database.read(texts) == ["a\N{REPLACEMENT CHARACTER}b"]


async def test_an_undecodable_column_name_is_damage_of_the_store(database: Database) -> None:
    with pytest.raises(WonderError) as refused:
        await database.read(lambda _: b"\xff".decode())
    assert refused.value.fault.reason is Reason.STORAGE_UNAVAILABLE
    assert "notes.db is damaged" in refused.value.fault.message
