"""Simulated clients and operators: they enqueue, cancel, pause, retry and set brakes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from tenure.core.journal.entry import EntryBody, EntryKind, NewEntry
from tenure.core.run import wake_up
from tenure.core.task.record import NewTask, Spec, Task, TaskKind, TaskState
from tenure.core.task.retry import ErrorCategory, ErrorInfo, RetryPolicy
from tenure.engine.access.command import SetQueue
from tenure.engine.command import AnyCommand, TaskRef
from tenure.engine.run.command import (
    CancelRun,
    NewSignal,
    RecordSteps,
    ResumeRun,
    SignalRun,
    StartRun,
    StepReport,
    TerminateRun,
)
from tenure.engine.task.command import (
    CancelTask,
    CompleteById,
    ConfirmTasks,
    Enqueued,
    EnqueueTasks,
    Finish,
    FinishKind,
    FinishTasks,
    PauseTask,
    ResumeTask,
    RetryTask,
    TerminateTask,
)
from tenure.engine.worker.command import DeregisterWorker, DrainWorker, EvictWorker, ReportHeld
from tenure.errors import TenureError
from tests.sim import family, flow
from tests.sim.network import NoAnswer

if TYPE_CHECKING:
    from tests.sim.world import World

_RETRY: Final = RetryPolicy(initial_interval_ms=150, maximum_interval_ms=1_500)
_FEW: Final = RetryPolicy(initial_interval_ms=100, maximum_interval_ms=500, maximum_attempts=4)
SPECS: Final = (
    Spec(start_to_close_ms=5_000, delivery_timeout_ms=1_200, cancel_grace_ms=900, retry=_RETRY),
    Spec(
        start_to_close_ms=6_000,
        heartbeat_timeout_ms=900,
        delivery_timeout_ms=1_500,
        cancel_grace_ms=800,
        retry=_RETRY,
    ),
    Spec(
        start_to_close_ms=3_000,
        schedule_to_close_ms=25_000,
        delivery_timeout_ms=1_000,
        cancel_grace_ms=700,
        retry=_FEW,
    ),
    Spec(
        start_to_close_ms=4_000,
        schedule_to_start_ms=20_000,
        delivery_timeout_ms=2_000,
        cancel_grace_ms=900,
        retry=_FEW,
    ),
)
_ACTIONS: Final = {
    "enqueue": 50,
    "cancel": 12,
    "pause": 5,
    "resume": 7,
    "retry": 4,
    "brake": 5,
    "complete": 6,
    "terminate": 1,
    "trespass": 5,
    "pretend": 4,
    "start_run": 16,
    "signal": 14,
    "cancel_run": 4,
    "resume_run": 3,
    "race": 3,
    "forge": 4,
}
_OF_RUNS: Final = frozenset({"start_run", "signal", "cancel_run", "resume_run", "race", "forge"})
RESENDS_MAX: Final = 8
# A broken connection is noticed sooner than silence.
TIMEOUTS_MS: Final = (100, 500, 500, 500)


class Client:
    """One user of a namespace."""

    def __init__(self, world: World, name: str, namespace: str) -> None:
        self._world = world
        self.name = name
        self.namespace = self._namespace = namespace
        self._random = world.random(f"client {name}")
        self._of_families = world.random(f"families of {name}")
        self._used_keys: list[NewTask] = []
        self.is_done = False

    async def run(self, action_count: int, mean_ms: float) -> None:
        """Do a number of things, several at a time."""
        names, weights = list(_ACTIONS), list(_ACTIONS.values())
        if self._world.has_many_runs:
            weights = [weight * (4 if name in _OF_RUNS else 1) for name, weight in _ACTIONS.items()]
        for _ in range(action_count):
            await asyncio.sleep(self._random.expovariate(1 / mean_ms) / 1000)
            name = self._random.choices(names, weights)[0]
            self._world.spawn(getattr(self, f"_{name}")())
        self.is_done = True

    async def ask(self, command: AnyCommand, *, repeat: bool = True) -> Any:
        """Send a command, again after silence; a resent enqueue is marked."""
        for _ in range(RESENDS_MAX if repeat else 1):
            server = self._random.choice(self._world.servers)
            timeout_ms = self._random.choice(TIMEOUTS_MS)
            try:
                return await self._world.network.call(
                    self.name, server, command, timeout_ms=timeout_ms
                )
            except NoAnswer:
                await asyncio.sleep(0.05 + 0.2 * self._random.random())
            except TenureError as error:
                if error.code != "unavailable":
                    return error
                await asyncio.sleep(int(error.fields["retry_after_ms"]) / 1000)
            if isinstance(command, EnqueueTasks | StartRun):
                command = replace(command, is_resend=True)
        return None

    # -- Actions -------------------------------------------------------------------------------

    def _new(self) -> NewTask:
        random, world = self._random, self._world
        queues = world.queues[self._namespace]
        run_at_ms = 0
        if random.random() < 0.15:
            run_at_ms = world.clock.now_ms() + random.randint(1, 2_500)
        key = ""
        if random.random() < 0.3:
            key = f"{self.name}-{world.next_number()}"
        return NewTask(
            id=world.new_id(),
            type=random.choice(world.activities),
            queue=random.choice(queues),
            spec=random.choice(SPECS),
            input=b"input",
            priority=random.choice([5, 5, 5, 0, 2, 9]),
            run_at_ms=run_at_ms,
            idempotency_key=key,
        )

    async def _enqueue(self) -> None:
        random = self._random
        keyed = self._used_keys
        tasks: tuple[NewTask, ...]
        if keyed and random.random() < 0.15:
            # The same wish from another process: same key and content, other id.
            first = random.choice(keyed)
            tasks = (_copied(first, self._world.new_id()),)
        else:
            count = random.choice([1, 1, 1, 2, 4])
            tasks = tuple(self._new() for _ in range(count))
        keyed += [new for new in tasks if new.idempotency_key and not new.run_at_ms]
        answer = await self.ask(EnqueueTasks(namespace=self._namespace, tasks=tasks))
        if isinstance(answer, tuple) and random.random() < 0.5:
            for told in answer:
                self._world.waits.begin((self._namespace, told.task_id))

    def _some_task(self, *states: TaskState) -> str | None:
        """Pick a task as a user would, from a list that may be old when the request arrives."""
        checker = self._world.checker
        source = checker.live if not states or TaskState.SUCCEEDED not in states else None
        tasks = (source if source is not None else checker.finished).values()
        found = [
            task.id
            for task in tasks
            if task.namespace == self._namespace and (not states or task.state in states)
        ]
        return self._random.choice(found) if found else None

    async def _cancel(self) -> None:
        task_id = self._some_task()
        if task_id is not None:
            await self.ask(CancelTask(namespace=self._namespace, task_id=task_id))

    async def _pause(self) -> None:
        running = (TaskState.RUNNING, TaskState.DISPATCHED)
        task_id = self._some_task(*(running if self._random.random() < 0.6 else ()))
        if task_id is not None:
            await self.ask(PauseTask(namespace=self._namespace, task_id=task_id), repeat=False)

    async def _resume(self) -> None:
        task_id = self._some_task(TaskState.PAUSED, TaskState.RUNNING)
        if task_id is not None:
            await self.ask(ResumeTask(namespace=self._namespace, task_id=task_id), repeat=False)

    async def _retry(self) -> None:
        task_id = self._some_task(TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED)
        if task_id is not None:
            command = RetryTask(
                namespace=self._namespace, task_id=task_id, new_task_id=self._world.new_id()
            )
            await self.ask(command)

    async def _brake(self) -> None:
        command = SetQueue(
            namespace=self._namespace,
            name=self._random.choice(self._world.queues[self._namespace]),
            is_paused=self._random.random() < 0.2,
            concurrency_max=self._random.choice([0, 0, 1, 2, 5]),
        )
        await self.ask(command)

    async def _complete(self) -> None:
        task_id = self._some_task(TaskState.WAITING, TaskState.CANCELLING, TaskState.RUNNING)
        if task_id is not None:
            await self.complete(task_id)

    async def complete(self, task_id: str) -> None:
        """Complete a task from outside."""
        output = f"outside {self._world.next_number()}".encode()
        finish = Finish(task_id=task_id, attempt=0, kind=FinishKind.SUCCEEDED, output=output)
        command = CompleteById(namespace=self._namespace, finish=finish)
        await self.ask(command, repeat=False)

    async def _terminate(self) -> None:
        task_id = self._some_task()
        if task_id is not None:
            await self.ask(TerminateTask(namespace=self._namespace, task_id=task_id))

    # -- Runs ----------------------------------------------------------------------------------

    def _signal_of(self, *, has_id: bool) -> NewSignal:
        """Return a signal that differs from all others; one with an id may be sent again."""
        number = self._world.next_number()
        signal_id = f"signal-{number}" if has_id else ""
        return NewSignal(
            name=flow.SIGNAL, payload=str(number).encode(), encoding="json", signal_id=signal_id
        )

    def _some_run(self, *, parked_share: float = 0.0) -> Task | None:
        """Pick a run of this namespace, or with some chance one that is parked."""
        live = self._world.checker.live.values()
        own = [each for each in live if each.namespace == self._namespace]
        found = [task for task in own if task.kind is TaskKind.WORKFLOW]
        if self._random.random() < parked_share:
            found = [task for task in found if wake_up.is_parked(task)] or found
        return self._random.choice(found) if found else None

    async def _start_run(self) -> None:
        random = self._random
        new = replace(
            self._new(), type=flow.TYPE, spec=random.choice(flow.SPECS), input=flow.drawn(random)
        )
        if self._world.has_families and self._of_families.random() < 0.6:
            new = replace(new, type=family.TYPE, input=family.drawn(self._of_families))
        signals = [self._signal_of(has_id=False) for _ in range(random.choice([0, 0, 0, 1, 3]))]
        command = StartRun(namespace=self._namespace, new=new, signals=tuple(signals))
        answer = await self.ask(command)
        if isinstance(answer, Enqueued) and random.random() < 0.5:
            self._world.waits.begin((self._namespace, answer.task_id))

    async def _signal(self) -> None:
        """Send a few signals to one run, each after the answer to the one before."""
        task = self._some_run(parked_share=0.3)
        if task is None:
            return
        sent: list[bytes | None] = []
        for _ in range(self._random.choice([1, 1, 2, 4])):
            has_id = self._random.random() < 0.6
            signal = self._signal_of(has_id=has_id)
            command = SignalRun(namespace=self._namespace, run_id=task.id, signal=signal)
            answer = await self.ask(command, repeat=has_id)
            if answer is None or isinstance(answer, TenureError):
                return
            sent.append(signal.payload)
            self._world.checker.journals.check_order(task.id, sent)

    async def _cancel_run(self) -> None:
        task = self._some_run()
        if task is not None:
            reason = self._random.choice(["", "enough"])
            await self.ask(CancelRun(namespace=self._namespace, run_id=task.id, reason=reason))

    async def _resume_run(self) -> None:
        task = self._some_run(parked_share=0.8)
        if task is not None:
            command = ResumeRun(namespace=self._namespace, run_id=task.id)
            await self.ask(command, repeat=False)

    async def _race(self) -> None:
        """Ask for several ends of one run at a time, at several servers."""
        task = self._some_run()
        if task is None:
            return
        namespace, run_id = self._namespace, task.id
        error = ErrorInfo(ErrorCategory.USER_CODE, f"outside {self._world.next_number()}")
        output = f"outside {self._world.next_number()}".encode()
        ends = [
            Finish(task_id=run_id, attempt=0, kind=FinishKind.SUCCEEDED, output=output),
            Finish(task_id=run_id, attempt=0, kind=FinishKind.FAILED, error=error),
        ]
        commands: list[AnyCommand] = [
            *(CompleteById(namespace=namespace, finish=each) for each in ends),
            CancelRun(namespace=namespace, run_id=run_id, reason="race"),
            TerminateRun(namespace=namespace, run_id=run_id),
        ]
        for command in self._random.sample(commands, self._random.randint(2, len(commands))):
            self._world.spawn(self.ask(command, repeat=False))

    async def _forge(self) -> None:
        """Append to a run that another worker holds: only its holder may do that."""
        task = self._some_run()
        if task is None or task.worker_id is None:
            return
        key = f"forged-{self._world.next_number()}"
        entry = NewEntry(EntryKind.STEP, key, EntryBody(output=b"1", encoding="json"))
        workers = sorted(self._world.checker.workers.rows)
        others = [each for each in workers if each != task.worker_id]
        count = self._world.checker.journals.reported_count(task)
        item = StepReport(
            task_id=task.id, attempt=task.attempt, first_no=count + 1, entries=(entry,)
        )
        command = RecordSteps(
            namespace=self._namespace,
            worker_id=self._random.choice([*others, self._world.new_id()]),
            items=(item,),
        )
        await self.ask(command, repeat=False)

    # -- Mischief ------------------------------------------------------------------------------

    async def _pretend(self) -> None:
        """Report for another worker's attempt: only its holder may speak for it."""
        tasks = [t for t in self._world.checker.live.values() if t.namespace == self._namespace]
        held = [task for task in tasks if task.worker_id is not None]
        if held:
            task = self._random.choice(held)
            finish = Finish(
                task_id=task.id,
                attempt=task.attempt,
                kind=FinishKind.SUCCEEDED,
                output=b"pretended",
            )
            command = FinishTasks(
                namespace=self._namespace, worker_id=self._world.new_id(), items=(finish,)
            )
            await self.ask(command, repeat=False)

    async def _trespass(self) -> None:
        """Ask for what belongs to another namespace: nothing there may change."""
        checker = self._world.checker
        tasks = [t for t in checker.live.values() if t.namespace != self._namespace]
        workers = [w for w in checker.workers.rows.values() if w.namespace != self._namespace]
        if not tasks or not workers:
            return
        task, worker = self._random.choice(tasks), self._random.choice(workers)
        finish = Finish(
            task_id=task.id,
            attempt=max(1, task.attempt),
            kind=FinishKind.SUCCEEDED,
            output=b"foreign",
        )
        ref = TaskRef(task.id, max(1, task.attempt))
        namespace = self._namespace
        commands: list[AnyCommand] = [
            CancelTask(namespace=namespace, task_id=task.id),
            CancelRun(namespace=namespace, run_id=task.id),
            SignalRun(namespace=namespace, run_id=task.id, signal=self._signal_of(has_id=False)),
            CompleteById(namespace=namespace, finish=finish),
            DrainWorker(namespace=namespace, worker_id=worker.id),
            EvictWorker(namespace=namespace, worker_id=worker.id),
            DeregisterWorker(namespace=namespace, worker_id=worker.id),
            ConfirmTasks(namespace=namespace, worker_id=task.worker_id, items=(ref,)),
            ReportHeld(namespace=namespace, worker_id=worker.id, held=()),
        ]
        await self.ask(self._random.choice(commands), repeat=False)


def _copied(new: NewTask, task_id: str) -> NewTask:
    return NewTask(
        id=task_id,
        type=new.type,
        queue=new.queue,
        spec=new.spec,
        input=new.input,
        priority=new.priority,
        run_at_ms=new.run_at_ms,
        idempotency_key=new.idempotency_key,
    )
