"""People who put, pause, resume, trigger and backfill schedules, and somebody who ends tasks."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from tenure.core.schedule.record import Overlap, ResumeMode, ScheduleSpec, ScheduleState, Target
from tenure.core.task.record import Spec
from tenure.engine.access.command import SetNamespace
from tenure.engine.command import Command
from tenure.engine.schedule import command as c
from tenure.engine.task.command import CancelTask
from tenure.errors import TenureError
from tests.sim.schedules import ticking

if TYPE_CHECKING:
    from random import Random

    from tests.sim.schedules.world import ScheduleWorld

NAMESPACE: Final = "north/default"
_TARGET: Final = Target(type="report", queue="default", spec=Spec(start_to_close_ms=60_000))
_PATIENCE_S: Final = 3.0
_ENDED_AT_ONCE: Final = 40
_TRIES: Final = 200


def draw_spec(random: Random) -> ScheduleSpec:
    """Draw the content of a schedule."""
    others = [Overlap.SKIP, Overlap.BUFFER_ONE, Overlap.CANCEL_PREVIOUS]
    return ScheduleSpec(
        rule=ticking.draw(random),
        target=_TARGET,
        overlap=random.choice([Overlap.ALLOW, Overlap.ALLOW, Overlap.ALLOW, *others]),
        max_catchup=random.choice([0, 1, 5, 20, 100]),
        catchup_window_ms=random.choice([None, None, 10_000, 600_000]),
        jitter_ms=random.choice([0, 0, 400]),
    )


class Operators:
    """Ask servers for things; an answer may get lost."""

    def __init__(self, world: ScheduleWorld) -> None:
        self._world = world
        self._random = world.random("operators")
        # Resumes that were asked for and that no commit has shown yet.
        self._resumes: Counter[str] = Counter()
        self.is_disabled = False

    def take_resume(self, name: str) -> bool:
        """Tell whether somebody has asked for a resume of a schedule."""
        return self._resumes[name] > 0

    async def ask(self, command: Command[Any]) -> Any:
        """Ask a server; nobody knows what happened if there is no answer."""
        server = self._random.choice(self._world.servers)
        if server.engine is None or server.is_stopped:
            return None
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await asyncio.shield(server.engine.submit(command))
        except (TenureError, TimeoutError):
            return None

    async def create(self, count: int) -> None:
        """Create schedules; what got no answer is asked for again."""
        for number in range(count):
            name = f"schedule-{number}"
            command = c.CreateSchedule(
                namespace=NAMESPACE, schedule_id=name, spec=draw_spec(self._random)
            )
            await self._insist(command)

    async def _insist(self, command: Command[Any]) -> None:
        """Ask until there is an answer."""
        for _ in range(_TRIES):
            if await self.ask(command) is not None:
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"nobody answers {command}")

    async def change(self) -> None:
        """Change schedules, some of them at the same time, until the world heals."""
        random, acts = self._random, (self._put, self._pause, self._resume, self._backfill)
        while not self._world.is_healed:
            await asyncio.sleep(random.random() * 0.8)
            names = random.choices(list(self._world.checker.records), k=random.randint(1, 3))
            some = [random.choice((*acts, self._trigger)) for _ in names]
            await asyncio.gather(*(act(name) for act, name in zip(some, names, strict=True)))
            if random.random() < 0.02:
                self.is_disabled = not self.is_disabled
                await self.ask(SetNamespace(name=NAMESPACE, is_disabled=self.is_disabled))

    async def end_tasks(self) -> None:
        """End tasks, so that those that wait for them go on."""
        while True:
            await asyncio.sleep(self._random.random())
            live = self._world.checker.live_tasks()
            chosen = live[: _ENDED_AT_ONCE * (5 if self._world.is_healed else 1)]
            await asyncio.gather(
                *(self.ask(CancelTask(namespace=NAMESPACE, task_id=each)) for each in chosen)
            )

    async def heal(self) -> None:
        """Enable the namespace and resume what is paused, until everything goes on."""
        await self._insist(SetNamespace(name=NAMESPACE, is_disabled=False))
        for name, record in self._world.checker.records.items():
            if record.seen.state is ScheduleState.PAUSED:
                self._resumes[name] += 1
                mode = ResumeMode.CATCH_UP
                await self._insist(
                    c.ResumeSchedule(namespace=NAMESPACE, schedule_id=name, mode=mode)
                )

    async def _put(self, name: str) -> None:
        spec = draw_spec(self._random)
        await self.ask(c.PutSchedule(namespace=NAMESPACE, schedule_id=name, spec=spec))

    async def _pause(self, name: str) -> None:
        await self.ask(c.PauseSchedule(namespace=NAMESPACE, schedule_id=name, note="wait"))

    async def _resume(self, name: str) -> None:
        mode = self._random.choice(list(ResumeMode))
        self._resumes[name] += 1
        command = c.ResumeSchedule(namespace=NAMESPACE, schedule_id=name, mode=mode)
        if await self.ask(command) is not None:
            # Without an answer it may still come.
            self._resumes[name] -= 1

    async def _trigger(self, name: str) -> None:
        trigger_id = f"again-{self._random.randrange(5)}"
        await self.ask(
            c.TriggerSchedule(namespace=NAMESPACE, schedule_id=name, trigger_id=trigger_id)
        )

    async def _backfill(self, name: str) -> None:
        to_ms = self._world.clock.now_ms() - self._random.randrange(5_000)
        from_ms = to_ms - self._random.randrange(60_000)
        command = c.BackfillSchedule(
            namespace=NAMESPACE, schedule_id=name, from_ms=from_ms, to_ms=to_ms
        )
        await self.ask(command)
