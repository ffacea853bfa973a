"""Every state of a task meets every event."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final, get_args

import msgspec
import pytest
from msgspec.structs import replace

from tenure.core.run.record import Yield
from tenure.core.task.decide import decide
from tenure.core.task.effect import Decision
from tenure.core.task.event import (
    AttemptCancelled,
    AttemptContinued,
    AttemptDeferred,
    AttemptFailed,
    AttemptParked,
    AttemptReleased,
    AttemptReport,
    AttemptSucceeded,
    AttemptYielded,
    CancelRequested,
    CancelSignalled,
    Confirmed,
    DamageFound,
    DeliveryAccepted,
    DeliveryMissed,
    DeliveryRefused,
    Due,
    EntryAppended,
    HandedOut,
    Heartbeaten,
    PauseRequested,
    ResumeRequested,
    StepsRecorded,
    TaskEvent,
    TaskLost,
    Terminated,
    WorkerLost,
)
from tenure.core.task.record import TERMINAL, Line, Task, TaskKind, TaskState
from tenure.core.task.refusal import is_held, is_live
from tenure.core.task.rule import RULES
from tenure.errors import Rejection
from tests.core.task.tasks import (
    FATAL,
    FAULT,
    NEXT_JOURNAL_ID,
    OTHER,
    SIGHTED,
    STATES,
    T0,
    WORKER,
    running,
    succeeded,
)

EVENT_TYPES: Final[tuple[type[TaskEvent], ...]] = get_args(TaskEvent)
REPORT_TYPES: Final = tuple(kind for kind in EVENT_TYPES if issubclass(kind, AttemptReport))

# Which states take which report of their live attempt. Every other state refuses every report.
FINISHING: Final[set[type[TaskEvent]]] = {
    AttemptSucceeded,
    AttemptFailed,
    AttemptCancelled,
    AttemptReleased,
}
WORKING: Final[set[type[TaskEvent]]] = FINISHING | {
    Confirmed,
    Heartbeaten,
    AttemptDeferred,
    AttemptYielded,
    AttemptParked,
    AttemptContinued,
    StepsRecorded,
}
TAKEN: Final[dict[TaskState, set[type[TaskEvent]]]] = {
    TaskState.DISPATCHED: WORKING | {DeliveryMissed, DeliveryAccepted, DeliveryRefused, TaskLost},
    TaskState.RUNNING: WORKING | {TaskLost},
    TaskState.CANCELLING: WORKING | {TaskLost, CancelSignalled},
    TaskState.WAITING: WORKING,
}
# Which reports no attempt of such a task can make, whatever its state.
FOREIGN: Final[dict[TaskKind, set[type[TaskEvent]]]] = {
    TaskKind.ACTIVITY: {AttemptYielded, AttemptParked, AttemptContinued, StepsRecorded},
    TaskKind.WORKFLOW: {AttemptDeferred, DeliveryAccepted, DeliveryRefused},
}
REFUSED_WHEN_TERMINAL: Final[dict[type[TaskEvent], str]] = {
    HandedOut: "wrong_state",
    WorkerLost: "wrong_state",
    CancelRequested: "task_already_terminal",
    PauseRequested: "wrong_state",
    ResumeRequested: "wrong_state",
    Terminated: "task_already_terminal",
    DamageFound: "wrong_state",
    EntryAppended: "wrong_state",
    Due: "wrong_state",
}


CONTENT: Final[dict[type[TaskEvent], dict[str, Any]]] = {
    AttemptFailed: {"error": FAULT, "new_journal_id": NEXT_JOURNAL_ID},
    DeliveryRefused: {"error": FATAL},
    AttemptParked: {"error": FATAL},
    AttemptContinued: {"new_journal_id": NEXT_JOURNAL_ID, "input": b"2"},
    AttemptYielded: {"wish": Yield(seen=9), "journal_end": 9},
}


def say(kind: type[TaskEvent], attempt: int, worker_id: str | None, **fields: Any) -> TaskEvent:
    """Return a report with plain content."""
    make: Callable[..., TaskEvent] = kind
    return make(attempt=attempt, worker_id=worker_id, **{**CONTENT.get(kind, {}), **fields})


def right_reports(kind: type[TaskEvent], task: Task) -> list[TaskEvent]:
    """Return what may be said about the present attempt: by its holder, or with a token."""
    events = [say(kind, task.attempt, task.worker_id), say(kind, task.attempt, None)]
    if kind is AttemptFailed:
        events.append(say(kind, task.attempt, None, error=FATAL))
    if kind is DeliveryRefused:
        events.append(say(kind, task.attempt, None, error=FAULT))
    if kind is AttemptYielded:
        events.append(say(kind, task.attempt, None, journal_end=10))
    return events


OTHERS: Final[dict[type[TaskEvent], Callable[[Task], list[TaskEvent]]]] = {
    HandedOut: lambda _: [HandedOut(worker_id=OTHER, session_no=2)],
    WorkerLost: lambda task: [
        WorkerLost(worker_id=task.worker_id or WORKER, lease_until_ms=T0 + each, lease_ms=each)
        for each in (0, 9_000)
    ],
    CancelRequested: lambda _: [CancelRequested(reason="enough")],
    PauseRequested: lambda _: [PauseRequested()],
    ResumeRequested: lambda _: [ResumeRequested()],
    Terminated: lambda _: [Terminated()],
    DamageFound: lambda _: [DamageFound(message="input")],
    EntryAppended: lambda _: [EntryAppended(pos=1), EntryAppended(pos=1, is_urgent=True)],
    Due: lambda _: [Due(sighted_ms=0), Due(sighted_ms=SIGHTED)],
}


def events_of(kind: type[TaskEvent], task: Task) -> list[TaskEvent]:
    return OTHERS[kind](task) if kind in OTHERS else right_reports(kind, task)


def instants(task: Task) -> set[int]:
    due_at_ms = task.due_at_ms or T0
    return {T0, due_at_ms - 1, due_at_ms, due_at_ms + 1, due_at_ms + 10**6}


def is_taken(kind: type[TaskEvent], state: str, task: Task) -> bool:
    if issubclass(kind, AttemptReport):
        is_fitting = kind not in FOREIGN[task.kind]
        return task.is_attempt_live and kind in TAKEN[task.state] and is_fitting
    if task.state in TERMINAL:
        return False
    if kind is HandedOut:
        return state in {
            "pending, ready",
            "pending, lost",
            "pending, guarded",
            "pending run for its clean-up",
        }
    if kind is WorkerLost:
        return task.worker_id is not None
    if kind is PauseRequested:
        return task.state is not TaskState.CANCELLING
    if kind is ResumeRequested:
        is_parked = state == "waiting run, parked"
        return task.state is TaskState.PAUSED or state.endswith("to be paused") or is_parked
    if kind is EntryAppended:
        return task.kind is TaskKind.WORKFLOW
    return kind in {CancelRequested, Terminated, DamageFound, Due}


def refusal_of_the_present_attempt(kind: type[TaskEvent], task: Task) -> str:
    """Return the code for a report that names the row's attempt and is not taken."""
    if task.is_attempt_live:
        return "wrong_state"
    if task.last_outcome in {"timed_out", "worker_lost", "lost_task"}:
        return "task_expired" if kind is Heartbeaten else "attempt_mismatch"
    return "task_already_terminal" if task.state in TERMINAL else "attempt_mismatch"


def refusal_of_others(kind: type[TaskEvent], task: Task) -> str:
    """Return the code for an event that is no report and is not taken."""
    if task.state in TERMINAL:
        return REFUSED_WHEN_TERMINAL[kind]
    # What is completed from elsewhere has no worker to lose.
    is_lost = kind is WorkerLost and task.state is TaskState.CANCELLING
    return "attempt_mismatch" if is_lost else "wrong_state"


def check_refused(task: Task, event: TaskEvent, at_ms: int, code: str) -> None:
    before = msgspec.msgpack.encode(task)
    rejection = decide(task, event, at_ms)
    assert isinstance(rejection, Rejection), rejection
    assert rejection.code == code
    assert msgspec.msgpack.encode(task) == before
    if code == "attempt_mismatch" and isinstance(event, AttemptReport):
        expected = task.attempt if task.is_attempt_live else task.attempt + 1
        assert without_reason(rejection) == {
            "expected_attempt": expected,
            "received_attempt": event.attempt,
        }
    elif code in {"wrong_state", "task_already_terminal"}:
        assert without_reason(rejection) == {"state": task.state.value.upper()}


def without_reason(rejection: Rejection) -> dict[str, str | int]:
    """Return the fields but for the reason to stop, which test_stop looks at."""
    return {key: value for key, value in rejection.fields.items() if key != "reason"}


def check_taken(task: Task, event: TaskEvent, at_ms: int) -> None:
    before = msgspec.msgpack.encode(task)
    decision = decide(task, event, at_ms)
    assert isinstance(decision, Decision), decision
    rule = RULES[type(event)]
    assert task.state in rule.sources
    assert decision.task.state in rule.targets
    assert msgspec.msgpack.encode(task) == before
    assert decision.task.id == task.id
    assert decision.task.spec is task.spec
    assert decision.task.input is task.input or isinstance(event, AttemptContinued)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("kind", EVENT_TYPES, ids=lambda kind: kind.__name__)
def test_every_state_meets_every_event(kind: type[TaskEvent], state: str) -> None:
    task = STATES[state]()
    for event in events_of(kind, task):
        for at_ms in instants(task):
            if is_taken(kind, state, task):
                check_taken(task, event, at_ms)
            elif issubclass(kind, AttemptReport):
                check_refused(task, event, at_ms, refusal_of_the_present_attempt(kind, task))
            else:
                check_refused(task, event, at_ms, refusal_of_others(kind, task))


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("kind", REPORT_TYPES, ids=lambda kind: kind.__name__)
def test_a_report_on_another_attempt_is_refused_in_every_state(
    kind: type[TaskEvent], state: str
) -> None:
    task = STATES[state]()
    for worker_id in (task.worker_id, OTHER, None):
        older = say(kind, task.attempt - 1, worker_id)
        check_refused(task, older, T0, "attempt_mismatch")
        newer = say(kind, task.attempt + 1, worker_id)
        code = "task_already_terminal" if task.state in TERMINAL else "attempt_mismatch"
        check_refused(task, newer, T0, code)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("kind", REPORT_TYPES, ids=lambda kind: kind.__name__)
def test_a_report_of_another_worker_is_refused_in_every_state(
    kind: type[TaskEvent], state: str
) -> None:
    task = STATES[state]()
    event = say(kind, task.attempt, OTHER)
    if task.is_attempt_live:
        check_refused(task, event, T0, "attempt_mismatch")
    else:
        check_refused(task, event, T0, refusal_of_the_present_attempt(kind, task))


@pytest.mark.parametrize("state", STATES)
def test_the_loss_of_another_worker_is_refused_in_every_state(state: str) -> None:
    task = STATES[state]()
    is_held = task.state in {TaskState.DISPATCHED, TaskState.RUNNING, TaskState.CANCELLING}
    code = "attempt_mismatch" if is_held else "wrong_state"
    check_refused(task, WorkerLost(worker_id=OTHER), T0, code)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("kind", REPORT_TYPES, ids=lambda kind: kind.__name__)
def test_whoever_only_knows_the_id_needs_a_confirmed_attempt(
    kind: type[TaskEvent], state: str
) -> None:
    task = STATES[state]()
    event = say(kind, task.attempt, None, needs_confirmed=True)
    if task.state is TaskState.DISPATCHED:
        check_refused(task, event, T0, "wrong_state")
    elif is_taken(kind, state, task):
        check_taken(task, event, T0)
    else:
        check_refused(task, event, T0, refusal_of_the_present_attempt(kind, task))


@pytest.mark.parametrize("state", [name for name in STATES if STATES[name]().state in TERMINAL])
def test_no_event_changes_a_terminal_row(state: str) -> None:
    task = STATES[state]()
    for kind in EVENT_TYPES:
        for event in events_of(kind, task):
            for at_ms in instants(task):
                assert isinstance(decide(task, event, at_ms), Rejection)


def test_the_rules_name_every_event_and_nothing_else() -> None:
    assert set(RULES) == set(EVENT_TYPES)


def test_the_rules_are_as_narrow_as_the_decisions() -> None:
    sources = defaultdict(set)
    targets = defaultdict(set)
    for make in STATES.values():
        task = make()
        for kind in EVENT_TYPES:
            for event in events_of(kind, task):
                for at_ms in instants(task):
                    decision = decide(task, event, at_ms)
                    if isinstance(decision, Decision):
                        sources[kind].add(task.state)
                        targets[kind].add(decision.task.state)
    assert {kind: set(rule.sources) for kind, rule in RULES.items()} == sources
    assert {kind: set(rule.targets) for kind, rule in RULES.items()} == targets


@pytest.mark.parametrize("state", STATES)
def test_an_attempt_is_live_exactly_while_it_may_report(state: str) -> None:
    task = STATES[state]()
    success = decide(task, say(AttemptSucceeded, task.attempt, None), T0)
    assert is_live(task, task.attempt) is isinstance(success, Decision)
    assert not is_live(task, task.attempt - 1)
    assert not is_live(task, task.attempt + 1)


def test_an_attempt_is_held_by_the_worker_that_has_it_and_by_no_other() -> None:
    task = running()
    assert is_held(task, task.attempt, WORKER)
    assert not is_held(task, task.attempt, "another")
    assert not is_held(task, task.attempt, None)
    assert not is_held(task, task.attempt - 1, WORKER)
    assert not is_held(succeeded(), succeeded().attempt, WORKER)


@pytest.mark.parametrize(
    ("state", "changes"),
    [
        ("pending, ready", {"state": TaskState.DISPATCHED, "line": Line.NONE, "attempt": 1}),
        ("pending, ready", {"worker_id": WORKER, "attempt": 1}),
        ("pending, ready", {"finished_at_ms": T0}),
        ("dispatched", {"line": Line.FRESH}),
        ("dispatched", {"attempt": 0}),
        ("running", {"worker_id": None}),
        ("waiting run", {"worker_id": WORKER}),
        ("paused", {"line": Line.RETURNED}),
        ("paused run", {"worker_id": WORKER}),
        ("succeeded", {"finished_at_ms": None}),
    ],
)
def test_no_impossible_task_can_exist(state: str, changes: dict[str, Any]) -> None:
    task = STATES[state]()
    with pytest.raises(AssertionError):
        replace(task, **changes)


@pytest.mark.parametrize("member", [*TaskState, *Line])
def test_a_state_is_found_by_its_stored_value(member: TaskState | Line) -> None:
    found: dict[object, object] = {member: member}
    assert found[member.value] is member


def test_there_is_a_variant_of_every_state() -> None:
    assert {make().state for make in STATES.values()} == set(TaskState)
