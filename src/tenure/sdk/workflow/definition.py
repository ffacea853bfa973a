"""Workflows as they are declared: a function with a name, types and a few options."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Coroutine, Mapping
from copy import copy
from datetime import datetime
from functools import cached_property
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    get_args,
    overload,
)

from msgspec.structs import replace

from tenure.core import check
from tenure.core.run.external_id import OnFinished, OnLive, check_id
from tenure.errors import InvalidArgument
from tenure.sdk.activity.definition import Activity
from tenure.sdk.activity.option import (
    RetryPolicy,
    SharedOptions,
    no_option,
    retry_to_wire,
    to_fields,
)
from tenure.sdk.activity.signature import Signature
from tenure.sdk.duration import Duration
from tenure.v1 import task_pb2

if TYPE_CHECKING:
    from tenure.sdk.workflow.context import WorkflowContext
    from tenure.sdk.workflow.sync.context import SyncWorkflowContext

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Changes = Literal["park", "tolerate"]
_TIMEOUTS: Final = frozenset({"timeout"})
# Of async functions, and of plain ones.
_CONTEXTS: Final = ("WorkflowContext", "SyncWorkflowContext")


class RunSettings(TypedDict, total=False):
    """Options for all runs of a workflow, or for one run."""

    timeout: Duration
    retry: RetryPolicy
    queue: str
    priority: int
    labels: Mapping[str, str]


class OneRunSettings(RunSettings, total=False):
    """Options for one run."""

    delay: Duration
    run_at: datetime
    idempotency_key: str
    id: str
    on_live: Literal["return", "reject"]
    on_finished: Literal["allow", "return", "reject"]


class WorkflowSettings(RunSettings, total=False):
    """Options of ``@workflow``.

    ``changes`` says what happens if the code does not fit what was recorded: "park" waits for code
    that fits; with "tolerate" steps may come, go and move.
    """

    name: str
    changes: Changes


class WorkflowOptions(SharedOptions, frozen=True, kw_only=True):
    """Checked settings; a timeout of 0 is not set, and without a policy a run is not retried.

    ``id`` is the user's own id of a run, and ``on_live`` and ``on_finished`` say what a start does
    if a live run or only finished ones have it.
    """

    timeout_ms: int = 0
    retry: RetryPolicy | None = None
    id: str = ""
    on_live: str = OnLive.RETURN
    on_finished: str = OnFinished.ALLOW

    def changed(self, settings: Mapping[str, Any]) -> WorkflowOptions:
        """Return a copy with other settings; raise ``ValueError`` for bad ones."""
        values = to_fields(settings, _TIMEOUTS)
        try:
            changed = replace(self, **values)
        except TypeError:
            unknown = min(set(values) - set(WorkflowOptions.__struct_fields__))
            known = [*OneRunSettings.__annotations__, *WorkflowSettings.__annotations__]
            raise TypeError(no_option(unknown, known)) from None
        if changed.retry is not None:
            retry_to_wire(changed.retry)
        changed.check_shared()
        if "id" in settings:
            checked_id(changed.id)
        _check_choice("on_live", changed.on_live, OnLive)
        _check_choice("on_finished", changed.on_finished, OnFinished)
        return changed

    def to_wire(self, encoding: str) -> task_pb2.TaskOptions:
        """Return what all runs with these options share on the wire."""
        return task_pb2.TaskOptions(
            kind=task_pb2.TASK_KIND_WORKFLOW,
            schedule_to_close_ms=self.timeout_ms,
            retry=None if self.retry is None else retry_to_wire(self.retry),
            encoding=encoding,
        )


def checked_id(own: object) -> str:
    """Return the id that a user chose for a run; raise ``ValueError`` for a bad one."""
    try:
        return check_id(own, "id")
    except InvalidArgument as error:
        raise ValueError(error.message) from None


def _check_choice(name: str, value: object, choices: type[enum.StrEnum]) -> None:
    known = [each.value for each in choices]
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, not {value!r}")


class Workflow(Generic[P, R_co]):
    """A declared workflow: a client starts it, a worker runs it.

    >>> run = await client.start(checkout.with_options(priority=1), order)

    A function that is not async runs on a thread of its own.
    """

    def __init__(
        self,
        function: Callable[Concatenate[WorkflowContext, P], Coroutine[Any, Any, R_co]]
        | Callable[Concatenate[SyncWorkflowContext, P], R_co],
        name: str,
        options: WorkflowOptions,
        changes: Changes = "park",
    ) -> None:
        """Use the decorator ``workflow`` instead."""
        self.function: Callable[..., Any] = function
        self.is_async = inspect.iscoroutinefunction(function)
        self.name = name
        self.options = options
        self.changes = changes
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__
        self.__wrapped__ = function

    def __repr__(self) -> str:
        return f"<workflow {self.name} of {self.__module__}.{self.__qualname__}>"

    @cached_property
    def signature(self) -> Signature:
        """Parameters after the context, and types; looked up late, when all names exist."""
        return Signature(self.function, self.name, is_method=True, noun="workflow")

    def with_options(self, **settings: Unpack[OneRunSettings]) -> Workflow[P, R_co]:
        """Return a copy of this workflow with other options."""
        try:
            options = self.options.changed(settings)
        except (TypeError, ValueError) as error:
            raise type(error)(f"workflow {self.name}: {error}") from None
        changed = copy(self)
        changed.options = options
        return changed


class WorkflowDecorator(Protocol):
    """What ``workflow(…)`` returns."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[WorkflowContext, P], Coroutine[Any, Any, R]]
    ) -> Workflow[P, R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[SyncWorkflowContext, P], R]
    ) -> Workflow[P, R]: ...
    def __call__(self, function: Any) -> Any:
        """Declare a workflow."""
        ...


@overload
def workflow(
    function: Callable[Concatenate[WorkflowContext, P], Coroutine[Any, Any, R]], /
) -> Workflow[P, R]: ...
@overload
def workflow(function: Callable[Concatenate[SyncWorkflowContext, P], R], /) -> Workflow[P, R]: ...
@overload
def workflow(**settings: Unpack[WorkflowSettings]) -> WorkflowDecorator: ...
def workflow(function: Any = None, /, **settings: Any) -> Any:
    """Declare a workflow; the body may be a plain function as well.

    >>> @workflow
    ... async def checkout(ctx: WorkflowContext, order: Order) -> Receipt: ...

    >>> @workflow
    ... def refund(ctx: SyncWorkflowContext, order: Order) -> Receipt: ...
    """
    if function is not None:
        return _declare(function, {})
    return lambda given: _declare(given, settings)


def _declare(function: Callable[..., Any], settings: dict[str, Any]) -> Workflow[..., Any]:
    _check_function(function)
    values = dict(settings)
    name = values.pop("name", None) or function.__name__
    _check_context(function, name)
    changes = values.pop("changes", "park")
    try:
        _check_changes(changes)
        options = WorkflowOptions().changed(values)
        return Workflow(function, check.name(name, "name"), options, changes)
    except InvalidArgument as error:
        raise ValueError(f"workflow {name}: {error.message}") from None
    except (TypeError, ValueError) as error:
        raise type(error)(f"workflow {name}: {error}") from None


def _check_function(function: Callable[..., Any]) -> None:
    is_async = inspect.iscoroutinefunction(function)
    is_generator = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    if is_generator or not (is_async or inspect.isfunction(function)):
        name = getattr(function, "__qualname__", type(function).__qualname__)
        what = "yields" if is_generator else "is not"
        raise TypeError(f"@workflow decorates a function that returns its result: {name} {what}")


def _check_context(function: Callable[..., Any], name: str) -> None:
    """Raise ``TypeError`` if a body has no context, or is declared with that of the other kind."""
    is_async = inspect.iscoroutinefunction(function)
    right, wrong = _CONTEXTS if is_async else reversed(_CONTEXTS)
    parameters = [*inspect.signature(function).parameters.values()]
    if not parameters:
        raise TypeError(f"workflow {name} needs a first parameter: the {right}")
    annotation = parameters[0].annotation
    declared = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    if declared.rpartition(".")[2] == wrong:
        kind = "an async function" if is_async else "a plain function"
        other = "" if is_async else ", or write async def"
        raise TypeError(f"workflow {name} is {kind}: its context is a {right}{other}")


def _check_changes(changes: object) -> None:
    if changes not in get_args(Changes):
        raise ValueError(f'changes must be "park" or "tolerate", not {changes!r}')


def check_workflow(given: object) -> None:
    """Raise ``TypeError`` if what is to be started is not a workflow."""
    if isinstance(given, Workflow):
        return
    if isinstance(given, Activity):
        raise TypeError(
            f"{given.name} is an activity. Enqueue it: client.enqueue({given.name}, …)."
        )
    if inspect.iscoroutine(given):
        # Nobody will await it, and Python would warn of that, too.
        given.close()
    if callable(given):
        name = getattr(given, "__qualname__", type(given).__qualname__)
        raise TypeError(f"{name} is not a workflow. Decorate the function with @workflow.")
    kind = type(given).__name__
    message = (
        f"Expected a workflow, not a value of type {kind}. Give the workflow and its arguments"
    )
    raise TypeError(f"{message}: start(sell, item).")


def check_not_workflow(given: object) -> None:
    """Raise ``TypeError`` for a workflow where an activity is enqueued."""
    if isinstance(given, Workflow):
        raise TypeError(f"{given.name} is a workflow. Start it: client.start({given.name}, …).")
