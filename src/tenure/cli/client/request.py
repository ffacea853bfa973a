"""What commands ask the client for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypedDict


class EnqueueOptions(TypedDict):
    """A task as the options of ``tenure tasks enqueue`` describe it."""

    queue: str
    input: bytes | None
    priority: int | None
    delay_ms: int | None
    at_ms: int | None
    schedule_to_start_ms: int | None
    schedule_to_close_ms: int | None
    start_to_close_ms: int | None
    heartbeat_timeout_ms: int | None
    cancel_grace_ms: int | None
    max_attempts: int
    key: str
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class TaskSelection:
    """Which page of which tasks; what is empty lets all pass."""

    queue: str = ""
    type: str = ""
    state: str = ""
    states: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    error_type: str = ""
    failure_reason: str = ""
    created_after_ms: int = 0
    created_before_ms: int = 0
    limit: int = 20
    page_token: str = ""


class StartOptions(TypedDict):
    """A run as the options of ``tenure run`` describe it."""

    queue: str
    input: bytes | None
    priority: int | None
    delay_ms: int | None
    at_ms: int | None
    schedule_to_close_ms: int | None
    max_attempts: int
    key: str
    external_id: str
    on_live: str
    on_finished: str
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class RunSelection:
    """Which page of which runs; what is empty lets all pass."""

    queue: str = ""
    type: str = ""
    status: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    created_from_ms: int | None = None
    created_to_ms: int | None = None
    external_id: str = ""
    limit: int = 20
    page_token: str = ""


@dataclass(frozen=True, kw_only=True)
class WorkerQuery:
    """Which page of which workers; what is empty lets all pass."""

    queue: str = ""
    status: str = ""
    version: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    limit: int = 20
    page_token: str = ""


class CompletionRequest(TypedDict):
    """The end of a task as somebody outside reports it; with an error message it failed."""

    output: bytes | None
    error_message: str | None
    error_type: str
    is_final: bool
    attempt: int | None


class StopChoice(TypedDict):
    """Which workers are to be stopped: one, or all with these labels and this version."""

    worker_id: str | None
    labels: tuple[tuple[str, str], ...]
    version: str


class DrainChoice(TypedDict):
    """Which workers are drained: one by its id, or all that match."""

    worker_id: str | None
    labels: tuple[tuple[str, str], ...]
    version: str
    deadline_ms: int | None


class RuleOptions(TypedDict):
    """When a schedule fires, as options describe it."""

    rule: str
    every_ms: int | None
    offset_ms: int
    zone: str
    starts_at_ms: int | None
    ends_at_ms: int | None


class ScheduleOptions(RuleOptions):
    """A schedule as the options of ``tenure schedules put`` describe it."""

    is_workflow: bool
    queue: str
    input: bytes | None
    priority: int | None
    schedule_to_start_ms: int | None
    schedule_to_close_ms: int | None
    start_to_close_ms: int | None
    heartbeat_timeout_ms: int | None
    cancel_grace_ms: int | None
    max_attempts: int | None
    labels: tuple[tuple[str, str], ...]
    external_id: str
    on_live: str | None
    overlap: str
    max_catchup: int
    catchup_window_ms: int | None
    jitter_ms: int
    pause_after_failures: int
    note: str


@dataclass(frozen=True, kw_only=True)
class ScheduleSelection:
    """Which page of which schedules; what is empty lets all pass."""

    type: str = ""
    is_paused: bool | None = None
    limit: int = 20
    page_token: str = ""
