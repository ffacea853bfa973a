"""The bodies of requests about schedules, and their conversion."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType, field

from tenure.api.http.body import Body, Duration, given_or
from tenure.api.http.parameter import chosen, name_of
from tenure.api.http.route.task.body import Base64, Priority, RetryBody, encoded_payload, instant_ms
from tenure.core import limits
from tenure.core.duration import parse_duration_ms
from tenure.core.run.external_id import OnLive
from tenure.core.schedule.plan import Plan, plan
from tenure.core.schedule.record import Overlap, ResumeMode, Rule, ScheduleSpec, Target
from tenure.core.task.record import Spec, TaskKind
from tenure.core.task.retry import RetryPolicy
from tenure.errors import InvalidArgument

Moment = Annotated[datetime, Meta(tz=True)]
# As milliseconds, or as people write it.
Span = int | str
_SPAN: Final = "Milliseconds, or a text such as 5m"
_Count = Annotated[int, Meta(ge=0, le=limits.MAX_CATCHUP_MAX)]
_OF_TASKS: Final = (
    *("schedule_to_start_ms", "schedule_to_close_ms", "start_to_close_ms"),
    *("heartbeat_timeout_ms", "heartbeat_interval_ms", "cancel_grace_period_ms"),
    *("delivery_timeout_ms", "resources"),
)
_OF_RUNS: Final = ("timeout_ms", "external_id", "on_live")


class TargetBody(Body, frozen=True):
    """What a schedule starts: a task, or a run of a workflow, with the fields of a POST of it.

    Of a task one of startToCloseMs and scheduleToCloseMs is required.
    """

    type: str
    queue: str
    workflow: Annotated[bool, Meta(description="It is a workflow: each fire starts a run")] = False
    input: Annotated[Raw, Meta(description="Any JSON; stored byte for byte")] | UnsetType = UNSET
    input_base64: Base64 | UnsetType = field(default=UNSET, name="inputBase64")
    encoding: Annotated[str, Meta(description="Of inputBase64; input is JSON")] | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    schedule_to_start_ms: Duration | UnsetType = UNSET
    schedule_to_close_ms: Duration | UnsetType = UNSET
    start_to_close_ms: Duration | UnsetType = UNSET
    heartbeat_timeout_ms: Duration | UnsetType = UNSET
    heartbeat_interval_ms: Duration | UnsetType = UNSET
    cancel_grace_period_ms: Duration | UnsetType = UNSET
    delivery_timeout_ms: (
        Annotated[int, Meta(ge=1, le=limits.DELIVERY_TIMEOUT_MAX_MS)] | UnsetType
    ) = UNSET
    timeout_ms: (
        Annotated[Duration, Meta(description="Of a run, for the whole of it")] | UnsetType
    ) = UNSET
    retry: RetryBody | UnsetType = UNSET
    labels: dict[str, str] | UnsetType = UNSET
    resources: dict[str, str] | UnsetType = UNSET
    external_id: (
        Annotated[str, Meta(description="Of a run, the user's own id for it")] | UnsetType
    ) = UNSET
    on_live: (
        Annotated[
            str,
            name_of(
                OnLive,
                "If a live run has the external id: it counts as started, or the fire is skipped",
            ),
        ]
        | UnsetType
    ) = UNSET

    def target(self) -> Target:
        """Return what is started; fields of the other kind are refused."""
        self._check_kind()
        data, encoding = encoded_payload(
            self.input, self.input_base64, self.encoding, field="input"
        )
        return Target(
            type=self.type,
            queue=self.queue,
            spec=self._run_spec(encoding) if self.workflow else self._task_spec(encoding),
            input=data or None,
            priority=given_or(self.priority, limits.PRIORITY_DEFAULT),
            labels=given_or(self.labels, {}) or None,
            external_id=given_or(self.external_id, ""),
            on_live=chosen(OnLive, given_or(self.on_live, ""), "onLive") or OnLive.RETURN,
        )

    def _check_kind(self) -> None:
        other, kind = (_OF_TASKS, "a task") if self.workflow else (_OF_RUNS, "a run")
        for each in msgspec.structs.fields(self):
            if each.name in other and getattr(self, each.name) is not UNSET:
                name = each.encode_name
                message = f"{name} belongs to {kind}; workflow says which of both it is"
                raise InvalidArgument(message, field=name)

    def _run_spec(self, encoding: str) -> Spec:
        return Spec(
            kind=TaskKind.WORKFLOW,
            schedule_to_close_ms=given_or(self.timeout_ms, 0),
            retry=RetryPolicy(maximum_attempts=1) if self.retry is UNSET else self.retry.policy(),
            encoding=encoding,
        )

    def _task_spec(self, encoding: str) -> Spec:
        return Spec(
            schedule_to_start_ms=given_or(self.schedule_to_start_ms, 0),
            schedule_to_close_ms=given_or(self.schedule_to_close_ms, 0),
            start_to_close_ms=given_or(self.start_to_close_ms, 0),
            heartbeat_timeout_ms=given_or(self.heartbeat_timeout_ms, 0),
            heartbeat_interval_ms=given_or(self.heartbeat_interval_ms, 0),
            cancel_grace_ms=given_or(self.cancel_grace_period_ms, limits.CANCEL_GRACE_MS),
            delivery_timeout_ms=given_or(self.delivery_timeout_ms, limits.DELIVERY_TIMEOUT_MS),
            retry=RetryPolicy() if self.retry is UNSET else self.retry.policy(),
            encoding=encoding,
            resources=given_or(self.resources, {}),
        )


class RuleBody(Body, frozen=True):
    """When a schedule fires: rule or every, not both."""

    rule: Annotated[
        str,
        Meta(
            description="sec min hour dom month dow [year], or five fields without sec, or @daily "
            "and the like. Sunday is 0 or 7; if both day fields are restricted, either matches."
        ),
    ] = ""
    every: Annotated[Span, Meta(description=f"{_SPAN}; at least 1s")] | UnsetType = UNSET
    offset: Annotated[
        Span, Meta(description=f"{_SPAN}; it moves the interval, which is aligned to 1970")
    ] = 0
    zone: Annotated[str, Meta(description="UTC or an IANA name, such as Europe/Berlin")] = "UTC"
    starts_at: Moment | UnsetType = UNSET
    ends_at: Moment | UnsetType = UNSET

    def when(self) -> Rule:
        """Return the rule."""
        every_ms = 0 if self.every is UNSET else span_ms(self.every, "every")
        if self.every is not UNSET and not every_ms:
            message = "every must be at least 1s"
            raise InvalidArgument(message, field="every")
        return Rule(
            cron=self.rule,
            every_ms=every_ms,
            offset_ms=span_ms(self.offset, "offset"),
            zone=self.zone,
        )


class ContentBody(RuleBody, frozen=True, kw_only=True):
    """What a schedule says: when it fires, what it starts, and what happens if it is late."""

    target: TargetBody
    overlap: Annotated[str, name_of(Overlap, "If the task of the last fire has not ended")] = (
        Overlap.ALLOW.upper()
    )
    max_catchup: Annotated[
        _Count, Meta(description="How many missed instants fire, the newest")
    ] = limits.MAX_CATCHUP
    catchup_window_ms: (
        Annotated[int, Meta(ge=1, description="Missed instants that are older do not fire")]
        | UnsetType
    ) = UNSET
    jitter_ms: Annotated[int, Meta(ge=0, description="Tasks start up to so much later")] = 0
    pause_after_failures: Annotated[int, Meta(ge=0, description="In a row; 0 means never")] = 0
    note: Annotated[str, Meta(description="For people")] = ""

    def spec(self) -> ScheduleSpec:
        """Return the content for the engine."""
        return ScheduleSpec(
            rule=self.when(),
            target=self.target.target(),
            overlap=chosen(Overlap, self.overlap, "overlap") or Overlap.ALLOW,
            max_catchup=self.max_catchup,
            catchup_window_ms=given_or(self.catchup_window_ms, None),
            jitter_ms=self.jitter_ms,
            pause_after_failures=self.pause_after_failures,
            note=self.note,
            starts_at_ms=_moment_ms(self.starts_at, "startsAt"),
            ends_at_ms=_moment_ms(self.ends_at, "endsAt"),
        )


class ScheduleBody(ContentBody, frozen=True):
    """A schedule to create; without a scheduleId the server makes one."""

    schedule_id: str = ""


class PauseBody(Body, frozen=True):
    """Why it is paused."""

    note: str = ""


class ResumeBody(Body, frozen=True):
    """What happens to the instants of the pause: they count as missed, or are skipped."""

    mode: Annotated[str, name_of(ResumeMode, "CATCH_UP is the default")] = "CATCH_UP"

    def chosen_mode(self) -> ResumeMode:
        """Return it for the engine."""
        return chosen(ResumeMode, self.mode, "mode") or ResumeMode.CATCH_UP


class TriggerBody(Body, frozen=True):
    """The id of the trigger; with it a request may be repeated."""

    trigger_id: str = ""


class BackfillBody(Body, frozen=True, kw_only=True):
    """Which instants fire: those after from, up to and with to."""

    from_: Moment = field(name="from")
    to: Moment

    def bounds_ms(self) -> tuple[int, int]:
        """Return both for the engine."""
        return instant_ms(self.from_, "from"), instant_ms(self.to, "to")


class PreviewBody(RuleBody, frozen=True):
    """A rule that is not stored, and how many of its instants are wanted."""

    count: Annotated[int, Meta(ge=1, le=limits.PREVIEW_FIRES_MAX)] = 10
    after: Annotated[Moment, Meta(description="Default: now")] | UnsetType = UNSET

    def plan(self, now_ms: int) -> Plan:
        """Return what the rule will fire."""
        after_ms = _moment_ms(self.after, "after")
        return plan(
            self.when(),
            starts_at_ms=_moment_ms(self.starts_at, "startsAt"),
            ends_at_ms=_moment_ms(self.ends_at, "endsAt"),
            after_ms=now_ms if after_ms is None else after_ms,
            count=self.count,
        )


def span_ms(given: Span, name: str) -> int:
    """Return a duration in milliseconds; the engine checks how long it may be."""
    if isinstance(given, int):
        return given
    try:
        return parse_duration_ms(given, minimum=0)
    except ValueError as error:
        message = f"{name} {error}"
        raise InvalidArgument(message, field=name) from None


def _moment_ms(given: datetime | UnsetType, name: str) -> int | None:
    return None if given is UNSET else instant_ms(given, name)
