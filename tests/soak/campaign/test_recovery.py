"""What a history says about the times after kills."""

from __future__ import annotations

import pytest

from tests.soak.campaign.history import Acknowledged, Execution, History, Kill, Outcome, Part, Read
from tests.soak.campaign.recovery import Case, Times, recoveries

WORKER = 100
OTHER_WORKER = 200
CHILD = 101
LEASE_S = 15.0


def ran(
    attempt: int, worker: int, *instants_s: float, pid: int = 0, is_exclusive: bool = False
) -> Execution:
    end_s = instants_s[1] if len(instants_s) > 1 else None
    ending = "" if end_s is None else "returned"
    of = (worker, pid or worker)
    return Execution("task", 1, attempt, *of, instants_s[0], end_s, ending, is_exclusive)


def killed(part: Part, at_s: float, pid: int = 0) -> Kill:
    return Kill(part, at_s, at_s + 0.01, at_s + 2, pid)


def told(
    executions: list[Execution], *kills: Kill, attempts: tuple[str, ...] = ()
) -> dict[Case, list[float]]:
    """Return the times by their case, without the cases that did not come up."""
    read = Read("succeeded")
    outcome = Outcome("task", read, read, len(attempts), tuple(enumerate(attempts, 1)))
    history = History([Acknowledged("task", 1, 5.0)], executions, kills, [outcome])
    return {
        case: [round(second, 3) for second in times.seconds]
        for case, times in recoveries(history, LEASE_S).items()
        if times.seconds
    }


def test_a_worker_killed_alone_is_measured_to_the_next_start() -> None:
    runs = [ran(1, WORKER, 10), ran(2, OTHER_WORKER, 13.5, 14)]
    assert told(runs, killed(Part.WORKER, 10.5, WORKER)) == {Case.WORKER: [3.0]}


def test_an_attempt_that_had_ended_was_not_held() -> None:
    runs = [ran(1, WORKER, 10, 10.4), ran(2, OTHER_WORKER, 13.5, 14)]
    assert told(runs, killed(Part.WORKER, 10.5, WORKER)) == {}


@pytest.mark.parametrize("part", [Part.SERVER, Part.DATABASE])
@pytest.mark.parametrize("at_s", [95.0, 99.0, 104.0])
def test_an_outage_around_the_kill_of_a_worker_has_its_own_line(part: Part, at_s: float) -> None:
    runs = [ran(1, WORKER, 90), ran(2, OTHER_WORKER, 130, 131)]
    kills = (killed(Part.WORKER, 100, WORKER), killed(part, at_s))
    assert told(runs, *kills) == {Case.OUTAGE: [30.0]}
    kills = (killed(Part.CHILD, 100, WORKER), killed(part, at_s))
    assert told(runs, *kills) == {Case.OUTAGE: [30.0]}


def test_a_worker_that_dies_with_a_server_has_its_own_line() -> None:
    runs = [ran(1, WORKER, 90), ran(2, OTHER_WORKER, 130, 131)]
    worker = killed(Part.WORKER, 100, WORKER)
    assert told(runs, worker, killed(Part.SERVER, 100.1)) == {Case.TOGETHER: [30.0]}
    assert told(runs, worker, killed(Part.DATABASE, 100.1)) == {Case.OUTAGE: [30.0]}
    child = killed(Part.CHILD, 100, WORKER)
    assert told(runs, child, killed(Part.SERVER, 100.1)) == {Case.OUTAGE: [30.0]}


def test_an_outage_long_before_or_after_does_not_excuse_a_late_start() -> None:
    runs = [ran(1, WORKER, 90), ran(2, OTHER_WORKER, 130, 131)]
    kills = (killed(Part.WORKER, 100, WORKER), killed(Part.SERVER, 80), killed(Part.DATABASE, 110))
    assert told(runs, *kills) == {Case.WORKER: [30.0]}


def test_the_second_loss_in_a_row_has_its_own_line() -> None:
    runs = [ran(1, WORKER, 10), ran(2, OTHER_WORKER, 13), ran(3, 300, 18, 19)]
    kills = (killed(Part.WORKER, 11, WORKER), killed(Part.WORKER, 14, OTHER_WORKER))
    attempts = ("worker_lost", "worker_lost", "succeeded")
    found = told(runs, *kills, attempts=attempts)
    assert found == {Case.WORKER: [2.0], Case.WORKER_AGAIN: [4.0]}


def test_a_former_loss_counts_also_when_its_code_had_not_begun() -> None:
    runs = [ran(2, WORKER, 10), ran(3, OTHER_WORKER, 15, 16)]
    kill = killed(Part.WORKER, 11, WORKER)
    attempts = ("worker_lost", "worker_lost", "succeeded")
    assert told(runs, kill, attempts=attempts) == {Case.WORKER_AGAIN: [4.0]}
    attempts = ("failed", "worker_lost", "succeeded")
    assert told(runs, kill, attempts=attempts) == {Case.WORKER: [4.0]}


def test_a_hand_out_that_was_never_started_has_its_own_line() -> None:
    runs = [ran(1, WORKER, 10), ran(3, OTHER_WORKER, 18, 19)]
    assert told(runs, killed(Part.WORKER, 11, WORKER)) == {Case.INTERRUPTED: [7.0]}


def test_a_child_is_told_apart_from_its_worker() -> None:
    runs = [ran(1, WORKER, 10, pid=CHILD), ran(2, WORKER, 11.5, 12, pid=CHILD + 1)]
    assert told(runs, killed(Part.CHILD, 11, CHILD)) == {Case.CHILD: [0.5]}


def test_a_server_is_measured_to_the_first_start_of_what_was_acknowledged_later() -> None:
    runs = [ran(1, WORKER, 6, 7)]
    assert told(runs, killed(Part.SERVER, 4)) == {Case.SERVER: [2.0]}
    assert told(runs, killed(Part.DATABASE, 4)) == {Case.DATABASE: [2.0]}
    # The task was acknowledged before the kill, or while it took effect: its start says nothing.
    assert told(runs, killed(Part.SERVER, 5.5)) == {}
    assert told(runs, Kill(Part.DATABASE, 4.9, 5.1, 7.0)) == {}


def test_a_task_that_was_started_before_the_kill_and_acknowledged_again_after_it_is_not_new() -> (
    None
):
    # Its first answer was lost, or somebody asked a second time.
    runs = [ran(1, WORKER, 3.9), ran(2, OTHER_WORKER, 6, 7)]
    kills = (killed(Part.SERVER, 4), killed(Part.WORKER, 4.5, WORKER))
    assert Case.SERVER not in told(runs, *kills)


def test_exclusive_work_that_waits_for_the_lease_has_its_own_line() -> None:
    runs = [
        ran(1, WORKER, 90, is_exclusive=True),
        ran(2, OTHER_WORKER, 114, 115, is_exclusive=True),
    ]
    worker = killed(Part.WORKER, 100, WORKER)
    assert told(runs, worker) == {Case.EXCLUSIVE: [14.0]}
    # A server that dies before the lease is over makes it longer.
    assert told(runs, worker, killed(Part.SERVER, 112)) == {Case.OUTAGE: [14.0]}
    assert told(runs, worker, killed(Part.SERVER, 117)) == {Case.EXCLUSIVE: [14.0]}


def test_times_are_told_by_nearest_rank() -> None:
    times = Times([float(each) for each in range(1, 101)])
    assert str(times) == "p50 50.00 s, p99 99.00 s, max 100.00 s of 100"
    assert str(Times([2.0])) == "p50 2.00 s, p99 2.00 s, max 2.00 s of 1"
    assert str(Times([])) == "none"
