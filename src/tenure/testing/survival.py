"""Kills the worker of a workflow at every point at which it could die, and compares.

First the workflow runs to its end undisturbed. Then it runs once for each report that its worker
made, such as the end of a step or the start of a child, and for the end of each child: the worker
dies right before the server has recorded the report, and in another run right after. A new worker
goes on each time. The result has to be the same, and no step may run again after it was recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from tenure.core.run.status import RunStatus
from tenure.sdk.client import RunDescription, RunHandle
from tenure.sdk.failure import TaskFailed
from tenure.sdk.payload import UserValue
from tenure.sdk.worker.served_queue import declared_queues
from tenure.sdk.worker.worker import Worker
from tenure.sdk.workflow.context import WorkflowContext
from tenure.sdk.workflow.definition import Workflow, check_workflow
from tenure.sdk.workflow.step import Step
from tenure.sdk.workflow.sync.context import SyncWorkflowContext
from tenure.testing.report_watch import CrashPoint, ReportWatch, in_generation

if TYPE_CHECKING:
    from tenure.testing.engine import TestEngine

R = TypeVar("R")
_numbers: Final = itertools.count(1)
_MOST: Final = "3650d"
_LOOK_SECONDS: Final = 0.005
_IDLE_SECONDS: Final = 0.02
# How long nothing is due, and nothing happens, before a run counts as stuck.
_WAITS_SECONDS_MAX: Final = 2.0
_RUNS_SECONDS_MAX: Final = 120.0
_WAITING: Final = frozenset({RunStatus.SLEEPING, RunStatus.WAITING, RunStatus.PAUSED})


async def assert_survives(
    workflow: Workflow[..., R],
    /,
    *args: object,
    engine: TestEngine,
    code: Iterable[object] = (),
    act: Callable[[RunHandle[R]], Awaitable[object]] | None = None,
    key: Callable[[R], object] | None = None,
    **kwargs: object,
) -> R:
    """Run a workflow and kill its worker before and after each entry of its journal.

    >>> assert await assert_survives(checkout, order, engine=engine) == receipt

    Raises ``AssertionError`` at the first crash after which the run does not end as it does without
    one, or runs a step again that was recorded. Returns the result, or raises the failure of the
    run. ``code`` are the activities and workflows that it calls: the worker that dies runs them,
    too. ``act`` is awaited when a run has started, to send it signals or to cancel it. ``key`` says
    what of the result has to be the same, if it contains times or ids.
    """
    check_workflow(workflow)
    survey: _Survey[R] = _Survey(engine, workflow, args, kwargs)
    survey.code, survey.act, survey.key = list(code), act, key or survey.key
    return await survey.run()


class _End(msgspec.Struct, frozen=True):
    """How a run has ended, as far as that is compared."""

    value: Any = None
    error: tuple[str, str] | None = None

    def __str__(self) -> str:
        return (
            f"returned {self.value!r}" if self.error is None else "failed: " + ": ".join(self.error)
        )


class _Survey(Generic[R]):
    """The runs of one call of ``assert_survives``."""

    def __init__(
        self,
        engine: TestEngine,
        workflow: Workflow[..., R],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> None:
        # How often each step has run, by run and key; and so when the worker died.
        self._counts: dict[str, Counter[str]] = {}
        self._before_crash: dict[str, Counter[str]] = {}
        # Nobody else works in this queue.
        self._workflow = _counted(workflow, self._counts).with_options(
            queue=f"survival-{next(_numbers)}", idempotency_key=""
        )
        self._engine = engine
        self._stage = engine._stage  # noqa: SLF001 (of one package)
        self._args = args
        self._kwargs = kwargs
        self.code: list[object] = []
        self.act: Callable[[RunHandle[R]], Awaitable[object]] | None = None
        self.key: Callable[[R], object] = lambda value: value
        self._worker: Worker | None = None
        # The end of the last run.
        self._ending: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._closing = contextlib.AsyncExitStack()

    async def run(self) -> R:
        """Run without a crash, then with one at each point."""
        try:
            await self._renew_worker()
            undisturbed, run, watch = await self._one_run(None)
            counts, ended = self._counts[run.run_id], self._ending
            for report in watch.reports:
                for is_after in (False, True):
                    await self._check(CrashPoint(report, is_after), undisturbed, counts)
        finally:
            self._stage.watch(None)
            await self._closing.aclose()
        return ended.result()

    async def _check(self, point: CrashPoint, undisturbed: _End, counts: Counter[str]) -> None:
        end, run, watch = await self._one_run(point)
        crash = f"{self._workflow.name} does not survive a crash {point}"
        if end != undisturbed:
            message = f"{crash}. It {end}; without the crash it {undisturbed}."
            raise AssertionError(message)
        if not watch.is_hit:
            return
        before = self._before_crash.get(run.run_id, Counter())
        for key, count in self._counts[run.run_id].items():
            if key in watch.recorded and count > before[key]:
                message = f"{crash}: step {key} was recorded before it, and ran again after it."
                raise AssertionError(message)
            # Once in the worker that died, and once in the next one.
            if count > 2 * counts[key] > 0:
                message = f"{crash}: step {key} ran {count} times instead of {counts[key]}."
                raise AssertionError(message)

    async def _one_run(self, point: CrashPoint | None) -> tuple[_End, RunHandle[R], ReportWatch]:
        assert self._worker is not None
        ids = self._worker.worker_ids.values()
        watch = ReportWatch(ids, self._workflow.options.queue, self._crash, point)
        self._stage.watch(watch)
        run: RunHandle[R] = await self._engine.start(self._workflow, *self._args, **self._kwargs)
        self._counts.setdefault(run.run_id, Counter())
        if self.act is not None:
            await self.act(run)
        return await self._end_of(run, watch, point), run, watch

    def _crash(self) -> None:
        """Let the worker die; on the server's loop."""
        assert self._worker is not None
        self._stage.cut(self._worker)
        self._before_crash = {run_id: each.copy() for run_id, each in self._counts.copy().items()}

    async def _end_of(
        self, run: RunHandle[R], watch: ReportWatch, point: CrashPoint | None
    ) -> _End:
        """Let time pass until a run has ended; a worker that dies is replaced."""
        ending = self._ending = asyncio.ensure_future(run.result())
        left = self._stage.countdown(_MOST)
        idle_s = 0.0
        is_replaced = False
        try:
            while not ending.done():
                await asyncio.wait([ending], timeout=_IDLE_SECONDS if idle_s else _LOOK_SECONDS)
                if watch.is_hit and not is_replaced:
                    await self._renew_worker()
                    is_replaced = True
                elif not ending.done():
                    is_due = await asyncio.wrap_future(self._stage.call(left.step()))
                    idle_s = 0.0 if is_due else idle_s + _IDLE_SECONDS
                    self._check_stuck(await run.describe(), point, idle_s)
            if watch.is_hit and not is_replaced:
                await self._renew_worker()
            return self._seen(ending)
        finally:
            ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)

    def _seen(self, ending: asyncio.Future[R]) -> _End:
        try:
            return _End(self.key(ending.result()))
        except TaskFailed as failed:
            error = failed.error
            kind = type(failed).__name__ if error is None else error.type
            return _End(error=(kind, failed.reason if error is None else error.message))

    def _check_stuck(self, info: RunDescription, point: CrashPoint | None, idle_s: float) -> None:
        """Raise for a run that does not end."""
        if info.status is RunStatus.PARKED and info.park_error is not None:
            raise AssertionError(f"{self._whose(point)} is parked: {info.park_error.message}")
        if idle_s > (_WAITS_SECONDS_MAX if info.status in _WAITING else _RUNS_SECONDS_MAX):
            waits = ", ".join(f"{each.kind} {each.key}" for each in info.waits) or info.status
            hint = "Send what it waits for with act=…"
            message = f"{self._whose(point)} does not end, it waits for: {waits}. {hint}"
            raise AssertionError(message)

    def _whose(self, point: CrashPoint | None) -> str:
        name = self._workflow.name
        return name if point is None else f"{name}, after a crash {point},"

    async def _renew_worker(self) -> None:
        """Start a worker in place of the one that died."""
        dead, self._worker = self._worker, None
        if dead is not None:
            await self._engine.kill_worker(dead)
            await self._closing.aclose()
        self._closing = contextlib.AsyncExitStack()
        self._worker = await self._closing.enter_async_context(
            self._engine.worker([self._workflow, *self.code], queues=self._queues())
        )

    def _queues(self) -> list[str]:
        """Return the queue that is nobody else's, and those of the code that it calls."""
        others = declared_queues(self.code) if self.code else []
        return [self._workflow.options.queue, *others]


class _CountingContext(WorkflowContext):
    """Counts how often each step is really run."""

    counts: Counter[str]

    def step(
        self, function: Callable[..., Any], *args: UserValue, **kwargs: UserValue
    ) -> Step[Any]:
        """Run a function as a step, and count."""
        step: Step[Any] = super().step(function, *args, **kwargs)
        known = step.function
        assert known is not None
        # It is called later, at the frontier of the body.
        key = f"{step.key}{in_generation(self.info.generation)}"
        step.function = replace(known, call=_counting(known.call, self.counts, key))
        return step

    def branch(self, name: str) -> WorkflowContext:
        """Return a context for a branch, which counts too."""
        return _counting_context(super().branch(name), self.counts)


def _counting(call: Callable[..., Any], counts: Counter[str], key: str) -> Callable[..., Any]:
    def counted(*args: UserValue, **kwargs: UserValue) -> UserValue:
        counts[key] += 1
        return call(*args, **kwargs)

    return counted


def _counting_context(context: WorkflowContext, counts: Counter[str]) -> _CountingContext:
    run, workflow, scope = context._run, context._workflow, context._scope  # noqa: SLF001 (the same one)
    made = _CountingContext(run, context.info, workflow, scope)
    made.counts = counts
    return made


def _counted(workflow: Workflow[..., R], counts: dict[str, Counter[str]]) -> Workflow[..., R]:
    """Return a workflow that counts its steps by run."""

    def body(
        ctx: WorkflowContext | SyncWorkflowContext, *args: UserValue, **kwargs: UserValue
    ) -> UserValue:
        counts_here = counts.setdefault(ctx.info.run_id, Counter())
        if isinstance(ctx, SyncWorkflowContext):
            context, thread = ctx._context, ctx._thread  # noqa: SLF001 (the same one)
            plain = SyncWorkflowContext(_counting_context(context, counts_here), thread)
            return workflow.function(plain, *args, **kwargs)
        return workflow.function(_counting_context(ctx, counts_here), *args, **kwargs)

    counted: Workflow[..., R] = Workflow(
        workflow.function, workflow.name, workflow.options, workflow.changes
    )
    counted.signature = workflow.signature
    counted.function = body
    return counted
