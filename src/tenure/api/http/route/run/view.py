"""The answers about runs, and how they are made from records of the engine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, UnsetType, field, structs

from tenure.api.http.route.task.body import Base64
from tenure.api.http.route.task.view import (
    FailureView,
    RetryPolicyView,
    StateName,
    failure,
    fire_fields,
    output_fields,
    payload_fields,
    place_fields,
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
from tenure.core.journal.entry import Entry, EntryBody, EntryKind, JournalPage, OpenChild, OpenGroup
from tenure.core.run.record import NOT_BEGUN, RunProgress, Wait
from tenure.core.run.status import RunStatus, status_at, status_of
from tenure.core.task.record import Reason, Task, TaskKind, TaskState
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

    kind: Annotated[str, Meta(description="signal, child, group, timer or retry")]
    key: str
    since: Instant | UnsetType = UNSET
    detail: Annotated[str, Meta(description="Of a child its id")] | UnsetType = UNSET
    site: Annotated[str, Meta(description="File and line of the call")] | UnsetType = UNSET


class GroupItem(View, frozen=True):
    """Tasks that one call of a run makes; items 0 to spawned - 1 are stored."""

    group_id: str
    key: str
    index: int
    type: str
    total: int
    spawned: int
    open_count: int
    failed: int


class OpenChildItem(View, frozen=True):
    """A task or a run that a run has made and that has not ended."""

    task_id: str
    key: str
    index: int
    type: str
    kind: Annotated[str, names(TaskKind)]


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
    parent_id: Annotated[str, Meta(description="The run that made it")] | UnsetType = UNSET
    root_run_id: (
        Annotated[
            str, Meta(description="The first run of the tree: its parent's parent, and so on")
        ]
        | UnsetType
    ) = UNSET
    step_key: Annotated[str, Meta(description="The call of the run that made it")] | UnsetType = (
        UNSET
    )
    retry_of: str | UnsetType = UNSET
    first_run_id: (
        Annotated[str, Meta(description="The first of the runs made from each other by a retry")]
        | UnsetType
    ) = UNSET
    schedule_id: Annotated[str, Meta(description="The schedule that started it")] | UnsetType = (
        UNSET
    )
    fire_at: (
        Annotated[Instant, Meta(description="For which instant the schedule started it")]
        | UnsetType
    ) = UNSET
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
    open_child_count: (
        Annotated[int, Meta(description="Of calls of its own, without items of groups")] | UnsetType
    ) = UNSET
    groups: (
        Annotated[list[GroupItem], Meta(description="Those that have not ended")] | UnsetType
    ) = UNSET
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


class ChildEndView(View, frozen=True):
    """How a task or a run ended that the run had made."""

    task_id: str
    type: str
    state: StateName
    failure_reason: str | UnsetType = UNSET


class GroupEndView(View, frozen=True):
    """How a group of tasks ended. If it fails fast, the others were open at its first failure."""

    group_id: str
    total: int
    succeeded: int
    failed: int
    cancelled: int


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
    child: Annotated[ChildEndView, Meta(description="Of kind CHILD")] | UnsetType = UNSET
    group: Annotated[GroupEndView, Meta(description="Of kind GROUP")] | UnsetType = UNSET


class JournalView(View, frozen=True):
    """Entries behind a position, up to end; from the start on also what is open."""

    entries: list[EntryItem]
    end: Annotated[int, Meta(description="Of a group, the number of its items")]
    open: list[OpenChildItem] | UnsetType = UNSET
    open_next: (
        Annotated[str, Meta(description="There are more open children: ask with it as openAfter")]
        | UnsetType
    ) = UNSET
    groups: (
        Annotated[list[GroupItem], Meta(description="Those that have not ended")] | UnsetType
    ) = UNSET


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
        "open_child_count": view.open_child_count,
        "groups": _groups(view.groups),
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
        first_run_id=or_unset(task.place.first_run_id),
        **fire_fields(task),
        **place_fields(task),
        encoding=spec.encoding,
        damaged=task.damaged or UNSET,
        external_id=or_unset(None if task.link is None else task.link.external_id),
        # Of others it is what they waited for the last time.
        **(_waiting(where, encoding=spec.encoding) if task.state is TaskState.WAITING else {}),
        **more,
    )


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
        site=or_unset(wait.site),
    )


def journal(page: JournalPage) -> JournalView:
    """Show a page of a journal."""
    return JournalView(
        entries=[_entry(each) for each in page.entries],
        end=page.end,
        open=[_open_child(each) for each in page.open] or UNSET,
        open_next=or_unset(page.open_next),
        groups=_groups(page.groups),
    )


def _open_child(child: OpenChild) -> OpenChildItem:
    return OpenChildItem(
        task_id=child.task_id,
        key=child.key,
        index=child.index,
        type=child.type,
        kind=(TaskKind.WORKFLOW if child.is_run else TaskKind.ACTIVITY).upper(),
    )


def _groups(groups: Iterable[OpenGroup]) -> list[GroupItem] | UnsetType:
    return [GroupItem(**structs.asdict(each)) for each in groups] or UNSET


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
        child=_child_end(body) if stored.kind is EntryKind.CHILD else UNSET,
        group=_group_end(body) if stored.kind is EntryKind.GROUP else UNSET,
        **payload_fields("output", body.output, encoding=body.encoding),
    )


def _child_end(body: EntryBody) -> ChildEndView:
    return ChildEndView(
        task_id=body.task_id,
        type=body.type,
        state=body.state.upper(),
        failure_reason=or_unset(body.reason),
    )


def _group_end(body: EntryBody) -> GroupEndView:
    return GroupEndView(
        group_id=body.group_id,
        total=body.total,
        succeeded=body.succeeded,
        failed=body.failed,
        cancelled=body.cancelled,
    )
