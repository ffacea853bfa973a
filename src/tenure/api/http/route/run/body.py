"""The bodies of requests about runs, and their conversion."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from tenure.api.http.body import Body, Duration, given_or
from tenure.api.http.parameter import chosen, name_of
from tenure.api.http.route.task.body import Base64, Priority, RetryBody, encoded_payload, instant_ms
from tenure.core import limits
from tenure.core.run.external_id import OnFinished, OnLive
from tenure.core.task.record import NewTask, Spec, TaskKind
from tenure.core.task.retry import RetryPolicy
from tenure.engine.run import command as c


class SignalBody(Body, frozen=True):
    """A signal; one with a signalId is recorded once, however often it is sent."""

    name: str
    payload: Annotated[Raw, Meta(description="Any JSON; stored byte for byte")] | UnsetType = UNSET
    payload_base64: Base64 | UnsetType = msgspec.field(default=UNSET, name="payloadBase64")
    encoding: Annotated[str, Meta(description="Of payloadBase64; payload is JSON")] | UnsetType = (
        UNSET
    )
    signal_id: str = ""
    sender: Annotated[str, Meta(description="Who sends it, for people")] = ""

    def signal(self) -> c.NewSignal:
        """Return the signal for the engine."""
        data, encoding = encoded_payload(
            self.payload, self.payload_base64, self.encoding, field="payload"
        )
        return c.NewSignal(
            name=self.name,
            payload=data,
            encoding="" if data is None else encoding,
            signal_id=self.signal_id,
            sender=self.sender,
        )


class RetryRunBody(Body, frozen=True):
    """What the new run does again: all, or what begins with a call or at a position."""

    from_step: Annotated[
        str, Meta(description="The key of a call, or last: the failure that ended the run")
    ] = ""
    from_position: Annotated[int, Meta(ge=0, le=limits.ATTEMPT_MAX)] = 0
    new_run_id: Annotated[str, Meta(description="Made by the client: a UUIDv7")] = ""


class RunBody(Body, frozen=True):
    """A run to start. isResend says that an earlier answer for this runId may have been lost."""

    type: str
    queue: str
    input: Annotated[Raw, Meta(description="Any JSON; stored byte for byte")] | UnsetType = UNSET
    input_base64: Base64 | UnsetType = msgspec.field(default=UNSET, name="inputBase64")
    encoding: Annotated[str, Meta(description="Of inputBase64; input is JSON")] | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    run_at: Annotated[datetime, Meta(tz=True)] | UnsetType = UNSET
    timeout_ms: (
        Annotated[Duration, Meta(description="For the whole run, from runAt on")] | UnsetType
    ) = UNSET
    retry: (
        Annotated[RetryBody, Meta(description="After a failure it begins anew; default: never")]
        | UnsetType
    ) = UNSET
    labels: dict[str, str] | UnsetType = UNSET
    idempotency_key: str | UnsetType = UNSET
    signals: Annotated[list[SignalBody], Meta(description="The first entries of its journal")] = (
        msgspec.field(default_factory=list)
    )
    external_id: Annotated[
        str, Meta(description="The user's own id, unique among the live runs of a namespace")
    ] = ""
    on_live: Annotated[str, name_of(OnLive, "If a live run has the external id")] = "RETURN"
    on_finished: Annotated[str, name_of(OnFinished, "If only finished runs have it")] = "ALLOW"
    run_id: Annotated[str, Meta(description="Made by the client: a UUIDv7")] | UnsetType = UNSET
    is_resend: bool = False

    def start(self, namespace: str, made_id: str) -> c.StartRun:
        """Return the command; ``made_id`` is the id of the run unless the client chose one."""
        return c.StartRun(
            namespace=namespace,
            new=self.new_run(made_id),
            signals=tuple(each.signal() for each in self.signals),
            is_resend=self.is_resend,
            external_id=self.external_id,
            on_live=chosen(OnLive, self.on_live, "onLive") or OnLive.RETURN,
            on_finished=chosen(OnFinished, self.on_finished, "onFinished") or OnFinished.ALLOW,
        )

    def new_run(self, made_id: str) -> NewTask:
        """Return the requested run; ``made_id`` is its id unless the client chose one."""
        data, encoding = encoded_payload(
            self.input, self.input_base64, self.encoding, field="input"
        )
        spec = Spec(
            kind=TaskKind.WORKFLOW,
            schedule_to_close_ms=given_or(self.timeout_ms, 0),
            retry=RetryPolicy(maximum_attempts=1) if self.retry is UNSET else self.retry.policy(),
            encoding=encoding,
        )
        return NewTask(
            id=given_or(self.run_id, made_id),
            type=self.type,
            queue=self.queue,
            spec=spec,
            input=data,
            priority=given_or(self.priority, limits.PRIORITY_DEFAULT),
            run_at_ms=0 if self.run_at is UNSET else instant_ms(self.run_at, "runAt"),
            labels=given_or(self.labels, None),
            idempotency_key=given_or(self.idempotency_key, ""),
        )
