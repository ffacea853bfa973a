"""Steps of runs by calls of their own: each reads what the journal has, and appends what is new.

A call is carried out by the commands that a session uses too. It appends under the next number of
the attempt, and the number is the fence: if somebody else was first, the call looks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from tenure.core import check
from tenure.core.journal.entry import JSON, EntryBody, NewEntry
from tenure.core.limits import DURATION_MS_MAX, STEP_CALL_TURNS
from tenure.core.run import step_call
from tenure.core.run.record import Wait, Yield
from tenure.core.run.step_call import STEP_RETRY, StepPlan, Wake
from tenure.core.task.refusal import attempt_mismatch
from tenure.core.task.retry import ErrorInfo, RetryPolicy, check_retry
from tenure.engine.check import check_error
from tenure.engine.command import TaskRef
from tenure.engine.engine import Engine
from tenure.engine.read.run import check_is_run, run_named
from tenure.engine.read.step import FoundStep, HeldRun, read_seen, read_step
from tenure.engine.run.command import RecordSteps, StepReport
from tenure.engine.task.command import ConfirmTasks, Finish, FinishKind, FinishTasks
from tenure.errors import DataDamaged, InvalidArgument, Rejection, TooEarly, Unavailable

_RETRY_AFTER_MS = 100
_Plan = Callable[[FoundStep], StepPlan | Rejection]


class StepAnswer(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a call has found or done, at the store's time.

    That is the number of the step's attempt, what was ``recorded`` of a step that has ended, when
    the next attempt begins or the sleep ends, and whether the attempt of the run is over.
    """

    number: int
    recorded: EntryBody | None
    next_at_ms: int
    now_ms: int
    has_yielded: bool


class StepCalls:
    """Carries out calls; those for one run one after the other."""

    def __init__(self, engine: Engine) -> None:
        """Start with no calls."""
        self._engine = engine
        self._turns: dict[tuple[str, str], tuple[asyncio.Lock, int]] = {}

    async def begin(self, held: HeldRun, step_id: str, content: bytes | None) -> StepAnswer:
        """Confirm the attempt, and let a step begin that has not ended."""
        if content is not None:
            check.payload(content, "input")

        def plan(found: FoundStep) -> StepPlan | Rejection:
            made = step_call.begin(
                found.record,
                attempt=held.attempt,
                now_ms=found.now_ms,
                content=content,
                encoding=found.run.spec.encoding or JSON,
            )
            # Who has yielded must not go on.
            is_over = found.has_yielded and isinstance(made, StepPlan) and made.wake is None
            return attempt_mismatch(found.run, held.attempt) if is_over else made

        return await self._carry_out(held, step_id, plan, is_confirming=True)

    async def complete(
        self, held: HeldRun, step_id: str, output: bytes | None, encoding: str
    ) -> None:
        """Record the output of a step; without an encoding it is encoded as the input."""
        if output is not None:
            check.payload(output, "output")
        if encoding:
            check.name(encoding, "outputEncoding")
        await self._carry_out(
            held,
            step_id,
            lambda found: step_call.complete(
                found.record,
                now_ms=found.now_ms,
                output=output,
                encoding=encoding or found.run.spec.encoding or JSON,
            ),
        )

    async def fail(
        self, held: HeldRun, step_id: str, error: ErrorInfo | None, policy: RetryPolicy | None
    ) -> StepAnswer:
        """Record that a step has failed, for good or until its next attempt."""
        if error is None:
            raise InvalidArgument("a step that failed needs its error", field="error")
        check_error(error)
        given = STEP_RETRY if policy is None else check_retry(policy)
        return await self._carry_out(
            held,
            step_id,
            lambda found: step_call.fail(
                found.record,
                attempt=held.attempt,
                now_ms=found.now_ms,
                error=error,
                policy=given,
                jitter=self._engine.clock.jitter(),
            ),
        )

    async def sleep(self, held: HeldRun, step_id: str, duration_ms: int) -> StepAnswer:
        """Let a run sleep; of no duration it goes on, else its attempt yields."""
        check.integer(duration_ms, "duration", 0, DURATION_MS_MAX)
        return await self._carry_out(
            held,
            step_id,
            lambda found: step_call.sleep(
                found.record, now_ms=found.now_ms, duration_ms=duration_ms
            ),
        )

    async def finish(self, held: HeldRun, finish: Finish) -> None:
        """End a run as its worker reports it."""
        held = await self._named(held)
        await check_is_run(self._engine.store, namespace=held.namespace, run_id=held.run_id)
        command = FinishTasks(
            namespace=held.namespace,
            worker_id=check.task_id(held.worker_id, "workerId"),
            items=(msgspec.structs.replace(finish, task_id=held.run_id),),
            speaker=held.speaker,
        )
        (answer,) = await self._engine.submit(command)
        if isinstance(answer, Rejection):
            raise answer.to_error()

    async def _named(self, held: HeldRun) -> HeldRun:
        run_id = await run_named(self._engine.store, namespace=held.namespace, run_id=held.run_id)
        return msgspec.structs.replace(held, run_id=run_id)

    async def _carry_out(
        self, held: HeldRun, step_id: str, plan: _Plan, *, is_confirming: bool = False
    ) -> StepAnswer:
        held = await self._named(held)
        async with self._turn(held):
            for _ in range(STEP_CALL_TURNS):
                found = await read_step(self._engine.store, held, step_id)
                if is_confirming and not found.has_yielded:
                    await self._confirm(held)
                made = _planned(found, plan)
                if made.entry is None or await self._record(held, found, made.entry):
                    if made.wake is not None:
                        await self._give_up_slot(held, found, made.wake)
                    return _answer(found, made)
        message = f"Other calls for run {held.run_id} came before this one. Try again."
        raise Unavailable(message, reason="overtaken", retry_after_ms=_RETRY_AFTER_MS)

    @asynccontextmanager
    async def _turn(self, held: HeldRun) -> AsyncIterator[None]:
        """Wait until the calls for the same run that came before are done."""
        key = (held.namespace, held.run_id)
        lock, count = self._turns.get(key, (asyncio.Lock(), 0))
        self._turns[key] = lock, count + 1
        try:
            async with lock:
                yield
        finally:
            _, count = self._turns.pop(key)
            if count > 1:
                self._turns[key] = lock, count - 1

    async def _confirm(self, held: HeldRun) -> None:
        (answer,) = await self._engine.submit(
            ConfirmTasks(
                namespace=held.namespace,
                worker_id=held.worker_id,
                items=(TaskRef(held.run_id, held.attempt),),
            )
        )
        if isinstance(answer, Rejection):
            raise answer.to_error()

    async def _record(self, held: HeldRun, found: FoundStep, entry: NewEntry) -> bool:
        """Append an entry; return whether it was this call that has taken its number."""
        if found.has_yielded:
            raise attempt_mismatch(found.run, held.attempt).to_error()
        report = StepReport(
            task_id=held.run_id, attempt=held.attempt, first_no=found.last_no + 1, entries=(entry,)
        )
        command = RecordSteps(namespace=held.namespace, worker_id=held.worker_id, items=(report,))
        (answer,) = await self._engine.submit(command)
        if not isinstance(answer, Rejection):
            return answer.is_new
        refusal = answer.to_error()
        if isinstance(refusal, TooEarly):
            # The clock that was read is a little ahead of the one that decides.
            return False
        raise refusal

    async def _give_up_slot(self, held: HeldRun, found: FoundStep, wake: Wake) -> None:
        wish = Yield(
            seen=await read_seen(self._engine.store, found.run),
            wake_at_ms=wake.at_ms,
            wake_key=wake.key,
            waits=(Wait(wake.kind, found.record.key, found.now_ms, str(wake.at_ms)),),
            wait_count=1,
        )
        finish = Finish(
            task_id=held.run_id, attempt=held.attempt, kind=FinishKind.YIELDED, wish=wish
        )
        command = FinishTasks(namespace=held.namespace, worker_id=held.worker_id, items=(finish,))
        (answer,) = await self._engine.submit(command)
        if isinstance(answer, Rejection):
            raise answer.to_error()


def _answer(found: FoundStep, done: StepPlan) -> StepAnswer:
    return StepAnswer(
        number=done.number,
        recorded=done.recorded,
        next_at_ms=done.next_at_ms,
        now_ms=found.now_ms,
        has_yielded=found.has_yielded or done.wake is not None,
    )


def _planned(found: FoundStep, plan: _Plan) -> StepPlan:
    try:
        made = plan(found)
    except msgspec.DecodeError:
        message = f"What run {found.run.id} has recorded of {found.record.key!r} is damaged."
        raise DataDamaged(message, reason="journal") from None
    if isinstance(made, Rejection):
        raise made.to_error()
    return made
