"""Bad input: the typed error of the table, the same on both stores, and no row changed."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any, Final

import pytest
from msgspec.structs import replace

from tenure.core import limits
from tenure.core.run.record import Wait, Yield
from tenure.core.task.record import NewTask, Spec, TaskKind
from tenure.core.task.retry import ErrorCategory, ErrorInfo, RetryPolicy
from tenure.core.worker.lease import Beat
from tenure.core.worker.record import NewWorker
from tenure.engine.access.command import CreateNamespace, SetQueue
from tenure.engine.command import TaskRef, WorkDone
from tenure.engine.engine import Engine
from tenure.engine.task.command import (
    CancelTask,
    ClaimTasks,
    CompleteById,
    ConfirmTasks,
    EnqueueTasks,
    Finish,
    FinishKind,
    FinishTasks,
    HeartbeatTasks,
    PauseTask,
    ResumeTask,
    RetryTask,
    SignalCancels,
    TaskBeat,
    TerminateTask,
)
from tenure.engine.worker.command import (
    DeregisterWorker,
    DrainWorker,
    EvictWorker,
    FailCall,
    Heartbeat,
    OpenSession,
    RegisterWorker,
    ReportHeld,
)
from tenure.errors import ERRORS, Rejection, TenureError
from tests.engine.world import FAULT, NAMESPACE, OTHER_NAMESPACE, QUEUE, SPEC, World, finish, ref

ID: Final = "019b0000-0000-7000-8000-0000000fffff"
HUGE: Final = 2**63
NUL: Final = "a\0b"
LONE: Final = "\ud800"
TOO_LARGE: Final = b"x" * (limits.PAYLOAD_BYTES_MAX + 1)
NEW: Final = NewTask(id=ID, type="mail", queue=QUEUE, spec=SPEC)
WORKER: Final = NewWorker(instance_key="key", queue=QUEUE, types=("mail",))
Names: Any = dict[str, Any]


def enqueue(**changes: Any) -> Any:
    namespace = changes.pop("namespace", NAMESPACE)
    return EnqueueTasks(namespace=namespace, tasks=(replace(NEW, **changes),))


def of_spec(**changes: Any) -> Any:
    return enqueue(spec=replace(SPEC, **changes))


def of_retry(**changes: Any) -> Any:
    return of_spec(retry=RetryPolicy(**changes))


def register(**changes: Any) -> Any:
    return RegisterWorker(namespace=NAMESPACE, new=replace(WORKER, **changes))


def report(**changes: Any) -> Any:
    fields = {"task_id": ID, "attempt": 1, "kind": FinishKind.SUCCEEDED, **changes}
    return FinishTasks(namespace=NAMESPACE, worker_id=ID, items=(Finish(**fields),))


def of_error(**changes: Any) -> Any:
    return report(kind=FinishKind.FAILED, error=replace(FAULT, **changes))


def of_yield(**changes: Any) -> Any:
    return report(kind=FinishKind.YIELDED, wish=Yield(**{"seen": 0, **changes}))


def of_failure(**changes: Any) -> Any:
    return report(kind=FinishKind.FAILED, error=FAULT, **changes)


def progress(**changes: Any) -> Any:
    item = TaskBeat(**{"task_id": ID, "attempt": 1, **changes})
    return HeartbeatTasks(namespace=NAMESPACE, worker_id=ID, items=(item,))


def beat(**changes: Any) -> Any:
    fields = {"token": 1, "server_id": ID, **changes}
    return Heartbeat(namespace=NAMESPACE, worker_id=ID, beat=Beat(**fields))


def poll(**changes: Any) -> Any:
    fields = {"worker_id": ID, "queue": QUEUE, "types": frozenset({"mail"}), **changes}
    return ClaimTasks(namespace=NAMESPACE, **fields)


def session(**changes: Any) -> Any:
    fields = {"worker_id": ID, "held": (), "window": 1, "sink": None, **changes}
    return OpenSession(namespace=NAMESPACE, **fields)


def confirm(*refs: Any, **changes: Any) -> Any:
    fields = {"namespace": NAMESPACE, "worker_id": ID, "items": refs, **changes}
    return ConfirmTasks(**fields)


def on_task(kind: Any, **changes: Any) -> Any:
    return kind(**{"namespace": NAMESPACE, "task_id": ID, **changes})


def on_worker(kind: Any, **changes: Any) -> Any:
    return kind(**{"namespace": NAMESPACE, "worker_id": ID, **changes})


def set_queue(**changes: Any) -> Any:
    return SetQueue(**{"namespace": NAMESPACE, "name": QUEUE, **changes})


MANY_LABELS: Final = {f"k{number}": "v" for number in range(limits.LABELS_MAX + 1)}
MANY_REFS: Final = (TaskRef(ID, 1),) * (limits.HELD_SET_MAX + 1)

REFUSED: Final[dict[str, tuple[Callable[[], Any], str]]] = {
    # name: (command, the field that the error names)
    "id without hyphens": (lambda: enqueue(id=ID.replace("-", "")), "taskId"),
    "id in upper case": (lambda: enqueue(id=ID.upper()), "taskId"),
    "id empty": (lambda: enqueue(id=""), "taskId"),
    "id with a newline": (lambda: enqueue(id=ID + "\n"), "taskId"),
    "type empty": (lambda: enqueue(type=""), "type"),
    "type with NUL": (lambda: enqueue(type=NUL), "type"),
    "type too long": (lambda: enqueue(type="x" * 256), "type"),
    "type a lone surrogate": (lambda: enqueue(type=LONE), "type"),
    "queue with a slash": (lambda: enqueue(queue="a/b"), "queue"),
    "queue of dots": (lambda: enqueue(queue=".."), "queue"),
    "input no bytes": (lambda: enqueue(input="text"), "input"),
    "priority negative": (lambda: enqueue(priority=-1), "priority"),
    "priority 10": (lambda: enqueue(priority=10), "priority"),
    "priority 2**63": (lambda: enqueue(priority=HUGE), "priority"),
    "priority NaN": (lambda: enqueue(priority=math.nan), "priority"),
    "runAt negative": (lambda: enqueue(run_at_ms=-1), "runAt"),
    "runAt 2**63": (lambda: enqueue(run_at_ms=HUGE), "runAt"),
    "runAt NaN": (lambda: enqueue(run_at_ms=math.nan), "runAt"),
    "key with NUL": (lambda: enqueue(idempotency_key=NUL), "idempotencyKey"),
    "key a lone surrogate": (lambda: enqueue(idempotency_key=LONE), "idempotencyKey"),
    "key too long": (lambda: enqueue(idempotency_key="ä" * 513), "idempotencyKey"),
    "too many labels": (lambda: enqueue(labels=MANY_LABELS), "labels"),
    "label with NUL": (lambda: enqueue(labels={"a": NUL}), "labels.a"),
    "label a lone surrogate": (lambda: enqueue(labels={"a": LONE}), "labels.a"),
    "label too long": (lambda: enqueue(labels={"a": "x" * 257}), "labels.a"),
    "label with a bad key": (lambda: enqueue(labels={"a b": "x"}), "labels"),
    "label of a prototype": (lambda: enqueue(labels={"__proto__": "x"}), "labels"),
    "no timeout": (lambda: enqueue(spec=Spec()), "startToCloseMs"),
    "startToClose negative": (lambda: of_spec(start_to_close_ms=-1), "startToCloseMs"),
    "startToClose 2**63": (lambda: of_spec(start_to_close_ms=HUGE), "startToCloseMs"),
    "startToClose NaN": (lambda: of_spec(start_to_close_ms=math.nan), "startToCloseMs"),
    "scheduleToStart negative": (lambda: of_spec(schedule_to_start_ms=-5), "scheduleToStartMs"),
    "scheduleToClose infinite": (
        lambda: of_spec(schedule_to_close_ms=math.inf),
        "scheduleToCloseMs",
    ),
    "heartbeat negative": (lambda: of_spec(heartbeat_timeout_ms=-1), "heartbeatTimeoutMs"),
    "heartbeat below two intervals": (
        lambda: of_spec(heartbeat_timeout_ms=1_999, heartbeat_interval_ms=1_000),
        "heartbeatTimeoutMs",
    ),
    "grace zero": (lambda: of_spec(cancel_grace_ms=0), "cancelGracePeriodMs"),
    "delivery timeout too long": (
        lambda: of_spec(delivery_timeout_ms=120_001),
        "deliveryTimeoutMs",
    ),
    "encoding with NUL": (lambda: of_spec(encoding=NUL), "encoding"),
    "resource with NUL": (lambda: of_spec(resources={"gpu": NUL}), "resources.gpu"),
    "a run": (lambda: of_spec(kind=TaskKind.WORKFLOW), "options.kind"),
    "coefficient NaN": (lambda: of_retry(backoff_coefficient=math.nan), "retry.backoffCoefficient"),
    "coefficient infinite": (
        lambda: of_retry(backoff_coefficient=math.inf),
        "retry.backoffCoefficient",
    ),
    "initial interval 0": (lambda: of_retry(initial_interval_ms=0), "retry.initialIntervalMs"),
    "attempts 2**63": (lambda: of_retry(maximum_attempts=HUGE), "retry.maximumAttempts"),
    "error type with NUL": (
        lambda: of_retry(non_retryable_error_types=(NUL,)),
        "retry.nonRetryableErrorTypes",
    ),
    "no tasks": (lambda: EnqueueTasks(namespace=NAMESPACE, tasks=()), "tasks"),
    "one id twice": (
        lambda: EnqueueTasks(namespace=NAMESPACE, tasks=(NEW, replace(NEW, input=b"x"))),
        "taskId",
    ),
    "namespace not canonical": (lambda: enqueue(namespace="acme"), "namespace"),
    "namespace with NUL": (lambda: enqueue(namespace="a/" + NUL), "namespace"),
    "namespace a lone surrogate": (lambda: enqueue(namespace=LONE), "namespace"),
    "namespace with two slashes": (lambda: enqueue(namespace="a/b/c"), "namespace"),
    "namespace empty": (lambda: enqueue(namespace=""), "namespace"),
    "new namespace with a space": (lambda: CreateNamespace(name="a b/c"), "namespace"),
    "confirmed attempt 0": (lambda: confirm(TaskRef(ID, 0)), "attempt"),
    "confirmed attempt negative": (lambda: confirm(TaskRef(ID, -1)), "attempt"),
    "confirmed attempt 2**63": (lambda: confirm(TaskRef(ID, HUGE)), "attempt"),
    "confirmed attempt 2**31": (lambda: confirm(TaskRef(ID, 2**31)), "attempt"),
    "confirmed id bad": (lambda: confirm(TaskRef("x", 1)), "taskId"),
    "confirming worker bad": (lambda: confirm(worker_id="x"), "workerId"),
    "finished attempt 0": (lambda: report(attempt=0), "attempt"),
    "finished attempt 2**63": (lambda: report(attempt=HUGE), "attempt"),
    "finished id bad": (lambda: report(task_id=LONE), "taskId"),
    "output no bytes": (lambda: report(output="text"), "output"),
    "output encoding with NUL": (lambda: report(output_encoding=NUL), "outputEncoding"),
    "output encoding with a space": (lambda: report(output_encoding="a b"), "outputEncoding"),
    "output encoding too long": (lambda: report(output_encoding="x" * 256), "outputEncoding"),
    "output encoding a lone surrogate": (lambda: report(output_encoding=LONE), "outputEncoding"),
    "output encoding of a failure": (lambda: of_failure(output_encoding=NUL), "outputEncoding"),
    "output encoding by id": (
        lambda: CompleteById(
            namespace=NAMESPACE,
            finish=Finish(task_id=ID, attempt=0, kind=FinishKind.SUCCEEDED, output_encoding=NUL),
        ),
        "outputEncoding",
    ),
    "failed without an error": (lambda: report(kind=FinishKind.FAILED), "error"),
    "error message with NUL": (lambda: of_error(message=NUL), "error.message"),
    "error message a lone surrogate": (lambda: of_error(message=LONE), "error.message"),
    "error message too long": (lambda: of_error(message="x" * 16_385), "error.message"),
    "stack trace too long": (lambda: of_error(stack_trace="x" * 65_537), "error.stackTrace"),
    "next delay negative": (lambda: of_error(next_delay_ms=-1), "error.nextRetryDelayMs"),
    "next delay 2**63": (lambda: of_error(next_delay_ms=HUGE), "error.nextRetryDelayMs"),
    "parked without an error": (lambda: report(kind=FinishKind.PARKED), "error"),
    "yielded without a position": (lambda: report(kind=FinishKind.YIELDED), "seen"),
    "wake 2**63": (lambda: of_yield(wake_at_ms=HUGE), "wakeAt"),
    "wake negative": (lambda: of_yield(wake_at_ms=-1), "wakeAt"),
    "seen 2**63": (lambda: of_yield(seen=HUGE), "seen"),
    "seen negative": (lambda: of_yield(seen=-1), "seen"),
    "wake key too long": (lambda: of_yield(wake_key="x" * 529), "wakeKey"),
    "wake key with NUL": (lambda: of_yield(wake_key=NUL), "wakeKey"),
    "wake index negative": (lambda: of_yield(wake_index=-1), "wakeIndex"),
    "patience negative": (lambda: of_yield(patience_n=-1), "patienceN"),
    "patience 2**63": (lambda: of_yield(patience_ms=HUGE), "patienceMs"),
    "wait with NUL": (lambda: of_yield(waits=(Wait("signal", NUL),)), "waits"),
    "wait at a line that is too long": (
        lambda: of_yield(waits=(Wait("x", "y", site="x" * 513),)),
        "waits",
    ),
    "wait without an instant": (lambda: of_yield(waits=(Wait("x", "y", -1),)), "waits"),
    "too many waits": (lambda: of_yield(waits=(Wait("signal", "x"),) * 21), "waits"),
    "wait count negative": (lambda: of_yield(wait_count=-1), "waitCount"),
    "percent NaN": (lambda: progress(percent=math.nan), "progressPct"),
    "percent over 100": (lambda: progress(percent=100.5), "progressPct"),
    "progress message with NUL": (lambda: progress(message=NUL), "message"),
    "progress attempt 0": (lambda: progress(attempt=0), "attempt"),
    "by id with a bad id": (
        lambda: CompleteById(
            namespace=NAMESPACE, finish=Finish(task_id="x", attempt=0, kind=FinishKind.SUCCEEDED)
        ),
        "taskId",
    ),
    "by id with attempt -1": (
        lambda: CompleteById(
            namespace=NAMESPACE, finish=Finish(task_id=ID, attempt=-1, kind=FinishKind.SUCCEEDED)
        ),
        "attempt",
    ),
    "cancel of a bad id": (lambda: on_task(CancelTask, task_id=NUL), "taskId"),
    "cancel with NUL": (lambda: on_task(CancelTask, reason=NUL), "reason"),
    "cancel with a lone surrogate": (lambda: on_task(CancelTask, reason=LONE), "reason"),
    "pause of a bad id": (lambda: on_task(PauseTask, task_id=""), "taskId"),
    "resume of a bad id": (lambda: on_task(ResumeTask, task_id=LONE), "taskId"),
    "terminate of a bad id": (lambda: on_task(TerminateTask, task_id="1"), "taskId"),
    "retry with a bad new id": (lambda: on_task(RetryTask, new_task_id="1"), "newTaskId"),
    "poll for no types": (lambda: poll(types=frozenset()), "types"),
    "poll for a bad type": (lambda: poll(types=frozenset({NUL})), "types"),
    "poll for a lone surrogate": (lambda: poll(types=frozenset({LONE})), "types"),
    "poll for too many types": (
        lambda: poll(types=frozenset(f"t{number}" for number in range(1_001))),
        "types",
    ),
    "poll for 0 tasks": (lambda: poll(max_tasks=0), "maxTasks"),
    "poll for 2**63 tasks": (lambda: poll(max_tasks=HUGE), "maxTasks"),
    "poll for a negative time": (lambda: poll(wait_ms=-1), "waitMs"),
    "poll for an hour": (lambda: poll(wait_ms=3_600_000), "waitMs"),
    "poll of a bad queue": (lambda: poll(queue=NUL), "queue"),
    "poll of a bad worker": (lambda: poll(worker_id="w"), "workerId"),
    "worker without types": (lambda: register(types=()), "types"),
    "worker with an empty type": (lambda: register(types=("",)), "types"),
    "worker with too many types": (
        lambda: register(types=tuple(f"t{number}" for number in range(1_001))),
        "types",
    ),
    "worker without a key": (lambda: register(instance_key=""), "instanceKey"),
    "worker with a NUL key": (lambda: register(instance_key=NUL), "instanceKey"),
    "worker with a bad name": (lambda: register(name="a b"), "name"),
    "worker without slots": (lambda: register(slots=0), "maxConcurrent"),
    "worker with 2**63 slots": (lambda: register(slots=HUGE), "maxConcurrent"),
    "worker with a bad host": (lambda: register(hostname=NUL), "hostname"),
    "worker with a surrogate host": (lambda: register(hostname=LONE), "hostname"),
    "worker with a negative pid": (lambda: register(pid=-1), "pid"),
    "worker with pid 2**63": (lambda: register(pid=HUGE), "pid"),
    "worker with a bad version": (lambda: register(software_version=NUL), "version"),
    "worker with too many labels": (lambda: register(labels=MANY_LABELS), "labels"),
    "worker with a negative lease": (lambda: register(lease_ms=-1), "leaseDurationMs"),
    "worker with a lease of 2**63": (lambda: register(lease_ms=HUGE), "leaseDurationMs"),
    "drain for a negative time": (lambda: on_worker(DrainWorker, deadline_ms=-1), "deadlineMs"),
    "drain for 2**63": (lambda: on_worker(DrainWorker, deadline_ms=HUGE), "deadlineMs"),
    "drain of a bad id": (lambda: on_worker(DrainWorker, worker_id="w"), "workerId"),
    "evict of a bad id": (lambda: on_worker(EvictWorker, worker_id=LONE), "workerId"),
    "goodbye of a bad id": (lambda: on_worker(DeregisterWorker, worker_id=""), "workerId"),
    "session with attempt 0": (lambda: session(held=(TaskRef(ID, 0),)), "attempt"),
    "session with a negative window": (lambda: session(window=-1), "window"),
    "session with a window of 2**63": (lambda: session(window=HUGE), "window"),
    "session with a number of 2**63": (lambda: session(session_no=HUGE), "sessionNo"),
    "session with a negative number": (lambda: session(session_no=-1), "sessionNo"),
    "held set with attempt 0": (lambda: on_worker(ReportHeld, held=(TaskRef(ID, 0),)), "attempt"),
    "delta with a bad id": (lambda: on_worker(ReportHeld, bound=(TaskRef("", 1),)), "taskId"),
    "empty delta of a bad worker": (lambda: on_worker(ReportHeld, worker_id="w"), "workerId"),
    "beat with a token of 2**63": (lambda: beat(token=HUGE), "token"),
    "beat with a negative token": (lambda: beat(token=-1), "token"),
    "beat with a lease of 2**63": (lambda: beat(lease_ms=HUGE), "leaseDurationMs"),
    "beat with a negative lease": (lambda: beat(lease_ms=-1), "leaseDurationMs"),
    "beat with a total of 2**63": (lambda: beat(total_completed=HUGE), "totalCompleted"),
    "beat with a negative total": (lambda: beat(total_failed=-2), "totalFailed"),
    "beat with a negative delta": (lambda: beat(completed_delta=-1), "completedDelta"),
    "beat with a delta of 2**63": (lambda: beat(failed_delta=HUGE), "failedDelta"),
    "beat with a NaN lag": (lambda: beat(loop_lag_ms=math.nan), "loopLagMs"),
    "beat with a negative count": (lambda: beat(active_count=-1), "activeCount"),
    "beat of a bad worker": (
        lambda: Heartbeat(namespace=NAMESPACE, worker_id="w", beat=Beat(token=1, server_id=ID)),
        "workerId",
    ),
    "queue with a negative limit": (lambda: set_queue(concurrency_max=-1), "concurrencyMax"),
    "queue with a limit of 2**63": (lambda: set_queue(concurrency_max=HUGE), "concurrencyMax"),
    "queue with a bad name": (lambda: set_queue(name=NUL), "queue"),
}

TOO_BIG: Final[dict[str, tuple[Callable[[], Any], int]]] = {
    "input": (lambda: enqueue(input=TOO_LARGE), limits.PAYLOAD_BYTES_MAX),
    "output": (lambda: report(output=TOO_LARGE), limits.PAYLOAD_BYTES_MAX),
    "details": (lambda: progress(details=TOO_LARGE), limits.PAYLOAD_BYTES_MAX),
    "error details": (lambda: of_error(details=TOO_LARGE), limits.PAYLOAD_BYTES_MAX),
    "bulk": (
        lambda: EnqueueTasks(namespace=NAMESPACE, tasks=(NEW,) * 1_001),
        limits.BULK_ENQUEUE_MAX,
    ),
    "items": (lambda: confirm(*MANY_REFS), limits.HELD_SET_MAX),
    "held set": (lambda: on_worker(ReportHeld, held=MANY_REFS), limits.HELD_SET_MAX),
}


async def refused_among_neighbours(world: World, engine: Engine, command: Any) -> TenureError:
    """Submit a bad command between two good ones; return its error, with everything else as is."""
    worker = await world.worker(engine)
    task = await world.held(engine, worker)
    before = await world.dump()
    first = engine.submit(SignalCancels(namespace=NAMESPACE, items=(ref(task),)))
    bad: Any = None
    error: TenureError | None = None
    try:
        bad = engine.submit(command)
    except TenureError as raised:
        error = raised
    last = engine.submit(confirm(TaskRef(task.id, 99), worker_id=worker))
    if error is None:
        with pytest.raises(TenureError) as caught:
            await bad
        error = caught.value
    assert (await first) == WorkDone(0)
    (mismatch,) = await last
    assert isinstance(mismatch, Rejection)
    assert mismatch.fields == {"expected_attempt": 1, "received_attempt": 99}
    assert await world.dump() == before
    assert ERRORS[error.code].exception is type(error)
    return error


@pytest.mark.parametrize("name", REFUSED)
async def test_malformed_input_names_its_field_and_changes_nothing(
    world: World, engine: Engine, name: str
) -> None:
    make, field = REFUSED[name]
    error = await refused_among_neighbours(world, engine, make())
    assert (error.code, error.fields) == ("invalid_argument", {"field": field})
    assert "\0" not in error.message


@pytest.mark.parametrize("name", TOO_BIG)
async def test_what_is_too_large_names_the_limit_and_changes_nothing(
    world: World, engine: Engine, name: str
) -> None:
    make, limit = TOO_BIG[name]
    error = await refused_among_neighbours(world, engine, make())
    assert (error.code, error.fields) == ("payload_too_large", {"limit": limit})


UNKNOWN: Final[dict[str, tuple[Callable[[], Any], str]]] = {
    "enqueue into an unknown namespace": (lambda: enqueue(namespace="no/body"), "not_found"),
    "register in an unknown namespace": (
        lambda: RegisterWorker(namespace="no/body", new=WORKER),
        "not_found",
    ),
    "queue of an unknown namespace": (lambda: set_queue(namespace="no/body"), "not_found"),
    "cancel of an unknown task": (lambda: on_task(CancelTask), "not_found"),
    "retry of an unknown task": (lambda: on_task(RetryTask, new_task_id=ID), "not_found"),
    "drain of an unknown worker": (lambda: on_worker(DrainWorker), "not_found"),
    "poll of an unknown worker": (poll, "worker_inactive"),
    "beat of an unknown worker": (beat, "worker_inactive"),
    "goodbye of an unknown worker": (lambda: on_worker(DeregisterWorker), "worker_inactive"),
    "session of an unknown worker": (session, "worker_inactive"),
    "failed call of an unknown worker": (lambda: on_worker(FailCall), "worker_inactive"),
    "namespace that exists": (lambda: CreateNamespace(name=OTHER_NAMESPACE), "already_exists"),
}


@pytest.mark.parametrize("name", UNKNOWN)
async def test_what_is_unknown_has_its_own_error_and_changes_nothing(
    world: World, engine: Engine, name: str
) -> None:
    make, code = UNKNOWN[name]
    assert (await refused_among_neighbours(world, engine, make())).code == code


class TestAtTheLimits:
    async def test_the_largest_allowed_values_are_stored_and_come_back(
        self, world: World, engine: Engine
    ) -> None:
        wished = Spec(
            start_to_close_ms=limits.DURATION_MS_MAX,
            schedule_to_close_ms=limits.DURATION_MS_MAX,
            delivery_timeout_ms=limits.DELIVERY_TIMEOUT_MAX_MS,
            retry=RetryPolicy(backoff_coefficient=1_000.0, maximum_attempts=limits.ATTEMPT_MAX),
        )
        new = world.new(
            type="x" * 255,
            spec=wished,
            input=b"\0" * limits.PAYLOAD_BYTES_MAX,
            run_at_ms=limits.INSTANT_MS_MAX,
            labels={f"k{number}": "ü" * 128 for number in range(limits.LABELS_MAX)},
            idempotency_key="k" * limits.TEXT_BYTES_MAX,
        )
        await world.enqueue(engine, new)
        task = await world.task(new.id)
        assert (task.input, task.run_at_ms) == (new.input, limits.INSTANT_MS_MAX)
        assert (task.labels, task.spec.start_to_close_ms) == (new.labels, limits.DURATION_MS_MAX)

    async def test_the_largest_allowed_error_is_stored_and_comes_back(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        error = ErrorInfo(
            ErrorCategory.USER_CODE,
            "m" * limits.ERROR_MESSAGE_BYTES_MAX,
            type="t" * limits.TEXT_BYTES_MAX,
            stack_trace="s" * limits.STACK_TRACE_BYTES_MAX,
            details=b"\xff" * 1_000,
            next_delay_ms=limits.DURATION_MS_MAX,
        )
        await world.finish(engine, worker, task, FinishKind.FAILED, error=error)
        assert (await world.task(task.id)).progress.error == error

    async def test_the_largest_allowed_heartbeat_disturbs_no_other(
        self, world: World, engine: Engine
    ) -> None:
        worker, other = await world.worker(engine), await world.worker(engine)
        most = 2**31 - 1
        largest = Beat(
            token=1,
            server_id=engine.server_id,
            lease_ms=limits.DURATION_MS_MAX,
            total_completed=2**62,
            failed_delta=most,
            active_count=most,
            loop_lag_ms=most,
            stuck_count=most,
        )
        command = Heartbeat(namespace=NAMESPACE, worker_id=worker, beat=largest)
        answers: Any = await asyncio.gather(engine.submit(command), world.beat(engine, other, 1))
        assert answers[0].lease.total_completed == 2**62
        assert answers[0].lease.lease_ms == engine.settings.lease_most_ms
        assert answers[1].lease.token == 2

    async def test_the_largest_allowed_limit_of_a_queue_is_no_limit(
        self, world: World, engine: Engine
    ) -> None:
        await engine.submit(set_queue(concurrency_max=2**31 - 1))
        worker = await world.worker(engine, slots=limits.WORKER_SLOTS_MAX, pid=2**31 - 1)
        task = await world.held(engine, worker)
        assert finish(task).attempt == 1
