"""Signals that a body sends to other runs: each is a step, and is sent once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from tenure.core import check
from tenure.core.limits import EXTERNAL_ID_BYTES_MAX, SIGNAL_BYTES_MAX
from tenure.errors import ERRORS, InvalidArgument, TenureError
from tenure.sdk.activity.option import RetryPolicy, retry_in_core
from tenure.sdk.failure import ApplicationError
from tenure.sdk.payload import Converter, Payload, PayloadError
from tenure.sdk.workflow.signal import Signal
from tenure.sdk.workflow.step import Step, StepFunction, StepOptions

if TYPE_CHECKING:
    from tenure.sdk.workflow.port import RunPort

T = TypeVar("T")

# A server that cannot be reached does not fail the step: nothing can be recorded then either.
_RETRY: Final = RetryPolicy(initial_interval="200ms", maximum_interval="1m")
_RETRY_IN_CORE: Final = retry_in_core(_RETRY)
_TIMEOUT_MS: Final = 10_000
_EXTERNAL: Final = "external:"

Send = Callable[[str, Signal[Any] | str, object], Step[None]]
"""Makes the step that sends a signal to a run."""


class ExternalRun:
    """A run that another client or workflow has started.

    >>> await ctx.external(order.run_id).signal(paid, receipt)
    """

    __slots__ = ("_send", "id")

    def __init__(self, run_id: str, send: Send) -> None:
        """Use ``ctx.external`` instead."""
        self.id = run_id
        self._send = send

    def __repr__(self) -> str:
        return f"<ExternalRun {self.id}>"

    @overload
    def signal(self, sig: Signal[None], /) -> Step[None]: ...
    @overload
    def signal(self, sig: Signal[T], value: T, /) -> Step[None]: ...
    @overload
    def signal(self, sig: str, value: object = None, /) -> Step[None]: ...
    def signal(self, sig: Signal[Any] | str, value: object = None, /) -> Step[None]:
        """Send a signal to the run, once; it is a step, which fails if the run has ended."""
        return self._send(self.id, sig, value)


def check_run_id(run_id: object) -> str:
    """Return the id of a run, or ``external:`` and the id that its user chose."""
    try:
        if isinstance(run_id, str) and run_id.startswith(_EXTERNAL):
            bytes_max = len(_EXTERNAL) + EXTERNAL_ID_BYTES_MAX
            return check.text(run_id, "run_id", bytes_max=bytes_max)
        return check.task_id(run_id, "run_id")
    except InvalidArgument as error:
        raise ValueError(error.message) from None


def signal_name(sig: Signal[Any] | str) -> str:
    """Return the name of a signal; raise ``ValueError`` for a bad one."""
    if isinstance(sig, Signal):
        return sig.name
    try:
        return check.name(sig, "name")
    except InvalidArgument as error:
        raise ValueError(error.message) from None


def payload_of(sig: Signal[Any] | str, value: object, converter: Converter) -> Payload:
    """Return the value of a signal as it travels; raise ``TypeError`` if it does not fit."""
    if isinstance(sig, Signal):
        payload = converter.seal(sig.encode(value))
    else:
        payload = converter.encode(value)
    if len(payload.data) > SIGNAL_BYTES_MAX:
        message = f"The signal has {len(payload.data):,} bytes, and {SIGNAL_BYTES_MAX:,} are "
        raise PayloadError(f"{message}allowed.")
    return payload


def signal_function(
    port: RunPort, run_id: str, name: str, payload: Payload, signal_id: str
) -> StepFunction:
    """Return a step that sends a signal; sent again, the server takes it once."""

    async def send() -> None:
        try:
            await port.signal(run_id, name, payload, signal_id)
        except TenureError as error:
            if ERRORS[error.code].is_retryable:
                raise
            text = error.message
            raise ApplicationError(text, type=error.code, non_retryable=True) from error

    options = StepOptions(f"signal:{name}", _TIMEOUT_MS, _RETRY)
    return StepFunction(send, options, is_async=True, result_type=None, retry=_RETRY_IN_CORE)
