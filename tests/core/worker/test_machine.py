"""Every status of a worker meets every event; offline is terminal."""

from __future__ import annotations

from typing import Any, Final, get_args

import pytest
from msgspec.structs import replace

from tenure.core.worker.decide import (
    RULES,
    DrainRequested,
    HeldReleased,
    KeyChanged,
    ReleaseHeld,
    SessionOpened,
    TellDrain,
    TellEnded,
    WorkerDecision,
    WorkerEnded,
    WorkerEvent,
    decide,
    hand_out_refusal,
    inactive,
    report_refusal,
    served_refusal,
    speaker_refusal,
)
from tenure.core.worker.record import EndReason, NewWorker, Worker, WorkerMode, WorkerStatus, create
from tenure.errors import Rejection

T0: Final = 1_000_000
NEW: Final = NewWorker(
    instance_key="key-1",
    queue="default",
    types=("mail", "sms"),
    mode=WorkerMode.POLL,
    slots=7,
    name="a",
    hostname="host",
    pid=1,
    software_version="2.0",
    labels={"zone": "b"},
    key_id="key-a",
)


def online() -> Worker:
    return create(NEW, worker_id="worker-1", namespace="acme/default", now_ms=T0)


def decided(worker: Worker, event: WorkerEvent, at_ms: int = T0) -> WorkerDecision:
    decision = decide(worker, event, at_ms)
    assert isinstance(decision, WorkerDecision), decision
    return decision


def draining() -> Worker:
    return decided(online(), DrainRequested()).worker


def offline(reason: EndReason = EndReason.LEASE_EXPIRED) -> Worker:
    return decided(online(), WorkerEnded(reason)).worker


STATUSES: Final = {"online": online, "draining": draining, "offline": offline}
EVENTS: Final[list[WorkerEvent]] = [
    DrainRequested(),
    SessionOpened(),
    KeyChanged("key-2"),
    WorkerEnded(EndReason.EVICTED),
    HeldReleased(),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize(
    ("status", "taken"),
    [
        ("online", {DrainRequested, SessionOpened, KeyChanged, WorkerEnded}),
        ("draining", {DrainRequested, SessionOpened, KeyChanged, WorkerEnded}),
        ("offline", {HeldReleased}),
    ],
)
def test_every_status_meets_every_event(
    status: str, taken: set[type[WorkerEvent]], event: WorkerEvent
) -> None:
    worker = STATUSES[status]()
    result = decide(worker, event, T0)
    assert worker == STATUSES[status]()
    if type(event) in taken:
        assert isinstance(result, WorkerDecision)
        assert result.worker.status in RULES[type(event)].targets
    else:
        assert isinstance(result, Rejection)
        is_call = isinstance(event, SessionOpened | KeyChanged | WorkerEnded)
        assert result.code == ("worker_inactive" if is_call else "wrong_state")


def test_the_rules_name_every_event_and_nothing_else() -> None:
    assert set(RULES) == set(get_args(WorkerEvent)) == {type(event) for event in EVENTS}


def test_a_new_incarnation_is_online_with_everything_it_asked_for() -> None:
    worker = online()
    assert (worker.status, worker.registered_at_ms, worker.session_no) == ("online", T0, 0)
    # Those are kept with its lease and its seat.
    elsewhere = {"lease_ms", "address", "caller"}
    fields = [field for field in NEW.__struct_fields__ if field not in elsewhere]
    asked: dict[str, Any] = {field: getattr(NEW, field) for field in fields}
    assert {field: getattr(worker, field) for field in asked} == asked


def test_a_drain_gets_its_deadline_and_is_told() -> None:
    decision = decided(online(), DrainRequested(deadline_ms=900), T0 + 5)
    worker = decision.worker
    assert (worker.status, worker.drain_at_ms) == (WorkerStatus.DRAINING, T0 + 905)
    assert decision.effects == (TellDrain("worker-1"),)


def test_a_drain_has_five_minutes_by_default() -> None:
    assert draining().drain_at_ms == T0 + 300_000


def test_a_second_drain_changes_nothing() -> None:
    assert decided(draining(), DrainRequested(1), T0 + 9) == WorkerDecision(draining())


def test_each_session_raises_the_number() -> None:
    once = decided(online(), SessionOpened()).worker
    assert (once.session_no, decided(once, SessionOpened()).worker.session_no) == (1, 2)


def test_a_worker_may_count_its_sessions() -> None:
    assert decided(online(), SessionOpened(7)).worker.session_no == 7


@pytest.mark.parametrize("session_no", [1, 2])
def test_a_session_that_was_given_up_and_comes_late_is_refused(session_no: int) -> None:
    present = decided(online(), SessionOpened(2)).worker
    rejection = decide(present, SessionOpened(session_no), T0)
    assert isinstance(rejection, Rejection)
    assert rejection.code == "wrong_state"


def test_a_new_session_does_not_end_a_drain() -> None:
    assert decided(draining(), SessionOpened()).worker.status is WorkerStatus.DRAINING


@pytest.mark.parametrize("reason", EndReason)
def test_an_ended_worker_is_offline_with_its_reason_until_its_tasks_are_put_back(
    reason: EndReason,
) -> None:
    decision = decided(draining(), WorkerEnded(reason), T0 + 9)
    worker = decision.worker
    assert (worker.status, worker.end_reason) == (WorkerStatus.OFFLINE, reason)
    assert (worker.ended_at_ms, worker.release_pending) == (T0 + 9, True)
    assert decision.effects == (TellEnded("worker-1", reason), ReleaseHeld("worker-1"))


def test_an_offline_worker_is_done_when_nothing_is_left() -> None:
    worker = decided(offline(), HeldReleased()).worker
    assert (worker.status, worker.release_pending) == (WorkerStatus.OFFLINE, False)
    assert decided(worker, HeldReleased()).worker == worker


def test_a_call_of_an_offline_worker_is_told_why_it_ended() -> None:
    rejection = decide(offline(EndReason.SUPERSEDED), SessionOpened(), T0)
    assert isinstance(rejection, Rejection)
    assert rejection.fields == {"reason": "superseded"}


def test_draining_an_offline_worker_names_its_status() -> None:
    rejection = decide(offline(), DrainRequested(), T0)
    assert isinstance(rejection, Rejection)
    assert (rejection.code, rejection.fields) == ("wrong_state", {"state": "OFFLINE"})


def test_only_an_online_worker_gets_work() -> None:
    assert hand_out_refusal(online(), "worker-1") is None
    refusals = [hand_out_refusal(each, "worker-1") for each in (draining(), offline(), None)]
    codes = [refusal and refusal.code for refusal in refusals]
    assert codes == ["worker_draining", "worker_inactive", "worker_inactive"]


def test_only_a_live_worker_of_the_namespace_may_report() -> None:
    here = online().namespace
    for worker in (online(), draining()):
        assert report_refusal(worker, namespace=here, worker_id="worker-1") is None
    ended = inactive("worker-1", EndReason.LEASE_EXPIRED)
    assert report_refusal(offline(), namespace=here, worker_id="worker-1") == ended
    unknown = inactive("worker-1", None)
    assert report_refusal(online(), namespace="other/default", worker_id="worker-1") == unknown
    assert report_refusal(None, namespace=here, worker_id="worker-1") == unknown


def test_an_unknown_worker_is_inactive_for_an_unknown_reason() -> None:
    assert inactive("worker-9", None).fields == {"reason": "unknown"}
    assert hand_out_refusal(None, "worker-9") == inactive("worker-9", None)
    assert hand_out_refusal(offline(), "worker-1") == inactive("worker-1", EndReason.LEASE_EXPIRED)


@pytest.mark.parametrize(
    "changes",
    [
        {"status": WorkerStatus.OFFLINE},
        {"end_reason": EndReason.EVICTED},
        {"ended_at_ms": T0},
        {"release_pending": True},
    ],
)
def test_no_impossible_worker_can_exist(changes: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        replace(online(), **changes)


def test_a_worker_belongs_to_the_key_that_it_was_registered_with_last() -> None:
    worker = decided(online(), KeyChanged("key-b")).worker
    assert (online().key_id, worker.key_id) == ("key-a", "key-b")
    assert speaker_refusal(worker, "key-b") is None
    refusal = speaker_refusal(worker, "key-a")
    assert refusal is not None
    assert (refusal.code, refusal.fields) == ("worker_inactive", {"reason": "other_key"})


def test_administrators_speak_for_all_workers_and_each_key_for_those_of_nobody() -> None:
    assert speaker_refusal(online(), None) is None
    assert speaker_refusal(replace(online(), key_id=""), "key-b") is None


def test_a_served_worker_is_called_and_does_not_call() -> None:
    served = replace(online(), mode=WorkerMode.SERVED)
    refusal = served_refusal(served)
    assert refusal is not None
    assert refusal.code == "wrong_state"
    assert served_refusal(online()) is None
