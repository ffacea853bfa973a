"""A client of the schedules of a server, on the raw protocol."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Self, TypeVar

from tenure.core.schedule.record import ScheduleSpec
from tenure.v1 import schedule_service_pb2 as pb
from tenure.v1 import task_pb2
from tenure.v1.schedule_service_pb2_grpc import ScheduleServiceStub
from tests.wire.call import CALL_SECONDS, NoAnswer, ask, open_channel

Answer = TypeVar("Answer")
PAGE: Final = 100
SECONDS_MAX: Final = 60.0


def message_of(spec: ScheduleSpec) -> pb.ScheduleSpec:
    """Return the content of a schedule as it goes over the wire."""
    message = pb.ScheduleSpec(
        when=pb.ScheduleRule(
            rule=spec.rule.cron,
            every_ms=spec.rule.every_ms,
            offset_ms=spec.rule.offset_ms,
            zone=spec.rule.zone,
            starts_at_ms=spec.starts_at_ms or 0,
            ends_at_ms=spec.ends_at_ms or 0,
        ),
        target=pb.ScheduleTarget(
            type=spec.target.type,
            task_queue=spec.target.queue,
            input=spec.target.input or b"",
            options=task_pb2.TaskOptions(start_to_close_ms=spec.target.spec.start_to_close_ms or 0),
        ),
        max_catchup=spec.max_catchup,
    )
    if spec.catchup_window_ms is not None:
        message.catchup_window_ms = spec.catchup_window_ms
    return message


class ScheduleClient:
    """Calls one server, again if nobody answers."""

    def __init__(self, target: str) -> None:
        self._channel = open_channel(target)
        self._stub: Any = ScheduleServiceStub(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._channel.close()

    async def put(self, schedule_id: str, spec: ScheduleSpec) -> pb.Schedule:
        """Create a schedule, or replace its content."""
        request = pb.PutScheduleRequest(schedule_id=schedule_id, spec=message_of(spec))
        answer: pb.PutScheduleResponse = await self._call(
            lambda: self._stub.PutSchedule(request, timeout=CALL_SECONDS)
        )
        return answer.schedule

    async def create(self, schedule_id: str, message: pb.ScheduleSpec) -> None:
        """Create a schedule; no second try, for this is timed."""
        request = pb.CreateScheduleRequest(schedule_id=schedule_id, spec=message)
        await ask(self._stub.CreateSchedule(request, timeout=CALL_SECONDS))

    async def page(self, token: str = "") -> pb.ListSchedulesResponse:
        """Read a page of the list; no second try, for this is timed."""
        request = pb.ListSchedulesRequest(page_size=PAGE, page_token=token)
        answer: pb.ListSchedulesResponse = await ask(
            self._stub.ListSchedules(request, timeout=CALL_SECONDS)
        )
        return answer

    async def _call(self, make: Callable[[], Awaitable[Answer]]) -> Answer:
        deadline_s = time.monotonic() + SECONDS_MAX
        while True:
            try:
                return await ask(make())
            except NoAnswer as error:
                if error.is_odd or time.monotonic() > deadline_s:
                    raise
                await asyncio.sleep(max(error.retry_after_s, 0.05))
