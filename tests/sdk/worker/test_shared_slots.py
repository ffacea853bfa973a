"""How the queues of a worker share its slots, against a small model of a server."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Final

import pytest

from tenure.sdk.worker.connection.shared_slots import (
    GRACE_S,
    PROBE_S,
    TURN_S,
    QueueSlots,
    SharedSlots,
)

TICK_S: Final = TURN_S / 2
STEPS_MAX: Final = 100_000


class Queue:
    """One queue: what waits at the server, and what the worker runs of it."""

    def __init__(self, world: World) -> None:
        self.waiting = 0
        self.running = 0
        self.peak = 0
        self.done = 0
        self.released = 0
        # As the server knows them.
        self._held = 0
        self._window = 0
        self._told = 0
        self.world = world
        self.slots = world.shared.add(
            QueueSlots(count_used=lambda: self.running, on_change=self.tell)
        )
        self.is_called = False
        self.duration_s = 1.0

    def tell(self) -> None:
        """Tell the server the window, as a session does."""
        window = self.running + self.slots.credit
        if window != self._told:
            self._told = window
            self.world.later(lambda: self._hear(window))

    def _hear(self, window: int) -> None:
        self._window = window
        self.hand_out()

    def hand_out(self) -> None:
        count = min(self.waiting, self._window - self._held)
        if count > 0:
            self.waiting -= count
            self._held += count
            self.world.later(lambda: self._arrive(count))

    def _arrive(self, count: int) -> None:
        world = self.world
        fits = min(count, max(0, world.shared.room))
        self.running += fits
        world.shared.delivered(self.slots, count, world.now_s)
        self.peak = max(self.peak, self.running)
        world.look()
        for _ in range(fits):
            world.later(self._end, self.duration_s)
        if fits < count:
            self.released += count - fits
            world.later(lambda: self._give_back(count - fits))
        world.settle()

    def _give_back(self, count: int) -> None:
        self._held -= count
        self.waiting += count
        self.hand_out()

    def _end(self) -> None:
        self.running -= 1
        self.done += 1
        world = self.world
        world.settle()
        window = self._told = self.running + self.slots.credit
        # The end and the window go in one frame.
        world.later(lambda: self._free(window))

    def _free(self, window: int) -> None:
        self._held -= 1
        self._hear(window)


class World:
    """Queues, a worker of all of them, and messages that take their time."""

    def __init__(self, slots: int, queues: int, *, seed: int = 1, slowest_s: float = 0.01) -> None:
        self.now_s = 0.0
        self.slots = slots
        self.shared = SharedSlots(slots)
        self._chance = random.Random(seed)
        self._slowest_s = slowest_s
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        # Messages of a stream do not overtake each other, and a look at the clock is no message.
        self._last_s = 0.0
        self.queues = [Queue(self) for _ in range(queues)]
        self.peak = 0
        self._tick()

    def later(self, what: Callable[[], None], seconds: float | None = None) -> None:
        if seconds is None:
            at_s = self.now_s + self._chance.uniform(0, self._slowest_s)
            self._last_s = at_s = max(at_s, self._last_s)
        else:
            at_s = self.now_s + seconds
        heapq.heappush(self._events, (at_s, next(self._numbers), what))

    def open(self) -> None:
        for each in self.queues:
            self.shared.open(each.slots)
        self.settle()

    def settle(self) -> None:
        self.shared.settle(self.now_s)
        for each in self.queues:
            each.tell()

    def look(self) -> None:
        running = sum(each.running for each in self.queues)
        assert running <= self.slots
        self.peak = max(self.peak, running)

    def _tick(self) -> None:
        self.settle()
        self.later(self._tick, TICK_S)

    def run(self, until_s: float) -> None:
        for _ in range(STEPS_MAX):
            if self._events[0][0] > until_s:
                self.now_s = until_s
                return
            self.now_s, _, what = heapq.heappop(self._events)
            what()
        raise AssertionError("the world does not come to rest")

    def enqueue(self, *counts: int) -> None:
        for queue, count in zip(self.queues, counts, strict=True):
            queue.waiting += count
            queue.hand_out()


def opened(slots: int, queues: int, **fields: float) -> World:
    world = World(slots, queues, **fields)  # type: ignore[arg-type]  # numbers of both kinds
    world.open()
    world.run(3.0)
    return world


def test_an_idle_process_has_a_slot_for_each_queue() -> None:
    world = opened(10, 3)

    assert [each.slots.credit for each in world.queues] == [1, 1, 1]


def test_a_busy_queue_gets_every_slot_of_a_process_that_is_idle_otherwise() -> None:
    world = opened(10, 2)
    world.queues[0].duration_s = 100.0
    world.enqueue(50, 0)
    world.run(5.0)

    assert world.queues[0].running == 10
    assert world.queues[0].released == 0


def test_a_burst_in_an_idle_process_starts_within_a_few_messages() -> None:
    world = opened(100, 2)
    world.queues[0].duration_s = 100.0
    world.enqueue(99, 0)
    world.run(3.4)

    assert world.queues[0].running >= 98


def test_two_busy_queues_end_up_with_equal_parts() -> None:
    world = opened(10, 2)
    world.enqueue(200, 0)
    world.run(6.0)
    assert world.queues[0].running >= 9

    world.enqueue(0, 200)
    world.run(10.0)

    assert sorted(each.running for each in world.queues) == [5, 5]


def test_a_queue_gets_the_next_free_slot_when_others_use_all() -> None:
    world = opened(4, 2)
    world.queues[0].duration_s = 7.0
    world.enqueue(100, 0)
    world.run(6.0)
    assert world.queues[0].running == 4

    world.enqueue(0, 1)
    world.run(14.0)

    assert world.queues[1].done + world.queues[1].running == 1


@pytest.mark.parametrize("queues", [2, 3, 5])
def test_fewer_slots_than_queues_go_round(queues: int) -> None:
    world = opened(1, queues)
    for each in world.queues:
        each.duration_s = 0.05
    world.enqueue(*[10] * queues)
    world.run(60.0)

    assert [each.done for each in world.queues] == [10] * queues
    assert world.peak == 1


def test_a_queue_without_tasks_costs_a_busy_one_little() -> None:
    world = opened(1, 2)
    world.queues[0].duration_s = 0.05
    world.enqueue(1_000, 0)
    world.run(13.0)

    # Of 200 that one slot could run in these ten seconds.
    assert world.queues[0].done >= 120


@pytest.mark.parametrize(("slots", "queues"), [(2, 2), (4, 2), (5, 5), (10, 5)])
def test_a_busy_queue_keeps_the_slots_of_its_tasks_that_end(slots: int, queues: int) -> None:
    world = opened(slots, queues, slowest_s=0.002)
    world.queues[0].duration_s = 0.02
    world.enqueue(10_000, *[0] * (queues - 1))
    world.run(8.0)

    # Of what these slots can run in these five seconds.
    assert world.queues[0].done >= 0.85 * slots * 5.0 / 0.024


def test_a_queue_that_is_closed_leaves_its_slots_to_the_others() -> None:
    world = opened(4, 2)
    world.shared.close(world.queues[0].slots)
    world.queues[1].duration_s = 100.0
    world.enqueue(0, 10)
    world.run(5.0)

    assert world.queues[1].running == 4


def test_slots_of_abandoned_threads_are_taken_from_what_may_come() -> None:
    world = opened(4, 2)
    world.shared.add(QueueSlots(count_used=lambda: 3, on_change=lambda: None))
    world.run(6.0)

    assert sum(each.slots.credit for each in world.queues) == 1


@pytest.mark.parametrize("seed", range(40))
def test_any_load_stays_within_the_slots_and_ends(seed: int) -> None:
    chance = random.Random(seed)
    slots, queues = chance.randint(1, 20), chance.randint(2, 5)
    slowest_s = chance.choice([0.001, GRACE_S / 3, 5 * GRACE_S])
    world = World(slots, queues, seed=seed, slowest_s=slowest_s)
    for each in world.queues:
        each.duration_s = chance.choice([0.001, 0.05, 0.5])
    world.open()
    enqueued = [0] * queues
    for _ in range(10):
        counts = [chance.choice([0, 0, 1, 20]) for _ in world.queues]
        enqueued = [before + count for before, count in zip(enqueued, counts, strict=True)]
        world.enqueue(*counts)
        world.run(world.now_s + chance.uniform(0, 1))
    world.run(world.now_s + 400.0)

    assert [each.done for each in world.queues] == enqueued
    assert world.peak <= slots
    if slowest_s < GRACE_S:
        assert not any(each.released for each in world.queues)


# -- Polls


def test_a_poll_keeps_its_credit_until_it_is_answered() -> None:
    shared = SharedSlots(1)
    one, two = (
        shared.add(QueueSlots(count_used=lambda: 0, on_change=lambda: None)) for _ in range(2)
    )
    for each in (one, two):
        shared.open(each)

    assert shared.begin_poll(one, 0.0) == 1
    assert shared.begin_poll(two, 50.0) == 0
    shared.end_poll(one, 50.0, is_empty=True)

    assert shared.begin_poll(two, 50.0) == 1


def test_a_poll_waits_long_only_with_one_slot_that_nobody_else_wants() -> None:
    shared = SharedSlots(10)
    one, two = (
        shared.add(QueueSlots(count_used=lambda: 0, on_change=lambda: None)) for _ in range(2)
    )
    for each in (one, two):
        shared.open(each)
        assert shared.begin_poll(each, 0.0) > 1
        assert shared.poll_s(each, 20.0) == TURN_S
    for each in (one, two):
        shared.end_poll(each, 1.0, is_empty=True)
    for each in (one, two):
        assert shared.begin_poll(each, 1.0) == 1
        assert shared.poll_s(each, 20.0) == 20.0


def test_a_poll_does_not_wait_long_when_few_slots_are_free() -> None:
    shared = SharedSlots(2)
    queues = [
        shared.add(QueueSlots(count_used=lambda: 0, on_change=lambda: None)) for _ in range(2)
    ]
    for each in queues:
        shared.open(each)
    for each in queues:
        assert shared.begin_poll(each, 0.0) == 1
    assert shared.poll_s(queues[0], 20.0) == PROBE_S


def test_a_poll_does_not_wait_long_while_another_queue_is_not_registered_yet() -> None:
    shared = SharedSlots(1)
    one, _ = (
        shared.add(QueueSlots(count_used=lambda: 0, on_change=lambda: None)) for _ in range(2)
    )
    shared.open(one)

    assert shared.begin_poll(one, 0.0) == 1
    assert shared.poll_s(one, 20.0) == PROBE_S
