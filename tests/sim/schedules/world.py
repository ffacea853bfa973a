"""A world of schedulers: servers that crash anywhere, a clock that jumps, people who interfere."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Coroutine, Sequence
from random import Random
from typing import Any, Final

import msgspec

from tenure.engine.access.command import CreateNamespace
from tenure.engine.engine import Engine
from tenure.engine.service import Job
from tenure.engine.services.schedule_firing import ScheduleFiring
from tenure.engine.settings import Settings
from tests.sim import noise
from tests.sim.clock import LoopClock
from tests.sim.faults import Faults
from tests.sim.loop import SimulatedLoop
from tests.sim.schedules.checker import ScheduleChecker
from tests.sim.schedules.operators import NAMESPACE, Operators
from tests.sim.schedules.ticking import walk
from tests.sim.server import Crash, Server
from tests.sim.trace import Trace, Violation

_JUMP_MS_MAX: Final = 3_600_000
_SETTLE_S: Final = 400
_HINT_S: Final = 0.02
_numbers = itertools.count(1)


class Size(msgspec.Struct, frozen=True):
    """How large a world is, and for how long its people interfere."""

    servers: int = 8
    schedules: int = 12
    seconds: int = 60
    jumps: int = 2


class ScheduleWorld:
    """Everything of one seed. Servers of the large simulation live in it, too."""

    def __init__(self, seed: int, size: Size) -> None:
        self.seed, self.size = seed, size
        self.loop = SimulatedLoop()
        self._setup = self.random("setup")
        self.faults = Faults(
            pause_share=self._setup.choice([0.0, 0.3]),
            pause_ms=self._setup.choice([20, 200, 1_500]),
            engine_stop_rate=0.1,
            drift=0.01,
        )
        self.trace = Trace()
        self.clock = LoopClock(self.loop)
        self.path = f"file:/sim-schedules-{next(_numbers)}?vfs=memdb"
        self.settings = Settings(
            scheduler_interval_ms=self._setup.choice([1_000, 5_000]),
            scheduler_batch_size=self._setup.choice([1, 3, 100]),
            scheduler_fires_per_round=self._setup.choice([5, 50, 1_000]),
        )
        self.has_hints = self._setup.random() < 0.5
        self._ids = itertools.count(1)
        self.checker = ScheduleChecker(self)
        self.operators = Operators(self)
        self.servers: list[Server] = []
        self.is_healed = False
        self.violation: BaseException | None = None
        self._main: asyncio.Task[None] | None = None

    # -- What servers use ------------------------------------------------------------------------

    @property
    def now_ms(self) -> float:
        """Return the real time of this world, which no clock jump moves."""
        return self.loop.time() * 1000

    @property
    def network(self) -> ScheduleWorld:
        """Return who carries hints."""
        return self

    def services(self) -> Sequence[Job]:
        """Return what servers do by themselves here: they fire schedules."""
        return [ScheduleFiring()]

    def random(self, name: str) -> Random:
        """Return a source of chance of its own, so that parties do not disturb each other."""
        return Random(f"{self.seed} {name}")

    def new_id(self) -> str:
        """Return an id that sorts by time; its end is unique within the world."""
        at = f"{self.clock.now_ms():012x}"
        return f"{at[:8]}-{at[8:]}-7000-8000-{next(self._ids):012x}"

    def note(self, text: str) -> None:
        """Add an event to the trace."""
        self.trace.now_ms = self.now_ms
        self.trace.note(text)

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something beside everything else."""
        return self.loop.create_task(coroutine)

    def hint(self, sender: Server, payload: str) -> None:
        """Carry what one server tells the others."""
        for server in self.servers:
            if server is not sender:
                self.loop.call_later(_HINT_S, server.hear, payload)

    def engine_started(self, server: Server, engine: Engine) -> None:
        """Nobody is called from it."""

    def server_died(self, server: Server, server_id: str) -> None:
        """Nobody is connected to it."""

    # -- Life ------------------------------------------------------------------------------------

    def fail(self, violation: BaseException) -> None:
        """End this world: something does not hold."""
        if self.violation is None:
            self.violation = violation
            self.note(f"VIOLATION: {violation}")
            if self._main is not None:
                self._main.cancel()

    def _handle(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Exception) and not noise.is_harmless(error):
            self.fail(error)

    def run(self) -> None:
        """Live this world to its end; raise what went wrong in it."""
        self.loop.set_exception_handler(self._handle)
        noise.listen(self.fail)
        try:
            self._main = self.loop.create_task(self._live())
            with contextlib.suppress(asyncio.CancelledError):
                self.loop.run_until_complete(self._main)
        finally:
            self.loop.cancel_pending()
            self.loop.close()
            self.checker.close()
        if self.violation is not None:
            raise self.violation

    async def _live(self) -> None:
        for number in range(1, self.size.servers + 1):
            server = Server(self, number)
            await server.start()
            self.servers.append(server)
        await self.operators.ask(CreateNamespace(name=NAMESPACE))
        await self.operators.create(self.size.schedules)
        troubles = [self.spawn(self._trouble(each)) for each in self.servers]
        troubles += [self.spawn(self._jump()), self.spawn(self.operators.change())]
        ends = self.spawn(self.operators.end_tasks())
        await asyncio.sleep(self.size.seconds)
        self.is_healed = True
        self.note("the world heals")
        for each in troubles:
            each.cancel()
        for server in self.servers:
            server.spare()
            server.go_on()
            if not server.is_up:
                await server.start()
        await self.operators.heal()
        await self._settle()
        ends.cancel()
        self.checker.verify()

    async def _trouble(self, server: Server) -> None:
        """Let one server crash at any statement, or stand still, and go on."""
        random = self.random(f"trouble {server.number}")
        while True:
            await asyncio.sleep(random.expovariate(1 / 6))
            if random.random() < 0.3:
                server.stop()
                await asyncio.sleep(random.random() * 4)
                server.go_on()
                continue
            server.crash_soon()
            await asyncio.sleep(random.random() * 2)
            server.spare()
            if not server.is_up:
                with contextlib.suppress(Crash):
                    await server.start()

    async def _jump(self) -> None:
        """Set the clock of the database forwards or backwards, by up to an hour."""
        random = self.random("jumps")
        for _ in range(self.size.jumps):
            await asyncio.sleep(random.random() * self.size.seconds / self.size.jumps)
            jump_ms = random.choice([1, 1, -1]) * round(_JUMP_MS_MAX * random.random() ** 2)
            self.note(f"the clock jumps by {jump_ms}")
            self.clock.jump(jump_ms)

    async def _settle(self) -> None:
        """Wait until everything that is due has fired, or was skipped."""
        for _ in range(_SETTLE_S):
            await asyncio.sleep(1)
            if not self._behind():
                return
        raise Violation(f"{self._behind()} are behind long after the world healed")

    def _behind(self) -> list[str]:
        now_ms = self.clock.now_ms() - 10_000
        return [
            name
            for name, record in self.checker.records.items()
            if walk(record.seen.spec.rule, record.seen.progress.fired_until_ms, now_ms)
        ]
