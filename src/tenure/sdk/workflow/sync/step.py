"""Handles of calls that run beside each other, for bodies that are plain functions."""

from __future__ import annotations

import asyncio
from typing import Any, Final, Generic, TypeVar, cast, overload

from tenure.sdk.duration import Duration, duration_ms
from tenure.sdk.workflow.child import ChildRun
from tenure.sdk.workflow.outside_signal import ExternalRun
from tenure.sdk.workflow.signal import Signal
from tenure.sdk.workflow.step import Step
from tenure.sdk.workflow.sync.body_thread import BodyThread

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
_LATE: Final = "{} did not end in time; it goes on"


class SyncStep(Generic[R_co]):
    """A call that has begun: ``result`` waits for it.

    >>> flight = ctx.begin(book_flight, trip)
    >>> hotel = ctx.begin(book_hotel, trip)
    >>> return Booking(flight.result(), hotel.result())
    """

    def __init__(self, thread: BodyThread, step: Step[R_co]) -> None:
        """Use ``ctx.begin`` instead."""
        self._thread = thread
        self._step = step

    def __repr__(self) -> str:
        return repr(self._step)

    @property
    def key(self) -> str:
        """The key of the call: branch, name and ordinal."""
        return self._step.key

    @property
    def idempotency_key(self) -> str:
        """The key of the call outside: the same in runs that are made from this one."""
        return self._step.idempotency_key

    def done(self) -> bool:
        """Tell whether the call has ended or was cancelled."""
        return self._step.done()

    def cancelled(self) -> bool:
        """Tell whether the call was cancelled."""
        return self._step.cancelled()

    def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the end of the call; return what it returned or raise what it raised.

        With a timeout it raises ``TimeoutError`` if the call has not ended by then. The call goes
        on.
        """
        if timeout is None:
            return self._thread.run(lambda: self._step)
        timeout_s = duration_ms(timeout, "timeout") / 1_000
        return self._thread.run(lambda: _in_time(self._step, timeout_s))

    def cancel(self) -> bool:
        """Cancel the call; its step is stopped, or what ends elsewhere is asked to end.

        Afterwards ``result`` raises ``asyncio.CancelledError``. False if it has ended already.
        """
        return self._thread.call(self._step.cancel)


class SyncChildRun(SyncStep[R_co]):
    """A child run that has begun.

    >>> shop = ctx.begin(close_shop, name, on_close="abandon")
    >>> shop.signal(hurry)
    """

    @property
    def id(self) -> str:
        """The id of the run."""
        return cast("ChildRun[R_co]", self._step).id

    @overload
    def signal(self, sig: Signal[None], /) -> None: ...
    @overload
    def signal(self, sig: Signal[T], value: T, /) -> None: ...
    @overload
    def signal(self, sig: str, value: object = None, /) -> None: ...
    def signal(self, sig: Any, value: object = None, /) -> None:
        """Send a signal to the run, once; it is a step, which fails if the run has ended."""
        child = cast("ChildRun[R_co]", self._step)
        self._thread.run(lambda: child.signal(sig, value))


class SyncExternalRun:
    """A run that another client or workflow has started.

    >>> ctx.external(order.run_id).signal(paid, receipt)
    """

    __slots__ = ("_run", "_thread", "id")

    def __init__(self, thread: BodyThread, run: ExternalRun) -> None:
        """Use ``ctx.external`` instead."""
        self.id = run.id
        self._thread = thread
        self._run = run

    def __repr__(self) -> str:
        return f"<SyncExternalRun {self.id}>"

    @overload
    def signal(self, sig: Signal[None], /) -> None: ...
    @overload
    def signal(self, sig: Signal[T], value: T, /) -> None: ...
    @overload
    def signal(self, sig: str, value: object = None, /) -> None: ...
    def signal(self, sig: Any, value: object = None, /) -> None:
        """Send a signal to the run, once; it is a step, which fails if the run has ended."""
        self._thread.run(lambda: self._run.signal(sig, value))


def step_of(handle: object) -> Step[Any]:
    """Return the future behind a handle; raise ``TypeError`` for anything else."""
    if not isinstance(handle, SyncStep):
        kind = type(handle).__name__
        raise TypeError(f"Expected what ctx.begin returns, not a value of type {kind}.")
    return handle._step  # noqa: SLF001 (one thing in several classes)


async def _in_time(step: Step[R], timeout_s: float) -> R:
    try:
        await asyncio.wait((step,), timeout=timeout_s)
    except asyncio.CancelledError:
        # The run is cancelled, and so is what it waits for.
        step.cancel()
        raise
    if not step.done():
        raise TimeoutError(_LATE.format(step.key))
    return step.result()
