"""The crash guard: the guilty one is found by splitting, and chance blames nobody."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from tenure.core.limits import CONTROL_WINDOW_MS, POISON_LOSSES_MAX
from tenure.core.task import crash_guard
from tenure.core.task.crash_guard import ControlGroup, Loss, Suspects
from tenure.core.task.record import NO_PROGRESS, AttemptProgress
from tests.core.task.guard_model import STEP_MS, Queue
from tests.core.task.tasks import T0, guarded, handed

ALONE = Loss(at_ms=T0)


def suspect(**changes: object) -> AttemptProgress:
    return AttemptProgress(loss_count=2, **changes)  # type: ignore[arg-type]  # any field


def after(progress: AttemptProgress, loss: Loss = ALONE, held_ms: int = 4_000) -> AttemptProgress:
    return crash_guard.after_loss(progress, loss, held_ms=held_ms)


class TestGroups:
    def test_a_new_suspect_comes_back_with_half_of_what_died_with_it(self) -> None:
        first = after(NO_PROGRESS, Loss(at_ms=T0, attempt_count=21, suspect_count=0))
        assert (crash_guard.is_suspect(first), first.alone_count) == (False, 0)
        second = after(first, Loss(at_ms=T0, attempt_count=21, suspect_count=0))
        assert (crash_guard.is_suspect(second), second.group_max) == (True, 10)

    def test_a_group_is_halved_by_each_further_loss(self) -> None:
        loss = Loss(at_ms=T0, attempt_count=50, suspect_count=10)
        sizes = [suspect(group_max=10)]
        for _ in range(4):
            sizes.append(after(sizes[-1], loss))
        assert [each.group_max for each in sizes] == [10, 5, 2, 1, 1]

    def test_a_group_that_was_smaller_than_it_may_be_is_halved_by_its_size(self) -> None:
        loss = Loss(at_ms=T0, attempt_count=50, suspect_count=4)
        assert after(suspect(group_max=20), loss).group_max == 2

    def test_a_suspect_of_an_earlier_version_is_alone(self) -> None:
        assert crash_guard.group_size(suspect()) == 1

    @pytest.mark.parametrize(
        ("held", "size", "fits"),
        [
            (Suspects(), 1, True),
            (Suspects(1, 1), 9, False),
            (Suspects(1, 9), 1, False),
            (Suspects(1, 2), 2, True),
            (Suspects(2, 2), 9, False),
        ],
    )
    def test_a_worker_holds_no_more_suspects_than_the_smallest_group(
        self, held: Suspects, size: int, fits: bool
    ) -> None:
        assert held.may_take(suspect(group_max=size)) is fits

    def test_the_smallest_group_is_remembered(self) -> None:
        held = Suspects().with_one_more(suspect(group_max=7))
        assert held == Suspects(1, 7)
        assert held.with_one_more(suspect(group_max=3)) == Suspects(2, 3)


class TestCount:
    def test_losses_of_a_worker_that_held_nothing_else_count_from_the_first(self) -> None:
        assert after(NO_PROGRESS).counted_count == 1

    def test_losses_with_others_do_not_count_until_it_is_the_only_suspect(self) -> None:
        loss = Loss(at_ms=T0, attempt_count=5, suspect_count=1)
        assert after(suspect(group_max=1), loss).counted_count == 0
        assert after(suspect(group_max=1, is_sole=True), loss).counted_count == 1

    def test_the_fifth_counted_loss_is_enough(self) -> None:
        assert not crash_guard.is_poisoned(suspect(counted_count=POISON_LOSSES_MAX - 1))
        assert crash_guard.is_poisoned(suspect(counted_count=POISON_LOSSES_MAX))

    def test_a_loss_does_not_count_while_others_die_as_often(self) -> None:
        # Six of four workers in a minute: one dies in four seconds with a chance of a tenth.
        storm = Loss(at_ms=T0, control=ControlGroup(dead_count=6, live_count=3))
        lost = after(suspect(is_sole=True), storm, held_ms=4_000)
        assert (lost.counted_count, lost.alone_count, lost.loss_count) == (0, 1, 3)
        calm = Loss(at_ms=T0, control=ControlGroup(dead_count=5, live_count=3))
        assert after(suspect(is_sole=True), calm, held_ms=4_000).counted_count == 1

    def test_deaths_that_the_task_was_part_of_are_not_those_of_others(self) -> None:
        earlier = tuple(T0 - 1_000 * number for number in range(6, 0, -1))
        loss = Loss(at_ms=T0, control=ControlGroup(dead_count=6, live_count=0))
        lost = after(suspect(is_sole=True, lost_at_ms=earlier), loss)
        assert lost.counted_count == 1
        assert lost.lost_at_ms == (*earlier, T0)

    def test_old_deaths_of_its_own_are_forgotten_with_those_of_the_others(self) -> None:
        loss = Loss(at_ms=T0, control=ControlGroup(dead_count=6))
        lost = after(suspect(is_sole=True, lost_at_ms=(T0 - CONTROL_WINDOW_MS,)), loss)
        assert (lost.counted_count, lost.lost_at_ms) == (0, (T0,))

    def test_the_control_group_matters_only_where_a_loss_may_count(self) -> None:
        shared, sole = handed(guarded()), handed(guarded())
        shared = replace(shared, progress=replace(shared.progress, is_sole=False))
        assert crash_guard.is_control_needed([shared])
        assert not crash_guard.is_control_needed([shared, shared])
        assert crash_guard.is_control_needed([shared, sole])

    def test_who_is_lost_alone_three_times_explains_it(self) -> None:
        lost = suspect(is_sole=True)
        seen = []
        for _ in range(3):
            lost = after(lost)
            seen.append((crash_guard.explains_death(lost), len(lost.lost_at_ms)))
        # A death that it explains is not in the control group, so it is not taken out there.
        assert seen == [(False, 1), (False, 2), (True, 2)]

    def test_any_other_end_clears_it(self) -> None:
        lost = suspect(alone_count=2, counted_count=2, group_max=4, lost_at_ms=(T0,), percent=1.0)
        assert crash_guard.cleared(lost) == AttemptProgress(percent=1.0)
        assert crash_guard.cleared(NO_PROGRESS) is NO_PROGRESS


class TestBackOff:
    def test_it_doubles_with_each_loss_of_a_suspect_up_to_a_limit(self) -> None:
        waits = [
            crash_guard.backoff_ms(AttemptProgress(loss_count=count)) for count in (1, 2, 3, 4, 99)
        ]
        assert waits == [0, 1_000, 2_000, 4_000, 16_000]


class TestQueue:
    """The promises, on a model of a queue."""

    def test_twenty_suspects_with_twenty_slots_take_at_most_three_times_as_long(self) -> None:
        queue = Queue(machines=1, slots=20)
        ids = queue.add(20, 4_000)
        for _ in range(2):
            for _ in queue.run(2_000):
                pass
            queue.kill(queue.machines[0])
            for _ in queue.run(4_000):
                pass
        came_back_ms = queue.now_ms
        while len(queue.ends(ids)) < 20:
            next(iter(queue.run(STEP_MS)))
        assert queue.now_ms - came_back_ms <= 3 * 4_000
        assert set(queue.ends(ids)) == {"succeeded"}

    @pytest.mark.parametrize("machines", [1, 4])
    def test_one_poison_task_among_200_is_found_in_calm(self, machines: int) -> None:
        queue = Queue(machines, slots=100)
        innocent = queue.add(199, 3_000)
        (poison,) = queue.add(1, 200, are_poison=True)
        for _ in queue.run(300_000):
            if queue.tasks[poison].finished_at_ms:
                break
        assert queue.ends([poison]) == ["POISONED"]
        assert queue.tasks[poison].progress.alone_count == POISON_LOSSES_MAX
        assert Counter(queue.ends(innocent)) == {"succeeded": 199}

    def test_ten_poison_tasks_with_two_workers_are_found(self) -> None:
        queue = Queue(2, slots=20)
        innocent = queue.add(50, 2_000)
        poison = queue.add(10, 400, are_poison=True)
        for _ in queue.run(900_000):
            if len(queue.ends(poison)) == 10:
                break
        assert set(queue.ends(poison)) == {"POISONED"}
        assert Counter(queue.ends(innocent)) == {"succeeded": 50}

    @pytest.mark.parametrize("seed", [1, 2, 3])
    @pytest.mark.parametrize(("slots", "lasts_ms"), [(10, 4_000), (3, 6_000)])
    def test_a_storm_blames_nobody_but_the_guilty(
        self, seed: int, slots: int, lasts_ms: int
    ) -> None:
        queue = Queue(4, slots, seed=seed)
        (poison,) = queue.add(1, 200, are_poison=True)
        innocent = queue.add(10 * slots, lasts_ms)
        for number, _ in enumerate(queue.run(600_000)):
            for machine in queue.machines:
                # Each is killed each ten seconds.
                if queue.random.random() < STEP_MS / 10_000:
                    queue.kill(machine)
            if number % 20 == 0:
                innocent += queue.add(slots // 3, lasts_ms)
        for _ in queue.run(300_000):
            if queue.tasks[poison].finished_at_ms:
                break
        assert queue.ends([poison]) == ["POISONED"]
        for _ in queue.run(400_000):
            pass
        assert Counter(queue.ends(innocent)) == {"succeeded": len(innocent)}
