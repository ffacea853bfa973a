"""The families of metrics, and the conversion of numbers for prometheus-client."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

import msgspec
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from tenure.engine.meter import Occupancy

Labels = tuple[str, ...]


class Family(msgspec.Struct, frozen=True):
    """A metric: its name with the unit, its help text, and the names of its labels."""

    name: str
    help: str
    labels: Labels = ()


class HistogramRow(msgspec.Struct, frozen=True):
    """One histogram: the counts between its bounds, one more than the bounds, and the sum."""

    labels: Labels
    bounds: Sequence[float]
    counts: Sequence[int]
    total: float


BUILD: Final = Family("tenure_build_info", "The version of this server.", ("version",))
CERTIFICATE_EXPIRY: Final = Family(
    "tenure_tls_certificate_expiry_timestamp_seconds",
    "When the certificate for new connections expires; absent without TLS.",
)

ENQUEUED: Final = Family("tenure_tasks_enqueued", "Tasks that were stored.")
HANDED_OUT: Final = Family("tenure_tasks_handed_out", "Attempts that were given to workers.")
FINISHED: Final = Family("tenure_tasks_finished", "Tasks that ended, by state.", ("state",))
ENDED: Final = Family("tenure_attempts_ended", "Attempts that ended, by outcome.", ("outcome",))
REJECTED: Final = Family("tenure_rejections", "Requests that were refused, by code.", ("code",))
LOST: Final = Family(
    "tenure_store_losses", "Batches that were answered with `unavailable`, by reason.", ("reason",)
)

REQUESTS: Final = Family(
    "tenure_requests",
    "Requests to this server; the code is `ok` or the error code.",
    ("edge", "method", "code"),
)
REQUEST_SECONDS: Final = Family(
    "tenure_request_duration_seconds",
    "How long requests took, including the waiting of long polls.",
    ("edge", "method"),
)
BATCH_SIZE: Final = Family("tenure_batch_size_commands", "Commands in a batch.", ("lane",))
BATCH_SECONDS: Final = Family(
    "tenure_batch_duration_seconds",
    "How long a batch took, including its commit and its repetitions.",
    ("lane",),
)
START_LATENCY: Final = Family(
    "tenure_task_start_latency_seconds", "From the time a task was ready to its hand-out."
)
ATTEMPT_DURATION: Final = Family(
    "tenure_attempt_duration_seconds",
    "From the hand-out of an attempt to its end, however it ended.",
)

STEPS: Final = Family(
    "tenure_steps",
    "Entries that workers recorded in journals, by type of the run, kind and outcome.",
    ("type", "kind", "outcome"),
)
JOURNAL_ENTRIES: Final = Family(
    "tenure_journal_entries", "Entries in the journal of a run at its end, if this server knew it."
)
RUN_WAKE: Final = Family(
    "tenure_run_wake_seconds", "From when a run was to be woken to its hand-out."
)
RERUN_ENTRIES: Final = Family(
    "tenure_run_rerun_entries", "Entries that workers had to go through for runs they were given."
)

FIRES: Final = Family(
    "tenure_schedule_fires",
    "Ticks of schedules by what became of them: tick, trigger, backfill, or why they were skipped.",
    ("result",),
)
FIRE_LATENESS: Final = Family(
    "tenure_schedule_lateness_seconds", "From a tick to the start of its task or run."
)

SCHEDULES_DUE: Final = Family(
    "tenure_schedules_due", "Schedules that are due now; from the last sample."
)
SCHEDULES_LATE: Final = Family(
    "tenure_schedules_late", "Schedules that are due for over a minute; from the last sample."
)
SCHEDULES_BROKEN: Final = Family(
    "tenure_schedules_broken", "Schedules that cannot fire; from the last sample."
)
CALLS: Final = Family("tenure_served_calls", "Calls to served workers, by result.", ("result",))
CALL_SECONDS: Final = Family(
    "tenure_served_call_duration_seconds", "How long calls to served workers took."
)
CALLS_LATE: Final = Family(
    "tenure_served_late_ticks", "Served workers that were called over a second late."
)
SEATS: Final = Family("tenure_seats", "Served workers and endpoints that this server drives.")
DELIVERIES: Final = Family(
    "tenure_endpoint_deliveries", "Envelopes sent to endpoints, by result.", ("result",)
)
DELIVERY_SECONDS: Final = Family(
    "tenure_endpoint_delivery_duration_seconds", "How long endpoints took to answer an envelope."
)
ENDPOINTS_HELD: Final = Family(
    "tenure_endpoints_held", "Endpoints of this server that are held, busy or paused."
)

DEPTH: Final = Family(
    "tenure_queue_tasks",
    "Live tasks of a queue, by state; from the last sample.",
    ("namespace", "queue", "state"),
)
OLDEST: Final = Family(
    "tenure_queue_oldest_waiting_seconds",
    "How long the first claimable task of a queue has waited; from the last sample.",
    ("namespace", "queue"),
)
WORKERS: Final = Family(
    "tenure_workers",
    "Workers by status and health; offline ones have none. From the last sample.",
    ("status", "health"),
)
RUNS: Final = Family(
    "tenure_runs",
    "Live runs of workflows, by state; parked ones are not among those that wait. "
    "From the last sample.",
    ("state",),
)
CHILD_CLOSING_LAG: Final = Family(
    "tenure_child_closing_lag_seconds",
    "How long ago the first run ended whose children are not all closed; from the last sample.",
)
LEASES: Final = Family("tenure_leases", "Workers that hold a lease; from the last sample.")
SAMPLE_AGE: Final = Family(
    "tenure_sample_age_seconds",
    "Time since the last sample of the store, or since the start if there was none.",
)
SESSIONS: Final = Family("tenure_sessions_open", "Sessions of workers at this server.")
POLLS: Final = Family("tenure_polls_waiting", "Polls that wait at this server.")
LANE_WAITING: Final = Family(
    "tenure_lane_waiting_commands", "Commands that wait for a batch.", ("lane",)
)


def counter(family: Family, values: Iterable[tuple[Labels, float]]) -> Metric:
    """Return a counter; its name gets the suffix ``_total``."""
    made = CounterMetricFamily(family.name, family.help, labels=family.labels)
    for labels, value in values:
        made.add_metric(labels, value)
    return made


def gauge(family: Family, values: Iterable[tuple[Labels, float]]) -> Metric:
    """Return a gauge."""
    made = GaugeMetricFamily(family.name, family.help, labels=family.labels)
    for labels, value in values:
        made.add_metric(labels, value)
    return made


def histogram(family: Family, rows: Sequence[HistogramRow]) -> Metric:
    """Return a histogram."""
    made = HistogramMetricFamily(family.name, family.help, labels=family.labels)
    for row in rows:
        bounds = [*(str(float(bound)) for bound in row.bounds), "+Inf"]
        counts = accumulate(row.counts)
        made.add_metric(row.labels, list(zip(bounds, counts, strict=True)), row.total)
    return made


def occupancy(now: Occupancy) -> Iterable[Metric]:
    """Return what waits in an engine."""
    yield gauge(SESSIONS, [((), now.session_count)])
    yield gauge(POLLS, [((), now.poll_count)])
    waiting = [(("work",), now.work_command_count), (("heartbeat",), now.heartbeat_command_count)]
    yield gauge(LANE_WAITING, waiting)
