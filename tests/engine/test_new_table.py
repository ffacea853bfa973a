"""A new table with its command: two lists of the source know of it, and nothing else.

What the test puts in place of a branch is exactly what a branch brings: a file of statements for
each database, a row set with one line in ``lock_order``, and a spec with one line in
``command_table``. Load, decide, save and the engine are as they are.
"""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, Final
from unittest import mock

import msgspec
import pytest
from msgspec.structs import replace

from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.command import Command
from tenure.engine.command_spec import CommandSpec
from tenure.engine.command_table import SPECS
from tenure.engine.engine import Engine
from tenure.errors import NotFound, Unavailable
from tenure.store import statement
from tenure.store.failure import FenceLost
from tenure.store.table.lock_order import LOCK_ORDER, RowSets
from tenure.store.table.row_set import RowSet, Table
from tenure.store.table.task import TaskRows
from tenure.store.transaction import Tx
from tests.engine.world import World

TABLE_SQL: Final = "CREATE TABLE notes (name text PRIMARY KEY, body text, version integer)"
SQLITE_SQL: Final = """
-- name: insert_notes(name, body)
INSERT INTO notes (name, body, version) VALUES (:name, :body, 0) RETURNING name;

-- name: lock_notes(name)
SELECT name, body, version FROM notes WHERE name = :name;

-- name: update_notes(name, body, version)
UPDATE notes SET body = :body, version = version + 1
WHERE name = :name AND version = :version
RETURNING name;
"""
POSTGRES_SQL: Final = """
-- name: insert_notes(name, body)
INSERT INTO notes (name, body, version)
SELECT g.name, g.body, 0
FROM unnest(CAST(:name AS text[]), CAST(:body AS text[])) AS g (name, body)
RETURNING name;

-- name: lock_notes(name)
SELECT name, body, version FROM notes
WHERE name = ANY (CAST(:name AS text[]))
ORDER BY name
FOR UPDATE;

-- name: update_notes(name, body, version)
UPDATE notes AS n SET body = g.body, version = n.version + 1
FROM unnest(CAST(:name AS text[]), CAST(:body AS text[]), CAST(:version AS integer[]))
    AS g (name, body, version)
WHERE n.name = g.name AND n.version = g.version
RETURNING n.name;
"""


class Note(msgspec.Struct, frozen=True):
    name: str
    body: str
    version: int = 0


async def lock_notes(tx: Tx, names: Iterable[str]) -> list[Note]:
    rows: Sequence[Any] = await tx.each("lock_notes", [(each,) for each in sorted(names)])
    return [Note(*row) for row in rows]


async def insert_notes(tx: Tx, notes: Sequence[Note]) -> None:
    await tx.each("insert_notes", [(each.name, each.body) for each in notes])


async def update_notes(tx: Tx, notes: Sequence[Note]) -> None:
    rows = [(each.name, each.body, each.version) for each in notes]
    if await tx.fenced("update_notes", rows) != len(notes):
        raise FenceLost(frozenset())


class NoteRows(RowSet[str, Note]):
    """The one class that a table is."""

    table = Table(
        operator.attrgetter("name"), load=lock_notes, insert=insert_notes, update=update_notes
    )


class WriteNote(Command[str], frozen=True, kw_only=True):
    """Write a note, or write on; an empty text is refused."""

    name: str
    text: str


def write_note(ws: WorkingSet, command: WriteNote) -> str:
    notes = ws.rows[NoteRows]
    if not command.text:
        message = "There is nothing to write."
        raise NotFound(message)
    known = notes.get(command.name)
    if known is None:
        notes.add(Note(command.name, command.text))
    else:
        notes.put(replace(known, body=known.body + command.text))
    return notes[command.name].body


def want_note(needs: RowSets, command: WriteNote) -> None:
    needs[NoteRows].wanted.add(command.name)


@pytest.fixture(autouse=True)
def branch() -> Iterator[None]:
    """Add what a branch would: statements, a row set in front of the tasks, and a spec."""
    place = LOCK_ORDER.index(TaskRows)
    spec = CommandSpec(WriteNote, needs=want_note, handler=write_note)
    sqlite = {each.name: each for each in statement.parse(SQLITE_SQL, mark="?")}
    postgres = {each.name: each for each in statement.parse(POSTGRES_SQL, mark="$")}
    with (
        mock.patch.dict("tenure.store.sqlite.store._STATEMENTS", sqlite),
        mock.patch.dict("tenure.store.postgres.schema.STATEMENTS", postgres),
        mock.patch.dict(SPECS, {WriteNote: spec}),
    ):
        LOCK_ORDER.insert(place, NoteRows)
        try:
            yield
        finally:
            LOCK_ORDER.remove(NoteRows)


@pytest.fixture
async def noting(world: World) -> AsyncIterator[Engine]:
    await world.database.execute(TABLE_SQL)
    yield await world.start()
    await world.database.execute("DROP TABLE notes")


async def stored(world: World) -> list[tuple[Any, ...]]:
    return (await world.dump("notes"))["notes"]


async def test_a_new_table_is_loaded_decided_and_saved(world: World, noting: Engine) -> None:
    assert await noting.submit(WriteNote(name="a", text="one")) == "one"
    assert await noting.submit(WriteNote(name="a", text=" two")) == "one two"
    assert await stored(world) == [("a", "one two", 1)]


async def test_commands_of_one_batch_see_what_earlier_ones_did(
    world: World, noting: Engine
) -> None:
    await noting.submit(WriteNote(name="old", text="0"))
    names = ("old", "new", "old", "new")
    futures = [noting.submit(WriteNote(name=name, text="+")) for name in names]
    assert [await each for each in futures] == ["0+", "+", "0++", "++"]
    assert await stored(world) == [("new", "++", 0), ("old", "0++", 1)]


async def test_a_refusal_leaves_the_table_and_the_neighbours_alone(
    world: World, noting: Engine
) -> None:
    good = noting.submit(WriteNote(name="good", text="1"))
    bad = noting.submit(WriteNote(name="bad", text=""))
    assert await good == "1"
    with pytest.raises(NotFound):
        await bad
    assert await stored(world) == [("good", "1", 0)]


async def test_a_lost_fence_saves_nothing(world: World, noting: Engine) -> None:
    await noting.submit(WriteNote(name="a", text="1"))
    with (
        mock.patch.object(NoteRows, "table", NoteRows.table._replace(update=_lose)),
        pytest.raises(Unavailable),
    ):
        await noting.submit(WriteNote(name="a", text="2"))
    assert await stored(world) == [("a", "1", 0)]


async def _lose(tx: Tx, notes: Sequence[Note]) -> None:
    await update_notes(tx, notes)
    raise FenceLost(frozenset())
