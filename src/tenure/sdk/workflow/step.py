"""Local steps: the functions that a body runs, their options, and the futures of their calls."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    get_type_hints,
    overload,
)

import msgspec

from tenure.core import check
from tenure.core.task.retry import RetryPolicy as CoreRetryPolicy
from tenure.errors import InvalidArgument
from tenure.sdk import failure
from tenure.sdk.activity.definition import Activity, signature_of
from tenure.sdk.activity.option import RetryPolicy, retry_in_core, retry_to_wire
from tenure.sdk.duration import Duration, duration_ms
from tenure.sdk.payload import Converter, UserValue
from tenure.sdk.workflow.journal import Entry
from tenure.sdk.workflow.loop import RunFuture

if TYPE_CHECKING:
    from tenure.sdk.workflow.child import ChildCall
    from tenure.sdk.workflow.run import Run
    from tenure.sdk.workflow.scope import CallKey

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

_TIMEOUT_MS: Final = 10_000
_RETRY: Final = RetryPolicy(initial_interval="200ms", max_attempts=3)
_OPTIONS: Final = "__tenure_step__"


class StepSettings(TypedDict, total=False):
    """Options of ``@step``."""

    timeout: Duration
    retry: RetryPolicy
    name: str


class StepOptions(msgspec.Struct, frozen=True):
    """How a function runs as a local step."""

    name: str
    timeout_ms: int = _TIMEOUT_MS
    retry: RetryPolicy = _RETRY


class StepFunction(msgspec.Struct, frozen=True):
    """A function as ``ctx.step`` runs it."""

    call: Callable[..., Any]
    options: StepOptions
    is_async: bool
    result_type: Any
    # As the rules for the next attempt take it.
    retry: CoreRetryPolicy


@overload
def step(function: F, /) -> F: ...
@overload
def step(**settings: Unpack[StepSettings]) -> Callable[[F], F]: ...
def step(function: Any = None, /, **settings: Any) -> Any:
    """Set how a function runs as a local step; the function itself stays as it is.

    >>> @step(timeout="30s", retry=RetryPolicy(max_attempts=5))
    ... async def track(shipment: str) -> str: ...

    Without it a step may take 10 seconds and is tried three times.
    """
    known = StepSettings.__annotations__.keys()
    for name in settings.keys() - known:
        raise TypeError(f"step() got an unexpected keyword argument {name!r}")

    def mark(given: F) -> F:
        setattr(given, _OPTIONS, _options(given, cast("StepSettings", settings)))
        return given

    return mark if function is None else mark(function)


class Step(RunFuture[R]):
    """The future of a call: await it, or pass it to ``asyncio.gather``, ``wait`` and the like."""

    def __init__(self, run: Run, call: CallKey, line: str) -> None:
        """Use ``ctx.step`` instead."""
        super().__init__(run.loop.number(), run.loop)
        self._run = run
        self.call_key = call
        self.line = line
        self.function: StepFunction | None = None
        # What stands behind it if it ends elsewhere.
        self.child: ChildCall | None = None
        # A child that must be stored before: the step sends it something.
        self.follows: ChildCall | None = None
        self.args: tuple[Any, ...] = ()
        self.kwargs: dict[str, Any] = {}

    @property
    def key(self) -> str:
        """The key of the call: branch, name and ordinal."""
        return self.call_key.key

    @property
    def idempotency_key(self) -> str:
        """The key of the call outside: the same in runs that are made from this one."""
        return self._run.identity.step_key(self.key)

    def __repr__(self) -> str:
        return f"<step {self.key} of {self.line}>"

    def cancel(self, msg: object = None) -> bool:
        """Cancel the call; its step is stopped, or what ends elsewhere is asked to end."""
        if self.child is not None and self.child.holds_cancel():
            return True
        is_cancelled = super().cancel(msg)
        if is_cancelled:
            self._run.give_up(self)
        return is_cancelled


def end_step(step: Step[Any], entry: Entry, converter: Converter) -> None:
    """Tell whoever waits for a call how it ended; ``PayloadError`` for what does not fit."""
    if step.child is not None and step.child.is_cancel_wanted:
        # What holds a cancel back is over.
        RunFuture.cancel(step)
        return
    try:
        value = _outcome(step, entry, converter)
    except failure.TaskFailed as error:
        step.set_exception(error)
    else:
        step.set_result(value)


def _outcome(step: Step[Any], entry: Entry, converter: Converter) -> UserValue:
    if step.child is not None:
        return step.child.outcome(entry, converter)
    if entry.error is not None:
        raise failure.of_step(entry.error, step.key, converter)
    assert step.function is not None
    return converter.decode(entry.payload, step.function.result_type)


def step_function(given: object) -> StepFunction:
    """Return how a function or an activity runs as a local step."""
    try:
        return _step_function(given)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return _step_function.__wrapped__(given)


@functools.lru_cache(maxsize=1_024)
def _step_function(given: object) -> StepFunction:
    if isinstance(given, Activity):
        return _of_activity(given)
    if inspect.iscoroutine(given):
        given.close()
        raise TypeError("write ctx.step(function, argument), not ctx.step(function(argument))")
    if not callable(given):
        raise TypeError(f"ctx.step takes a function and its arguments, not {given!r}")
    plain: Callable[..., Any] = given
    while isinstance(plain, functools.partial):
        plain = plain.func
    options = getattr(plain, _OPTIONS, None) or _options(plain, {})
    is_async = inspect.iscoroutinefunction(plain)
    retry = retry_in_core(options.retry)
    return StepFunction(given, options, is_async, _result_type(plain), retry)


def _of_activity(activity: Activity[..., Any]) -> StepFunction:
    options = activity.options
    own = StepOptions(
        name=activity.name,
        timeout_ms=options.start_to_close_ms or _TIMEOUT_MS,
        retry=_RETRY if options.retry == RetryPolicy() else options.retry,
    )
    is_async = inspect.iscoroutinefunction(activity.function)
    # Each kind of activity can be called; that is said in the subclasses.
    called: Any = activity
    retry = retry_in_core(own.retry)
    return StepFunction(called, own, is_async, signature_of(activity).result_type, retry)


def _options(function: Callable[..., Any], settings: StepSettings) -> StepOptions:
    try:
        name = check.name(settings.get("name") or getattr(function, "__name__", ""), "name")
    except InvalidArgument:
        what = getattr(function, "__qualname__", type(function).__qualname__)
        message = f"{what} has no name that can be recorded: give it one, @step(name=…)"
        raise ValueError(message) from None
    retry = settings.get("retry", _RETRY)
    retry_to_wire(retry)
    timeout = settings.get("timeout")
    timeout_ms = _TIMEOUT_MS if timeout is None else duration_ms(timeout, "timeout")
    return StepOptions(name, timeout_ms, retry)


def _result_type(function: Callable[..., Any]) -> UserValue:
    try:
        return get_type_hints(function).get("return", Any)
    except (NameError, TypeError, AttributeError):
        # What it returns is then a plain value.
        return Any
