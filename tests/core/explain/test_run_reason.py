"""What a run waits for, in the words of an explanation."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.core.explain.explanation import explain, explained
from tenure.core.explain.fact import Awaited, Facts, NearWorker, WaitingReason, error_text
from tenure.core.group.record import Group
from tenure.core.instant import instant_text
from tenure.core.queue import Queue
from tenure.core.run.record import Wait
from tenure.core.task.event import CancelRequested, PauseRequested, Terminated
from tenure.core.task.record import Task
from tests.core.task.tasks import (
    FATAL,
    NAMESPACE,
    T0,
    TASK_ID,
    after,
    fresh,
    fresh_run,
    parked_run,
    running_run,
    waiting_run,
    yielding,
)

CHILD_ID = "00000000-0000-7000-8000-00000000c41d"
IN_NAMESPACE = f"{TASK_ID} --namespace {NAMESPACE}"


def facts_of(task: Task, **facts: Any) -> Facts:
    return Facts(task=task, now_ms=T0, queue=Queue(NAMESPACE, "default"), **facts)


def reasons(task: Task, **facts: Any) -> tuple[WaitingReason, ...]:
    return explain(facts_of(task, **facts))


def waiting(*found: Wait, **wish: Any) -> Task:
    """Return a run that waits and has told for what."""
    task = running_run()
    return after(task, yielding(task, waits=found, **{"wait_count": len(found), **wish}))


def waits(*found: Wait, **wish: Any) -> tuple[WaitingReason, ...]:
    return reasons(waiting(*found, **wish))


def child(**changes: Any) -> Task:
    return fresh(**{"id": CHILD_ID, "type": "resize", **changes})


def test_a_signal_is_named_with_the_command_that_sends_it() -> None:
    (reason,) = waits(Wait("signal", "approve", T0, "of ann", "orders.py:12"))
    since = instant_text(T0)
    assert reason.message == f"It waits for the signal approve since {since}, at orders.py:12."
    assert reason.advice == f"Send it: tenure runs signal {IN_NAMESPACE} approve"
    assert reason.evidence["site"] == "orders.py:12"
    assert (reason.evidence["since"], reason.evidence["detail"]) == (since, "of ann")
    assert (reason.evidence["for"], reason.evidence["key"]) == ("signal", "approve")


def test_what_somebody_has_to_do_is_named_before_timers() -> None:
    timer, retry = Wait("timer", "timeout@1.0"), Wait("retry", "charge")
    found = waits(timer, retry, Wait("signal", "go"), wake_at_ms=T0 + 5_000, wake_key="timeout@1.0")
    assert [each.evidence["for"] for each in found] == ["signal", "timer", "retry"]
    end = instant_text(T0 + 5_000)
    assert found[1].message == f"It waits for the timer timeout@1.0 until {end} (in 5s)."
    assert found[2].message == "It waits for the next attempt of step charge."


def test_a_sleep_says_until_when_and_at_which_line() -> None:
    wait = Wait("timer", "2/sleep#3", T0, str(T0 + 60_000), "orders.py:52")
    (reason,) = waits(wait, wake_at_ms=T0 + 60_000, wake_key="2/sleep#3")
    since, end = instant_text(T0), instant_text(T0 + 60_000)
    assert reason.message == f"It sleeps until {end} (in 1m) since {since}, at orders.py:52."
    assert reason.evidence["until"] == end
    assert "detail" not in reason.evidence


@pytest.mark.parametrize("detail", ["soon", "9" * 20, "9" * 500, "²"])
def test_a_timer_with_an_end_that_is_none_is_named_without_it(detail: str) -> None:
    (reason,) = waits(Wait("timer", "sleep", 0, detail))
    assert reason.message == "It sleeps."
    assert "until" not in reason.evidence


def test_a_child_is_explained_as_it_is_for_itself() -> None:
    run = waiting(Wait("child", "resize#2", T0, CHILD_ID, "orders.py:7"))
    its = facts_of(child())
    (reason,) = reasons(run, awaited={"resize#2": Awaited((its,))})
    (task,) = reason.tasks
    assert (task.task.id, task.status, task.reasons) == (CHILD_ID, "pending", explain(its))
    assert task.reasons[0].code == "no_worker"
    shown = f"tenure tasks explain {CHILD_ID} --namespace {NAMESPACE}"
    assert reason.advice == f"Look at it: {shown}"


def test_a_child_run_is_explained_with_what_it_waits_for_itself() -> None:
    inner = facts_of(
        waiting_run(id=CHILD_ID, type="ship"), awaited={"resize": Awaited((facts_of(child()),))}
    )
    run = waiting(Wait("child", "child:ship", T0, CHILD_ID))
    facts = facts_of(run, awaited={"child:ship": Awaited((inner,))})
    found = explained(facts)
    (reason,) = found.reasons
    assert reason.advice.startswith("Look at it: tenure runs explain")
    (ship,) = reason.tasks
    assert (ship.status, ship.reasons[0].code) == ("waiting", "waiting")
    assert ship.reasons[0].tasks[0].task.type == "resize"
    lines = found.text.splitlines()
    assert lines[1] == f"  Run {CHILD_ID} (ship) is WAITING."
    assert lines[3] == f"    Task {CHILD_ID} (resize) is PENDING."
    assert lines[4].startswith("    No worker serves queue default.")


def test_what_a_run_waits_for_is_shown_also_if_it_has_not_told() -> None:
    awaited = {"resize": Awaited((facts_of(child()),))}
    for run in (waiting_run(), waiting_run(T0 + 5_000)):
        (reason,) = reasons(run, awaited=awaited)
        assert [each.task.id for each in reason.tasks] == [CHILD_ID]


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ({"spawned": 7, "open_count": 2, "failed_count": 1}, "2 of 7 items are open, 1 failed."),
        ({"spawned": 5, "open_count": 5}, "5 of 7 items are open, 2 are not stored yet."),
        ({"spawned": 7, "open_count": 7}, "7 of 7 items are open."),
    ],
)
def test_a_group_is_told_with_how_much_of_it_is_open(counts: dict[str, Any], told: str) -> None:
    group = Group(
        group_id="g",
        namespace=NAMESPACE,
        run_id=TASK_ID,
        journal_id="j",
        key="map:resize",
        call_index=0,
        type="resize",
        fails_fast=True,
        total=7,
        **counts,
    )
    run = waiting(Wait("group", "map:resize", T0, "7 items"))
    (reason,) = reasons(run, awaited={"map:resize": Awaited((facts_of(child()),), group)})
    assert reason.message.endswith(told)
    assert (reason.evidence["total"], reason.evidence["open"]) == ("7", str(counts["open_count"]))
    assert reason.tasks[0].task.id == CHILD_ID


def test_a_run_of_a_type_that_nobody_offers_needs_a_workflow() -> None:
    near = NearWorker("w-1", "alice", "default", ("checkout",), 1)
    (reason,) = reasons(fresh_run(type="chekout"), near=(near,))
    assert reason.code == "no_worker_for_type"
    assert reason.advice.startswith("Add a workflow of this name")
    assert reason.advice.endswith("If you meant checkout, start the run under that name.")


def test_a_failed_run_is_retried_by_its_own_command() -> None:
    (reason,) = reasons(after(running_run(), Terminated()))
    retry = f"tenure runs retry {IN_NAMESPACE}"
    assert reason.advice == f"To run it again as a new run: {retry}"


def test_another_kind_of_wait_is_named_as_it_is() -> None:
    (reason,) = waits(Wait("child", "resize#2"))
    assert reason.message == "It waits for child resize#2."
    assert reason.advice == f"Look at it: tenure runs show {IN_NAMESPACE}"


@pytest.mark.parametrize(
    ("key", "group"),
    [
        ("child:sell", "runs"),
        ("shop/1/child:sell#2", "runs"),
        ("charge", "tasks"),
        ("shop/charge#2", "tasks"),
    ],
)
def test_a_child_is_named_with_the_command_that_shows_it(key: str, group: str) -> None:
    (reason,) = waits(Wait("child", key, T0, CHILD_ID))
    shown = f"tenure {group} show {CHILD_ID} --namespace {NAMESPACE}"
    assert reason.advice == f"Look at it: {shown}"


def test_a_group_or_a_child_without_an_id_is_seen_at_its_run() -> None:
    found = waits(Wait("child", "charge", T0, "; rm"), Wait("group", "map:pack", T0, "7 items"))
    assert {each.advice for each in found} == {f"Look at it: tenure runs show {IN_NAMESPACE}"}


def test_waits_that_are_not_shown_are_counted() -> None:
    first, more = waits(Wait("signal", "go"), wait_count=4)
    assert first.evidence["for"] == "signal"
    assert more.message == "It waits for 3 more things that it does not name."


def test_a_parked_run_says_why_and_when_it_is_tried_again() -> None:
    (reason,) = reasons(parked_run())
    assert reason.code == "parked"
    # Input that does not fit parks a run as well: the reason is told as it came.
    why = error_text(FATAL).rstrip(".")
    assert reason.message == f"It is parked: {why}. It is tried again in 1m."
    assert f"tenure runs resume {IN_NAMESPACE}" in reason.advice
    assert reason.evidence["parkCount"] == "1"


def test_a_run_is_paused_and_cancelled_by_its_own_commands() -> None:
    paused = reasons(after(waiting_run(), PauseRequested()))[0]
    assert paused.message == "This run is paused; it waits to be resumed."
    assert paused.advice == f"Resume it: tenure runs resume {IN_NAMESPACE}"
    cancelling = reasons(after(running_run(), CancelRequested(reason="")))[0]
    assert f"tenure runs terminate {IN_NAMESPACE}" in cancelling.advice
