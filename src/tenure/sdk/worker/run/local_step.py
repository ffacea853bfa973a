"""One attempt of a local step: on the user's loop, or in a thread of the worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, Protocol

from tenure.core.task.retry import ErrorCategory
from tenure.sdk import failure
from tenure.sdk.activity.context import ActivityContext, CompletesLater, Info, StopReason, enter
from tenure.sdk.instant import datetime_of, timedelta_of
from tenure.sdk.payload import Converter, UserValue
from tenure.sdk.worker.execution import attempt, sync_call
from tenure.sdk.worker.execution.thread_runner import ThreadCall
from tenure.sdk.workflow.journal import Entry, Kind
from tenure.sdk.workflow.step import Step, StepFunction
from tenure.v1 import task_pb2

# A step that takes longer is shown while it runs.
_BEGUN_S: Final = 0.5
# So long a step may clean up after it was stopped; then nobody waits for it any more.
_GRACE_S: Final = 5.0


class StepOwner(Protocol):
    """The run that a step belongs to."""

    task: task_pb2.AssignedTask
    namespace: str
    converter: Converter

    @property
    def worker_id(self) -> str:
        """The worker that it runs for."""
        ...

    def step_begun(self, local: LocalStep) -> None:
        """Hear that a step takes long."""
        ...

    def step_done(self, local: LocalStep, entry: Entry) -> None:
        """Hear how an attempt ended; on the user's loop."""
        ...

    def step_freed(self, local: LocalStep) -> None:
        """Hear that the code of an abandoned attempt has ended after all."""
        ...


class LocalStep(ActivityContext):
    """One attempt of a step; on the user's loop but for the code of the step itself."""

    def __init__(self, owner: StepOwner, step: Step[Any], number: int) -> None:
        """Prepare the attempt with this number; ``begin`` runs it."""
        super().__init__(None, owner.converter)
        assert step.function is not None
        self.owner = owner
        self.step = step
        self.function: StepFunction = step.function
        self.number = number
        self.started_at_ms = 0
        # Until it begins: the alarm for that.
        self.alarm: asyncio.TimerHandle | None = None
        self.is_over = False
        self.started_at_s = 0.0
        self._begun_at_s = 0.0
        self._deadline_at_s = 0.0
        # Its code did not stop when it was asked to, and may still run.
        self.is_abandoned = False

    # -- What the host asks

    def begin(self, now_ms: int) -> None:
        """Run the function."""
        self.started_at_ms = now_ms
        self.started_at_s = now_s = time.monotonic()
        self._begun_at_s = now_s + _BEGUN_S
        self._deadline_at_s = now_s + self.function.options.timeout_ms / 1_000
        self.run()

    def run(self) -> None:
        """Run the function, on the loop or in a thread."""
        raise NotImplementedError

    def interrupt(self) -> None:
        """Raise the stop in the code of the step."""
        raise NotImplementedError

    def tick(self, now_s: float) -> None:
        """Do what is due as time passes."""
        if now_s >= self._deadline_at_s:
            if self.stop_reason is None:
                self.stop(StopReason.TIMED_OUT)
            else:
                self.is_abandoned = True
                self._end(None)
        elif now_s >= self._begun_at_s:
            self._begun_at_s = self._deadline_at_s
            if self.stop_reason is None:
                self.owner.step_begun(self)

    def stop(self, reason: StopReason) -> None:
        """Ask the code to stop; after a while nobody waits for it."""
        if self.stop_reason is None:
            self.stop_reason = reason
            self._deadline_at_s = time.monotonic() + _GRACE_S
            self.interrupt()

    def was_stopped(self) -> bool:
        """Return whether its code was asked to stop."""
        return self.stop_reason is not None

    # -- How it ends

    def end(self, outcome: Callable[[], UserValue] | None) -> None:
        """Report what the code returned or raised, by calling ``outcome``; None: it was stopped."""
        if self.is_over:
            if self.is_abandoned:
                self.is_abandoned = False
                self.owner.step_freed(self)
            return
        self._end(outcome)

    def _end(self, outcome: Callable[[], UserValue] | None) -> None:
        self.is_over = True
        self.owner.step_done(self, self._entry(outcome))

    def _entry(self, outcome: Callable[[], UserValue] | None) -> Entry:
        step = self.step
        entry = Entry(
            Kind.STEP,
            step.key,
            step.call_key.index,
            attempts=self.number,
            started_at_ms=self.started_at_ms,
            took_ms=int((time.monotonic() - self.started_at_s) * 1_000),
            line=step.line,
        )
        if outcome is None:
            entry.error = self._stopped_error()
            return entry
        try:
            value = outcome()
            payload = attempt.checked(lambda: self.converter.encode(value), "step")
            entry.output, entry.encoding = payload.data, payload.encoding
        except CompletesLater:
            text = "a step ends here: activity.complete_later() is for queued activities"
            entry.error = failure.make_error(text, "BadSetup", ErrorCategory.CONFIGURATION)
        except BaseException as error:
            entry.error = attempt.error_of(error, self.converter)
        return entry

    def _stopped_error(self) -> task_pb2.TaskError:
        if self.stop_reason is StopReason.TIMED_OUT:
            limit_s = self.function.options.timeout_ms / 1_000
            text = f"The step took longer than its timeout of {limit_s:g} s and was stopped."
            return failure.make_error(text, "TimedOut", ErrorCategory.TIMEOUT)
        return failure.make_error("The step was stopped.", "Stopped", ErrorCategory.CANCELLED)

    # -- What the code of the step asks

    def make_info(self) -> Info:
        """Return the attempt as the code of the step sees it."""
        task = self.owner.task
        return Info(
            task_id=task.task_id,
            attempt=self.number,
            type=self.function.options.name,
            queue=task.task_queue,
            namespace=self.owner.namespace,
            worker_id=self.owner.worker_id,
            failure_count=self.number - 1,
            max_attempts=self.function.retry.maximum_attempts,
            priority=task.priority,
            labels=dict(task.labels),
            start_to_close=timedelta_of(self.function.options.timeout_ms),
            created_at=datetime_of(task.created_at_ms),
            handed_at=datetime_of(self.started_at_ms),
            user_key=self.step.idempotency_key,
            run_id=task.task_id,
            is_local=True,
            schedule_id=task.schedule_id,
            fire_at=datetime_of(task.fire_at_ms),
        )

    def send_beat(self, *_beat: object) -> None:
        """Refuse a heartbeat."""
        text = "a step of a workflow has no heartbeat and no progress: use ctx.progress(…)"
        raise RuntimeError(text)


class AsyncStep(LocalStep):
    """An attempt of an async function, as a task of its own on the user's loop."""

    def __init__(self, owner: StepOwner, step: Step[Any], number: int) -> None:
        """Prepare."""
        super().__init__(owner, step, number)
        self._task: asyncio.Task[None] | None = None
        self._shield_depth = 0
        self._is_cancelled = False

    def run(self) -> None:
        """Start the task."""
        asyncio.get_running_loop().create_task(self._run(), name=self.step.key)

    async def _run(self) -> None:
        enter(self)
        self._task = asyncio.current_task()
        if self.was_stopped():
            self.end(None)
            return
        try:
            value = await self.function.call(*self.step.args, **self.step.kwargs)
        except asyncio.CancelledError as error:
            # Without a reason, the code cancelled itself. That is a failure.
            self.end(None if self.was_stopped() else _raising(error))
        except GeneratorExit:
            # The loop is closed, so nobody is left to inform.
            raise
        except BaseException as error:
            self.end(_raising(error))
        else:
            self.end(lambda: value)

    def interrupt(self) -> None:
        """Cancel the task; one that has not begun looks at the reason itself."""
        if self._task is not None and not self._shield_depth and not self._is_cancelled:
            self._is_cancelled = True
            self._task.cancel()

    @contextmanager
    def shield(self) -> Generator[None]:
        """Delay the cancellation until the block ends."""
        self._shield_depth += 1
        try:
            yield
        finally:
            self._shield_depth -= 1
            if self.stop_reason is not None:
                self.interrupt()


class ThreadStep(ThreadCall, LocalStep):
    """An attempt of a plain function, in a thread of the worker."""

    def __init__(
        self,
        owner: StepOwner,
        step: Step[Any],
        number: int,
        submit: Callable[[ThreadCall], None],
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        """Prepare; ``submit`` hands it to the threads, ``post`` reports from there."""
        LocalStep.__init__(self, owner, step, number)
        self.prepare(time.monotonic)
        self._submit = submit
        self._post = post
        self._outcome: Callable[[], UserValue] | None = None

    def run(self) -> None:
        """Wait for a thread."""
        self._submit(self)

    def tick(self, now_s: float) -> None:
        """Do what is due as time passes."""
        self.raise_if_possible()
        LocalStep.tick(self, now_s)

    def run_code(self) -> None:
        """Call the function; in the thread."""
        result = sync_call.run(
            self, lambda: self.function.call(*self.step.args, **self.step.kwargs)
        )
        if result.is_returned:
            value = result.value
            self._outcome = lambda: value
        elif result.error is not None:
            self._outcome = _raising(result.error)

    def report_end(self) -> None:
        """Report how it ended; in the thread."""
        self._post(lambda: self.end(self._outcome))


def _raising(error: BaseException) -> Callable[[], UserValue]:
    def outcome() -> UserValue:
        raise error

    return outcome
