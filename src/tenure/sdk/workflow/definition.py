"""Workflows as they are declared: an ``async def`` with a name, types and a few options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

import msgspec

from tenure.core import check
from tenure.core.limits import PRIORITY_DEFAULT
from tenure.errors import InvalidArgument
from tenure.sdk.activity.option import RetryPolicy, retry_to_wire
from tenure.sdk.activity.signature import Signature
from tenure.sdk.duration import Duration, duration_ms

if TYPE_CHECKING:
    from tenure.sdk.workflow.context import WorkflowContext

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Changes = Literal["park", "tolerate"]


class WorkflowSettings(TypedDict, total=False):
    """Options of ``@workflow``."""

    name: str
    timeout: Duration
    retry: RetryPolicy
    queue: str
    priority: int


class WorkflowOptions(msgspec.Struct, frozen=True):
    """Checked settings; a timeout of 0 is not set."""

    name: str
    timeout_ms: int = 0
    retry: RetryPolicy | None = None
    queue: str = "default"
    priority: int = PRIORITY_DEFAULT


class Workflow(Generic[P, R_co]):
    """A declared workflow: a client starts it, a worker runs it.

    >>> run = await client.start(checkout, order, id="order-42")
    """

    def __init__(
        self,
        function: Callable[Concatenate[WorkflowContext, P], Coroutine[Any, Any, R_co]],
        options: WorkflowOptions,
    ) -> None:
        """Use the decorator ``workflow`` instead."""
        self.function = function
        self.options = options
        self._signature: Signature | None = None
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__
        self.__wrapped__ = function

    def __repr__(self) -> str:
        return f"<workflow {self.name} of {self.__module__}.{self.__qualname__}>"

    @property
    def name(self) -> str:
        """The name of the workflow, which is the type of its runs."""
        return self.options.name

    @property
    def signature(self) -> Signature:
        """Parameters after the context, and types; looked up late, when all names exist."""
        if self._signature is None:
            self._signature = Signature(self.function, self.name, is_method=True)
        return self._signature


class WorkflowDecorator(Protocol):
    """What ``workflow(…)`` returns."""

    def __call__(
        self, function: Callable[Concatenate[WorkflowContext, P], Coroutine[Any, Any, R]]
    ) -> Workflow[P, R]:
        """Declare a workflow."""
        ...


@overload
def workflow(
    function: Callable[Concatenate[WorkflowContext, P], Coroutine[Any, Any, R]], /
) -> Workflow[P, R]: ...
@overload
def workflow(**settings: Unpack[WorkflowSettings]) -> WorkflowDecorator: ...
def workflow(function: Any = None, /, **settings: Any) -> Any:
    """Declare a workflow.

    >>> @workflow
    ... async def checkout(ctx: WorkflowContext, order: Order) -> Receipt: ...
    """
    if function is not None:
        return _declare(function, {})
    return lambda given: _declare(given, settings)


def _declare(function: Callable[..., Any], settings: dict[str, Any]) -> Workflow[..., Any]:
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"@workflow decorates an async function, not {function!r}")
    values = dict(settings)
    name = values.pop("name", None) or function.__name__
    if not inspect.signature(function).parameters:
        raise TypeError(f"workflow {name} needs a first parameter: the WorkflowContext")
    timeout = values.pop("timeout", None)
    for unknown in values.keys() - WorkflowSettings.__annotations__.keys():
        raise TypeError(f"workflow() got an unexpected keyword argument {unknown!r}")
    try:
        options = WorkflowOptions(
            name=check.name(name, "name"),
            timeout_ms=0 if timeout is None else duration_ms(timeout, "timeout"),
            retry=values.get("retry"),
            queue=check.name(values.get("queue", "default"), "queue"),
            priority=check.priority(values.get("priority", PRIORITY_DEFAULT)),
        )
        if options.retry is not None:
            retry_to_wire(options.retry)
    except (ValueError, InvalidArgument) as error:
        raise ValueError(f"workflow {name}: {error}") from None
    return Workflow(function, options)
