"""Change hints for the subscribers of this server.

Changes of this server are published at once. Changes of other servers come with their messages,
which they send while there is a subscriber anywhere. All subscribers read one ring of pages: the
last minute, limited in number. A subscriber that is too slow or was away too long is told to read
its lists again. Without subscribers nothing is kept and nothing is done.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, Self

from tenure.core import change_hint
from tenure.core.change_hint import ALL_KINDS, EventFilter, EventKind, Hint
from tenure.core.limits import EVENT_WRITE_MAX, EVENTS_JOIN_MS, EVENTS_KEPT_MS, WANT_RESULTS_MS
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.clock import Clock
from tenure.engine.replica.batch_hints import hints_of
from tenure.engine.replica.replica_hints import ReplicaHints
from tenure.engine.settings import Settings
from tenure.store.transaction import Store

# Why a subscriber has to read its lists again.
UNKNOWN: Final = "unknown"
TOO_OLD: Final = "too_old"
SLOW: Final = "slow"
MISSED: Final = "missed"


@dataclass(slots=True, eq=False)
class HintPage:
    """Hints of one namespace that were published together, or a note that some were missed.

    ``rendered`` belongs to the edge: it caches the text of the page for all subscribers.
    """

    first_seq: int
    at_mono_ms: int
    namespace: str
    hints: Sequence[Hint] = ()
    missed: AbstractSet[EventKind] = frozenset()
    reason: str = ""
    rendered: dict[object, bytes] = field(default_factory=dict)

    @property
    def end_seq(self) -> int:
        """Return the number of the last hint; a page without hints has a number of its own."""
        return self.first_seq + max(len(self.hints), 1) - 1


class Subscription:
    """The position of one subscriber in the ring."""

    def __init__(self, feed: EventFeed, chosen: EventFilter, number: int) -> None:
        """Read from the page with that number; ``EventFeed.subscribe`` computes it."""
        self.chosen = chosen
        self._feed = feed
        self._number = number
        self._woken = asyncio.Event()
        self._first: list[HintPage] = []
        self._is_idle = False
        self._is_closed = False
        # The number of the last hint that was returned or skipped.
        self.seq = feed.last_seq

    def __enter__(self) -> Self:
        """Subscribe inside the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Unsubscribe."""
        self.close()
        self._feed.leave(self)

    @property
    def position(self) -> str:
        """Return the id with which a later subscription continues from here."""
        return change_hint.position_text(self._feed.server_id, self.seq)

    def begin_with(self, page: HintPage) -> None:
        """Return this page first: the rest of an old one, or a reset."""
        self._first.append(page)
        self._woken.set()

    def rewind(self, number: int, seq: int) -> None:
        """Start with the hints after ``seq`` in the page of that number, or before it."""
        self._number = number
        self.seq = seq
        if number == self._feed.next_number:
            return
        page = self._feed.page(number)
        passed = seq + 1 - page.first_seq
        if passed > 0:
            self._number += 1
            if page.namespace == self.chosen.namespace:
                rest = HintPage(seq + 1, page.at_mono_ms, page.namespace, page.hints[passed:])
                self.begin_with(rest)

    def close(self) -> None:
        """End: waiting readers get the end."""
        self._is_closed = True
        self._woken.set()

    def wake(self, number: int) -> None:
        """Wake up: there is a page for this namespace."""
        if self._is_idle:
            # Pages of others may have been dropped meanwhile: that does not delay this one.
            self._is_idle = False
            self._number = number
            self._woken.set()

    async def next(self, wait_ms: int) -> list[HintPage] | None:
        """Return new pages, none after ``wait_ms``, and None at the end."""
        if not self._first and not self._is_closed:
            pages = self._take()
            if pages:
                return pages
            self._is_idle = True
            self._woken.clear()
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._woken.wait()
            except TimeoutError:
                if self._is_idle:
                    self.seq = self._feed.last_seq
                return []
        if self._is_closed:
            return None
        if not self._first:
            return self._take()
        first, self._first = self._first, []
        self.seq = first[-1].end_seq
        return first

    def _take(self) -> list[HintPage]:
        """Return pages up to a limited number of hints; one reset, if some were dropped already."""
        feed = self._feed
        if self._is_idle:
            return []
        if self._number < feed.first_number:
            self._number = feed.next_number
            self.seq = feed.last_seq
            return [feed.reset_page(self.chosen.kinds, SLOW)]
        taken: list[HintPage] = []
        count = 0
        while self._number < feed.next_number and count < EVENT_WRITE_MAX:
            page = feed.page(self._number)
            self._number += 1
            self.seq = page.end_seq
            if page.namespace in ("", self.chosen.namespace):
                taken.append(page)
                count += len(page.hints)
        return taken


class EventFeed:
    """The ring and its subscribers."""

    def __init__(
        self, store: Store, replicas: ReplicaHints, clock: Clock, settings: Settings, server_id: str
    ) -> None:
        """Start without subscribers."""
        self._store = store
        self._replicas = replicas
        self._clock = clock
        self._settings = settings
        self.server_id = server_id
        self.is_on = False
        self.last_seq = 0
        self.first_number = 0
        self._pages: deque[HintPage] = deque()
        self._kept_count = 0
        self._subscriptions: dict[Subscription, None] = {}
        self._left_at_mono_ms = 0
        self._ticking: asyncio.TimerHandle | None = None
        self._resetting: asyncio.TimerHandle | None = None
        self._missed: set[EventKind] = set()
        self._reset_at_s = float("-inf")
        self._was_listening = True
        self._is_closed = False

    def __len__(self) -> int:
        """Return how many hints are kept."""
        return self._kept_count

    @property
    def subscriber_count(self) -> int:
        """Return the number of subscribers."""
        return len(self._subscriptions)

    @property
    def is_wanted(self) -> bool:
        """Return whether there is a subscriber here or at another server."""
        return self.is_on or self._replicas.is_event_wanted

    @property
    def next_number(self) -> int:
        """Return the number of the page that comes next."""
        return self.first_number + len(self._pages)

    def page(self, number: int) -> HintPage:
        """Return a page that is kept."""
        return self._pages[number - self.first_number]

    # -- Publishing

    def committed(self, ws: WorkingSet) -> None:
        """Publish what a batch of this server changed."""
        hints = list(hints_of(ws))
        if not hints:
            return
        if self.is_on:
            self._publish(hints)
        if self._replicas.is_event_wanted:
            self._replicas.tell_events(hints)

    def hear(self, hints: Sequence[Hint], missed: AbstractSet[EventKind]) -> None:
        """Publish the hints of another server; of ``missed`` kinds it had too many to send."""
        if not self.is_on:
            return
        if hints:
            self._publish(hints)
        if missed:
            self._miss(missed)

    def _publish(self, hints: Iterable[Hint]) -> None:
        by_namespace: dict[str, list[Hint]] = {}
        for hint in hints:
            known = by_namespace.get(hint.namespace)
            if known is None:
                by_namespace[hint.namespace] = [hint]
            else:
                known.append(hint)
        now_ms = self._clock.monotonic_ms()
        for namespace, some in by_namespace.items():
            self._add(HintPage(self.last_seq + 1, now_ms, namespace, some))

    def _add(self, page: HintPage) -> None:
        number = self.next_number
        self._pages.append(page)
        self._kept_count += len(page.hints)
        self.last_seq = page.end_seq
        self._trim(page.at_mono_ms)
        for each in self._subscriptions:
            if page.namespace in ("", each.chosen.namespace):
                each.wake(number)

    def _trim(self, now_ms: int) -> None:
        """Drop pages that are too old or too many; the newest page stays, however large."""
        pages = self._pages
        oldest_ms = now_ms - EVENTS_KEPT_MS
        while len(pages) > 1 and (
            self._kept_count > self._settings.events_kept_max or pages[0].at_mono_ms < oldest_ms
        ):
            self._kept_count -= len(pages.popleft().hints)
            self.first_number += 1

    # -- Subscribers

    def subscribe(self, chosen: EventFilter, last_id: str = "") -> Subscription:
        """Subscribe from now on, or after the event with the given id."""
        if not self.is_on:
            self._turn_on()
        self._trim(self._clock.monotonic_ms())
        made = Subscription(self, chosen, self.next_number)
        if last_id:
            self._go_on(made, change_hint.position_of(last_id, self.server_id))
        if self._is_closed:
            made.close()
        self._subscriptions[made] = None
        return made

    def leave(self, subscription: Subscription) -> None:
        """Remove a subscription; an unknown one is ignored."""
        self._subscriptions.pop(subscription, None)
        self._left_at_mono_ms = self._clock.monotonic_ms()

    def _go_on(self, made: Subscription, seq: int | None) -> None:
        """Let a subscription start after a number, if everything since then is kept."""
        if seq is None or seq > self.last_seq:
            made.begin_with(self.reset_page(made.chosen.kinds, UNKNOWN))
            return
        first_seq = self._pages[0].first_seq if self._pages else self.last_seq + 1
        if seq < first_seq - 1:
            made.begin_with(self.reset_page(made.chosen.kinds, TOO_OLD))
            return
        number = self.next_number
        while number > self.first_number and self.page(number - 1).end_seq > seq:
            number -= 1
        made.rewind(number, seq)

    def reset_page(self, kinds: AbstractSet[EventKind], reason: str) -> HintPage:
        """Return the note that lists have to be read again; it covers everything up to now."""
        return HintPage(self.last_seq, self._clock.monotonic_ms(), "", (), kinds, reason)

    # -- Starting and stopping

    def _turn_on(self) -> None:
        self.is_on = True
        # Nothing was kept without subscribers: a subscriber from before has missed it.
        self.last_seq += 1
        self._was_listening = True
        self._left_at_mono_ms = self._clock.monotonic_ms()
        if self._store.is_shared and not self._is_closed:
            # Others send nothing before they know that there is a subscriber.
            self._missed |= ALL_KINDS
            self._plan_reset(EVENTS_JOIN_MS / 1000)
        self._tick()

    def _turn_off(self) -> None:
        self.is_on = False
        self.first_number = self.next_number
        self._pages.clear()
        self._kept_count = 0
        self._missed.clear()
        self._cancel_timers()

    def _tick(self) -> None:
        """Check each second for other servers, and whether a subscriber may still come back."""
        self._ticking = None
        left_ms = self._clock.monotonic_ms() - self._left_at_mono_ms
        if self._is_closed or (not self._subscriptions and left_ms >= EVENTS_KEPT_MS):
            self._turn_off()
            return
        if self._store.is_shared:
            self._replicas.want_events()
            is_listening = self._store.is_listening
            if not is_listening or not self._was_listening:
                self._miss(ALL_KINDS)
            self._was_listening = is_listening
        loop = asyncio.get_running_loop()
        self._ticking = loop.call_later(WANT_RESULTS_MS / 1000, self._tick)

    def _miss(self, kinds: AbstractSet[EventKind]) -> None:
        """Let subscribers read their lists again, but not too often."""
        self._missed |= kinds
        now_s = asyncio.get_running_loop().time()
        self._plan_reset(max(self._reset_at_s + self._settings.events_reset_ms / 1000 - now_s, 0.0))

    def _plan_reset(self, wait_s: float) -> None:
        if self._resetting is None:
            self._resetting = asyncio.get_running_loop().call_later(wait_s, self._reset)

    def _reset(self) -> None:
        """Tell all subscribers that hints of other servers were missed."""
        self._resetting = None
        self._reset_at_s = asyncio.get_running_loop().time()
        missed, self._missed = frozenset(self._missed), set()
        now_ms = self._clock.monotonic_ms()
        self._add(HintPage(self.last_seq + 1, now_ms, "", (), missed, MISSED))

    def close(self) -> None:
        """End every subscription: the server stops."""
        self._is_closed = True
        self._cancel_timers()
        for each in self._subscriptions:
            each.close()

    def _cancel_timers(self) -> None:
        for timer in (self._ticking, self._resetting):
            if timer is not None:
                timer.cancel()
        self._ticking = self._resetting = None
