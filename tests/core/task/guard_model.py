"""A model of a queue under the crash guard: workers that die, on the rules of the core alone.

Time goes in steps of 100 ms. What a server reads from its store is counted here from lists.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from tenure.core.assignment import Hand, assign
from tenure.core.limits import CONTROL_WINDOW_MS
from tenure.core.task import crash_guard
from tenure.core.task import decide as task_rules
from tenure.core.task.crash_guard import ControlGroup, Suspects
from tenure.core.task.effect import Decision
from tenure.core.task.event import AttemptSucceeded, Due, HandedOut, TaskEvent, WorkerLost
from tenure.core.task.record import Task, TaskState
from tests.core.task.tasks import NAMESPACE, T0, fresh

STEP_MS: Final = 100
GRACE_MS: Final = 3_000
RESTART_MS: Final = 1_000


class Machine(msgspec.Struct):
    """One place where a worker process runs, is killed and is started again."""

    worker_id: str = ""
    held: dict[str, int] = msgspec.field(default_factory=dict)
    starts_at_ms: int = T0


class Death(msgspec.Struct):
    """A worker that is gone, with what it held; the server finds out after the grace."""

    worker_id: str
    held: list[str]
    seen_at_ms: int
    is_explained: bool = False


class Queue:
    """Tasks of one queue, the workers that run them, and a server that decides."""

    def __init__(self, machines: int, slots: int, *, seed: int = 1) -> None:
        self.now_ms = T0
        self.tasks: dict[str, Task] = {}
        self.poison: set[str] = set()
        self.lasts_ms: dict[str, int] = {}
        self.machines = [Machine() for _ in range(machines)]
        self.random = random.Random(seed)
        self._slots = slots
        self._deaths: list[Death] = []
        self._unseen: list[Death] = []
        self._numbers = 0

    def add(self, count: int, lasts_ms: int, *, are_poison: bool = False) -> list[str]:
        """Enqueue tasks; those that are poison kill their worker after half of their time."""
        added = []
        for _ in range(count):
            made = fresh(id=self._id(), start_to_close_ms=10**9)
            self.tasks[made.id] = made
            self.lasts_ms[made.id] = lasts_ms
            added.append(made.id)
        if are_poison:
            self.poison.update(added)
        return added

    def run(self, for_ms: int) -> Iterator[None]:
        """Let time pass; after each step somebody may kill."""
        for _ in range(0, for_ms, STEP_MS):
            self.now_ms += STEP_MS
            self._start()
            self._work()
            self._release()
            self._wake()
            self._hand_out()
            yield

    def kill(self, machine: Machine) -> None:
        """Kill a worker, as SIGKILL does."""
        if not machine.worker_id:
            return
        death = Death(machine.worker_id, list(machine.held), self.now_ms + GRACE_MS)
        self._unseen.append(death)
        machine.worker_id, machine.held = "", {}
        machine.starts_at_ms = self.now_ms + RESTART_MS

    def ends(self, ids: list[str]) -> list[str]:
        """Return how these tasks have ended so far."""
        found = [self.tasks[each] for each in ids]
        return [str(each.progress.reason or each.state) for each in found if each.finished_at_ms]

    def _id(self) -> str:
        self._numbers += 1
        return f"0190a000-0000-7000-8000-{self._numbers:012}"

    def _apply(self, task_id: str, event: TaskEvent) -> None:
        decision = task_rules.decide(self.tasks[task_id], event, self.now_ms)
        assert isinstance(decision, Decision), decision
        self.tasks[task_id] = decision.task

    def _start(self) -> None:
        for machine in self.machines:
            if not machine.worker_id and self.now_ms >= machine.starts_at_ms:
                machine.worker_id = self._id()

    def _work(self) -> None:
        for machine in self.machines:
            for task_id, since_ms in list(machine.held.items()):
                ran_ms = self.now_ms - since_ms
                if task_id in self.poison and 2 * ran_ms >= self.lasts_ms[task_id]:
                    self.kill(machine)
                    break
                if ran_ms >= self.lasts_ms[task_id]:
                    attempt = self.tasks[task_id].attempt
                    self._apply(task_id, AttemptSucceeded(attempt=attempt))
                    del machine.held[task_id]

    def _release(self) -> None:
        for death in [each for each in self._unseen if each.seen_at_ms <= self.now_ms]:
            self._unseen.remove(death)
            held = [self.tasks[each] for each in death.held]
            control = self._control()
            self._deaths.append(death)
            loss = crash_guard.loss_of(held, at_ms=self.now_ms, control=control)
            for task_id in death.held:
                self._apply(task_id, WorkerLost(worker_id=death.worker_id, loss=loss))
                if crash_guard.explains_death(self.tasks[task_id].progress):
                    death.is_explained = True

    def _control(self) -> ControlGroup:
        since_ms = self.now_ms - CONTROL_WINDOW_MS
        recent = [each for each in self._deaths if each.seen_at_ms >= since_ms]
        live = [each for each in self.machines if each.worker_id]
        # Those whose end nobody has seen yet still have a lease.
        live_count = len(live) + len(self._unseen)
        return ControlGroup(sum(not each.is_explained for each in recent), live_count)

    def _wake(self) -> None:
        for each in list(self.tasks.values()):
            is_due = each.due_at_ms is not None and each.due_at_ms <= self.now_ms
            if is_due and each.state is TaskState.PENDING:
                self._apply(each.id, Due(sighted_ms=10**9))

    def _hand_out(self) -> None:
        hands = [
            Hand(
                offer_id=number,
                receiver_id=machine.worker_id,
                namespace=NAMESPACE,
                queue="default",
                types=frozenset({"mail"}),
                credit=self._slots - len(machine.held),
                window=self._slots,
            )
            for number, machine in enumerate(self.machines)
            if machine.worker_id
        ]
        self.random.shuffle(hands)
        waiting = [each for each in self.tasks.values() if each.line]
        for given, hand in assign(waiting, hands, self._suspects()):
            self._apply(given.id, HandedOut(worker_id=hand.receiver_id))
            self.machines[hand.offer_id].held[given.id] = self.now_ms

    def _suspects(self) -> dict[str, Suspects]:
        found: dict[str, Any] = {}
        for machine in self.machines:
            for task_id in machine.held:
                if self.tasks[task_id].is_guarded:
                    held = found.get(machine.worker_id, Suspects())
                    found[machine.worker_id] = held.with_one_more(self.tasks[task_id].progress)
        return found
