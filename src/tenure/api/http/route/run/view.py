"""The answers about runs, and how they are made from records of the engine."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, UnsetType, field, structs

from tenure.api.http.route.task.body import Base64
from tenure.api.http.route.task.view import (
    FailureView,
    RetryPolicyView,
    failure,
    output_fields,
    payload_fields,
)
from tenure.api.http.view import (
    Instant,
    IsTotalExact,
    NextPageToken,
    TotalCount,
    View,
    instant,
    instant_or_unset,
    names,
    or_unset,
    values,
)
from tenure.core.journal.entry import Entry, EntryKind, JournalPage
from tenure.core.run.record import NOT_BEGUN, RunLink, RunProgress, Wait
from tenure.core.run.status import RunStatus, status_at, status_of
from tenure.core.task.record import Reason, Task, TaskState
from tenure.engine.read.run import RunView
from tenure.engine.run import command as c

StatusName = Annotated[str, names(RunStatus)]


class StartedView(View, frozen=True):
    """A run that was started, or that existed already."""

    run_id: str
    status: StatusName
    is_new: bool
    content_differs: Annotated[
        bool, Meta(description="The run that existed has another type, queue or input")
    ] = False


class RetriedView(View, frozen=True):
    """A run that was made from a finished one, or that existed already."""

    run_id: str
    status: StatusName
    is_new: bool
    kept_entries: Annotated[int, Meta(description="How many entries of the journal it keeps")]


class RunStatusView(View, frozen=True):
    """The present status of a run."""

    run_id: str
    status: StatusName


class SignalledView(View, frozen=True):
    """A signal is in the journal; it is not new if one with its id was there."""

    run_id: str
    is_new: bool


class WaitView(View, frozen=True):
    """Something that a run waits for."""

    kind: Annotated[str, Meta(description="signal, timer or retry")]
    key: str
    since: Instant | UnsetType = UNSET
    detail: str | UnsetType = UNSET


class RunItem(View, frozen=True):
    """A run. Lists leave out input, output, state, and how much its journal has."""

    run_id: str
    namespace: str
    queue: str
    type: str
    status: StatusName
    priority: int
    attempt: int
    generation: Annotated[int, Meta(description="How often it has begun anew")]
    created_at: Instant
    run_at: Instant
    retry: RetryPolicyView
    external_id: Annotated[str, Meta(description="The id that its user chose")] | UnsetType = UNSET
    parent_id: Annotated[str, Meta(description="The run that made it")] | UnsetType = UNSET
    root_run_id: Annotated[str, Meta(description="The first run of the tree")] | UnsetType = UNSET
    begun_at: Instant | UnsetType = UNSET
    finished_at: Instant | UnsetType = UNSET
    wakes_at: (
        Annotated[Instant, Meta(description="Its next timer, or when it is tried again")]
        | UnsetType
    ) = UNSET
    worker_id: str | UnsetType = UNSET
    failure_reason: Annotated[str, values(Reason)] | UnsetType = UNSET
    error: FailureView | UnsetType = UNSET
    waits: list[WaitView] | UnsetType = UNSET
    wait_count: (
        Annotated[int, Meta(description="Of all that it waits for; waits shows some")] | UnsetType
    ) = UNSET
    park_error: Annotated[FailureView, Meta(description="Why it is parked")] | UnsetType = UNSET
    park_count: Annotated[int, Meta(description="How often in a row")] | UnsetType = UNSET
    progress_percent: float | UnsetType = UNSET
    progress_message: str | UnsetType = UNSET
    cancel_requested_at: Instant | UnsetType = UNSET
    cancel_reason: str | UnsetType = UNSET
    is_pause_requested: bool | UnsetType = UNSET
    labels: dict[str, str] = field(default_factory=dict)
    timeout_ms: int | UnsetType = UNSET
    idempotency_key: str | UnsetType = UNSET
    retry_of: str | UnsetType = UNSET
    encoding: str = ""
    input: Raw | UnsetType = UNSET
    input_base64: Base64 | UnsetType = field(default=UNSET, name="inputBase64")
    output: Raw | UnsetType = UNSET
    output_base64: Base64 | UnsetType = field(default=UNSET, name="outputBase64")
    output_encoding: Annotated[str, Meta(description="Of outputBase64")] | UnsetType = UNSET
    state: Annotated[Raw, Meta(description="What it has published of itself")] | UnsetType = UNSET
    state_base64: Base64 | UnsetType = field(default=UNSET, name="stateBase64")
    entry_count: int | UnsetType = UNSET
    journal_bytes: int | UnsetType = UNSET
    damaged: (
        Annotated[tuple[str, ...], Meta(description="Stored parts that are damaged and left out")]
        | UnsetType
    ) = UNSET


class RunListView(View, frozen=True):
    """A page of runs, newest first."""

    runs: list[RunItem]
    next_page_token: NextPageToken = UNSET
    total_count: TotalCount = UNSET
    is_total_exact: IsTotalExact = UNSET


class EntryItem(View, frozen=True):
    """One entry of a journal; of a signal, output is its payload."""

    pos: int
    at: Instant
    kind: Annotated[str, Meta(extra_json_schema={"enum": [each.name for each in EntryKind]})]
    key: Annotated[str, Meta(description="The call: branch, name and ordinal")]
    index: Annotated[int, Meta(description="The number of the call in its branch")] = 0
    attempt: Annotated[int, Meta(description="Who reported it; the server did if it is 0")] = 0
    output: Raw | UnsetType = UNSET
    output_base64: Base64 | UnsetType = field(default=UNSET, name="outputBase64")
    encoding: str | UnsetType = UNSET
    error: FailureView | UnsetType = UNSET
    attempts: Annotated[int, Meta(description="Of a step")] | UnsetType = UNSET
    started_at: Instant | UnsetType = UNSET
    took_ms: int | UnsetType = UNSET
    fire_at: Instant | UnsetType = UNSET
    next_at: Instant | UnsetType = UNSET
    site: Annotated[str, Meta(description="File and line of the call")] | UnsetType = UNSET
    signal_id: str | UnsetType = UNSET
    sender: str | UnsetType = UNSET


class JournalView(View, frozen=True):
    """Entries behind a position; the journal goes on up to end."""

    entries: list[EntryItem]
    end: int


def started(answer: c.Started) -> StartedView:
    """Show a started run."""
    status = status_at(answer.state, answer.outcome)
    return StartedView(
        run_id=answer.task_id,
        status=status.upper(),
        is_new=answer.is_new,
        content_differs=answer.content_differs,
    )


def retried(answer: c.Retried) -> RetriedView:
    """Show a run that was made from a finished one."""
    status = status_at(answer.state, answer.outcome)
    return RetriedView(
        run_id=answer.task_id,
        status=status.upper(),
        is_new=answer.is_new,
        kept_entries=answer.kept_count,
    )


def listed(task: Task) -> RunItem:
    """Show a run in a list."""
    return _item(task, {})


def run(view: RunView) -> RunItem:
    """Show one run with its payloads."""
    task = view.task
    encoding = task.spec.encoding
    more = {
        **payload_fields("input", task.input, encoding=encoding),
        **output_fields(task),
        **payload_fields("state", task.progress.details, encoding=encoding),
        "entry_count": view.entry_count,
        "journal_bytes": view.journal_bytes,
    }
    return _item(task, more)


def _item(task: Task, more: dict[str, Any]) -> RunItem:
    spec, progress = task.spec, task.progress
    where = progress.run or NOT_BEGUN
    return RunItem(
        run_id=task.id,
        namespace=task.namespace,
        queue=task.queue,
        type=task.type,
        status=status_of(task).upper(),
        priority=task.priority,
        attempt=task.attempt,
        generation=where.generation,
        created_at=instant(task.created_at_ms),
        run_at=instant(task.run_at_ms),
        retry=RetryPolicyView(**structs.asdict(spec.retry)),
        begun_at=instant_or_unset(where.begun_at_ms),
        finished_at=instant_or_unset(task.finished_at_ms),
        worker_id=or_unset(task.worker_id),
        failure_reason=UNSET if progress.reason is None else progress.reason.value,
        error=failure(progress.error, encoding=spec.encoding),
        progress_percent=or_unset(progress.percent),
        progress_message=or_unset(progress.message),
        cancel_requested_at=instant_or_unset(progress.cancel_at_ms),
        cancel_reason=or_unset(progress.cancel_reason),
        is_pause_requested=progress.pause_wanted or UNSET,
        labels=task.labels or {},
        timeout_ms=spec.schedule_to_close_ms or UNSET,
        idempotency_key=or_unset(spec.idempotency_key),
        retry_of=or_unset(spec.retry_of),
        encoding=spec.encoding,
        damaged=task.damaged or UNSET,
        **_place(task.link),
        # Of others it is what they waited for the last time.
        **(_waiting(where, encoding=spec.encoding) if task.state is TaskState.WAITING else {}),
        **more,
    )


def _place(link: RunLink | None) -> dict[str, Any]:
    if link is None:
        return {}
    place = link.place
    return {
        "external_id": or_unset(link.external_id),
        "parent_id": or_unset(place.run_id),
        "root_run_id": or_unset(place.root_run_id),
    }


def _waiting(where: RunProgress, *, encoding: str) -> dict[str, Any]:
    return {
        "wakes_at": instant_or_unset(where.wake_at_ms),
        "waits": [_wait(each) for each in where.waits],
        "wait_count": where.wait_count,
        "park_error": failure(where.park, encoding=encoding),
        "park_count": where.park_count or UNSET,
    }


def _wait(wait: Wait) -> WaitView:
    return WaitView(
        kind=wait.kind,
        key=wait.key,
        since=instant_or_unset(wait.since_ms),
        detail=or_unset(wait.detail),
    )


def journal(page: JournalPage) -> JournalView:
    """Show a page of a journal."""
    return JournalView(entries=[_entry(each) for each in page.entries], end=page.end)


def _entry(stored: Entry) -> EntryItem:
    body = stored.content
    return EntryItem(
        pos=stored.pos,
        at=instant(stored.at_ms),
        kind=stored.kind.name,
        key=stored.key,
        index=body.index,
        attempt=stored.attempt,
        encoding=UNSET if body.output is None else body.encoding,
        error=failure(body.error, encoding=body.encoding),
        attempts=body.attempts or UNSET,
        started_at=instant_or_unset(body.started_at_ms),
        took_ms=body.took_ms or UNSET,
        fire_at=instant_or_unset(body.fire_at_ms),
        next_at=instant_or_unset(body.next_at_ms),
        site=or_unset(body.site),
        signal_id=or_unset(body.signal_id),
        sender=or_unset(body.sender),
        **payload_fields("output", body.output, encoding=body.encoding),
    )
