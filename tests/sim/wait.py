"""Clients that wait for results at any server: each is told once, and of what is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tenure.core.task.record import Task
from tenure.engine.engine import Engine
from tenure.engine.replica.result_watch import Result
from tests.sim.trace import Violation, short

if TYPE_CHECKING:
    from tests.sim.server import Server
    from tests.sim.world import World

Key = tuple[str, str]
# A server that hears nothing looks twice a second, one that listens once.
PATIENCE_MS: Final = 3_000


class Wait(msgspec.Struct, eq=False):
    """One who waits for a task at one life of a server."""

    key: Key
    server: Server
    engine: Engine
    is_over: bool = False


class Waits:
    """Everybody who waits in a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random("waits")
        self._all: list[Wait] = []

    def begin(self, key: Key) -> None:
        """Wait for an acknowledged task at some server that is up."""
        servers = [each for each in self._world.servers if each.engine is not None]
        if not servers:
            return
        server = self._random.choice(servers)
        engine = server.engine
        assert engine is not None
        wait = Wait(key, server, engine)
        self._all.append(wait)
        engine.results.watch(key, lambda result: self._told(wait, result))

    def _told(self, wait: Wait, result: Result) -> None:
        try:
            self._check(wait, result)
        except Violation as violation:
            self._world.fail(violation)

    def _check(self, wait: Wait, result: Result) -> None:
        task_id = wait.key[1]
        if wait.is_over:
            raise Violation(f"one who waited for {short(task_id)} was told twice", task_id)
        wait.is_over = True
        if not isinstance(result, Task):
            raise Violation(f"the acknowledged task {short(task_id)} was not found", task_id)
        stored = self._world.checker.find(wait.key, "a result is not stored")
        told = (result.state, result.attempt, result.output, result.finished_at_ms)
        if told != (stored.state, stored.attempt, stored.output, stored.finished_at_ms):
            raise Violation(f"the result of {short(task_id)} is not what is stored", task_id)
        self._world.note(f"one who waited for task {short(task_id)} is told: {result.state}")

    @property
    def open_ones(self) -> list[Wait]:
        """Return those who still wait at a server that has not died since."""
        return [
            each for each in self._all if not each.is_over and each.server.engine is each.engine
        ]

    def verify(self) -> None:
        """Check that nobody waits in vain, now that everything is finished."""
        for wait in self.open_ones:
            task_id = wait.key[1]
            raise Violation(f"somebody waits in vain for task {short(task_id)}", task_id)
