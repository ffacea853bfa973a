"""The last sample as gauges: a limited number of queues by name, the rest as ``other``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client.metrics_core import Metric

from tenure.api.metrics import exposition
from tenure.core.limits import METRIC_QUEUES_MAX
from tenure.core.task.record import TERMINAL, TaskState
from tenure.engine.claim.offer import Group
from tenure.engine.read.sample import Sample

OTHER: Final = "other"
_OTHER_GROUP: Final = (OTHER, OTHER)
_PARKED: Final = "parked"
_LIVE: Final = tuple(state for state in TaskState if state not in TERMINAL)


class QueueLabels:
    """Queues keep their labels while they are empty, so that a depth of 0 is visible."""

    def __init__(self, *, queues_max: int = METRIC_QUEUES_MAX) -> None:
        """Start without a sample."""
        self._queues_max = queues_max
        self._named: set[Group] = set()
        self._sample: Sample | None = None

    def take(self, sample: Sample) -> None:
        """Name the queues of a new sample; an empty one loses its labels to one that is not."""
        self._sample = sample
        present = sample.depths.keys() | sample.oldest_waiting_ms.keys()
        new = sorted(present - self._named)
        surplus = len(self._named) + len(new) - self._queues_max
        if surplus > 0:
            self._named -= set(sorted(self._named - present)[:surplus])
        self._named |= set(new[: self._queues_max - len(self._named)])

    def families(self) -> Iterable[Metric]:
        """Return the gauges of the sample; none before the first."""
        sample = self._sample
        if sample is None:
            return
        yield exposition.gauge(exposition.DEPTH, self._depths(sample).items())
        yield exposition.gauge(exposition.OLDEST, self._oldest(sample).items())
        yield exposition.gauge(exposition.WORKERS, sample.workers.items())
        yield exposition.gauge(exposition.LEASES, [((), sample.lease_count)])
        lag_seconds = sample.closing_lag_ms / 1000
        yield exposition.gauge(exposition.CHILD_CLOSING_LAG, [((), lag_seconds)])
        yield exposition.gauge(exposition.SCHEDULES_DUE, [((), sample.due_schedule_count)])
        yield exposition.gauge(exposition.SCHEDULES_LATE, [((), sample.late_schedule_count)])
        yield exposition.gauge(exposition.SCHEDULES_BROKEN, [((), sample.broken_schedule_count)])
        states = dict.fromkeys((*(each.value for each in _LIVE), _PARKED), 0) | sample.runs
        yield exposition.gauge(exposition.RUNS, [((key,), count) for key, count in states.items()])

    def _depths(self, sample: Sample) -> dict[exposition.Labels, float]:
        values: dict[exposition.Labels, float] = {
            (*group, state.value): 0 for group in sorted(self._named) for state in _LIVE
        }
        for group, states in sample.depths.items():
            for state, count in states.items():
                labels = (*self._name(group), state.value)
                values[labels] = values.get(labels, 0) + count
        return values

    def _oldest(self, sample: Sample) -> dict[exposition.Labels, float]:
        values: dict[exposition.Labels, float] = dict.fromkeys(sorted(self._named), 0)
        for group, age_ms in sample.oldest_waiting_ms.items():
            labels = self._name(group)
            values[labels] = max(values.get(labels, 0), age_ms / 1000)
        return values

    def _name(self, group: Group) -> Group:
        return group if group in self._named else _OTHER_GROUP
