"""The reads of steps: the attempts of a run's steps, page by page, and one of them.

A page has what the journal tells, in the order of its positions, and then what is open. What is
open may have ended by the next page: so each page begins with what is new in the journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from tenure.core import check, cursor, limits
from tenure.core.filter import query_text
from tenure.core.journal.entry import Entry, EntryKind
from tenure.core.run import step_attempt as rules
from tenure.core.run.step_attempt import StepAttempt, StepKind, StepRef, StepsOf
from tenure.engine.batch.damage_log import note_damage
from tenure.engine.read.query import Page, PageRequest, find_task, read, scan
from tenure.engine.read.run import find_run, run_named
from tenure.engine.task.handler import not_found
from tenure.errors import DataDamaged, NotFound
from tenure.store.table import child as child_table
from tenure.store.table import group as group_table
from tenure.store.table import journal as journal_table
from tenure.store.table import step as step_table
from tenure.store.table import task as task_table
from tenure.store.table import task_list
from tenure.store.table.step import StepPart
from tenure.store.transaction import Store, Tx

# How often a page asks for entries: most of them may turn out to be no attempts of their own.
_ROUNDS_MAX: Final = 5
_GROUPS_MAX: Final = 1_000


class _Wanted(msgspec.Struct, frozen=True):
    """What a list is of; its cursors are valid for nothing else."""

    run_id: str
    generation: int
    step_id: str


class _Place(msgspec.Struct, frozen=True, array_like=True):
    """How far a list has come: the last entry and the last open call, both as far as shown.

    A number is the attempt up to which a call is shown whose later attempts are not; 0 is all.
    """

    pos: int = 0
    number: int = 0
    open_id: str = ""
    open_number: int = 0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Place).decode


async def list_steps(
    store: Store, *, namespace: str, run_id: str, page: PageRequest, step_id: str = ""
) -> Page[StepAttempt]:
    """Return the attempts of a run's steps, or of one step, in the order of its journal."""
    run_id = await run_named(store, namespace=namespace, run_id=run_id)
    key = (check.namespace(namespace), check.task_id(run_id, "runId"))
    check.text(step_id, "stepId", bytes_max=limits.STEP_KEY_BYTES_MAX)
    size = check.page_size(page.size)

    async def body(tx: Tx) -> Page[StepAttempt]:
        of = StepsOf(*await find_run(tx, key))
        query = query_text("steps", _Wanted(of.run.id, of.generation, step_id))
        place = _Place()
        if page.token:
            given = cursor.decode(page.cursor_key, page.token, namespace=key[0], query=query)
            place = _decode(given)
        walk = _Walk(tx, of, step_id, place, size)
        await walk.go()
        token = ""
        if walk.has_more:
            position = _encode(walk.place).decode()
            token = cursor.encode(page.cursor_key, namespace=key[0], query=query, position=position)
        return Page(tuple(walk.found), token)

    try:
        return await scan(store, body)
    except msgspec.DecodeError:
        raise _damaged(run_id) from None


async def get_step(store: Store, *, namespace: str, step_attempt_id: str) -> StepAttempt:
    """Return one attempt, with its payloads."""
    ref = rules.read_id(step_attempt_id)
    key = (check.namespace(namespace), ref.run_id)

    async def body(tx: Tx) -> StepAttempt:
        of = StepsOf(*await find_run(tx, key))
        found = None
        if ref.generation == of.generation:
            found = await (_by_pos if ref.pos else _by_task)(tx, of, ref)
        if found is None:
            raise not_found("Step attempt", step_attempt_id)
        return found

    try:
        return await read(store, body)
    except NotFound:
        # Without a word about its run, which the caller has not named.
        raise not_found("Step attempt", step_attempt_id) from None
    except msgspec.DecodeError:
        raise _damaged(ref.run_id) from None


def _damaged(run_id: str) -> DataDamaged:
    message = f"An entry of the journal of run {run_id} is damaged, so its steps are not shown."
    return DataDamaged(message, reason="journal")


class _Walk:
    """Collects a page: first what the journal has behind a place, then what is open."""

    def __init__(self, tx: Tx, of: StepsOf, step_id: str, place: _Place, size: int) -> None:
        self._tx = tx
        self._of = of
        self._step_id = step_id
        self._size = size
        self._bytes_left = limits.JOURNAL_PAGE_BYTES_MAX
        self.place = place
        self.found: list[StepAttempt] = []
        self.has_more = False

    async def go(self) -> None:
        """Collect until the page is full or nothing is left."""
        journal_id = self._of.journal_id
        ends = await journal_table.read_ends(self._tx, [journal_id])
        end = ends[journal_id].pos if journal_id in ends else 0
        if await self._entries(end):
            await self._open()

    async def _entries(self, end: int) -> bool:
        """Collect from the journal; tell whether nothing of it is left."""
        upto = min(self.place.pos + limits.LISTED_SEEN_MAX, end)
        for _ in range(_ROUNDS_MAX):
            after = self.place.pos - (self.place.number > 0)
            if after >= upto:
                break
            part = StepPart(
                after=after,
                upto=upto,
                key=self._step_id,
                amount=self._room + 1,
                bytes_max=max(self._bytes_left, 0),
            )
            entries = await step_table.find_steps(self._tx, self._of.journal_id, part)
            if not entries:
                self.place = replace(self.place, pos=upto, number=0)
            elif not await self._take_entries(entries):
                return False
        self.has_more = self.place.pos < end
        return not self.has_more

    async def _take_entries(self, entries: Sequence[Entry]) -> bool:
        begun = [each for each in entries if each.kind is EntryKind.BEGUN]
        following = await step_table.find_following(self._tx, begun) if begun else {}
        for entry in entries:
            if entry.kind is EntryKind.BEGUN:
                last = rules.begun(self._of, entry, following.get(entry.pos))
            else:
                last = rules.recorded(self._of, entry)
            shown = self.place.number if entry.pos == self.place.pos else 0
            steps = [] if last is None else await self._with_earlier(last, shown)
            for step in steps:
                if not self._take(step):
                    return False
                number = 0 if step is last else step.number
                self.place = replace(self.place, pos=entry.pos, number=number)
            self.place = replace(self.place, pos=entry.pos, number=0)
        return True

    async def _open(self) -> None:
        """Collect what has not ended, in the order of ids."""
        behind, shown = self.place.open_id, self.place.open_number
        children, reached = await self._open_children()
        calls = [*children, *await self._open_maps(reached)]
        for last in sorted(calls, key=lambda each: each.place):
            call_id = last.task_id or last.place
            for step in await self._with_earlier(last, shown if call_id == behind else 0):
                if not self._take(step):
                    return
                number = 0 if step is last else step.number
                self.place = replace(self.place, open_id=call_id, open_number=number)
        if reached:
            self.place = replace(self.place, open_id=reached, open_number=0)
            self.has_more = True

    async def _open_maps(self, reached: str) -> list[StepAttempt]:
        """Read the next open maps, up to the id that is reached, or all."""
        groups = await group_table.read_open_groups(self._tx, [self._of.journal_id])
        return [
            rules.of_map(self._of, each)
            for each in groups
            if self.place.open_id < each.group_id <= (reached or each.group_id)
            and self._is_wanted(each.key)
        ]

    async def _open_children(self) -> tuple[list[StepAttempt], str]:
        """Read the next live children, and up to which id if there may be more."""
        behind = self.place.open_id
        key = (self._of.run.namespace, self._of.run.id)
        given = [(*key, behind or child_table.LOWEST_ID)]
        found = await child_table.read_children(self._tx, given, amount=limits.OPEN_PAGE_MAX)
        stored = found.get(key, [])
        reached = stored[-1].id if len(stored) == limits.OPEN_PAGE_MAX else ""
        ids = [behind] if self.place.open_number else []
        ids += [
            each.id
            for each in stored
            if each.place.journal_id == self._of.journal_id and self._is_wanted(each.place.key)
        ]
        # Each of them fills a line or more, so no page has room for further ones.
        tasks = await task_list.load_tasks(self._tx, key[0], ids[: self._room + 1])
        note_damage(tasks)
        live = [each for each in tasks if each.finished_at_ms is None]
        return [rules.of_child(self._of, each) for each in live], reached

    def _is_wanted(self, key: str) -> bool:
        return self._step_id in {"", key}

    async def _with_earlier(self, last: StepAttempt, shown: int) -> list[StepAttempt]:
        """Return the attempts of a call behind those that are shown, as many as have room."""
        if last.kind is not StepKind.CHILD or last.number <= 1:
            return [last]
        key = (self._of.run.namespace, last.task_id)
        earlier = await task_table.find_attempts(self._tx, key, after=shown, amount=self._room + 1)
        ended = [rules.ended_before(last, each) for each in earlier if each.number < last.number]
        return [*ended, last]

    @property
    def _room(self) -> int:
        return self._size - len(self.found)

    def _take(self, step: StepAttempt) -> bool:
        """Take an attempt into the page, unless that is full."""
        if not self._room or (self.found and self._bytes_left <= 0):
            self.has_more = True
            return False
        self.found.append(step)
        self._bytes_left -= step.size
        return True


async def _by_pos(tx: Tx, of: StepsOf, ref: StepRef) -> StepAttempt | None:
    """Return the attempt that stands at a position, or of which the beginning does."""
    entry = await _entry(tx, of, StepPart(after=ref.pos - 1, upto=ref.pos))
    if entry is None:
        return None
    if entry.kind is not EntryKind.BEGUN:
        return await _numbered(tx, of, rules.recorded(of, entry), ref)
    following = (await step_table.find_following(tx, [entry])).get(entry.pos)
    found = rules.begun(of, entry, following)
    if found is None and following is not None:
        found = rules.recorded(of, following)
    return await _numbered(tx, of, found, ref)


async def _by_task(tx: Tx, of: StepsOf, ref: StepRef) -> StepAttempt | None:
    """Return the attempt of a child or of a map by its id, also when it has ended meanwhile."""
    try:
        child = await find_task(tx, (of.run.namespace, ref.task_id))
    except NotFound:
        return await _numbered(tx, of, await _map(tx, of, ref.task_id), ref)
    place = child.place
    if place.journal_id != of.journal_id or place.group_id:
        return None
    return await _numbered(tx, of, rules.of_child(of, child), ref)


async def _map(tx: Tx, of: StepsOf, group_id: str) -> StepAttempt | None:
    run = (of.run.namespace, of.run.id)
    for group in await group_table.read_groups(tx, run, amount=_GROUPS_MAX):
        if group.group_id == group_id and group.journal_id == of.journal_id:
            if not group.has_ended:
                return rules.of_map(of, group)
            entry = await _entry(tx, of, StepPart(key=group.key))
            return None if entry is None else rules.recorded(of, entry)
    return None


async def _entry(tx: Tx, of: StepsOf, part: StepPart) -> Entry | None:
    found = await step_table.find_steps(tx, of.journal_id, part)
    return found[0] if found else None


async def _numbered(
    tx: Tx, of: StepsOf, last: StepAttempt | None, ref: StepRef
) -> StepAttempt | None:
    """Return the attempt of a step that is asked for, with its input."""
    if last is None or (last.kind is not StepKind.CHILD and ref.number is not None):
        return None
    if last.kind is StepKind.LOCAL:
        return await _with_input(tx, of, last)
    if last.kind is StepKind.MAP:
        return last
    key = (of.run.namespace, last.task_id)
    found = last
    if ref.number not in {None, last.number}:
        assert ref.number is not None
        some = await task_table.find_attempts(tx, key, after=ref.number - 1, amount=1)
        if not some or some[0].number != ref.number or ref.number > last.number:
            return None
        found = rules.ended_before(last, some[0])
    try:
        child = await find_task(tx, key)
    except NotFound:
        # It was kept long enough.
        return found
    return replace(found, input=child.input, input_encoding=child.spec.encoding)


async def _with_input(tx: Tx, of: StepsOf, step: StepAttempt) -> StepAttempt:
    """Return a local step with what its worker said of its input when it began, if it did."""
    for entry in await journal_table.read_of_key(tx, of.journal_id, step.step_id):
        if entry.kind is EntryKind.BEGUN and entry.content.output is not None:
            body = entry.content
            return replace(step, input=body.output, input_encoding=body.encoding)
    return step
