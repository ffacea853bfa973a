"""Invariants of journals and of runs that wait, with journals as lists for a reference."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from tenure.core.journal.entry import Entry, EntryKind, JournalPage
from tenure.core.journal.numbering import size_of
from tenure.core.run.record import RunProgress
from tenure.core.task.record import Task, TaskKind, TaskState
from tenure.engine.run.command import StepReport
from tenure.store.table.journal import Place
from tests.sim.child_rule import ChildRules
from tests.sim.run_book import journal_of
from tests.sim.trace import Violation, short

if TYPE_CHECKING:
    from tests.sim.world import World

Key = tuple[str, str]
Change = tuple[Task | None, Task]
Read = Callable[[str, int], Iterable[Entry]]
_URGENT: Final = (EntryKind.SIGNAL, EntryKind.CANCEL, EntryKind.GROUP)
_OF_CHILDREN: Final = (EntryKind.CHILD, EntryKind.GROUP)
# Of a step, a timer, a child and a group there is one call, so there is one end of it.
_ONCE: Final = (EntryKind.STEP, EntryKind.TIMER, EntryKind.CANCEL, *_OF_CHILDREN)


class JournalRules:
    """The journals of a world as they were seen to grow."""

    def __init__(self, world: World, read: Read) -> None:
        self._world = world
        self._read = read
        self.entries: dict[str, list[Entry]] = defaultdict(list)
        self._journals_of: dict[Key, dict[str, None]] = defaultdict(dict)
        self._renewed: dict[Key, set[int]] = defaultdict(set)
        self._last_no: Counter[tuple[str, int]] = Counter()
        self._seen: set[tuple[str, EntryKind, str]] = set()
        self._signals: Counter[tuple[str, bytes | None]] = Counter()
        self._place_of: dict[tuple[str, bytes | None], tuple[str, int]] = {}
        self._overdue_since_ms: dict[Key, float] = {}
        self._owners: dict[str, Key] = {}
        self.children = ChildRules(world, self, read)

    def owner_of(self, journal_id: str) -> Key | None:
        """Return the run that has, or had, a journal."""
        return self._owners.get(journal_id)

    def committed(self, changes: Iterable[Change], live: Iterable[Task]) -> None:
        """Check what a commit has appended, and what it has made of runs and children."""
        changes = list(changes)
        changed = {new.id: (old, new) for old, new in changes if new.kind is TaskKind.WORKFLOW}
        for task in live:
            if task.kind is TaskKind.WORKFLOW and task.id not in changed:
                changed[task.id] = (task, task)
        for old, new in changed.values():
            if new.link is None:
                continue
            is_longer = self._grow(old, new)
            if is_longer or old is not new:
                self._check(new)
        self.children.committed(changes)

    def _grow(self, old: Task | None, new: Task) -> bool:
        """Take in new entries; a run that begins anew may have some in its old journal."""
        journals = {journal_of(new): None}
        if old is not None:
            journals = {journal_of(old): None, **journals}
        if old is not None and journal_of(old) != journal_of(new):
            self._renewed[_key(new)].add(old.attempt)
        self._journals_of[_key(new)].update(journals)
        for journal_id in journals:
            self._owners[journal_id] = _key(new)
        if old is not None and self.is_continued(old, new):
            self._carry(old, new)
        count = 0
        for journal_id in journals:
            known = self.entries[journal_id]
            for entry in self._read(journal_id, len(known)):
                self._appended(entry, old, new, known)
                known.append(entry)
                count += 1
        return count > 0

    def is_continued(self, old: Task, new: Task) -> bool:
        """Tell whether a run has begun anew because its holder said so, and not by a failure."""
        if old.kind is not TaskKind.WORKFLOW or journal_of(old) == journal_of(new):
            return False
        said = [each for each in self._world.request_log.finishes_of(old) if each.anew is not None]
        return bool(said) and self._world.checker.ended(_key(old), old.attempt) is None

    def _carry(self, old: Task, new: Task) -> None:
        """Check that a run that begins anew takes along each signal that it has not taken."""
        said = self._world.request_log.finishes_of(old)
        wishes = [each.anew for each in said if each.anew is not None]
        for entry in self._read(journal_of(old), len(self.entries[journal_of(old)])):
            self.entries[journal_of(old)].append(entry)
        expected = [
            entry
            for entry in self.entries[journal_of(old)]
            if entry.kind in (EntryKind.SIGNAL, EntryKind.CANCEL)
            and (
                entry.pos > wishes[-1].seen
                or (entry.kind is EntryKind.SIGNAL and entry.pos in wishes[-1].keep)
            )
        ]
        carried = list(self._read(journal_of(new), 0))
        is_kept = [_content(each) for each in carried[: len(expected)]]
        if is_kept != [_content(each) for each in expected]:
            names = [f"{each.pos} {each.kind.name}" for each in expected]
            self._fail(f"has begun anew without all of {names}", new)
        for entry in expected:
            if entry.kind is EntryKind.SIGNAL:
                self._signals[new.id, entry.content.output] -= 1

    # -- Entries -------------------------------------------------------------------------------

    def _appended(self, entry: Entry, old: Task | None, new: Task, known: list[Entry]) -> None:
        self._world.note(
            f"run {short(new.id)} {entry.pos}: {entry.kind.name} {entry.key} of {entry.attempt}"
        )
        if entry.pos != len(known) + 1:
            self._fail(f"has position {entry.pos} after {len(known)}", new)
        total_bytes = known[-1].total_bytes if known else 0
        if entry.total_bytes != total_bytes + size_of(entry.key, entry.body):
            self._fail(f"counts wrongly at {entry.pos}", new)
        if old is not None and old.finished_at_ms is not None:
            self._fail(f"is over and got {entry.kind.name} {entry.key}", new)
        if entry.kind in _ONCE:
            name = (entry.journal_id, entry.kind, entry.key)
            if name in self._seen:
                self._fail(f"has {entry.kind.name} {entry.key} twice", new)
            self._seen.add(name)
        if entry.attempt:
            self._check_reported(entry, old, new)
        else:
            self._check_own(entry, old, new)

    def _check_reported(self, entry: Entry, old: Task | None, new: Task) -> None:
        """Only the holder of a run appends, each entry once and in its order."""
        name = f"{entry.kind.name} {entry.key} by {entry.attempt}"
        if old is None or not old.is_attempt_live or old.attempt != entry.attempt:
            self._fail(f"took {name}, which is not live", new)
            return
        said = (*_key(old), old.worker_id, entry.attempt, entry.no)
        if (entry.kind, entry.key, entry.content) not in self._world.request_log.steps[said]:
            self._fail(f"took {name}, but its holder did not say so", new)
        if entry.kind is EntryKind.TIMER and entry.content.fire_at_ms > entry.at_ms:
            self._fail(f"took {name} before its time", new)
        last = (entry.journal_id, entry.attempt)
        if entry.no != self._last_no[last] + 1:
            self._fail(f"took {name} as {entry.no} after {self._last_no[last]}", new)
        self._last_no[last] = entry.no

    def _check_own(self, entry: Entry, old: Task | None, new: Task) -> None:
        log = self._world.request_log
        if entry.kind is EntryKind.SIGNAL:
            signal = (new.id, entry.content.output)
            self._signals[signal] += 1
            self._place_of[signal] = (entry.journal_id, entry.pos)
            if self._signals[signal] > 1:
                self._fail(f"has signal {signal[1]!r} twice", new)
            if signal[1] not in log.signals[_key(new)]:
                self._fail("has a signal that nobody has sent", new)
        elif entry.kind is EntryKind.CANCEL:
            if _key(new) not in log.cancelled:
                self._fail("is to be cancelled, but nobody asked for it", new)
        elif entry.kind is EntryKind.TIMER:
            self._check_fired(entry, old, new)
        elif entry.kind in _OF_CHILDREN:
            wrong = self.children.appended(entry, new)
            if wrong is not None:
                self._fail(wrong, new)
        else:
            self._fail(f"has a {entry.kind.name} of the server's", new)

    def _check_fired(self, entry: Entry, old: Task | None, new: Task) -> None:
        run = old.progress.run if old is not None else None
        if old is None or run is None:
            self._fail(f"did not wait for {entry.key}", new)
            return
        waited = [(run.wake_key, run.wake_index, run.wake_at_ms)]
        if old.state is not TaskState.WAITING:
            # It yielded in this batch, with what its holder has reported.
            finishes = self._world.request_log.finishes_of(old)
            wishes = [each.wish for each in finishes if each.wish is not None]
            waited = [(each.wake_key, each.wake_index, each.wake_at_ms) for each in wishes]
        instants = [at for *which, at in waited if which == [entry.key, entry.content.index]]
        if not instants:
            self._fail(f"did not wait for {entry.key}", new)
        elif min(instants) > self._world.clock.now_ms():
            self._fail(f"was woken for {entry.key} too early", new)

    # -- Runs ----------------------------------------------------------------------------------

    def _check(self, task: Task) -> None:
        """Check what must hold of a run after each commit."""
        entries = self.entries[journal_of(task)]
        is_told = any(each.kind is EntryKind.CANCEL for each in entries)
        if task.is_cancel_requested and task.attempt and not is_told:
            self._fail("never hears of its cancel request", task)
        run = task.progress.run
        if task.finished_at_ms is not None or task.state is not TaskState.WAITING or run is None:
            return
        if run.park is None:
            self._check_news(task, run, entries[run.seen :])
        elif task.is_cancel_requested:
            self._fail("is parked although it is to be cancelled", task)
        instants = (run.wake_at_ms, run.news_at_ms, task.spec.close_at_ms)
        if task.due_at_ms != min((each for each in instants if each), default=None):
            self._fail(f"waits for {instants}, and is due at {task.due_at_ms}", task)

    def _check_news(self, task: Task, run: RunProgress, news: list[Entry]) -> None:
        """Whatever is appended to a waiting run wakes it within its patience."""
        if not news:
            return
        latest_ms = news[0].at_ms + run.patience_ms
        if any(map(_is_urgent, news)) or len(news) >= run.patience_n:
            self._fail(f"sleeps on after {news[-1].kind.name} {news[-1].key}", task)
        if not 0 < run.news_at_ms <= latest_ms:
            self._fail(f"hears of {news[0].key} at {run.news_at_ms}, not {latest_ms}", task)

    def may_wake(self, old: Task) -> bool:
        """Tell whether there is a reason why a waiting run does not wait any more."""
        run, key, log = old.progress.run, _key(old), self._world.request_log
        assert run is not None
        instants = [each for each in (run.wake_at_ms, run.news_at_ms) if each]
        if key in log.cancelled or min(instants, default=2**60) <= self._world.clock.now_ms():
            return True
        if run.park is not None:
            return key in log.resumed
        return len(self.entries[journal_of(old)]) > run.seen

    def is_behind(self, task: Task) -> bool:
        """Tell whether a run has not seen all of its journal."""
        run = task.progress.run
        return run is not None and len(self.entries[journal_of(task)]) > run.seen

    def check_page(self, task: Task) -> None:
        """Check what a worker gets of a journal with the run."""
        page = task.link.page if task.link is not None else None
        run = task.progress.run
        if page is None or run is None:
            self._fail("was handed out without a page", task)
            return
        if page.after not in (0, run.seen if run.home_worker_id == task.worker_id else 0):
            self._fail(f"was handed out from {page.after} on", task)
        self.check_entries(task, page)

    def check_entries(self, task: Task, page: JournalPage) -> None:
        """Check that a page is a part of the journal."""
        entries = self.entries[journal_of(task)]
        is_same = list(page.entries) == entries[page.after : page.after + len(page.entries)]
        if not is_same or page.end > len(entries) or page.after + len(page.entries) > page.end:
            self._fail(f"has another page after {page.after}: {page}", task)

    def check_places(self, key: Key, item: StepReport, places: tuple[Place, ...]) -> None:
        """Check that entries stand where their reporter was told that they do."""
        told = [(each.no, each.pos, each.at_ms) for each in places]
        numbers = range(item.first_no, item.first_no + len(item.entries))
        journals = self._journals_of[key]
        kept = [
            (each.no, each.pos, each.at_ms)
            for journal_id in journals
            for each in self.entries[journal_id]
            if each.attempt == item.attempt and each.no in numbers
        ]
        # What a run has recorded goes when it begins anew, maybe in the same commit.
        is_gone = item.attempt in self._renewed[key] and told[: len(kept)] == kept
        if told != kept and not is_gone:
            message = f"run {short(key[1])}#{item.attempt} was told {told}, and has {kept}"
            raise Violation(message, key[1])

    def check_signal(self, key: Key, payload: bytes | None) -> None:
        """Check that a signal is recorded, unless the run has begun anew since then."""
        run_id = key[1]
        if self._signals[run_id, payload] != 1 and not self._renewed[key]:
            raise Violation(f"the acknowledged {payload!r} of {short(run_id)} is lost", run_id)

    def check_order(self, run_id: str, payloads: list[bytes | None]) -> None:
        """Check that signals stand in the order in which they were sent; some may be gone."""
        known = [self._place_of.get((run_id, each)) for each in payloads]
        places = [each for each in known if each is not None]
        present = [pos for journal_id, pos in places if journal_id == places[-1][0]]
        if present != sorted(present):
            message = f"signals {payloads} of run {short(run_id)} are at {present}"
            self._world.fail(Violation(message, run_id))

    def reported_count(self, task: Task) -> int:
        """Return how many entries the present attempt of a run has reported."""
        return self._last_no[journal_of(task), task.attempt] if task.link is not None else 0

    def watch(self, live: dict[Key, Task]) -> None:
        """Check that no run sleeps for too long."""
        world = self._world
        is_served = all(each.is_up and not each.is_stopped for each in world.servers)
        overdue = self._overdue_since_ms
        for key, task in live.items():
            is_due = task.due_at_ms is not None and task.due_at_ms <= world.clock.now_ms()
            if not (is_served and is_due and task.state is TaskState.WAITING):
                overdue.pop(key, None)
                continue
            since_ms = max(overdue.setdefault(key, world.now_ms), world.troubled_at_ms)
            if task.kind is TaskKind.WORKFLOW and world.now_ms - since_ms > 2 * world.slack_ms:
                self._fail("is not woken", task)

    def verify(self) -> None:
        """Check that no entry was changed or lost, and nothing was appended to what is over."""
        for key, task in self._world.checker.finished.items():
            if task.kind is not TaskKind.WORKFLOW or task.link is None:
                continue
            known = self.entries[journal_of(task)]
            if list(self._read(journal_of(task), 0)) != known:
                raise Violation(f"the journal of run {short(key[1])} was changed", key[1])
            for journal_id in self._journals_of[key]:
                if journal_id != journal_of(task) and list(self._read(journal_id, 0)):
                    raise Violation(f"an old journal of run {short(key[1])} is left", key[1])

    def _fail(self, what: str, task: Task) -> None:
        message = f"run {short(task.id)}#{task.attempt} ({task.state}) {what}"
        raise Violation(message, task.id, task.worker_id or "")


def _is_urgent(entry: Entry) -> bool:
    is_failure = entry.kind is EntryKind.CHILD and entry.content.state != "succeeded"
    return is_failure or entry.kind in _URGENT


def _content(entry: Entry) -> tuple[EntryKind, str, bytes | None]:
    return entry.kind, entry.key, entry.content.output


def _key(task: Task) -> Key:
    return (task.namespace, task.id)
