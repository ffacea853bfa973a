"""Which queues the workers of this process serve, and which their activities are declared for."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterable
from typing import Any, Final, Protocol
from weakref import WeakSet

from tenure.sdk.activity.definition import Activity
from tenure.sdk.activity.option import Options
from tenure.sdk.activity.registry import Registry
from tenure.sdk.workflow import registry
from tenure.sdk.workflow.definition import Workflow

log = logging.getLogger("tenure.worker")

# An activity that names no queue has this one, wherever its workers are.
_UNNAMED: Final = Options().queue


class Serving(Protocol):
    """A worker, as far as others have to know of it."""

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues whose tasks it runs."""
        ...

    @property
    def namespace(self) -> str:
        """The namespace of its queues."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether it runs no more tasks."""
        ...


_workers: Final[WeakSet[Serving]] = WeakSet()
_lock: Final = threading.Lock()


def add(worker: Serving) -> None:
    """Count a worker among those of this process, until it has ended."""
    with _lock:
        _workers.add(worker)


def warn_of_unserved(
    worker: Serving,
    activities: Iterable[Activity[..., Any]],
    workflows: Iterable[Workflow[..., Any]] = (),
) -> None:
    """Log the queues that activities of a worker are declared for, and that nobody here serves."""
    with _lock:
        others = [each for each in _workers if not each.has_ended]
    served = {
        queue for each in others if each.namespace == worker.namespace for queue in each.queues
    }
    declared: dict[str, list[str]] = {}
    known = [(each.options.queue, each.name) for each in activities]
    known += [(each.options.queue, each.name) for each in workflows]
    for queue, name in known:
        if queue not in {_UNNAMED, *served}:
            declared.setdefault(queue, []).append(name)
    for queue, names in sorted(declared.items()):
        both = (*worker.queues, queue)
        log.warning(
            "No worker of this process serves queue %s, which these activities are declared for: "
            "%s. Their tasks wait for another worker. To run them here: %s",
            queue,
            ", ".join(sorted(names)),
            f"queues={json.dumps(both)}, or {' '.join(f'--queue {each}' for each in both)}",
            extra={"queue": queue},
        )


def declared_queues(given: Iterable[object]) -> list[str]:
    """Return the queues that activities and workflows are declared for.

    Those that name none have ``default``.
    """
    activities, workflows = registry.split(given)
    known = Registry(activities, may_be_empty=True).activities
    queues = {each.options.queue for each in known} | {each.options.queue for each in workflows}
    return sorted(queues | {_UNNAMED})
