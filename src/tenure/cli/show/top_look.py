"""What ``tenure top`` shows: one look at queues, workers and the counters of the server."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from tenure.cli.client.event_stream import HttpEdge
from tenure.cli.client.request import WorkerQuery
from tenure.cli.failure import CliError
from tenure.cli.show.text import instant_text, parse_instant_ms
from tenure.cli.show.view import Shown, ShownQueue, ShownWorker, queue_state
from tenure.core import check
from tenure.core.limits import PAGE_SIZE_MAX

if TYPE_CHECKING:
    from tenure.cli.client.invocation import Invocation

_HELD: Final = ("DISPATCHED", "RUNNING", "CANCELLING")
_COUNTERS: Final = {
    "tenure_tasks_enqueued_total": "enqueued",
    "tenure_tasks_handed_out_total": "started",
    "tenure_tasks_finished_total": "finished",
}
_SCHEDULES: Final = {
    "tenure_schedules_due": "due",
    "tenure_schedules_late": "late",
    "tenure_schedules_broken": "broken",
}
_OLDEST: Final = "tenure_queue_oldest_waiting_seconds"
_BUILD: Final = "tenure_build_info"
_RATED_MS: Final = 3_000
_WANTED: Final = (*_COUNTERS, *_SCHEDULES, _OLDEST, _BUILD)


class TopQueue(Shown, frozen=True, kw_only=True):
    """A queue: what waits, what runs, and its settings."""

    name: str
    pending: int
    running: int
    others: int
    is_count_exact: bool = True
    paused: bool
    concurrency_max: int
    oldest_waiting_ms: int | None = None

    @property
    def state(self) -> str:
        """Whether its tasks are handed out."""
        return queue_state(is_paused=self.paused)


class TopWorker(Shown, frozen=True, kw_only=True):
    """A worker: whether it is alive, and what it holds."""

    worker_id: str
    name: str | None = None
    hostname: str | None = None
    pid: int | None = None
    queue: str
    status: str
    health: str | None = None
    held_count: int
    max_concurrent: int
    lease_left_ms: int | None = None
    heartbeat_age_ms: int | None = None


class TopSchedules(Shown, frozen=True, kw_only=True):
    """How many schedules are due now, late by over a minute, and broken; of all namespaces."""

    due: int
    late: int
    broken: int


class TopFrame(Shown, frozen=True, kw_only=True):
    """One look. Rates are those of the one server that was asked, in tasks per second."""

    target: str
    namespace: str
    at: str
    version: str | None = None
    enqueued_per_s: float | None = None
    started_per_s: float | None = None
    finished_per_s: float | None = None
    live_count: int
    is_live_count_exact: bool = True
    schedules: TopSchedules | None = None
    queues: list[TopQueue]
    has_more_queues: bool = False
    workers: list[TopWorker]
    has_more_workers: bool = False


class Counted(NamedTuple):
    """What the metrics of a server say, and when they were read."""

    at_ms: int
    version: str
    totals: Mapping[str, float]
    oldest_ms: Mapping[str, int]
    schedules: TopSchedules | None = None


class Looker:
    """Looks again and again; two looks make a rate."""

    def __init__(self, call: Invocation, edge: HttpEdge) -> None:
        """Read lists over gRPC and metrics over HTTP."""
        self._call = call
        self._edge = edge
        self._namespace = check.namespace(call.namespace)
        self._counted: deque[Counted] = deque()

    def look(self) -> TopFrame:
        """Return what is there now; without the metrics there are no rates."""
        client = self._call.client
        queues, queue_token = client.queues.list_queues("", PAGE_SIZE_MAX)
        workers, has_more = self._workers()
        now_ms = client.now_ms()
        counted = self._count()
        oldest = {} if counted is None else counted.oldest_ms
        return TopFrame(
            target=client.target,
            namespace=client.namespace,
            at=instant_text(now_ms),
            version=None if counted is None else counted.version,
            **self._rates(counted),
            live_count=sum(sum(each.counts.values()) for each in queues),
            is_live_count_exact=not queue_token and all(each.is_count_exact for each in queues),
            schedules=None if counted is None else counted.schedules,
            queues=[_queue(each, oldest.get(each.name)) for each in queues],
            has_more_queues=bool(queue_token),
            workers=[_worker(each, now_ms) for each in workers],
            has_more_workers=has_more,
        )

    def _workers(self) -> tuple[list[ShownWorker], bool]:
        """Return the workers that are there; those that leave come first."""
        found: list[ShownWorker] = []
        has_more = False
        for status in ("DRAINING", "ONLINE"):
            query = WorkerQuery(status=status, limit=PAGE_SIZE_MAX)
            workers, token = self._call.client.workers.list_workers(query)
            found += workers
            has_more |= bool(token)
        return found, has_more

    def _count(self) -> Counted | None:
        at_ms = self._call.client.monotonic_ms()
        try:
            return read_metrics(self._edge.get("/metrics"), self._namespace, at_ms)
        except CliError:
            # Whether the server is away the lists tell; a key may not allow this.
            return None

    def _rates(self, now: Counted | None) -> dict[str, float | None]:
        """Return rates since a few seconds ago; looks that follow each other closely say little."""
        if now is None:
            self._counted.clear()
            return _rates(None, None)
        self._counted.append(now)
        while len(self._counted) > 1 and now.at_ms - self._counted[1].at_ms >= _RATED_MS:
            self._counted.popleft()
        return _rates(self._counted[0], now)


def read_metrics(text: str, namespace: str, at_ms: int) -> Counted:
    """Return what is of use in the metrics of a server."""
    totals = dict.fromkeys(_COUNTERS.values(), 0.0)
    oldest_ms: dict[str, int] = {}
    schedules: dict[str, int] = dict.fromkeys(_SCHEDULES.values(), 0)
    has_schedules = False
    version = ""
    lines = [line for line in text.splitlines() if line.startswith(_WANTED)]
    for family in text_string_to_metric_families("\n".join((*lines, ""))):
        for sample in family.samples:
            if sample.name in _COUNTERS:
                totals[_COUNTERS[sample.name]] += sample.value
            elif sample.name in _SCHEDULES:
                schedules[_SCHEDULES[sample.name]] = int(sample.value)
                has_schedules = True
            elif sample.name == _BUILD:
                version = sample.labels["version"]
            elif sample.labels["namespace"] == namespace:
                oldest_ms[sample.labels["queue"]] = int(sample.value * 1000)
    # An older server says nothing of them.
    counts = TopSchedules(**schedules) if has_schedules else None
    return Counted(at_ms, version, totals, oldest_ms, counts)


def _rates(before: Counted | None, now: Counted | None) -> dict[str, float | None]:
    """Return the rates between two looks; a server that was restarted begins anew."""
    rates: dict[str, float | None] = {}
    for name in _COUNTERS.values():
        rates[f"{name}_per_s"] = None
        if before is not None and now is not None and now.at_ms > before.at_ms:
            more = now.totals[name] - before.totals[name]
            if more >= 0:
                rates[f"{name}_per_s"] = round(more * 1000 / (now.at_ms - before.at_ms), 1)
    return rates


def _queue(queue: ShownQueue, oldest_ms: int | None) -> TopQueue:
    pending = queue.counts.get("PENDING", 0)
    running = _sum(queue.counts, _HELD)
    return TopQueue(
        name=queue.name,
        pending=pending,
        running=running,
        others=sum(queue.counts.values()) - pending - running,
        is_count_exact=queue.is_count_exact,
        paused=queue.paused,
        concurrency_max=queue.concurrency_max,
        oldest_waiting_ms=oldest_ms if pending else None,
    )


def _sum(counts: Mapping[str, int], states: Iterable[str]) -> int:
    return sum(counts.get(state, 0) for state in states)


def _worker(worker: ShownWorker, now_ms: int) -> TopWorker:
    beat = worker.lease.last_heartbeat_at if worker.lease else None
    return TopWorker(
        worker_id=worker.worker_id,
        name=worker.name,
        hostname=worker.hostname,
        pid=worker.pid,
        queue=worker.queue,
        status=worker.status,
        health=worker.health,
        held_count=worker.held_count,
        max_concurrent=worker.max_concurrent,
        lease_left_ms=worker.lease_left_ms,
        heartbeat_age_ms=max(now_ms - parse_instant_ms(beat), 0) if beat else None,
    )
