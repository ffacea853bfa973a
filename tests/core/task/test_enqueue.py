"""Enqueueing: checks, defaults, the digest of a request, and the task it becomes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenure.core import limits
from tenure.core.task import deadline, enqueue
from tenure.core.task.enqueue import (
    again,
    check_new,
    check_spec,
    content_digest,
    create,
    differing_fields,
)
from tenure.core.task.record import NO_PROGRESS, Line, NewTask, Spec, TaskKind, TaskState
from tenure.core.task.retry import RetryPolicy
from tenure.errors import InvalidArgument, PayloadTooLarge
from tests.core.task.tasks import NAMESPACE, OTHER_ID, T0, TASK_ID, cancelled, fresh, new

FULL: dict[str, Any] = {
    "input": b"{}",
    "encoding": "json",
    "priority": 2,
    "run_at_ms": T0 + 500,
    "schedule_to_start_ms": 100,
    "schedule_to_close_ms": 9_000,
    "start_to_close_ms": 2_000,
    "heartbeat_timeout_ms": 600,
    "heartbeat_interval_ms": 300,
    "cancel_grace_ms": 400,
    "delivery_timeout_ms": 120_000,
    "retry": RetryPolicy(maximum_attempts=3),
    "idempotency_key": "order 7",
    "labels": {"team": "a"},
    "resources": {"gpu": "1"},
    "retry_of": OTHER_ID,
}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        FULL,
        {"start_to_close_ms": 0, "schedule_to_close_ms": 1},
        {"heartbeat_interval_ms": 300},
        {"heartbeat_timeout_ms": 300},
    ],
)
def test_a_good_request_passes(changes: dict[str, Any]) -> None:
    check_new(new(**changes))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"id": "1"}, "taskId"),
        ({"type": ""}, "type"),
        ({"queue": "a b"}, "queue"),
        ({"priority": 10}, "priority"),
        ({"run_at_ms": -1}, "runAt"),
        ({"schedule_to_start_ms": -1}, "scheduleToStartMs"),
        ({"schedule_to_close_ms": -1}, "scheduleToCloseMs"),
        ({"start_to_close_ms": limits.DURATION_MS_MAX + 1}, "startToCloseMs"),
        ({"heartbeat_timeout_ms": -1}, "heartbeatTimeoutMs"),
        ({"heartbeat_interval_ms": -1}, "heartbeatIntervalMs"),
        ({"cancel_grace_ms": 0}, "cancelGracePeriodMs"),
        ({"delivery_timeout_ms": 0}, "deliveryTimeoutMs"),
        ({"delivery_timeout_ms": 120_001}, "deliveryTimeoutMs"),
        ({"start_to_close_ms": 0}, "startToCloseMs"),
        ({"heartbeat_timeout_ms": 599, "heartbeat_interval_ms": 300}, "heartbeatTimeoutMs"),
        ({"retry": RetryPolicy(maximum_attempts=-1)}, "retry.maximumAttempts"),
        ({"encoding": "a b"}, "encoding"),
        ({"idempotency_key": "x" * 1_025}, "idempotencyKey"),
        ({"labels": {"a b": "c"}}, "labels"),
        ({"resources": {"a b": "c"}}, "resources"),
        ({"retry_of": "1"}, "retryOf"),
    ],
)
def test_a_bad_request_is_refused_with_the_name_of_its_field(
    changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_new(new(**changes))
    assert caught.value.fields == {"field": field}


def test_a_huge_input_is_refused() -> None:
    with pytest.raises(PayloadTooLarge):
        check_new(new(input=b"x" * (limits.PAYLOAD_BYTES_MAX + 1)))


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[Spec]:
    """Return the settings that were really checked, from an empty memory onwards."""
    seen: list[Spec] = []

    def check(spec: Spec) -> None:
        seen.append(spec)
        check_spec(spec)

    monkeypatch.setattr(enqueue, "check_spec", check)
    monkeypatch.setattr(enqueue, "_good_specs", {})
    return seen


def test_good_settings_are_checked_once_for_all_their_tasks(looked_at: list[Spec]) -> None:
    request = new()
    check_new(request)
    check_new(replace(request, id=OTHER_ID))
    assert looked_at == [request.spec]


def test_the_tasks_of_good_settings_are_each_checked(looked_at: list[Spec]) -> None:
    request = new()
    check_new(request)
    with pytest.raises(InvalidArgument):
        check_new(replace(request, priority=10))
    assert looked_at == [request.spec]


def test_bad_settings_are_refused_each_time(looked_at: list[Spec]) -> None:
    request = new(cancel_grace_ms=0)
    for _ in range(2):
        with pytest.raises(InvalidArgument):
            check_new(request)
    assert looked_at == [request.spec, request.spec]


def test_only_so_many_good_settings_are_remembered(
    looked_at: list[Spec], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enqueue, "SPECS_REMEMBERED_MAX", 2)
    first, second, third = (new(start_to_close_ms=ms) for ms in (1, 2, 3))
    for request in (first, second, first, third, first):
        check_new(request)
    # The third did not fit, so everything before it was forgotten.
    assert [spec.start_to_close_ms for spec in looked_at] == [1, 2, 3, 1]


def test_the_digest_of_a_request_is_what_earlier_versions_have_stored() -> None:
    """Otherwise a key that was used before an upgrade would conflict with itself after it."""
    request = NewTask(
        id=OTHER_ID,
        type="greet",
        queue="default",
        spec=Spec(start_to_close_ms=30_000),
        input=b'{"name":"Ann"}',
        idempotency_key="order-7",
    )
    assert content_digest(request).hex() == "2510168e2e21b5d37ec793d31c0500f7"


def test_two_requests_with_the_same_content_have_the_same_digest() -> None:
    digest = content_digest(new(**FULL))
    assert digest == content_digest(new(**FULL))
    assert digest == content_digest(new(**{**FULL, "id": OTHER_ID}))
    # The same delay, asked for a moment later.
    assert digest == content_digest(new(**{**FULL, "run_at_ms": T0 + 501}))
    assert len(digest) == 16


def test_no_labels_and_empty_labels_are_the_same_content() -> None:
    assert content_digest(new(labels={})) == content_digest(new(labels=None))
    assert content_digest(new(labels={})) != content_digest(new(labels={"team": "a"}))


def test_the_order_of_labels_and_resources_is_no_content() -> None:
    one = {"a": "1", "b": "2"}
    other = {"b": "2", "a": "1"}
    assert content_digest(new(labels=one)) == content_digest(new(labels=other))
    assert content_digest(new(resources=one)) == content_digest(new(resources=other))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("type", "sms"),
        ("queue", "other"),
        ("input", b"[]"),
        ("encoding", "msgpack"),
        ("kind", TaskKind.WORKFLOW),
        ("priority", 3),
        ("start_to_close_ms", 2_001),
        ("cancel_grace_ms", 401),
        ("idempotency_key", "order 8"),
        ("retry", RetryPolicy(maximum_attempts=4)),
        ("labels", {"team": "b"}),
        ("resources", {"gpu": "2"}),
    ],
)
def test_other_content_has_another_digest(field: str, value: object) -> None:
    assert content_digest(new(**{**FULL, field: value})) != content_digest(new(**FULL))


@pytest.mark.parametrize(
    ("changed", "differing"),
    [
        ({}, []),
        ({"input": b"[]"}, ["input"]),
        ({"type": "sms", "input": b"[]"}, ["type", "input"]),
        ({"type": "sms", "queue": "other"}, ["type", "queue"]),
        ({"priority": 3, "labels": {"team": "b"}}, ["priority", "labels"]),
        (
            {"start_to_close_ms": 2_001, "cancel_grace_ms": 401},
            ["startToCloseMs", "cancelGracePeriodMs"],
        ),
        ({"retry": RetryPolicy(maximum_attempts=4), "encoding": "x"}, ["retry", "encoding"]),
        ({"run_at_ms": T0 + 9_999, "id": OTHER_ID}, []),
    ],
)
def test_what_differs_from_the_first_request_is_named_without_its_input(
    changed: dict[str, object], differing: list[str]
) -> None:
    first = new(**FULL)
    stored = replace(create(first, namespace=NAMESPACE, now_ms=T0), input=None)
    second = new(**{**FULL, **changed})
    assert differing_fields(second, stored, content_digest(first)) == differing
    assert differing_fields(second, replace(first, input=None), content_digest(first)) == differing


def test_a_plain_request_is_ready_at_once() -> None:
    task = fresh()
    assert (task.state, task.line, task.due_at_ms) == (TaskState.PENDING, Line.FRESH, None)
    assert (task.created_at_ms, task.run_at_ms, task.attempt) == (T0, T0, 0)
    assert (task.priority, task.labels, task.namespace) == (5, None, NAMESPACE)
    assert task.progress is NO_PROGRESS


def test_tasks_share_the_settings_that_were_asked_for() -> None:
    request = new(heartbeat_timeout_ms=300)
    assert create(request, namespace=NAMESPACE, now_ms=T0).spec is request.spec


def test_a_task_has_labels_or_none() -> None:
    assert fresh(labels={}).labels is None
    assert fresh(labels={"team": "a"}).labels == {"team": "a"}


def test_a_request_for_the_past_runs_now() -> None:
    task = fresh(run_at_ms=T0 - 500)
    assert (task.run_at_ms, task.line) == (T0, Line.FRESH)


def test_a_request_for_later_is_armed() -> None:
    task = fresh(run_at_ms=T0 + 500)
    assert (task.run_at_ms, task.line, task.due_at_ms) == (T0 + 500, Line.NONE, T0 + 500)


def test_everything_that_was_asked_for_is_in_the_task() -> None:
    task = create(new(**FULL), namespace=NAMESPACE, now_ms=T0)
    in_task = {"input", "priority", "run_at_ms", "labels"}
    spec = {field: value for field, value in FULL.items() if field not in in_task}
    assert task.spec == Spec(**spec, close_at_ms=T0 + 9_500)
    assert {field: getattr(task, field) for field in in_task} == {
        field: FULL[field] for field in in_task
    }
    assert task.progress.ready_at_ms == T0 + 500


@pytest.mark.parametrize("run_at_ms", [0, T0 + 500])
@pytest.mark.parametrize("schedule_to_start_ms", [0, 100, 900])
@pytest.mark.parametrize("schedule_to_close_ms", [0, 300])
def test_the_first_timer_is_the_earliest_deadline(
    run_at_ms: int, schedule_to_start_ms: int, schedule_to_close_ms: int
) -> None:
    task = fresh(
        run_at_ms=run_at_ms,
        schedule_to_start_ms=schedule_to_start_ms,
        schedule_to_close_ms=schedule_to_close_ms,
    )
    assert task.due_at_ms == deadline.next_due_ms(task)


def test_a_task_again_is_a_new_task_with_the_same_content() -> None:
    old = cancelled(fresh(**FULL))
    task = again(old, task_id=OTHER_ID, now_ms=T0 + 7_000)
    assert (task.id, task.spec.retry_of, task.version) == (OTHER_ID, TASK_ID, 0)
    assert (task.state, task.line, task.attempt) == (TaskState.PENDING, Line.FRESH, 0)
    asked = {**FULL, "id": OTHER_ID, "run_at_ms": 0, "retry_of": TASK_ID}
    assert task == create(new(**asked), namespace=NAMESPACE, now_ms=T0 + 7_000)


def test_a_plain_task_again_has_no_deadlines_either() -> None:
    task = again(cancelled(fresh()), task_id=OTHER_ID, now_ms=T0)
    assert (task.spec.close_at_ms, task.due_at_ms) == (0, None)
    assert task.progress is NO_PROGRESS


def test_a_run_is_not_enqueued() -> None:
    with pytest.raises(InvalidArgument) as refusal:
        check_new(new(kind=TaskKind.WORKFLOW, start_to_close_ms=0))
    assert refusal.value.fields["field"] == "options.kind"
