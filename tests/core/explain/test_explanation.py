"""Why a task is not running: every gate alone, and which of several comes first."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenure.core.explain.explanation import explain, explained
from tenure.core.explain.fact import (
    Crew,
    EndedWorker,
    Facts,
    HeldTask,
    Holder,
    Member,
    NearWorker,
    TaskExplanation,
    WaitingReason,
)
from tenure.core.instant import instant_text
from tenure.core.limits import AHEAD_COUNTED_MAX, POISON_LOSSES_MAX
from tenure.core.queue import Queue
from tenure.core.task.attempt import Attempt, Outcome
from tenure.core.task.event import (
    AttemptFailed,
    AttemptSucceeded,
    CancelRequested,
    CancelSignalled,
    DeliveryMissed,
    PauseRequested,
    Terminated,
    WorkerLost,
)
from tenure.core.task.record import Line, Task
from tenure.core.task.retry import ErrorCategory, ErrorInfo, RetryPolicy
from tenure.core.worker.health import Health
from tenure.core.worker.record import EndReason, WorkerStatus
from tests.core.task.tasks import (
    FAULT,
    NAMESPACE,
    T0,
    TASK_ID,
    WORKER,
    after,
    cancelling,
    confirmed,
    due,
    fresh,
    fresh_run,
    handed,
    held_exclusively,
    report,
    running,
    waiting_async,
    waiting_run,
)

QUEUE = Queue(NAMESPACE, "default")
SHORT = RetryPolicy(initial_interval_ms=10_000, maximum_attempts=5)


def crew(**changes: Any) -> Crew:
    fields = {
        "status": WorkerStatus.ONLINE,
        "health": Health.HEALTHY,
        "is_full": False,
        "is_guarding": False,
        "count": 1,
        "members": (Member(WORKER, "alice", 4, 1),),
    }
    return Crew(**{**fields, **changes})


def near(queue: str = "default", *types: str, **changes: Any) -> NearWorker:
    return NearWorker(
        **{
            "id": WORKER,
            "name": "",
            "queue": queue,
            "types": types or ("sms",),
            "alike_count": 1,
            **changes,
        }
    )


def reasons(task: Task, **facts: Any) -> tuple[WaitingReason, ...]:
    given = {"now_ms": T0, "queue": QUEUE, "crews": (crew(),), **facts}
    return explain(Facts(task=task, **given))


def only(task: Task, **facts: Any) -> WaitingReason:
    (reason,) = reasons(task, **facts)
    return reason


def codes(task: Task, **facts: Any) -> list[str]:
    return [each.code for each in reasons(task, **facts)]


def failed(error: ErrorInfo = FAULT, **changes: Any) -> Task:
    task = running(**{"retry": SHORT, **changes})
    return after(task, report(AttemptFailed, task, error=error, jitter=0.5))


def lost(times: int) -> Task:
    task = fresh()
    for _ in range(times):
        task = confirmed(handed(replace(task, line=Line.RETURNED, state="pending")))
        task = after(task, WorkerLost(worker_id=WORKER))
    return task


def ready(task: Task) -> Task:
    """Return a task whose time has come."""
    return due(task, task.run_at_ms).task


LOSSES = tuple(
    Attempt(NAMESPACE, TASK_ID, number, Outcome.WORKER_LOST, worker, T0, T0, "pending")
    for number, worker in ((1, "worker-1"), (2, "worker-2"), (3, None))
)


class TestWorkers:
    def test_a_task_that_nothing_holds_up_is_next(self) -> None:
        reason = only(fresh())
        assert reason.code == "next"
        assert reason.evidence == {"queue": "default", "type": "mail"}

    def test_without_any_worker_it_says_how_to_start_one(self) -> None:
        reason = only(fresh(), crews=())
        assert reason.code == "no_worker"
        assert reason.message == "No worker serves queue default."
        assert reason.advice.endswith(
            "tenure worker MODULE --queue default --namespace acme/default"
        )

    def test_in_the_default_namespace_commands_name_none(self) -> None:
        reason = only(replace(fresh(), namespace="default/default"), crews=())
        assert reason.advice.endswith("tenure worker MODULE --queue default")

    @pytest.mark.parametrize(("name", "shown"), [("bob", "bob"), ("", WORKER)])
    def test_the_worker_that_ended_last_is_named(self, name: str, shown: str) -> None:
        ended = EndedWorker(WORKER, name, T0, EndReason.LEASE_EXPIRED)
        reason = only(fresh(), crews=(), last_ended=ended)
        assert (
            f"The last one, {shown}, ended at {instant_text(T0)} (lease expired)." in reason.message
        )
        assert reason.evidence["lastWorker"] == shown
        assert reason.evidence["lastEndReason"] == "lease_expired"

    def test_a_worker_of_another_queue_that_offers_the_type_is_near(self) -> None:
        reason = only(fresh(), crews=(), near=(near("slow", "mail", name="carol"),))
        assert reason.code == "no_worker"
        assert reason.message.endswith("mail is offered on queue slow.")
        assert reason.evidence["offeredElsewhereBy"] == "carol (slow)"

    def test_workers_that_offer_other_types_are_named_with_them(self) -> None:
        here = near("default", "sms", "push", alike_count=2)
        reason = only(fresh(), crews=(), near=(here, near("slow", "mail")))
        assert reason.code == "no_worker_for_type"
        assert reason.message == (
            "2 workers serve queue default without offering mail. Offered there: push, sms. "
            "mail is offered on queue slow."
        )
        assert reason.evidence["workers"] == f"{WORKER} (default)"
        assert reason.evidence["offered"] == "push, sms"
        assert "similar" not in reason.evidence

    def test_a_similar_type_is_suggested_and_long_lists_are_cut(self) -> None:
        types = ("mails", *(f"type-{number}" for number in range(30)))
        reason = only(fresh(), crews=(), near=(near("default", *types),))
        assert reason.message.startswith("1 worker serves queue default")
        assert reason.evidence["similar"] == "mails"
        assert "If you meant mails" in reason.advice
        assert reason.evidence["offered"].endswith(" …")

    def test_when_all_drain_it_says_so(self) -> None:
        reason = only(fresh(), crews=(crew(status=WorkerStatus.DRAINING, count=3),))
        assert reason.code == "all_draining"
        assert reason.evidence["workerCount"] == "3"
        assert reason.evidence["drainingCount"] == "3"

    def test_when_all_are_full_it_says_who_and_how_many_slots(self) -> None:
        full = crew(is_full=True, count=2, members=(Member(WORKER, "", 1, 1),))
        reason = only(fresh(), crews=(full, crew(status=WorkerStatus.DRAINING)))
        assert reason.code == "workers_busy"
        assert "2 workers could run it, and every slot of them is in use" in reason.message
        assert reason.evidence["workers"] == f"{WORKER} (1 of 1 slot in use)"
        assert reason.evidence["drainingCount"] == "1"

    def test_one_full_worker_is_spoken_of_as_one(self) -> None:
        reason = only(fresh(), crews=(crew(is_full=True),))
        assert "1 worker could run it, and every slot of it is in use" in reason.message
        assert reason.evidence["workers"] == "alice (1 of 4 slots in use)"

    @pytest.mark.parametrize("health", [each for each in Health if each is not Health.HEALTHY])
    def test_the_only_worker_that_could_is_unwell(self, health: Health) -> None:
        reason = only(fresh(), crews=(crew(health=health),))
        assert reason.code == "workers_unhealthy"
        assert reason.message.startswith(
            f"The only worker that could run it is unhealthy: 1 {health}"
        )
        assert reason.evidence[health] == "1"

    def test_the_advice_is_for_what_most_of_them_have(self) -> None:
        crews = (crew(health=Health.LATE, count=2), crew(health=Health.DEAF, count=5))
        reason = only(fresh(), crews=crews)
        assert reason.message.startswith("The 7 workers that could run it are unhealthy: 5 deaf")
        assert reason.advice.startswith("Restart it")
        assert (reason.evidence["late"], reason.evidence["deaf"]) == ("2", "5")

    def test_who_is_well_and_full_comes_before_who_is_unwell(self) -> None:
        crews = (crew(is_full=True), crew(health=Health.STUCK))
        assert codes(fresh(), crews=crews) == ["workers_busy", "workers_unhealthy"]

    def test_one_free_worker_is_enough(self) -> None:
        crews = (crew(is_full=True), crew(health=Health.LATE), crew(count=1))
        assert codes(fresh(), crews=crews) == ["next"]


class TestLine:
    @pytest.mark.parametrize(
        ("count", "beginning"),
        [
            (1, "1 task of this type is"),
            (37, "37 tasks of this type are"),
            (AHEAD_COUNTED_MAX, f"At least {AHEAD_COUNTED_MAX} tasks"),
        ],
    )
    def test_work_before_it_is_counted(self, count: int, beginning: str) -> None:
        reason = only(fresh(), ahead_count=count)
        assert reason.code == "work_ahead"
        assert reason.message.startswith(beginning)
        assert reason.evidence == {"aheadCount": str(count), "priority": "5"}

    def test_work_before_it_is_told_after_what_holds_all_of_it_up(self) -> None:
        assert codes(fresh(), ahead_count=2, crews=()) == ["no_worker", "work_ahead"]

    def test_deadlines_that_run_are_evidence_of_the_first_reason(self) -> None:
        task = fresh(schedule_to_start_ms=5_000, schedule_to_close_ms=9_000)
        first, second = reasons(task, ahead_count=2, crews=())
        assert first.evidence["scheduleToStartAt"] == instant_text(T0 + 5_000)
        assert first.evidence["scheduleToCloseAt"] == instant_text(T0 + 9_000)
        assert "scheduleToStartAt" not in second.evidence


class TestQueue:
    def test_a_paused_queue_says_how_to_resume_it(self) -> None:
        reason = only(fresh(), queue=replace(QUEUE, is_paused=True))
        assert reason.code == "queue_paused"
        assert reason.advice.endswith("tenure queues resume default --namespace acme/default")

    def test_a_full_queue_names_what_takes_up_its_limit(self) -> None:
        held = (
            HeldTask("task-1", "mail", WORKER, "alice", T0),
            HeldTask("task-2", "sms", WORKER, "", T0),
        )
        queue = replace(QUEUE, concurrency_max=2)
        reason = only(fresh(), queue=queue, held_count=2, held=held)
        assert reason.code == "queue_full"
        at = instant_text(T0)
        assert reason.evidence == {
            "queue": "default",
            "limit": "2",
            "heldCount": "2",
            "held": f"task-1 (mail, by alice since {at}), task-2 (sms, by {WORKER} since {at})",
        }

    def test_a_limit_that_is_not_reached_is_no_reason(self) -> None:
        assert codes(fresh(), queue=replace(QUEUE, concurrency_max=3), held_count=2) == ["next"]


class TestTime:
    def test_a_task_for_later_says_when(self) -> None:
        reason = only(fresh(run_at_ms=T0 + 90_000))
        assert reason.code == "not_before"
        assert reason.message.endswith("in 1m30s.")
        assert reason.evidence["runAt"] == instant_text(T0 + 90_000)

    def test_a_task_whose_time_has_come_is_not_held_up_by_it(self) -> None:
        task = fresh(run_at_ms=T0 + 90_000)
        assert codes(task, now_ms=T0 + 90_000) == ["next"]

    def test_backing_off_tells_the_error_and_which_attempt_it_was(self) -> None:
        reason = only(failed())
        assert reason.code == "backing_off"
        assert reason.message == (
            "Attempt 1 of 5 ended with ValueError: boom; the next one begins in 10s."
        )
        assert reason.evidence == {
            "attempt": "1",
            "nextAttemptAt": instant_text(T0 + 10_000),
            "failureCount": "1",
            "maximumAttempts": "5",
            "errorType": "ValueError",
            "errorCategory": "USER_CODE",
            "errorMessage": "boom",
        }

    def test_without_a_limit_of_attempts_none_is_told(self) -> None:
        error = ErrorInfo(ErrorCategory.TIMEOUT, "")
        reason = only(failed(error, retry=RetryPolicy(initial_interval_ms=10_000)))
        assert reason.message.startswith("Attempt 1 ended with TIMEOUT;")
        assert reason.evidence["maximumAttempts"] == "none"
        assert "errorType" not in reason.evidence

    def test_an_error_that_is_not_known_any_more_is_no_obstacle(self) -> None:
        task = failed()
        reason = only(replace(task, progress=replace(task.progress, error=None)))
        assert reason.message.startswith("Attempt 1 of 5 ended with an error;")

    def test_long_messages_are_shown_by_their_beginning(self) -> None:
        reason = only(failed(ErrorInfo(ErrorCategory.USER_CODE, "x" * 5_000 + "\n")))
        assert len(reason.evidence["errorMessage"]) == 200
        assert reason.evidence["errorMessage"].endswith("x…")

    def test_hand_outs_that_nobody_confirmed_make_it_wait(self) -> None:
        task = fresh()
        for _ in range(3):
            task = handed(replace(task, line=Line.RETURNED))
            task = after(task, DeliveryMissed(attempt=task.attempt))
        reason = only(task)
        assert reason.code == "backing_off"
        assert "handed out 3 times in a row and never confirmed" in reason.message
        assert reason.evidence["avoidedWorker"] == WORKER
        other = replace(task, progress=replace(task.progress, avoid_worker_id=None))
        assert "avoidedWorker" not in only(other).evidence


class TestGuard:
    def test_a_suspect_waits_before_it_is_tried_again(self) -> None:
        reason = only(lost(2), losses=LOSSES)
        assert reason.code == "crash_guard"
        assert "2 in a row were lost" in reason.message
        assert "tried again in 1s" in reason.message
        assert reason.message.endswith("After 3 more counted losses it fails.")
        assert reason.evidence["lostWorkers"] == "worker-1, worker-2"
        assert reason.evidence["lossesMax"] == str(POISON_LOSSES_MAX)

    def test_a_suspect_waits_for_a_worker_without_another_one(self) -> None:
        task = ready(lost(2))
        reason = only(task, now_ms=task.run_at_ms, crews=(crew(is_guarding=True),))
        assert reason.code == "crash_guard"
        assert "waits for a worker that holds no other suspected task" in reason.message
        assert "lostWorkers" not in reason.evidence

    def test_it_is_told_once_while_it_backs_off(self) -> None:
        assert codes(lost(2), crews=(crew(is_guarding=True),)) == ["crash_guard"]

    def test_before_the_last_loss_it_says_so(self) -> None:
        task = lost(2)
        task = replace(task, progress=replace(task.progress, counted_count=POISON_LOSSES_MAX - 1))
        assert only(task).message.endswith("After 1 more counted loss it fails.")

    def test_a_group_of_suspects_may_share_a_worker(self) -> None:
        task = ready(lost(2))
        task = replace(task, progress=replace(task.progress, group_max=3))
        reason = only(task, now_ms=task.run_at_ms, crews=(crew(is_guarding=True),))
        assert "a worker that holds at most 2 other suspected tasks" in reason.message
        assert reason.evidence["groupMax"] == "3"

    def test_a_worker_without_a_suspect_takes_it(self) -> None:
        task = ready(lost(2))
        crews = (crew(is_guarding=True), crew())
        assert codes(task, now_ms=task.run_at_ms, crews=crews) == ["next"]

    def test_other_tasks_do_not_mind_a_suspect_on_their_worker(self) -> None:
        assert codes(fresh(), crews=(crew(is_guarding=True),)) == ["next"]

    def test_a_full_worker_is_busy_whatever_it_guards(self) -> None:
        task = ready(lost(2))
        crews = (crew(is_guarding=True, is_full=True),)
        assert codes(task, now_ms=task.run_at_ms, crews=crews) == ["workers_busy"]


class TestHeld:
    HOLDER = Holder(WORKER, "alice", WorkerStatus.ONLINE, Health.HEALTHY, T0)

    def test_a_running_task_says_who_has_it_since_when_and_until_when(self) -> None:
        reason = only(running(), holder=self.HOLDER)
        assert reason.code == "held"
        assert reason.message == (
            f"It is running: worker alice got attempt 1 at {instant_text(T0)}."
        )
        assert reason.evidence == {
            "attempt": "1",
            "worker": WORKER,
            "since": instant_text(T0),
            "workerStatus": "online",
            "workerHealth": "healthy",
            "workerBeatAt": instant_text(T0),
            "startToCloseAt": instant_text(T0 + 60_000),
        }

    def test_a_task_that_is_on_its_way_waits_for_the_confirmation(self) -> None:
        reason = only(handed(fresh()), holder=replace(self.HOLDER, name=""))
        assert reason.code == "held"
        assert reason.message.startswith(f"It was handed to worker {WORKER} at")
        assert reason.evidence["deliveryTimeoutAt"] == instant_text(T0 + 20_000)

    def test_a_worker_that_is_unwell_is_named(self) -> None:
        reason = only(running(), holder=replace(self.HOLDER, health=Health.LATE))
        assert reason.message.endswith("That worker is late.")
        assert f"tenure workers show {WORKER}" in reason.advice

    def test_exclusive_work_of_a_worker_that_is_gone_waits_for_the_end_of_its_lease(self) -> None:
        task = held_exclusively(until_ms=T0 + 15_000)
        reason = only(task, holder=Holder(WORKER, "alice", WorkerStatus.OFFLINE))
        at = instant_text(T0 + 15_650)
        assert f"is exclusive and held until {at}" in reason.message
        assert reason.evidence["heldUntil"] == at

    @pytest.mark.parametrize(
        "holder", [None, Holder(WORKER, "alice", WorkerStatus.OFFLINE)], ids=["no row", "offline"]
    )
    def test_a_worker_that_is_gone_gives_it_back(self, holder: Holder | None) -> None:
        reason = only(running(), holder=holder)
        assert reason.message.endswith("That worker is gone; the task is put back in a moment.")
        assert "workerHealth" not in reason.evidence

    def test_a_worker_without_a_lease_in_this_look_is_not_judged(self) -> None:
        reason = only(running(), holder=replace(self.HOLDER, health=None, beat_at_ms=0))
        assert "workerHealth" not in reason.evidence
        assert reason.advice.startswith("Wait for it")

    def test_a_wanted_pause_is_told(self) -> None:
        reason = only(after(running(), PauseRequested()), holder=self.HOLDER)
        assert reason.evidence["pauseWanted"] == "true"
        assert "It will be paused" in reason.message


class TestCancelling:
    def test_a_worker_that_has_not_heard_of_it_yet(self) -> None:
        reason = only(cancelling(), holder=TestHeld.HOLDER)
        assert reason.code == "cancelling"
        assert "worker alice does not know of it yet. Reason: enough." in reason.message
        assert f"tenure tasks terminate {TASK_ID}" in reason.advice

    def test_a_worker_that_has_its_grace(self) -> None:
        task = after(running(), CancelRequested(reason=""))
        reason = only(after(task, CancelSignalled(attempt=1)), holder=TestHeld.HOLDER)
        assert reason.message.endswith("worker alice has been told to stop.")
        assert reason.evidence["cancelGraceEndsAt"] == instant_text(T0 + 30_000)

    def test_what_is_completed_from_outside_has_no_worker(self) -> None:
        reason = only(after(waiting_async(), CancelRequested(reason="")))
        assert "the program that completes it has been told to stop" in reason.message


class TestWaiting:
    def test_for_its_completion_from_outside(self) -> None:
        reason = only(waiting_async())
        assert reason.code == "waiting"
        assert (reason.evidence["for"], reason.evidence["since"]) == (
            "completion",
            instant_text(T0),
        )
        assert reason.evidence["startToCloseAt"] == instant_text(T0 + 60_000)
        assert f"tenure tasks complete {TASK_ID} --output JSON" in reason.advice

    def test_for_a_timer(self) -> None:
        reason = only(waiting_run(wake_at_ms=T0 + 5))
        assert (reason.code, reason.evidence["for"]) == ("waiting", "timer")
        assert reason.evidence["wakesAt"] == instant_text(T0 + 5)

    def test_for_an_event(self) -> None:
        reason = only(waiting_run())
        assert (reason.code, reason.evidence["for"]) == ("waiting", "event")


class TestFinished:
    def test_a_task_that_succeeded(self) -> None:
        task = running()
        reason = only(after(task, report(AttemptSucceeded, task, output=b"")))
        assert reason == WaitingReason(
            "finished",
            f"It succeeded at {instant_text(T0)}; it will not run again.",
            "",
            {"state": "SUCCEEDED", "finishedAt": instant_text(T0), "attempt": "1"},
        )

    def test_a_task_that_failed_tells_why_and_how_to_run_it_again(self) -> None:
        task = running(retry=RetryPolicy(maximum_attempts=1))
        reason = only(after(task, report(AttemptFailed, task, error=FAULT, jitter=0.0)))
        assert reason.message.endswith("The last error was ValueError: boom.")
        assert reason.evidence["failureReason"] == "RETRIES_EXHAUSTED"
        assert reason.advice.endswith(f"tenure tasks retry {TASK_ID} --namespace acme/default")

    def test_a_task_that_was_cancelled_before_it_began(self) -> None:
        reason = only(after(fresh(), CancelRequested(reason="")))
        assert reason.message.startswith("It was cancelled at")
        assert "failureReason" not in reason.evidence

    def test_a_task_that_was_terminated(self) -> None:
        reason = only(after(fresh(), Terminated(message="stop")))
        assert reason.evidence["failureReason"] == "TERMINATED"


class TestOrder:
    def test_each_gate_comes_before_the_next(self) -> None:
        task = fresh(run_at_ms=T0 + 1_000)
        found = codes(
            task,
            is_disabled=True,
            queue=replace(QUEUE, is_paused=True, concurrency_max=1),
            held_count=1,
            crews=(),
        )
        assert found == [
            "namespace_disabled",
            "not_before",
            "queue_paused",
            "queue_full",
            "no_worker",
        ]

    def test_a_paused_task_tells_what_it_will_meet_when_it_is_resumed(self) -> None:
        paused = after(fresh(), PauseRequested())
        assert codes(paused) == ["task_paused"]
        assert codes(paused, crews=()) == ["task_paused", "no_worker"]
        assert f"tenure tasks resume {TASK_ID}" in reasons(paused)[0].advice

    def test_a_disabled_namespace_says_how_to_enable_it(self) -> None:
        reason = only(fresh(), is_disabled=True)
        assert reason.advice == "Enable it: tenure namespaces enable acme/default"

    def test_as_one_text_each_reason_is_a_line(self) -> None:
        found = explained(Facts(task=fresh(), now_ms=T0, queue=QUEUE, ahead_count=1))
        assert len(found.text.splitlines()) == len(found.reasons) == 2
        bare = TaskExplanation(found.task, found.status, (WaitingReason("x", "So it is."),))
        assert bare.text == "So it is."


def test_a_run_for_which_only_served_workers_wait_says_so() -> None:
    reason = only(fresh_run(), crews=(), served_count=2)
    assert reason.code == "no_worker_for_runs"
    assert "never handed out in this mode" in reason.message
    assert reason.evidence["workerCount"] == "2"
