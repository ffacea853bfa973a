"""Bad input about runs is named before anything happens, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from msgspec.structs import replace

from tenure.core import limits
from tenure.core.journal.entry import EntryBody, EntryKind, NewEntry
from tenure.core.task.record import NewTask, Spec
from tenure.core.task.retry import ErrorCategory, ErrorInfo
from tenure.engine.command import AnyCommand
from tenure.engine.engine import Engine
from tenure.engine.read import run as run_read
from tenure.engine.run.command import (
    CancelRun,
    NewSignal,
    RecordSteps,
    ResumeRun,
    SignalRun,
    StartRun,
    StepReport,
    TerminateRun,
)
from tenure.errors import InvalidArgument, PayloadTooLarge, TenureError
from tests.engine.run.runs import RUN_SPEC
from tests.engine.world import NAMESPACE, QUEUE, World

ID: Final = "0190a000-0000-7000-8000-000000000001"
NEW: Final = NewTask(id=ID, type="mail", queue=QUEUE, spec=RUN_SPEC)
NUL: Final = "a\0b"
HUGE: Final = 2**63
LARGE: Final = bytes(limits.PAYLOAD_BYTES_MAX + 1)
FAULT: Final = ErrorInfo(ErrorCategory.USER_CODE, NUL)


def start(**changes: Any) -> StartRun:
    return StartRun(**{"namespace": NAMESPACE, "new": NEW, **changes})


def of_new(**changes: Any) -> StartRun:
    return start(new=replace(NEW, **changes))


def signal(**changes: Any) -> SignalRun:
    return SignalRun(
        namespace=NAMESPACE, run_id=ID, signal=NewSignal(**{"name": "approve", **changes})
    )


def steps(*entries: NewEntry, **changes: Any) -> RecordSteps:
    fields = {"task_id": ID, "attempt": 1, "first_no": 1, "entries": entries, **changes}
    return RecordSteps(namespace=NAMESPACE, worker_id=ID, items=(StepReport(**fields),))


def step(kind: EntryKind = EntryKind.STEP, key: str = "charge", **content: Any) -> RecordSteps:
    return steps(NewEntry(kind, key, EntryBody(**content)))


GOOD: Final = NewEntry(EntryKind.STEP, "charge")
BAD: Final[dict[str, tuple[Callable[[], AnyCommand], str]]] = {
    "namespace not canonical": (lambda: start(namespace="acme"), "namespace"),
    "id bad": (lambda: of_new(id="x"), "runId"),
    "type with NUL": (lambda: of_new(type=NUL), "type"),
    "an activity": (lambda: of_new(spec=Spec(start_to_close_ms=5)), "kind"),
    "start to close": (
        lambda: of_new(spec=replace(RUN_SPEC, start_to_close_ms=5)),
        "startToCloseMs",
    ),
    "heartbeat": (
        lambda: of_new(spec=replace(RUN_SPEC, heartbeat_timeout_ms=5)),
        "heartbeatTimeoutMs",
    ),
    "external id too long": (lambda: start(external_id="x" * 256), "externalId"),
    "external id with NUL": (lambda: start(external_id=NUL), "externalId"),
    "external id on two lines": (lambda: start(external_id="a\nb"), "externalId"),
    "first signal bad": (lambda: start(signals=(NewSignal(name=NUL),)), "signal"),
    "signal name empty": (lambda: signal(name=""), "signal"),
    "signal name too long": (lambda: signal(name="x" * 256), "signal"),
    "signal no bytes": (lambda: signal(payload="text"), "payload"),
    "signal encoding bad": (lambda: signal(encoding=NUL), "encoding"),
    "signal id with a space": (lambda: signal(signal_id="a b"), "signalId"),
    "signal sender with NUL": (lambda: signal(sender=NUL), "sender"),
    "signal to no id": (
        lambda: SignalRun(namespace=NAMESPACE, run_id="x", signal=NewSignal(name="a")),
        "runId",
    ),
    "cancel of no id": (lambda: CancelRun(namespace=NAMESPACE, run_id="x"), "runId"),
    "cancel reason with NUL": (
        lambda: CancelRun(namespace=NAMESPACE, run_id=ID, reason=NUL),
        "reason",
    ),
    "resume of no id": (lambda: ResumeRun(namespace=NAMESPACE, run_id="x"), "runId"),
    "terminate of no id": (lambda: TerminateRun(namespace=NAMESPACE, run_id="x"), "runId"),
    "no entries": (steps, "entries"),
    "too many entries": (lambda: steps(*[GOOD] * (limits.STEP_ENTRIES_MAX + 1)), "entries"),
    "number 0": (lambda: steps(GOOD, first_no=0), "firstNo"),
    "number negative": (lambda: steps(GOOD, first_no=-1), "firstNo"),
    "number 2**63": (lambda: steps(GOOD, first_no=HUGE), "firstNo"),
    "attempt 0": (lambda: steps(GOOD, attempt=0), "attempt"),
    "task id bad": (lambda: steps(GOOD, task_id="x"), "taskId"),
    **{
        f"{kind.name} of a holder": (lambda kind=kind: step(kind), "kind")  # type: ignore[misc]  # the default binds this kind
        for kind in (EntryKind.CHILD, EntryKind.SIGNAL, EntryKind.CANCEL, EntryKind.GROUP)
    },
    "key too long": (lambda: step(key="x" * 513), "key"),
    "key with NUL": (lambda: step(key=NUL), "key"),
    "index negative": (lambda: step(index=-1), "index"),
    "output no bytes": (lambda: step(output="text"), "output"),
    "encoding bad": (lambda: step(encoding=NUL), "encoding"),
    "error message with NUL": (lambda: step(error=FAULT), "error.message"),
    "attempts negative": (lambda: step(attempts=-1), "attempts"),
    "started 2**63": (lambda: step(started_at_ms=HUGE), "startedAt"),
    "fires before time began": (lambda: step(EntryKind.TIMER, fire_at_ms=-1), "fireAt"),
    "next negative": (lambda: step(EntryKind.RETRY, next_at_ms=-1), "nextAt"),
    "took negative": (lambda: step(took_ms=-1), "tookMs"),
    "site with NUL": (lambda: step(site=NUL), "site"),
    "signal id of a step": (lambda: step(signal_id="s1"), "signalId"),
}
TOO_LARGE: Final[dict[str, Callable[[], AnyCommand]]] = {
    "input": lambda: of_new(input=LARGE),
    "output": lambda: step(output=LARGE),
    "signal": lambda: signal(payload=bytes(limits.SIGNAL_BYTES_MAX + 1)),
    "first signals": lambda: start(signals=(NewSignal(name="a"),) * 101),
}


@pytest.mark.parametrize("case", BAD)
async def test_bad_input_is_named_and_changes_nothing(
    world: World, engine: Engine, case: str
) -> None:
    make, field = BAD[case]
    before = await world.dump()
    with pytest.raises(InvalidArgument) as refusal:
        await engine.submit(make())
    assert refusal.value.fields["field"] == field
    assert await world.dump() == before


@pytest.mark.parametrize("case", TOO_LARGE)
async def test_what_is_too_large_is_refused(world: World, engine: Engine, case: str) -> None:
    before = await world.dump()
    with pytest.raises(PayloadTooLarge):
        await engine.submit(TOO_LARGE[case]())
    assert await world.dump() == before


@pytest.mark.parametrize("after", [-1, HUGE])
async def test_a_page_behind_no_position_is_refused(engine: Engine, after: int) -> None:
    with pytest.raises(TenureError) as refusal:
        await run_read.read_journal(engine.store, namespace=NAMESPACE, run_id=ID, after=after)
    assert refusal.value.fields["field"] == "after"
