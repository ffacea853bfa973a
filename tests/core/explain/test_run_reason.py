"""What a run waits for, in the words of an explanation."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.core.explain.explanation import explain
from tenure.core.explain.fact import Facts, WaitingReason, error_text
from tenure.core.instant import instant_text
from tenure.core.queue import Queue
from tenure.core.run.record import Wait
from tenure.core.task.event import CancelRequested, PauseRequested
from tenure.core.task.record import Task
from tests.core.task.tasks import (
    FATAL,
    NAMESPACE,
    T0,
    TASK_ID,
    after,
    parked_run,
    running_run,
    waiting_run,
    yielding,
)

CHILD_ID = "00000000-0000-7000-8000-00000000c41d"
IN_NAMESPACE = f"{TASK_ID} --namespace {NAMESPACE}"


def reasons(task: Task) -> tuple[WaitingReason, ...]:
    return explain(Facts(task=task, now_ms=T0, queue=Queue(NAMESPACE, "default")))


def waits(*found: Wait, **wish: Any) -> tuple[WaitingReason, ...]:
    task = running_run()
    word = yielding(task, waits=found, **{"wait_count": len(found), **wish})
    return reasons(after(task, word))


def test_a_signal_is_named_with_the_command_that_sends_it() -> None:
    (reason,) = waits(Wait("signal", "approve", T0, "orders.py:12"))
    since = instant_text(T0)
    assert reason.message == f"It waits for the signal approve since {since}."
    assert reason.advice == f"Send it: tenure runs signal {IN_NAMESPACE} approve"
    assert reason.evidence["detail"] == "orders.py:12"
    assert (reason.evidence["for"], reason.evidence["key"]) == ("signal", "approve")


def test_what_somebody_has_to_do_is_named_before_timers() -> None:
    timer, retry = Wait("timer", "timeout@1.0"), Wait("retry", "charge")
    found = waits(timer, retry, Wait("signal", "go"), wake_at_ms=T0 + 5_000, wake_key="timeout@1.0")
    assert [each.evidence["for"] for each in found] == ["signal", "timer", "retry"]
    assert found[1].message == "It waits for the timer timeout@1.0. It ends in 5s."
    assert found[2].message == "It waits for the next attempt of step charge."


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
