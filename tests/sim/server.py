"""A place where an engine runs: it can be paused, stopped or crash, and starts again empty."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tenure.engine.command import AnyCommand
from tenure.engine.engine import Engine
from tenure.engine.seat.seats import Submit
from tenure.engine.worker.command import Heartbeat
from tenure.store.sqlite.store import SqliteStore
from tests.sim.checker import JOURNALS, LEASES, TASKS, WORKERS
from tests.sim.clock import LoopClock
from tests.sim.served import SimulatedCaller

if TYPE_CHECKING:
    from tests.sim.world import World

# Statements that change nothing the checker looks at; every other one makes it look again.
_HARMLESS: Final = (
    *("load_", "lock_", "read_", "share_", "find_", "claim_", "count_", "list_", "next_"),
    *("touch_driver", "survey_seats", "note_seats", "give_seats", "leave_seats", "insert_seats"),
    *("touch_server", "insert_secrets", "before ", "after ", "ensure_days", "drop_days"),
)
_KINDS: dict[str, int] = {}
# A server that stood still for longer must not judge what it could not hear.
STALL_MS: Final = 1_500


def _kind(statement: str) -> int:
    """Return which rows a statement may change, by its name."""
    if statement.startswith(_HARMLESS):
        kind = 0
    elif "lease" in statement:
        kind = LEASES
    elif "worker" in statement:
        kind = WORKERS
    elif "_entries" in statement:
        kind = JOURNALS
    else:
        kind = TASKS
    _KINDS[statement] = kind
    return kind


class Crash(BaseException):
    """The process of an engine dies here."""


class EngineClock:
    """Time, ids and chance of one engine: store time is the world's, monotonic time its own."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._random = world.random(f"clock {name}")
        spread = world.faults.drift
        drift = 1 + spread * (2 * self._random.random() - 1)
        self._own = LoopClock(world.loop, drift=drift)
        self.now_ms = world.clock.now_ms
        self.monotonic_ms = self._own.monotonic_ms

    def new_id(self) -> str:
        """Return a new id."""
        return self._world.new_id()

    def jitter(self) -> float:
        """Return a number in [0, 1)."""
        return self._random.random()

    def random_bytes(self, count: int) -> bytes:
        """Return bytes that come from the seed."""
        return self._random.randbytes(count)


class SimulatedStore(SqliteStore):
    """Lets servers tell each other what they would on PostgreSQL, in worlds where they listen."""

    def __init__(self, server: Server, world: World, life: int) -> None:
        super().__init__(
            world.path,
            clock=world.clock.now_ms,
            inline=True,
            probe=lambda statement: server.probe(statement, life),
        )
        self._server = server
        self._world = world
        self.callback: Callable[[str], None] | None = None

    @property
    def is_far(self) -> bool:
        """Let a lone claim be a look and a write, as on PostgreSQL."""
        return True

    @property
    def is_listening(self) -> bool:
        """Tell whether hints reach this server in its world."""
        return self._world.has_hints

    async def notify(self, *payloads: str) -> None:
        """Tell the other servers."""
        for payload in payloads:
            self._world.network.hint(self._server, payload)

    def listen(self, callback: Callable[[str], None]) -> None:
        """Call back with what other servers tell."""
        self.callback = callback


class Server:
    """One replica. Its number is its address; each start gives it a new engine and server id."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self.number = number
        self.engine: Engine | None = None
        self.life = 0
        self.started_at_ms = self.went_on_at_ms = 0.0
        self._stopped_at_ms = 0.0
        self._random: Random = world.random(f"server {number}")
        self._dirty = 0
        self._crash_at: str | None = None
        self._crash_in = 0
        self._go = asyncio.Event()
        self._go.set()

    @property
    def is_up(self) -> bool:
        """Tell whether somebody answers here."""
        return self.engine is not None

    async def start(self) -> None:
        """Start an engine with empty memory."""
        world = self._world
        self.life += 1
        self._crash_at = None
        name = f"{self.number}.{self.life}"
        store = SimulatedStore(self, world, self.life)
        slows = world.faults.pause_share or world.faults.engine_stop_rate
        engine = Engine(
            store,
            clock=EngineClock(world, name),
            settings=world.settings,
            server_id=world.new_id(),
            pause=self._pause if slows else None,
        )
        await engine.start()
        if world.has_served:
            engine.seats.submit = self._logged(engine)
            engine.seats.open(SimulatedCaller(world, self))
        self.started_at_ms = world.now_ms
        self.engine = engine
        world.note(f"server {self.number} starts")

    def _logged(self, engine: Engine) -> Submit:
        """Note the heartbeats that drivers tell, with the tokens that only they know."""

        def submit(command: AnyCommand) -> asyncio.Future[Any]:
            if isinstance(command, Heartbeat):
                self._world.served.beat(command)
            return engine.submit(command)

        return submit

    async def wait_if_stopped(self) -> None:
        """Wait while the process stands still."""
        if not self._go.is_set():
            await self._go.wait()

    def crash_soon(self) -> None:
        """Die at one of the next statements, or right before or after a commit."""
        self._crash_at = self._random.choice(["", "", "before COMMIT", "after COMMIT"])
        self._crash_in = self._random.randint(1, 12 if self._crash_at == "" else 3)

    def spare(self) -> None:
        """Take back a crash that was planned and has not come."""
        self._crash_at = None

    def hear(self, payload: str) -> None:
        """Take what another server tells."""
        if self.engine is not None and isinstance(self.engine.store, SimulatedStore):
            callback = self.engine.store.callback
            if callback is not None:
                callback(payload)

    def probe(self, statement: str, life: int) -> None:
        """See a statement, and die at it if that was planned."""
        kind = _KINDS.get(statement)
        if kind is None:
            kind = _kind(statement)
        if kind:
            self._dirty |= kind
        elif statement == "after COMMIT" and self._dirty:
            dirty, self._dirty = self._dirty, 0
            self._world.checker.committed(self, dirty)
        if self._crash_at is not None and statement.startswith(self._crash_at):
            self._crash_in -= 1
            if self._crash_in <= 0 and life == self.life and self.engine is not None:
                self.crash(f"at {statement}")
                raise Crash

    def crash(self, where: str = "") -> None:
        """Die: nothing is answered from now on, and nothing that runs here goes on."""
        engine = self.engine
        if engine is None:
            return
        self.engine = None
        self._crash_at = None
        world = self._world
        world.note(f"server {self.number} crashes {where}")
        world.loop.call_soon(self._bury, engine)
        world.server_died(self, engine.server_id)

    def _bury(self, engine: Engine) -> None:
        engine.kill()
        self._world.spawn(engine.store.close())
        self._go.set()

    def stop(self) -> None:
        """Stand still, like a process that got SIGSTOP."""
        self._world.note(f"server {self.number} stops")
        self._stopped_at_ms = self._world.now_ms
        self._go.clear()

    def go_on(self) -> None:
        """Go on after a stop."""
        if not self._go.is_set():
            self._world.note(f"server {self.number} goes on")
            self._go.set()
            if self._world.now_ms - self._stopped_at_ms > STALL_MS:
                self.went_on_at_ms = self._world.now_ms

    @property
    def is_stopped(self) -> bool:
        """Tell whether it stands still."""
        return not self._go.is_set()

    async def _pause(self, _point: str) -> None:
        faults = self._world.faults
        if self._random.random() < faults.pause_share and not self._world.is_healed:
            await asyncio.sleep(self._random.random() * faults.pause_ms / 1000)
        if not self._go.is_set():
            await self._go.wait()
