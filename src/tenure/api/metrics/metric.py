"""Metrics of one server: counted as plain numbers on the loop, written at a scrape.

Counters and histograms come from the engine per batch and from the edges per request; values of the
store come from the sampler. A scrape reads only memory. Each server has its own registry.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

import tenure
from tenure.api.guard.tls import Certificates
from tenure.api.metrics import exposition
from tenure.api.metrics.exposition import Family
from tenure.api.metrics.queue_label import OTHER, QueueLabels
from tenure.core.limits import METRIC_METHODS_MAX
from tenure.engine.engine import Engine
from tenure.engine.latencies import LATENCY_BOUNDS_MS, Latencies
from tenure.engine.meter import Tally
from tenure.engine.read.sample import Sample
from tenure.engine.run.run_tally import LENGTH_BOUNDS, Lengths
from tenure.engine.seat.call_tally import BOUNDS_MS
from tenure.engine.seat.seats import Seats
from tenure.store.transaction import LaneName

# A batch is what arrived while the previous one was committed.
_SIZE_BOUNDS: Final = (1, 2, 5, 10, 25, 50, 100, 250, 500)
_SECONDS_BOUNDS: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1, 2.5, 5, 10, 30, 60),
)
# The lanes that run batches; services have a connection and no queue.
_LANES: Final = (LaneName.WORK, LaneName.HEARTBEAT)
_LATENCY_BOUNDS: Final = tuple(ms / 1000 for ms in LATENCY_BOUNDS_MS)


class Histogram:
    """Counts between bounds, and their sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """Start empty."""
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value; one that is equal to a bound is below it."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def row(self, *labels: str) -> exposition.HistogramRow:
        """Return the values to write."""
        return exposition.HistogramRow(labels, self._bounds, self._counts, self._sum)


class Metrics:
    """All counters; the engine's meter, and where the edges note their requests."""

    def __init__(self, *, timer: Callable[[], float] = time.perf_counter) -> None:
        """Start with zeros."""
        self.now = timer
        self._tally = Tally()
        self.committed = self._tally.add
        self.refused = self._tally.add_refused
        self._losses: dict[str, int] = {}
        self._batch_sizes = {lane: Histogram(_SIZE_BOUNDS) for lane in _LANES}
        self._batch_seconds = {lane: Histogram(_SECONDS_BOUNDS) for lane in _LANES}
        self._requests: dict[tuple[str, str, str], int] = {}
        self._request_seconds: dict[tuple[str, str], Histogram] = {}
        self._engine: Engine | None = None
        self.certificates: Certificates | None = None
        self._labels = QueueLabels()
        self._sampled_at = timer()
        self.registry = CollectorRegistry()
        self.registry.register(_Scrape(self))
        ProcessCollector(registry=self.registry)

    # -- What the engine calls

    def ran(self, lane: LaneName, size: int, began: float) -> None:
        """Note a batch."""
        self._batch_sizes[lane].observe(size)
        self._batch_seconds[lane].observe(self.now() - began)

    def lost(self, reason: str) -> None:
        """Note that a batch was lost with the store."""
        self._losses[reason] = self._losses.get(reason, 0) + 1

    # -- What the edges call

    def request(self, edge: str, method: str, code: str, seconds: float) -> None:
        """Note a request: ``grpc`` or ``http``, its method or route, its code, how long it took."""
        key = (edge, method, code)
        count = self._requests.get(key)
        if count is None:
            if len(self._requests) >= METRIC_METHODS_MAX:
                method = OTHER
                key = (edge, method, code)
            count = self._requests.get(key, 0)
        self._requests[key] = count + 1
        histogram = self._request_seconds.get((edge, method))
        if histogram is None:
            histogram = self._request_seconds[edge, method] = Histogram(_SECONDS_BOUNDS)
        histogram.observe(seconds)

    # -- What the sampler calls

    def watch(self, engine: Engine) -> None:
        """Also show what waits in this engine, read from its memory at each scrape."""
        self._engine = engine

    def sampled(self, sample: Sample) -> None:
        """Show this sample until the next one."""
        self._sampled_at = self.now()
        self._labels.take(sample)

    # -- What a scrape reads

    def collect(self) -> Iterable[Metric]:
        """Return all families of Tenure."""
        yield exposition.gauge(exposition.BUILD, [((tenure.__version__,), 1)])
        if self.certificates is not None:
            expires_at_s = self.certificates.expires_at_ms / 1000
            yield exposition.gauge(exposition.CERTIFICATE_EXPIRY, [((), expires_at_s)])
        yield from self._counters()
        yield from self._histograms()
        yield exposition.gauge(exposition.SAMPLE_AGE, [((), self.now() - self._sampled_at)])
        yield from self._labels.families()
        if self._engine is not None:
            yield from exposition.occupancy(self._engine.occupancy)
            yield from _seats(self._engine.seats)

    def _counters(self) -> Iterable[Metric]:
        tally = self._tally
        values: dict[Family, Iterable[tuple[exposition.Labels, float]]] = {
            exposition.ENQUEUED: [((), tally.enqueued_count)],
            exposition.HANDED_OUT: [((), tally.handed_out_count)],
            exposition.FINISHED: _labelled(tally.finished.items()),
            exposition.ENDED: _labelled(tally.ended.items()),
            exposition.REJECTED: _labelled(tally.refused.items()),
            exposition.LOST: _labelled(self._losses.items()),
            exposition.STEPS: tally.runs.steps.items(),
            exposition.FIRES: _labelled(tally.fires.results.items()),
            exposition.RERUN_ENTRIES: [((), tally.runs.rerun_entry_count)],
            exposition.REQUESTS: self._requests.items(),
        }
        return [exposition.counter(family, each) for family, each in values.items()]

    def _histograms(self) -> Iterable[Metric]:
        rows: dict[Family, list[exposition.HistogramRow]] = {
            exposition.BATCH_SIZE: _by_lane(self._batch_sizes),
            exposition.BATCH_SECONDS: _by_lane(self._batch_seconds),
            exposition.START_LATENCY: [_latency_row(self._tally.start)],
            exposition.ATTEMPT_DURATION: [_latency_row(self._tally.run)],
            exposition.RUN_WAKE: [_latency_row(self._tally.runs.wake)],
            exposition.FIRE_LATENESS: [_latency_row(self._tally.fires.lateness)],
            exposition.JOURNAL_ENTRIES: [_length_row(self._tally.runs.lengths)],
            exposition.REQUEST_SECONDS: [
                each.row(*labels) for labels, each in self._request_seconds.items()
            ],
        }
        for family, each in rows.items():
            yield exposition.histogram(family, each)


def _seats(seats: Seats) -> Iterable[Metric]:
    """Return how many workers this server drives, and how its calls went."""
    tally = seats.tally
    bounds = [each / 1000 for each in BOUNDS_MS]
    calls = exposition.HistogramRow((), bounds, tally.counts, tally.sum_ms / 1000)
    yield exposition.gauge(exposition.SEATS, [((), len(seats))])
    yield exposition.counter(exposition.CALLS, _labelled(tally.results.items()))
    yield exposition.counter(exposition.CALLS_LATE, [((), tally.late_count)])
    yield exposition.histogram(exposition.CALL_SECONDS, [calls])
    pushed = seats.deliveries
    deliveries = exposition.HistogramRow((), bounds, pushed.counts, pushed.sum_ms / 1000)
    yield exposition.counter(exposition.DELIVERIES, _labelled(pushed.results.items()))
    yield exposition.histogram(exposition.DELIVERY_SECONDS, [deliveries])
    yield exposition.gauge(exposition.ENDPOINTS_HELD, [((), seats.held_count)])


def _labelled(counts: Iterable[tuple[str, int]]) -> list[tuple[exposition.Labels, float]]:
    return [((str(key),), count) for key, count in counts]


def _latency_row(latencies: Latencies) -> exposition.HistogramRow:
    total_s = latencies.total_ms / 1000
    return exposition.HistogramRow((), _LATENCY_BOUNDS, latencies.counts, total_s)


def _length_row(lengths: Lengths) -> exposition.HistogramRow:
    return exposition.HistogramRow((), LENGTH_BOUNDS, lengths.counts, lengths.total)


def _by_lane(histograms: Mapping[LaneName, Histogram]) -> list[exposition.HistogramRow]:
    return [each.row(lane.value) for lane, each in histograms.items()]


class _Scrape(Collector):
    """The collector for the registry; ``Metrics`` itself would be registered too early."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics.collect()


def metrics_response(metrics: Metrics, request: Request) -> Response:
    """Return all metrics in the format that the scraper requests."""
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(metrics.registry), media_type=content_type)
