"""The operation on the steps of a run."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, Raw, UnsetType, field, structs

from tenure.api.http.operation import Answer, Operation, OperationCall
from tenure.api.http.parameter import ScopedPageQuery
from tenure.api.http.route.task.body import JSON_ENCODING, Base64
from tenure.api.http.route.task.view import FailureView, failure, payload_fields
from tenure.api.http.view import (
    Instant,
    NextPageToken,
    View,
    instant_or_unset,
    names,
    or_unset,
    page_fields,
)
from tenure.api.paging import requested_page
from tenure.core.access.permission import Action
from tenure.core.run.step_attempt import MapCounts, StepAttempt, StepKind, StepStatus
from tenure.engine.read.step_attempt import list_steps


class StepListQuery(ScopedPageQuery, frozen=True):
    """Which steps are wanted."""

    step_id: Annotated[str, Meta(description="Only the step with this key")] = ""


class MapItemsView(View, frozen=True):
    """How the items of a map have ended so far."""

    total: int
    succeeded: int
    failed: int
    cancelled: int


class StepItem(View, frozen=True):
    """One attempt of a step."""

    step_attempt_id: Annotated[
        str,
        Meta(
            description="runId.generation.position, of a queued step with .attemptNumber; of what "
            "is open with the id of its task or group as position"
        ),
    ]
    run_id: str
    step_id: Annotated[str, Meta(description="The call: branch, name and ordinal")]
    attempt_number: int
    status: Annotated[str, names(StepStatus)]
    kind: Annotated[str, names(StepKind)]
    started_at: Instant | UnsetType = UNSET
    finished_at: Instant | UnsetType = UNSET
    retry_at: (
        Annotated[Instant, Meta(description="When the next attempt may begin")] | UnsetType
    ) = UNSET
    task_id: (
        Annotated[str, Meta(description="The task or run that it is, of kind CHILD")] | UnsetType
    ) = UNSET
    worker_id: str | UnsetType = UNSET
    output: Raw | UnsetType = UNSET
    output_base64: Base64 | UnsetType = field(default=UNSET, name="outputBase64")
    output_encoding: Annotated[str, Meta(description="Of outputBase64")] | UnsetType = UNSET
    error: FailureView | UnsetType = UNSET
    items: Annotated[MapItemsView, Meta(description="Of kind MAP")] | UnsetType = UNSET
    site: Annotated[str, Meta(description="File and line of the call")] | UnsetType = UNSET


class StepListView(View, frozen=True):
    """A page of attempts of steps, in the order of the journal; what is open comes last."""

    steps: list[StepItem]
    next_page_token: NextPageToken = UNSET


async def get_steps(call: OperationCall[StepListQuery, None]) -> Answer:
    """Show a page of the attempts of a run's steps."""
    found = await list_steps(
        call.engine.store,
        namespace=call.namespace,
        run_id=call.path["runId"],
        page=requested_page(call.engine, call.query),
        step_id=call.query.step_id,
    )
    return Answer(StepListView(steps=[_item(each) for each in found.items], **page_fields(found)))


def _item(step: StepAttempt) -> StepItem:
    return StepItem(
        step_attempt_id=step.id,
        run_id=step.run_id,
        step_id=step.step_id,
        attempt_number=step.number,
        status=step.status.upper(),
        kind=step.kind.upper(),
        started_at=instant_or_unset(step.started_at_ms),
        finished_at=instant_or_unset(step.finished_at_ms),
        retry_at=instant_or_unset(step.retry_at_ms),
        task_id=or_unset(step.task_id),
        worker_id=or_unset(step.worker_id),
        error=failure(step.error, encoding=step.encoding or JSON_ENCODING),
        items=_items(step.counts),
        site=or_unset(step.site),
        **_output(step),
    )


def _items(counts: MapCounts | None) -> MapItemsView | UnsetType:
    return UNSET if counts is None else MapItemsView(**structs.asdict(counts))


def _output(step: StepAttempt) -> dict[str, Any]:
    """Return the output; bytes come with their encoding, JSON without."""
    fields = payload_fields("output", step.output, encoding=step.encoding)
    if "output_base64" in fields:
        fields["output_encoding"] = or_unset(step.encoding)
    return fields


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/v1/runs/{runId}/steps",
        name="listSteps",
        group="Runs",
        summary="List the attempts of a run's steps, or of one step, in the order of its journal: "
        "local calls, queued activities, child runs and maps. What is open comes last.",
        handle=get_steps,
        is_list=True,
        action=Action.READ,
        query=StepListQuery,
        answer=StepListView,
        errors=("not_found", "data_damaged"),
        example="?stepId=charge",
    ),
)
