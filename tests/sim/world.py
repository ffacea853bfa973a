"""A world: servers, workers, clients and a database in one simulated loop, all from one seed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Coroutine, Iterator
from random import Random
from typing import Any, Final
from unittest import mock

from msgspec.structs import replace

from tenure.core.run import wake_up
from tenure.core.task.record import Task
from tenure.core.worker.record import NewWorker, WorkerMode
from tenure.engine.access.command import CreateNamespace, SetQueue
from tenure.engine.command import TaskRef
from tenure.engine.run.command import ResumeRun
from tenure.engine.settings import Settings
from tenure.engine.task.command import ResumeTask
from tenure.sdk.workflow import run as sdk_run
from tenure.store.table import journal
from tests.sim import exclusive, family, flow, noise
from tests.sim.chaos import Chaos
from tests.sim.checker import Checker
from tests.sim.client import Client
from tests.sim.clock import LoopClock
from tests.sim.faults import Faults, draw
from tests.sim.loop import SimulatedLoop
from tests.sim.network import Network, Session
from tests.sim.request_log import RequestLog
from tests.sim.run_book import RunBook
from tests.sim.served import ServedProcess
from tests.sim.served_rule import ServedRules
from tests.sim.server import Crash, Server
from tests.sim.trace import Trace, Violation, short
from tests.sim.wait import PATIENCE_MS, Waits
from tests.sim.worker import WorkerProcess

NAMESPACES: Final = ("north/default", "south/default")
FAMILY_SHARE: Final = 0.35
SERVED_SHARE: Final = 0.35
SERVED_WORKERS_SHARE: Final = 0.6
HEAL_MS_MAX: Final = 100_000
SETTLE_MS: Final = 250
TOTALS_LOOKS: Final = 8
_numbers = itertools.count(1)


class World:
    """Everything of one seed."""

    def __init__(self, seed: int, faults: Faults | None = None) -> None:
        self.seed = seed
        self.loop = SimulatedLoop()
        self._setup = self.random("setup")
        self.faults = faults if faults is not None else draw(self.random("faults"))
        self.trace = Trace()
        self.clock = LoopClock(self.loop)
        self.path = f"file:/sim-{next(_numbers)}?vfs=memdb"
        self.settings = self._settings()
        self.has_hints = self._setup.random() < 0.5
        self.activities = ("alpha", "beta", exclusive.TYPE)
        self.types: tuple[str, ...] = (*self.activities, flow.TYPE)
        # With chance of its own: worlds without families are as they would be.
        share = FAMILY_SHARE if faults is None else faults.family_share
        self.has_families = self.random("families").random() < share
        if self.has_families:
            self.types += (family.TYPE,)
        share = SERVED_SHARE if faults is None else faults.served_share
        self.has_served = self.random("served").random() < share
        self._served_random = self.random("served workers")
        self.listening: dict[str, ServedProcess] = {}
        self.served = ServedRules(self)
        self.has_many_runs = self._setup.random() < 0.3
        self._page_entries_max = self._setup.choice([2, 5, 1_000])
        self.queues = {NAMESPACES[0]: ("fast", "slow"), NAMESPACES[1]: ("fast",)}
        self._ids = itertools.count(1)
        self.checker = Checker(self)
        self.request_log = RequestLog(self)
        self.network = Network(self)
        self.waits = Waits(self)
        self.exclusive = exclusive.ExclusiveRuns(self)
        self.runs = RunBook(self)
        self.servers: list[Server] = []
        self.workers: list[WorkerProcess] = []
        self.clients: list[Client] = []
        self.sessions: list[Session] = []
        self._by_id: dict[str, WorkerProcess] = {}
        self.died_at_ms: dict[str, float] = {}
        self.jumped_at_ms = self.troubled_at_ms = -1e9
        self.slack_ms = 2_000.0
        self.is_healed = False
        self.violation: BaseException | None = None
        self._main: asyncio.Task[None] | None = None

    def _settings(self) -> Settings:
        lease_ms = self._setup.choice([1_500, 2_000, 3_000])
        return Settings(
            session_lease_ms=lease_ms,
            poll_lease_ms=lease_ms,
            served_lease_ms=lease_ms,
            served_tick_ms=lease_ms // 8,
            served_call_ms=lease_ms // 5,
            served_call_gap_ms=20,
            seat_round_ms=300,
            seat_stale_ms=1_200,
            lease_least_ms=200,
            suspect_grace_ms=700,
            fallback_poll_ms=1_000,
            judge_ms=1_000,
            probe_ms=550,
            direct_hand_out=self._setup.random() < 0.8,
            cached_rows=self._setup.random() < 0.8,
            low_water_marks=self._setup.random() < 0.8,
        )

    # -- What parties use ----------------------------------------------------------------------

    @property
    def now_ms(self) -> float:
        """Return the real time of this world, which no clock jump moves."""
        return self.loop.time() * 1000

    def random(self, name: str) -> Random:
        """Return a source of chance of its own, so that parties do not disturb each other."""
        return Random(f"{self.seed} {name}")

    def next_number(self) -> int:
        """Return a number that nothing else in this world has."""
        return next(self._ids)

    def new_id(self) -> str:
        """Return an id that sorts by time; its end is unique within the world."""
        at = f"{self.clock.now_ms():012x}"
        return f"{at[:8]}-{at[8:]}-7000-8000-{self.next_number():012x}"

    def note(self, text: str) -> None:
        """Add an event to the trace."""
        self.trace.now_ms = self.now_ms
        self.trace.note(text)

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something beside everything else."""
        return self.loop.create_task(coroutine)

    def renewed(self, new: NewWorker) -> NewWorker:
        """Return the request of the next incarnation of a process."""
        return replace(new, instance_key=f"key-{self.next_number()}")

    def registered(self, process: WorkerProcess, worker_id: str) -> None:
        """Note which process is behind a worker id."""
        self._by_id[worker_id] = process

    def holds(self, worker_id: str, ref: TaskRef) -> bool:
        """Tell whether the process of a worker really has an attempt."""
        process = self._by_id.get(worker_id)
        return process is not None and process.worker_id == worker_id and ref in process.held

    def server_died(self, server: Server, server_id: str) -> None:
        """Break the sessions of a server that crashed."""
        self.troubled_at_ms = self.died_at_ms[server_id] = self.now_ms
        for session in self.sessions:
            if session.server is server and session.is_open:
                session.server_died()

    # -- The end -------------------------------------------------------------------------------

    def fail(self, violation: BaseException) -> None:
        """End this world: an invariant does not hold."""
        if self.violation is None:
            self.violation = violation
            self.note(f"VIOLATION: {violation}")
            if self._main is not None:
                self._main.cancel()

    def check(self, rule: Callable[[Task], None], task: Task) -> None:
        """Check a rule outside of a commit."""
        try:
            rule(task)
        except Violation as violation:
            self.fail(violation)

    def crashed(self, error: BaseException) -> None:
        """End this world: something raised what it should not."""
        if not isinstance(error, Crash):
            self.fail(error)

    def _handle(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Exception) and not noise.is_harmless(error):
            self.crashed(error)

    # -- Life ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Live this world to its end; raise what went wrong in it."""
        self.loop.set_exception_handler(self._handle)
        noise.listen(self.fail)
        try:
            with self._limits():
                self._main = self.loop.create_task(self._live())
                try:
                    self.loop.run_until_complete(self._main)
                except asyncio.CancelledError:
                    if self.violation is None:
                        raise
        finally:
            for process in self.workers:
                process.put_bodies_aside()
            self.loop.cancel_pending()
            self.loop.close()
            self.checker.close()
        if self.violation is not None:
            raise self.violation

    @contextlib.contextmanager
    def _limits(self) -> Iterator[None]:
        """Let pages be short in some worlds, and no body see how fast this machine is."""
        with (
            mock.patch.object(journal, "JOURNAL_PAGE_ENTRIES_MAX", self._page_entries_max),
            mock.patch.object(sdk_run, "_TURN_S", 1e9),
        ):
            yield

    async def _live(self) -> None:
        await self._begin()
        chaos = Chaos(self)
        troubles = self.spawn(chaos.run())
        watch = self.spawn(self._watch())
        action_count = self._setup.randint(18, 30)
        mean_ms = self._setup.choice([120, 200, 300])
        runs = [self.spawn(each.run(action_count, mean_ms)) for each in self.clients]
        await asyncio.gather(*runs)
        await asyncio.sleep(self._setup.random() * 2)
        troubles.cancel()
        await self._heal(chaos)
        await self._settle()
        await self._let_results_arrive()
        watch.cancel()
        self.checker.verify_history()
        await self._let_totals_arrive()

    async def _begin(self) -> None:
        setup = self._setup
        for number in range(1, setup.choice([2, 2, 2, 3, 4]) + 1):
            server = Server(self, number)
            await server.start()
            self.servers.append(server)
        engine = self.servers[0].engine
        assert engine is not None
        for name in NAMESPACES:
            await engine.submit(CreateNamespace(name=name))
        for _ in range(setup.randint(3, 8)):
            self.add_worker()
        for number in range(setup.randint(2, 3)):
            namespace = NAMESPACES[0] if number < 2 else NAMESPACES[1]
            self.clients.append(Client(self, f"client-{number}", namespace))

    def add_worker(
        self, namespace: str = "", queue: str = "", name: str = "", address: str = ""
    ) -> WorkerProcess:
        """Start a worker process; without a queue it is drawn, with one it does everything."""
        setup = self._setup
        does_all = bool(queue)
        namespace = namespace or setup.choice([NAMESPACES[0], NAMESPACES[0], NAMESPACES[1]])
        queue = queue or setup.choice(self.queues[namespace])
        count = len(self.types) if does_all else setup.randint(1, len(self.types))
        number = self.next_number()
        if not does_all and not name and self.faults.supersede_rate:
            name = f"name-{number}"
        new = NewWorker(
            instance_key=f"key-{number}",
            queue=queue,
            types=self._drawn_types(count),
            mode=setup.choice([WorkerMode.SESSION, WorkerMode.SESSION, WorkerMode.POLL]),
            slots=setup.choice([1, 2, 4, 8]),
            name=name,
        )
        process = self._process(f"process-{number}", new, namespace, address)
        self.workers.append(process)
        return process

    def _process(self, name: str, new: NewWorker, namespace: str, address: str) -> WorkerProcess:
        """Make a process; in some worlds half of those that are asked only for activities, or all
        that come after one at its address, are served.
        """
        random = self._served_random
        if not self.has_served or not (address or random.random() < SERVED_WORKERS_SHARE):
            return WorkerProcess(self, name, new, namespace)
        address = address or f"10.0.0.{len(self.workers) + 1}:7310"
        served = replace(new, mode=WorkerMode.SERVED, address=address, caller="10.0.0.1")
        return ServedProcess(self, name, served, namespace)

    def _drawn_types(self, count: int) -> tuple[str, ...]:
        """Draw what a worker does; half of those that draw something else run workflows too."""
        types = self._setup.sample(self.types, count)
        if flow.TYPE not in types and self._setup.random() < 0.5:
            types.append(flow.TYPE)
        if self.has_families and flow.TYPE in types and family.TYPE not in types:
            types.append(family.TYPE)
        return tuple(types)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(1)
            try:
                self.checker.tasks.watch()
                self.checker.workers.watch()
                self.checker.journals.watch(self.checker.live)
                self.checker.journals.children.watch(self.checker.live)
            except Violation as violation:
                self.fail(violation)

    async def _heal(self, chaos: Chaos) -> None:
        """End all faults; let everything that waits for somebody go on."""
        self.is_healed = True
        self.note("the world heals")
        self.troubled_at_ms = self.now_ms
        await chaos.heal()
        self.clients += [Client(self, f"healer {each}", each) for each in self.queues]

    async def _lift(self, client: Client, queue: str) -> None:
        command = SetQueue(
            namespace=client.namespace, name=queue, is_paused=False, concurrency_max=0
        )
        await client.ask(command)

    def _has_workers(self, namespace: str, queue: str) -> bool:
        """Tell whether workers that are there can do all types of a queue."""
        there = [
            set(each.new.types) & set(self.activities)
            if each.new.mode is WorkerMode.SERVED
            else each.new.types
            for each in self.workers
            if each.worker_id
            and not each.is_draining
            and each.namespace == namespace
            and each.new.queue == queue
        ]
        return set(self.types) <= {each for types in there for each in types}

    async def _settle(self) -> None:
        """Wait until nothing is left to do; everything must end within its bounds."""
        until_ms = self.now_ms + HEAL_MS_MAX
        while self.now_ms < until_ms:
            if not self.checker.live and not any(each.held for each in self.workers):
                # What was on its way may still come.
                await asyncio.sleep(0.6 * self.settings.session_lease_ms / 1000)
                if not self.checker.live:
                    return
            await self._nudge()
            await asyncio.sleep(SETTLE_MS / 1000)
        for task in self.checker.live.values():
            message = f"task {short(task.id)} is {task.state} long after the world healed"
            raise Violation(message, task.id, task.worker_id or "")
        for process in self.workers:
            if process.held:
                name = short(process.worker_id or "")
                raise Violation(f"worker {name} still holds something", process.worker_id or "")

    async def _let_results_arrive(self) -> None:
        if self.waits.open_ones:
            await asyncio.sleep(PATIENCE_MS / 1000)
        self.waits.verify()

    async def _nudge(self) -> None:
        """Lift brakes, resume what users paused, and complete what waits for them."""
        healers = {each.namespace: each for each in self.clients if each.name.startswith("healer")}
        for namespace, queues in self.queues.items():
            for queue in queues:
                if self.checker.brakes(namespace, queue) != (False, 0):
                    await self._lift(healers[namespace], queue)
                if not self._has_workers(namespace, queue):
                    self.add_worker(namespace, queue)
        for task in list(self.checker.live.values()):
            client = healers[task.namespace]
            if task.state == "paused":
                command = ResumeTask(namespace=task.namespace, task_id=task.id)
                await client.ask(command)
            elif task.progress.is_async:
                await client.complete(task.id)
            elif wake_up.is_parked(task):
                await client.ask(ResumeRun(namespace=task.namespace, run_id=task.id))

    async def _let_totals_arrive(self) -> None:
        """Wait for the heartbeats that tell the last totals.

        After one without an answer the next repeats it; only the one behind that tells the rest.
        """
        interval_ms = max((each.heartbeat_state.interval_ms for each in self.workers), default=0)
        for _ in range(TOTALS_LOOKS):
            if self._wrong_totals() is None:
                return
            await asyncio.sleep(interval_ms / 2 / 1000)
        wrong = self._wrong_totals()
        if wrong is not None:
            raise wrong

    def _wrong_totals(self) -> Violation | None:
        leases = self.checker.workers.leases
        for process in self.workers:
            lease = leases.get(process.worker_id or "")
            if lease is None or process.worker_id is None:
                continue
            told = (lease.total_completed, lease.total_failed)
            if told != (process.heartbeat_state.completed, process.heartbeat_state.failed):
                message = f"worker {short(process.worker_id)} told {told}, not its totals"
                return Violation(message, process.worker_id)
        return None
