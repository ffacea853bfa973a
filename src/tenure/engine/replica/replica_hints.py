"""Hints between servers: where there is work, news for a worker or a run, a result.

A hint is a line of text: its kind and its subject. A kind without a subject means that there are
too many: read everything. Hints are sent together, separate from the lanes. A lost hint costs a
second, never work: every receiver also reads at an interval.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Iterable, Iterator

import msgspec
import structlog

from tenure.core import change_hint
from tenure.core.change_hint import ALL_KINDS, EventKind, Hint
from tenure.core.limits import (
    EVENTS_TOLD_MAX,
    NOTIFY_BYTES_MAX,
    NOTIFY_KIND_BYTES_MAX,
    NOTIFY_MS,
    RESULTS_WANTED_MS,
)
from tenure.engine.claim.offer import Group
from tenure.engine.store_outage import StoreOutage
from tenure.store.table.task import TaskKey
from tenure.store.transaction import Store

log = structlog.get_logger("tenure.engine")


class HintKind(enum.StrEnum):
    """The kind of a hint."""

    QUEUE = "queue"
    WORKER = "worker"
    RESULT = "result"
    RUN = "run"
    WANT = "want"
    EVENT = "event"
    ACCESS = "access"
    SCHEDULE = "schedule"

    # Enum's own hash is a Python function.
    __hash__ = str.__hash__


class Heard(msgspec.Struct):
    """The content of a message; ``everything`` names the kinds that have too many hints."""

    queues: list[Group] = msgspec.field(default_factory=list)
    workers: list[str] = msgspec.field(default_factory=list)
    results: list[TaskKey] = msgspec.field(default_factory=list)
    runs: list[TaskKey] = msgspec.field(default_factory=list)
    everything: set[HintKind] = msgspec.field(default_factory=set)
    is_result_wanted: bool = False
    events: list[Hint] = msgspec.field(default_factory=list)
    missed_events: set[EventKind] = msgspec.field(default_factory=set)
    is_event_wanted: bool = False
    is_access_changed: bool = False
    is_schedule_earlier: bool = False


class ReplicaHints:
    """Sends hints to the other servers, and knows whether one of them waits for results."""

    def __init__(self, store: Store, outage: StoreOutage) -> None:
        """Send through ``store``."""
        self._store = store
        self._outage = outage
        self._hints: dict[HintKind, set[str]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._wanted: asyncio.TimerHandle | None = None
        self.is_result_wanted = False
        self._events: dict[EventKind, dict[tuple[str, str], Hint]] = {}
        self._events_wanted: asyncio.TimerHandle | None = None
        self.is_event_wanted = False

    @property
    def is_told(self) -> bool:
        """Return whether this server gets hints about work, or there is no other server."""
        return self._store.is_listening or not self._store.is_shared

    def tell(self, group: Group) -> None:
        """Send a hint about work in a queue, soon."""
        self._add(HintKind.QUEUE, f"{group[0]} {group[1]}")

    def tell_worker(self, worker_id: str) -> None:
        """Send a hint that something changed for a worker or its tasks."""
        self._add(HintKind.WORKER, worker_id)

    def tell_result(self, key: TaskKey) -> None:
        """Send a hint that a task is finished, if a server said that it waits for results."""
        if self.is_result_wanted:
            self._add(HintKind.RESULT, f"{key[0]} {key[1]}")

    def tell_run(self, key: TaskKey) -> None:
        """Send a hint that the journal of a run has more, to whoever has the session with it."""
        self._add(HintKind.RUN, f"{key[0]} {key[1]}")

    def tell_access(self) -> None:
        """Send a hint that keys or namespaces were changed."""
        self._add(HintKind.ACCESS, "changed")

    def tell_schedules(self) -> None:
        """Send a hint that a schedule is due earlier than others may know."""
        self._add(HintKind.SCHEDULE, "earlier")

    def want_results(self) -> None:
        """Send a hint that this server waits for results of others."""
        self._add(HintKind.WANT, "results")

    def hear_want(self) -> None:
        """Assume for some time that another server waits for results."""
        if self._wanted is not None:
            self._wanted.cancel()
        self.is_result_wanted = True
        loop = asyncio.get_running_loop()
        self._wanted = loop.call_later(RESULTS_WANTED_MS / 1000, self._forget_want)

    def _forget_want(self) -> None:
        self.is_result_wanted = False

    def tell_events(self, hints: Iterable[Hint]) -> None:
        """Send change hints to subscribers: of each thing the last one, soon."""
        for hint in hints:
            told = self._events.setdefault(hint.kind, {})
            if len(told) < EVENTS_TOLD_MAX:
                told[hint.namespace, hint.id] = hint
        self._send_soon()

    def want_events(self) -> None:
        """Send a hint that there are subscribers here."""
        self._add(HintKind.WANT, "events")

    def hear_event_want(self) -> None:
        """Assume for some time that there are subscribers at another server."""
        if self._events_wanted is not None:
            self._events_wanted.cancel()
        self.is_event_wanted = True
        loop = asyncio.get_running_loop()
        self._events_wanted = loop.call_later(RESULTS_WANTED_MS / 1000, self._forget_event_want)

    def _forget_event_want(self) -> None:
        self.is_event_wanted = False

    def _add(self, kind: HintKind, about: str) -> None:
        if not self._store.is_shared:
            return
        self._hints.setdefault(kind, set()).add(about)
        self._send_soon()

    def _send_soon(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(NOTIFY_MS / 1000, self._send)

    def _send(self) -> None:
        self._timer = None
        hints, self._hints = self._hints, {}
        if self._events:
            hints[HintKind.EVENT] = set(_event_texts(self._events))
            self._events = {}
        task = asyncio.get_running_loop().create_task(self._notify(list(pack(hints))))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _notify(self, payloads: list[str]) -> None:
        try:
            await self._store.notify(*payloads)
        except Exception as error:  # noqa: BLE001 (whatever it is, polls bridge the gap)
            if not self._outage.failed(error):
                log.warning("notify.failed", error=str(error))

    async def close(self) -> None:
        """Send nothing more."""
        self.kill()
        await asyncio.gather(*self._sending, return_exceptions=True)

    def kill(self) -> None:
        """Stop at once."""
        for timer in (self._timer, self._wanted, self._events_wanted):
            if timer is not None:
                timer.cancel()
        for task in self._sending:
            task.cancel()


def _event_texts(events: dict[EventKind, dict[tuple[str, str], Hint]]) -> Iterator[str]:
    """Return the hints of each kind, or only the kind when there are too many."""
    for kind, told in events.items():
        if len(told) < EVENTS_TOLD_MAX:
            yield from map(change_hint.text_of, told.values())
        else:
            yield kind.value


def pack(hints: dict[HintKind, set[str]]) -> Iterator[str]:
    """Return the messages that carry hints, each of a size that the database accepts."""
    message: list[str] = []
    size = 0
    for line in _lines(hints):
        if message and size + len(line) >= NOTIFY_BYTES_MAX:
            yield "\n".join(message)
            message, size = [], 0
        message.append(line)
        size += len(line) + 1
    if message:
        yield "\n".join(message)


def _lines(hints: dict[HintKind, set[str]]) -> Iterable[str]:
    for kind, abouts in hints.items():
        lines = [f"{kind.value} {about}" for about in sorted(abouts)]
        if sum(map(len, lines)) > NOTIFY_KIND_BYTES_MAX:
            yield kind.value
        else:
            yield from lines


def heard(payload: str) -> Heard:
    """Return the hints of another replica. A line that cannot be read here is left out."""
    found = Heard()
    for line in payload.splitlines():
        kind, _, about = line.partition(" ")
        first, _, second = about.partition(" ")
        if kind == HintKind.WANT:
            found.is_event_wanted |= about == "events"
            found.is_result_wanted |= about != "events"
        elif kind == HintKind.EVENT:
            _hear_event(found, about)
        elif kind == HintKind.ACCESS:
            found.is_access_changed = True
        elif kind == HintKind.SCHEDULE:
            found.is_schedule_earlier = True
        elif kind not in _KINDS:
            continue
        elif not about:
            found.everything.add(HintKind(kind))
        elif kind == HintKind.WORKER:
            found.workers.append(first)
        elif second:
            pairs = {HintKind.QUEUE: found.queues, HintKind.RUN: found.runs}
            pairs.get(HintKind(kind), found.results).append((first, second))
    return found


def _hear_event(found: Heard, about: str) -> None:
    """Take in one hint; a kind without a subject means everything of it, no kind all kinds."""
    hint = change_hint.hint_of(about)
    if hint is not None:
        found.events.append(hint)
    elif not about:
        found.missed_events |= ALL_KINDS
    elif about in ALL_KINDS:
        found.missed_events.add(EventKind(about))


_KINDS = frozenset(each.value for each in HintKind)
