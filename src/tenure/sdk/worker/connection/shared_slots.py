"""How the queues of one worker share its slots.

The worker tells the server how many more tasks it would take from each queue: the credit of that
queue. Running tasks and all credits together never exceed the slots. Only the server knows how
long a queue is, so the worker decides by how fast a credit is used:

* Every queue has a credit of one while there are slots for it.
* A queue that has used up its credit gets a part of the free slots, again and again. So a busy
  queue fills an idle process in a few steps, and two busy ones end up with equal parts.
* A busy queue keeps the slots of its own tasks that end, unless another queue has none.
* Credit that is not used for a while is taken back.
* When the slots are short, a free one goes to the queue that uses the fewest. A queue without
  tasks is offered one slot now and then, so that it cannot starve.

Pure: the caller has the clock, and tells the server.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

# Credit that is unused for this long is taken back.
IDLE_S: Final = 1.0
# A queue is busy for this long after it has used up its credit.
BUSY_S: Final = 0.3
# When slots are short, an unused credit goes to another queue after this long.
TURN_S: Final = 0.1
# When slots are short, one of the idle queues gets a credit this often.
PROBE_S: Final = 1.0
# A credit is taken back only after this long: tasks may be on their way to the worker.
GRACE_S: Final = 0.1


class QueueSlots(msgspec.Struct, eq=False, kw_only=True):
    """The part of one queue.

    ``count_used`` counts the slots that its tasks take. ``on_change`` is called when it has another
    credit.
    """

    count_used: Callable[[], int]
    on_change: Callable[[], None]
    # There is a worker for this queue that the server knows.
    is_open: bool = False
    credit: int = 0
    # It has used up its credit.
    is_wanting: bool = True
    # A poll waits with the credit: until it is answered, nobody else can have it.
    is_polling: bool = False
    # Taken back, but tasks may still be on their way.
    returning: int = 0
    returned_at_s: float = math.inf
    # When it was last given a credit or a task.
    moved_at_s: float = -math.inf
    # The lowest credit since the last check for unused credit.
    unused: int = 0
    looked_at_s: float = -math.inf
    # When it last had used up its credit.
    wanted_at_s: float = -math.inf
    # How many slots it used, or had as credit, when slots were last given.
    had: int = 0

    @property
    def is_free_to_change(self) -> bool:
        """Return whether its credit may be changed now."""
        return self.is_open and not self.is_polling

    @property
    def is_short(self) -> bool:
        """Return whether it has no credit at all."""
        return self.is_free_to_change and not self.credit and not self.returning


class SharedSlots:
    """The slots of a worker, for two queues or more; on the connection's loop."""

    def __init__(self, count: int) -> None:
        """Share ``count`` slots."""
        self._count = count
        self._queues: list[QueueSlots] = []
        self._probed_at_s = -math.inf

    def add(self, queue: QueueSlots) -> QueueSlots:
        """Let a queue have a part."""
        self._queues.append(queue)
        return queue

    @property
    def room(self) -> int:
        """How many tasks can be started now, of whatever queue."""
        return self._count - sum(each.count_used() for each in self._queues)

    # -- What happens to a queue

    def open(self, queue: QueueSlots) -> None:
        """Share with a queue from now on."""
        queue.is_open = queue.is_wanting = True

    def close(self, queue: QueueSlots) -> None:
        """Stop sharing with a queue. Its running tasks still use their slots."""
        queue.is_open = queue.is_polling = False
        queue.credit = queue.returning = queue.unused = 0

    def delivered(self, queue: QueueSlots, count: int, now_s: float) -> None:
        """Record that tasks have come, which used up credit."""
        by_credit = min(count, queue.credit)
        queue.credit -= by_credit
        queue.returning -= min(count - by_credit, queue.returning)
        queue.unused = min(queue.unused, queue.credit)
        queue.moved_at_s = now_s
        queue.is_wanting = queue.is_wanting or not queue.credit

    def begin_poll(self, queue: QueueSlots, now_s: float) -> int:
        """Return how many tasks a poll may ask for; none if there is no slot for it."""
        self.settle(now_s)
        queue.is_polling = queue.credit > 0
        return queue.credit

    def end_poll(self, queue: QueueSlots, now_s: float, *, is_empty: bool) -> None:
        """Record that a poll was answered. The rest of its credit is free."""
        queue.is_polling = False
        queue.had -= queue.credit
        queue.credit = queue.unused = 0
        queue.is_wanting = not is_empty
        self.settle(now_s)

    def poll_s(self, queue: QueueSlots, longest_s: float) -> float:
        """Return how long a poll may wait with the credit of a queue."""
        others = [each for each in self._queues if each is not queue]
        if queue.credit > 1 or any(each.is_open and each.is_wanting for each in others):
            return TURN_S
        # Nobody else can get this slot before the poll ends, so there must be others left.
        is_plenty = all(each.credit for each in others) and self._free() >= len(self._queues)
        return longest_s if is_plenty else PROBE_S

    # -- Who gets what

    def settle(self, now_s: float) -> None:
        """Give every queue the credit that it should have now."""
        before = [each.credit for each in self._queues]
        for each in self._queues:
            self._look_at(each, now_s)
        self._take_excess(now_s)
        self._give(now_s)
        for queue, credit in zip(self._queues, before, strict=True):
            if queue.credit != credit:
                queue.on_change()

    def _look_at(self, queue: QueueSlots, now_s: float) -> None:
        """Do what is due for one queue as time passes."""
        if queue.is_wanting and queue.is_open:
            queue.wanted_at_s = now_s
        if queue.returning and now_s >= queue.returned_at_s + GRACE_S:
            queue.returning = 0
        if queue.is_free_to_change and now_s >= queue.looked_at_s + IDLE_S:
            self._take_unused(queue, now_s)

    def _free(self) -> int:
        return self.room - sum(each.credit + each.returning for each in self._queues)

    def _take_unused(self, queue: QueueSlots, now_s: float) -> None:
        if queue.unused > 1:
            self._take_back(queue, queue.unused - 1, now_s)
        queue.unused, queue.looked_at_s = queue.credit, now_s

    def _take_excess(self, now_s: float) -> None:
        """Take back what others use now, such as abandoned threads."""
        excess = -self._free() - sum(each.returning for each in self._queues)
        for each in sorted(self._queues, key=lambda each: -each.credit):
            if excess > 0 and each.is_free_to_change:
                count = min(excess, each.credit)
                self._take_back(each, count, now_s)
                excess -= count

    def _take_back(self, queue: QueueSlots, count: int, now_s: float) -> None:
        assert count <= queue.credit
        queue.credit -= count
        queue.had -= count
        queue.unused = min(queue.unused, queue.credit)
        queue.returning += count
        queue.returned_at_s = now_s

    def _give(self, now_s: float) -> None:
        """Give one slot to each queue without credit, and more to those that use theirs up."""
        free = max(0, self._free())
        wanting = [each for each in self._queues if each.is_free_to_change and each.is_wanting]
        first = self._first(now_s)
        for each in first[:free]:
            if not each.is_wanting:
                self._probed_at_s = now_s
            self._grant(each, 1, now_s)
        if len(first) > free:
            self._ask_back(now_s)
        self._give_rest(wanting, free - min(free, len(first)), now_s)

    def _give_rest(self, wanting: list[QueueSlots], free: int, now_s: float) -> None:
        """Let busy queues have what is left, and idle ones only if no queue is busy."""
        busy = [each for each in self._queues if now_s < each.wanted_at_s + BUSY_S]
        free -= self._give_back_ended(busy, free, now_s)
        part = free // (len(wanting) + 1)
        for each in wanting if part else ():
            self._grant(each, part, now_s)
        idle = [each for each in self._queues if each.is_short]
        for each in idle[: 0 if busy else free - part * len(wanting)]:
            self._grant(each, 1, now_s)

    def _give_back_ended(self, busy: list[QueueSlots], free: int, now_s: float) -> int:
        """Give busy queues the slots of their ended tasks, up to an equal part; return how many."""
        equal_part = self._count // max(1, len(busy))
        given = 0
        for each in self._queues:
            has = each.count_used() + each.credit
            count = min(each.had - has, equal_part - has, free - given)
            if count > 0 and each in busy and each.is_free_to_change:
                self._grant(each, count, now_s)
                given += count
            each.had = each.count_used() + each.credit
        return given

    def _first(self, now_s: float) -> list[QueueSlots]:
        """Return the queues without credit that are to have a slot, the neediest first."""
        short = [each for each in self._queues if each.is_short]
        idle = [each for each in short if not each.is_wanting]
        found = [each for each in short if each.is_wanting]
        if idle and now_s >= self._probed_at_s + PROBE_S:
            found.append(min(idle, key=lambda each: each.moved_at_s))
        return sorted(found, key=lambda each: (each.count_used(), each.moved_at_s))

    def _grant(self, queue: QueueSlots, count: int, now_s: float) -> None:
        queue.credit += count
        queue.is_wanting = False
        queue.moved_at_s = queue.looked_at_s = now_s
        queue.unused = queue.credit

    def _ask_back(self, now_s: float) -> None:
        """Take back credit that stands unused while another queue has none at all."""
        if any(each.returning for each in self._queues):
            return
        unused = [
            each
            for each in self._queues
            if each.is_free_to_change and each.credit and now_s >= each.moved_at_s + TURN_S
        ]
        if unused:
            longest = min(unused, key=lambda each: each.moved_at_s)
            self._take_back(longest, (longest.credit + 1) // 2, now_s)


class SlotShare(NamedTuple):
    """The slots of a worker, and the part of one queue."""

    all: SharedSlots
    mine: QueueSlots
