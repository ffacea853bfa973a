"""The synchronous client. Made by ``make sync-client``; do not edit.

The one implementation runs on the connection thread of this process; see ``connection_thread``.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any, ParamSpec

from tenure.sdk.transport.connection_thread import Anchor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from typing import Literal

    from tenure.sdk.activity.definition import Activity
    from tenure.sdk.client.schedule import Schedule
    from tenure.sdk.client.schedule_view import (
        BackfillResult,
        PlannedFire,
        ScheduleFire,
        ScheduleInfo,
    )
    from tenure.sdk.workflow.definition import Workflow

P = ParamSpec("P")


class SyncSchedules:
    """The schedules of a namespace: what starts by itself, and when.

    >>> client.schedules.put("nightly", "0 2 * * *", report, "yesterday")

    ``SyncClient.schedules`` returns it.
    """

    def __init__(self, anchor: Anchor) -> None:
        """Use ``SyncClient.schedules``."""
        self._anchor = anchor

    def __repr__(self) -> str:
        return f"<SyncSchedules of {self._anchor!r}>"

    def create(
        self,
        id: str,
        when: Schedule | str,
        target: Activity[P, Any] | Workflow[P, Any],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> ScheduleInfo:
        """Create a schedule that enqueues an activity, or starts a run of a workflow.

        >>> nightly = Schedule("0 2 * * *", zone="Europe/Berlin", overlap="skip")
        >>> client.schedules.create("nightly", nightly, report, "yesterday")

        A text is a cron rule in UTC. Arguments that do not fit raise ``TypeError`` before it is
        sent. The same id and content again changes nothing; other content raises ``AlreadyExists``.
        """
        return self._anchor.run(
            lambda client: client.schedules.create(id, when, target, *args, **kwargs)
        )

    def put(
        self,
        id: str,
        when: Schedule | str,
        target: Activity[P, Any] | Workflow[P, Any],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> ScheduleInfo:
        """Create a schedule, or replace what it says; for code that runs with each deploy.

        >>> client.schedules.put("sync", Schedule(every="5m"), sync_orders)

        A new rule counts from now on. A paused schedule stays paused.
        """
        return self._anchor.run(
            lambda client: client.schedules.put(id, when, target, *args, **kwargs)
        )

    def get(self, id: str) -> ScheduleInfo:
        """Return a schedule, with the input of what it starts."""
        return self._anchor.run(lambda client: client.schedules.get(id=id))

    def list(
        self, *, type: str = "", paused: bool | None = None, limit: int | None = None
    ) -> Iterator[ScheduleInfo]:
        """Iterate over schedules in the order of their ids; pages are loaded as needed.

        >>> for info in client.schedules.list(paused=True):
        ...     ...
        """
        return self._anchor.iterate(
            lambda client: client.schedules.list(type=type, paused=paused, limit=limit)
        )

    def pause(self, id: str, note: str = "") -> ScheduleInfo:
        """Pause a schedule: when this returns, it fires nothing more, on any server."""
        return self._anchor.run(lambda client: client.schedules.pause(id=id, note=note))

    def resume(self, id: str, *, mode: Literal["catch_up", "skip"] = "catch_up") -> ScheduleInfo:
        """Resume a paused schedule.

        ``"catch_up"`` treats the instants of the pause as missed, so the newest of them fire, up to
        ``max_catchup``; ``"skip"`` records them as skipped.
        """
        return self._anchor.run(lambda client: client.schedules.resume(id=id, mode=mode))

    def trigger(self, id: str, *, trigger_id: str = "") -> ScheduleFire:
        """Fire a schedule now, whatever its rule says; return the fire with its ``task_id``.

        The same ``trigger_id`` again fires nothing, and returns the first fire.
        """
        return self._anchor.run(
            lambda client: client.schedules.trigger(id=id, trigger_id=trigger_id)
        )

    def backfill(self, id: str, from_: datetime, to: datetime) -> BackfillResult:
        """Fire the instants after ``from_`` up to and with ``to``, at most 1,000.

        >>> client.schedules.backfill("nightly", start_of_may, start_of_june)

        Instants that fired before do not fire again.
        """
        return self._anchor.run(lambda client: client.schedules.backfill(id=id, from_=from_, to=to))

    def delete(self, id: str) -> None:
        """Delete a schedule; tasks and runs that it has started go on."""
        self._anchor.run(lambda client: client.schedules.delete(id=id))

    def next(self, schedule: str | Schedule, *, count: int = 10) -> builtins.list[PlannedFire]:
        """Return the next instants at which a schedule fires, at most 100.

        >>> client.schedules.next(Schedule("30 2 * * *", zone="Europe/Berlin"))

        It is the id of a schedule, or one that need not be stored.
        """
        return self._anchor.run(
            lambda client: client.schedules.next(schedule=schedule, count=count)
        )

    def fires(self, id: str, *, limit: int | None = None) -> Iterator[ScheduleFire]:
        """Iterate over what a schedule has fired and skipped, newest first.

        >>> for fire in client.schedules.fires("nightly", limit=20):
        ...     print(fire.at, fire.outcome, fire.reason)
        """
        return self._anchor.iterate(lambda client: client.schedules.fires(id=id, limit=limit))
