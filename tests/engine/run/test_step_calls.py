"""Steps by calls of their own: each once, in order, from nobody but the holder of the run."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest
from msgspec.structs import replace

from tenure.core.journal.entry import EntryKind
from tenure.core.limits import (
    DURATION_MS_MAX,
    JOURNAL_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    STEP_KEY_BYTES_MAX,
)
from tenure.core.run.record import Wait
from tenure.core.run.status import RunStatus, status_of
from tenure.core.run.wake_up import run_of
from tenure.core.task.record import Spec, Task, TaskState
from tenure.core.task.retry import ErrorInfo, RetryPolicy
from tenure.engine.engine import Engine
from tenure.engine.read.step import HeldRun
from tenure.engine.run.step_calls import StepAnswer, StepCalls
from tenure.engine.services.due_tasks import DueTasks
from tenure.engine.task.command import Finish, FinishKind, PauseTask, ResumeTask
from tenure.engine.worker.command import DeregisterWorker
from tenure.errors import (
    AlreadyExists,
    AttemptMismatch,
    DataDamaged,
    InvalidArgument,
    JournalFull,
    NotFound,
    PayloadTooLarge,
    TaskAlreadyTerminal,
    TenureError,
    Unavailable,
    WorkerInactive,
)
from tenure.store.failure import Lost
from tests.engine.run.runs import (
    AGAIN_SPEC,
    RUN_SPEC,
    cancel,
    held_run,
    journal,
    kinds,
    running_run,
    signal,
    terminate,
)
from tests.engine.world import FATAL, FAULT, NAMESPACE, OTHER_NAMESPACE, World

STEP, TIMER, RETRY, BEGUN = EntryKind.STEP, EntryKind.TIMER, EntryKind.RETRY, EntryKind.BEGUN
SLOW: Final = RetryPolicy(initial_interval_ms=60_000)
HOUR_MS: Final = 3_600_000


class Holder:
    """A worker without our loop: it calls for the one run that it holds."""

    def __init__(self, world: World, engine: Engine, worker: str, run: Task) -> None:
        self.calls = StepCalls(engine)
        self.world = world
        self.engine = engine
        self.held = HeldRun(
            namespace=NAMESPACE, run_id=run.id, worker_id=worker, attempt=run.attempt
        )

    @property
    def run_id(self) -> str:
        return self.held.run_id

    def but(self, engine: Engine | None = None, **changes: Any) -> Holder:
        """Return the same holder with another engine, worker, attempt …"""
        run = self.held
        fields = {
            "namespace": run.namespace,
            "run_id": run.run_id,
            "worker_id": run.worker_id,
            "attempt": run.attempt,
            **changes,
        }
        other = Holder.__new__(Holder)
        other.calls = self.calls if engine is None else StepCalls(engine)
        other.world, other.engine = self.world, engine or self.engine
        other.held = HeldRun(**fields)
        return other

    async def begin(self, step_id: str = "charge", content: bytes | None = None) -> StepAnswer:
        return await self.calls.begin(self.held, step_id, content)

    async def complete(
        self, step_id: str = "charge", output: bytes | None = b"12", encoding: str = ""
    ) -> None:
        await self.calls.complete(self.held, step_id, output, encoding)

    async def fail(
        self,
        step_id: str = "charge",
        error: ErrorInfo | None = FAULT,
        policy: RetryPolicy | None = None,
    ) -> StepAnswer:
        return await self.calls.fail(self.held, step_id, error, policy)

    async def sleep(self, duration_ms: int, step_id: str = "rest") -> StepAnswer:
        return await self.calls.sleep(self.held, step_id, duration_ms)

    async def finish(self, kind: FinishKind = FinishKind.SUCCEEDED, **fields: Any) -> None:
        await self.calls.finish(
            self.held, Finish(task_id=self.run_id, attempt=self.held.attempt, kind=kind, **fields)
        )

    async def task(self) -> Task:
        return await self.world.task(self.run_id)

    async def status(self) -> RunStatus:
        return status_of(await self.task())

    async def woken(self) -> Holder:
        """Return the holder of the next attempt, another worker, after what is due has happened."""
        await self.world.round(DueTasks(), self.engine)
        worker_id = await self.world.worker(self.engine)
        (run,) = await self.world.claim(self.engine, worker_id)
        assert (run.id, run.attempt) == (self.run_id, self.held.attempt + 1)
        return self.but(worker_id=worker_id, attempt=run.attempt)


@pytest.fixture
async def holder(world: World, engine: Engine) -> Holder:
    worker = await world.worker(engine)
    return Holder(world, engine, worker, await held_run(world, engine, worker))


async def answers(crowd: dict[str, Holder]) -> list[TenureError | None]:
    """Let all complete their steps at once, and return who was refused."""
    calls = (each.complete(name) for name, each in crowd.items())
    found = await asyncio.gather(*calls, return_exceptions=True)
    refused: list[TenureError | None] = []
    for each in found:
        assert each is None or isinstance(each, TenureError), each
        refused.append(each)
    return refused


def msgpack_spec() -> Spec:
    return replace(RUN_SPEC, encoding="msgpack")


class TestSteps:
    async def test_a_step_begins_and_ends_once(self, holder: Holder, world: World) -> None:
        begun = await holder.begin(content=b"[1]")
        assert (begun.number, begun.recorded, begun.has_yielded) == (1, None, False)
        # That was a proof that the worker has the run.
        assert (await holder.task()).state is TaskState.RUNNING
        await world.advance(40)
        await holder.complete()
        first, last = await journal(holder.engine, holder.run_id)
        assert (first.kind, first.key, first.content.output) == (BEGUN, "charge", b"[1]")
        assert (last.kind, last.content.output, last.content.attempts) == (STEP, b"12", 1)
        assert (last.content.took_ms, last.content.started_at_ms) == (40, first.at_ms)
        again = await holder.begin()
        assert again.recorded == last.content
        assert await kinds(holder.engine, holder.run_id) == [BEGUN, STEP]

    async def test_calls_that_are_repeated_get_the_same_answer(self, holder: Holder) -> None:
        assert await holder.begin() == await holder.begin()
        await holder.complete()
        await holder.complete()
        first = await holder.fail("ship")
        assert await holder.fail("ship") == first
        assert not (await holder.sleep(0)).has_yielded
        assert not (await holder.sleep(0)).has_yielded
        slept = await holder.sleep(HOUR_MS, "night")
        assert await holder.sleep(HOUR_MS, "night") == slept
        assert await kinds(holder.engine, holder.run_id) == [BEGUN, STEP, RETRY, TIMER, BEGUN]

    async def test_another_output_is_refused_and_changes_nothing(
        self, holder: Holder, world: World
    ) -> None:
        await holder.complete()
        before = await world.dump()
        for call in (
            holder.complete(output=b"13"),
            holder.complete(encoding="msgpack"),
            holder.fail(),
            holder.sleep(5, "charge"),
        ):
            with pytest.raises(AlreadyExists) as refusal:
                await call
            assert refusal.value.fields == {"field": "stepId"}
        assert await world.dump() == before

    async def test_an_output_is_encoded_as_the_input_of_the_run_or_as_it_says(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        spec = msgpack_spec()
        holder = Holder(world, engine, worker, await held_run(world, engine, worker, spec=spec))
        await holder.begin(content=b"\x01")
        await holder.complete()
        await holder.complete("ship", encoding="json")
        entries = await journal(engine, holder.run_id)
        assert [each.content.encoding for each in entries] == ["msgpack", "msgpack", "json"]

    async def test_steps_at_the_same_time_are_all_recorded(self, holder: Holder) -> None:
        names = [f"step-{number}" for number in range(30)]
        await asyncio.gather(*(holder.complete(each) for each in names))
        entries = await journal(holder.engine, holder.run_id)
        assert sorted(each.key for each in entries) == sorted(names)
        assert [each.no for each in entries] == list(range(1, 31))

    async def test_one_step_at_the_same_time_is_recorded_once(
        self, holder: Holder, world: World
    ) -> None:
        other = holder.but(await world.start())
        calls = [each.complete() for each in (holder, other) for _ in range(10)]
        await asyncio.gather(*calls)
        assert await kinds(holder.engine, holder.run_id) == [STEP]

    async def test_steps_at_several_servers_are_all_recorded(
        self, holder: Holder, world: World
    ) -> None:
        others = [holder, holder.but(await world.start()), holder.but(await world.start())]
        names = [f"step-{number}" for number in range(15)]
        await asyncio.gather(
            *(others[number % 3].complete(each) for number, each in enumerate(names))
        )
        entries = await journal(holder.engine, holder.run_id)
        assert sorted(each.key for each in entries) == sorted(names)

    async def test_who_is_overtaken_again_and_again_may_try_later(self, holder: Holder) -> None:
        # Each knows nothing of the others, as if it were a server.
        crowd = {f"step-{number}": holder.but(holder.engine) for number in range(60)}
        while crowd:
            given = zip(crowd, await answers(crowd), strict=True)
            refused = {name: each for name, each in given if each is not None}
            assert {each.fields["reason"] for each in refused.values()} <= {"overtaken"}
            crowd = {name: crowd[name] for name in refused}
        entries = await journal(holder.engine, holder.run_id)
        assert sorted(each.key for each in entries) == sorted(
            f"step-{number}" for number in range(60)
        )

    async def test_an_answer_that_was_lost_is_given_again(
        self, holder: Holder, world: World
    ) -> None:
        world.faults.raise_at("after COMMIT", Lost("cut"))
        with pytest.raises(Unavailable):
            await holder.complete()
        await holder.complete()
        assert await kinds(holder.engine, holder.run_id) == [STEP]


class TestRetries:
    async def test_a_failed_step_is_tried_again_until_its_last_failure_is_recorded(
        self, holder: Holder, world: World
    ) -> None:
        for number, delay_ms in ((1, 200), (2, 400)):
            assert (await holder.begin()).number == number
            answer = await holder.fail()
            assert answer.next_at_ms == world.clock.now_ms() + delay_ms
            assert not answer.has_yielded
            await world.advance(delay_ms)
        assert (await holder.begin()).number == 3
        assert (await holder.fail()).next_at_ms == 0
        entries = await journal(holder.engine, holder.run_id)
        assert [each.kind for each in entries] == [BEGUN, RETRY, BEGUN, RETRY, BEGUN, STEP]
        assert (entries[-1].content.error, entries[-1].content.attempts) == (FAULT, 3)
        recorded = (await holder.begin()).recorded
        assert recorded is not None
        assert recorded.error == FAULT

    async def test_a_failure_that_no_attempt_helps_against_is_recorded_at_once(
        self, holder: Holder
    ) -> None:
        assert (await holder.fail(error=FATAL, policy=SLOW)).next_at_ms == 0
        assert await kinds(holder.engine, holder.run_id) == [STEP]

    async def test_a_late_attempt_is_left_to_a_timer_of_the_server(
        self, holder: Holder, world: World
    ) -> None:
        await holder.begin()
        answer = await holder.fail(policy=SLOW)
        at_ms = world.clock.now_ms() + 60_000
        assert (answer.next_at_ms, answer.has_yielded) == (at_ms, True)
        task = await holder.task()
        assert (status_of(task), task.worker_id) == (RunStatus.SLEEPING, None)
        assert run_of(task).waits == (Wait("retry", "charge", world.clock.now_ms(), str(at_ms)),)
        # Nobody hears of it before, and its answer can be asked for again.
        await world.advance(59_999)
        await world.round(DueTasks(), holder.engine)
        assert await world.claim(holder.engine, await world.worker(holder.engine)) == ()
        again = await holder.fail(policy=SLOW)
        assert (again.next_at_ms, again.has_yielded) == (at_ms, True)
        await world.advance(1)
        woken = await holder.woken()
        assert (await woken.begin()).number == 2
        assert await kinds(holder.engine, holder.run_id) == [BEGUN, RETRY, TIMER, BEGUN]

    async def test_a_run_that_is_woken_early_waits_on_for_its_step(
        self, holder: Holder, world: World
    ) -> None:
        await holder.fail(policy=SLOW)
        at_ms = world.clock.now_ms() + 60_000
        await signal(holder.engine, holder.run_id)
        woken = await holder.woken()
        answer = await woken.begin()
        assert (answer.has_yielded, answer.next_at_ms) == (True, at_ms)
        assert await woken.begin() == answer
        assert await woken.status() is RunStatus.SLEEPING
        await world.advance(60_000)
        assert (await (await woken.woken()).begin()).number == 2

    async def test_a_server_that_dies_between_failure_and_yield_loses_nothing(
        self, holder: Holder, world: World
    ) -> None:
        await holder.begin()
        # The failure is recorded, the yield is not.
        world.faults.raise_at("update_tasks", Lost("cut"))
        with pytest.raises(Unavailable):
            await holder.fail(policy=SLOW)
        assert await kinds(holder.engine, holder.run_id) == [BEGUN, RETRY]
        assert await holder.status() is RunStatus.RUNNING
        assert (await holder.fail(policy=SLOW)).has_yielded
        assert await kinds(holder.engine, holder.run_id) == [BEGUN, RETRY]
        assert await holder.status() is RunStatus.SLEEPING

    async def test_an_interrupted_attempt_of_a_step_is_no_failure(
        self, holder: Holder, world: World
    ) -> None:
        await holder.begin()
        run = await holder.task()
        await world.finish(holder.engine, holder.held.worker_id, run, FinishKind.RELEASED)
        woken = await holder.woken()
        assert (await woken.begin()).number == 1
        assert await kinds(holder.engine, holder.run_id) == [BEGUN, BEGUN]


class TestSleeps:
    async def test_no_sleep_at_all_is_recorded_and_the_run_goes_on(self, holder: Holder) -> None:
        answer = await holder.sleep(0)
        assert not answer.has_yielded
        assert await kinds(holder.engine, holder.run_id) == [TIMER]
        await holder.complete()
        assert await kinds(holder.engine, holder.run_id) == [TIMER, STEP]

    @pytest.mark.parametrize("duration_ms", [1, 1_234, DURATION_MS_MAX])
    async def test_a_sleep_ends_at_its_millisecond_and_takes_no_slot(
        self, holder: Holder, world: World, duration_ms: int
    ) -> None:
        at_ms = world.clock.now_ms() + duration_ms
        answer = await holder.sleep(duration_ms)
        assert (answer.next_at_ms, answer.has_yielded) == (at_ms, True)
        task = await holder.task()
        assert (status_of(task), task.worker_id, task.due_at_ms) == (
            RunStatus.SLEEPING,
            None,
            at_ms,
        )
        before = await world.dump()
        await world.advance(duration_ms - 1)
        await world.round(DueTasks(), holder.engine)
        assert await world.dump() == before
        await world.advance(1)
        woken = await holder.woken()
        assert not (await woken.sleep(duration_ms)).has_yielded
        entries = await journal(holder.engine, holder.run_id)
        assert [each.kind for each in entries] == [BEGUN, TIMER]
        assert (entries[1].key, entries[1].content.fire_at_ms) == ("rest", at_ms)

    async def test_a_run_that_is_woken_early_sleeps_on_until_the_same_time(
        self, holder: Holder, world: World
    ) -> None:
        at_ms = world.clock.now_ms() + HOUR_MS
        await holder.sleep(HOUR_MS)
        await world.advance(HOUR_MS // 2)
        await signal(holder.engine, holder.run_id)
        woken = await holder.woken()
        answer = await woken.sleep(HOUR_MS)
        assert (answer.next_at_ms, answer.has_yielded) == (at_ms, True)
        assert await woken.status() is RunStatus.SLEEPING
        await world.advance(HOUR_MS // 2)
        assert not (await (await woken.woken()).sleep(HOUR_MS)).has_yielded

    async def test_a_sleep_whose_time_has_passed_while_the_run_was_held_is_over(
        self, holder: Holder, world: World
    ) -> None:
        await holder.sleep(1_000)
        await signal(holder.engine, holder.run_id)
        woken = await holder.woken()
        await world.advance(1_000)
        assert not (await woken.sleep(1_000)).has_yielded
        assert await kinds(holder.engine, holder.run_id) == [BEGUN, EntryKind.SIGNAL, TIMER]

    async def test_what_came_while_the_run_was_held_wakes_it_at_once(self, holder: Holder) -> None:
        # Its worker cannot know of it: it was handed the run without.
        await holder.complete()
        await signal(holder.engine, holder.run_id)
        await holder.complete("ship")
        assert (await holder.sleep(HOUR_MS)).has_yielded
        assert await holder.status() is RunStatus.PENDING
        woken = await holder.woken()
        # Now it does.
        assert (await woken.sleep(HOUR_MS)).has_yielded
        assert await woken.status() is RunStatus.SLEEPING

    async def test_a_cancel_wakes_a_sleeping_run_whose_clean_up_may_sleep(
        self, holder: Holder
    ) -> None:
        await holder.sleep(HOUR_MS)
        await cancel(holder.engine, holder.run_id)
        woken = await holder.woken()
        assert (await woken.sleep(HOUR_MS, "clean-up")).has_yielded
        assert await woken.status() is RunStatus.SLEEPING

    async def test_a_cancel_of_a_held_run_is_heard_before_it_sleeps(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        holder = Holder(world, engine, worker, await running_run(world, engine, worker))
        await cancel(engine, holder.run_id)
        await holder.sleep(HOUR_MS)
        assert await holder.status() is RunStatus.PENDING

    async def test_a_paused_run_sleeps_on_when_it_is_resumed(
        self, holder: Holder, world: World
    ) -> None:
        engine, run_id = holder.engine, holder.run_id
        await engine.submit(PauseTask(namespace=NAMESPACE, task_id=run_id))
        at_ms = world.clock.now_ms() + HOUR_MS
        assert (await holder.sleep(HOUR_MS)).has_yielded
        assert await holder.status() is RunStatus.PAUSED
        await engine.submit(ResumeTask(namespace=NAMESPACE, task_id=run_id))
        assert (await (await holder.woken()).sleep(HOUR_MS)).next_at_ms == at_ms


class TestEnd:
    async def test_a_run_ends_as_its_worker_says_and_may_say_so_again(self, holder: Holder) -> None:
        for _ in range(2):
            await holder.finish(output=b"done")
        task = await holder.task()
        assert (task.state, task.output) == (TaskState.SUCCEEDED, b"done")
        with pytest.raises(TaskAlreadyTerminal):
            await holder.finish(output=b"other")
        with pytest.raises(TaskAlreadyTerminal):
            await holder.complete()

    async def test_a_run_with_a_retry_policy_begins_anew_with_an_empty_journal(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        run = await held_run(world, engine, worker, spec=AGAIN_SPEC)
        holder = Holder(world, engine, worker, run)
        await holder.begin()
        await holder.complete()
        for _ in range(2):
            await holder.finish(FinishKind.FAILED, error=FAULT)
        task = await holder.task()
        assert (task.state, run_of(task).generation) == (TaskState.PENDING, 1)
        assert await journal(engine, run.id) == ()
        await world.advance(1_000)
        again = await holder.woken()
        assert (await again.begin()).number == 1
        await again.finish(FinishKind.FAILED, error=FAULT)
        assert (await again.task()).state is TaskState.FAILED


class TestRefusals:
    @pytest.mark.parametrize("call", ["begin", "complete", "fail", "sleep", "finish"])
    async def test_nobody_but_the_holder_reports_and_nothing_is_changed(
        self, holder: Holder, world: World, call: str
    ) -> None:
        engine = holder.engine
        other, gone = await world.worker(engine), await world.worker(engine)
        await engine.submit(DeregisterWorker(namespace=NAMESPACE, worker_id=gone))
        activity = (await world.add(engine, type="fax"))[0]
        before = await world.dump()
        unknown = world.clock.new_id()
        for changes, expected in (
            ({"attempt": 2}, AttemptMismatch),
            ({"worker_id": other}, AttemptMismatch),
            ({"worker_id": gone}, WorkerInactive),
            ({"worker_id": unknown}, WorkerInactive),
            ({"run_id": unknown}, NotFound),
            ({"run_id": activity}, NotFound),
            ({"namespace": OTHER_NAMESPACE}, NotFound),
            ({"namespace": "no/where"}, NotFound),
            ({"run_id": "x"}, InvalidArgument),
            ({"worker_id": "x"}, InvalidArgument),
            ({"attempt": 0}, InvalidArgument),
            ({"run_id": "external:none"}, NotFound),
        ):
            with pytest.raises(expected):
                await _called(holder.but(**changes), call)
        assert await world.dump() == before

    async def test_a_stale_attempt_changes_nothing(self, holder: Holder, world: World) -> None:
        await holder.sleep(1)
        await world.advance(1)
        woken = await holder.woken()
        before = await world.dump()
        for call in ("begin", "complete", "fail", "sleep", "finish"):
            with pytest.raises(AttemptMismatch) as refusal:
                await _called(holder, call)
            assert refusal.value.fields["expected_attempt"] == 2
        assert await world.dump() == before
        await woken.complete()

    async def test_an_attempt_that_has_yielded_goes_no_further(
        self, holder: Holder, world: World
    ) -> None:
        await holder.complete()
        await holder.sleep(HOUR_MS)
        before = await world.dump()
        for call in (
            holder.begin(),
            holder.begin("ship"),
            holder.complete("ship"),
            holder.sleep(0, "nap"),
        ):
            with pytest.raises(AttemptMismatch):
                await call
        # What it has missed the answer of it may still hear.
        await holder.complete()
        assert await world.dump() == before

    @pytest.mark.parametrize("is_asleep", [False, True])
    async def test_a_run_that_was_terminated_records_nothing(
        self, holder: Holder, is_asleep: bool
    ) -> None:
        if is_asleep:
            await holder.sleep(5)
        await terminate(holder.engine, holder.run_id)
        for call in ("begin", "complete", "fail", "sleep", "finish"):
            with pytest.raises(TaskAlreadyTerminal):
                await _called(holder, call)

    async def test_a_wrong_argument_is_named_and_changes_nothing(
        self, holder: Holder, world: World
    ) -> None:
        large = b"x" * (PAYLOAD_BYTES_MAX + 1)
        before = await world.dump()
        for call, field in (
            (holder.begin(""), "stepId"),
            (holder.begin("a\0b"), "stepId"),
            (holder.begin("k" * (STEP_KEY_BYTES_MAX + 1)), "stepId"),
            (holder.complete(encoding="a b"), "outputEncoding"),
            (holder.fail(error=None), "error"),
            (holder.fail(policy=RetryPolicy(initial_interval_ms=-1)), "retry.initialIntervalMs"),
            (holder.sleep(-1), "duration"),
            (holder.sleep(DURATION_MS_MAX + 1), "duration"),
            (holder.finish(FinishKind.FAILED), "error"),
        ):
            with pytest.raises(InvalidArgument) as refusal:
                await call
            assert refusal.value.fields["field"] == field
        for too_large in (
            holder.begin(content=large),
            holder.complete(output=large),
            holder.finish(output=large),
        ):
            with pytest.raises(PayloadTooLarge):
                await too_large
        assert await world.dump() == before

    async def test_the_longest_step_id_can_wait_for_its_next_attempt(self, holder: Holder) -> None:
        assert (await holder.fail("k" * STEP_KEY_BYTES_MAX, policy=SLOW)).has_yielded

    async def test_a_key_of_another_worker_reports_nothing(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine, key_id="mine")
        run = await held_run(world, engine, worker)
        holder = Holder(world, engine, worker, run)
        before = await world.dump()
        for call in ("begin", "complete", "fail", "sleep", "finish"):
            with pytest.raises(WorkerInactive) as refusal:
                await _called(holder.but(speaker="theirs"), call)
            assert refusal.value.fields["reason"] == "other_key"
        assert await world.dump() == before
        await holder.but(speaker="mine").complete()

    async def test_a_full_journal_takes_no_step(self, holder: Holder, world: World) -> None:
        await holder.complete()
        other = holder.but(await world.start())
        await world.database.execute(f"UPDATE journal SET total_bytes = {JOURNAL_BYTES_MAX}")
        before = await world.dump()
        for call in (other.begin("b"), other.complete("b"), other.fail("b"), other.sleep(9)):
            with pytest.raises(JournalFull):
                await call
        # Nothing was put off without a record of its end.
        assert (await world.dump())["journal"] == before["journal"]
        assert (await other.task()).worker_id == holder.held.worker_id

    async def test_a_damaged_entry_is_told(self, holder: Holder, world: World) -> None:
        await holder.complete()
        damaged = "x'c1'" if world.dialect == "sqlite" else "'\\xc1'"
        await world.database.execute(f"UPDATE journal SET body = {damaged}")
        with pytest.raises(DataDamaged):
            await holder.begin()

    async def test_a_run_is_named_by_the_id_of_its_user_too(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        run = await held_run(world, engine, worker, external_id="order-42")
        holder = Holder(world, engine, worker, run).but(run_id="external:order-42")
        await holder.begin()
        await holder.complete()
        await holder.finish()
        assert await kinds(engine, run.id) == [BEGUN, STEP]
        assert (await world.task(run.id)).state is TaskState.SUCCEEDED


async def _called(holder: Holder, call: str) -> None:
    """Make a call that is as good as its holder."""
    match call:
        case "sleep":
            await holder.sleep(5)
        case _:
            await getattr(holder, call)()
