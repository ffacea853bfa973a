"""Activities as they are declared: a function with a name, types, timeouts and a retry policy."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack

import msgspec

from tenure.core import check
from tenure.errors import InvalidArgument
from tenure.sdk.activity.option import ActivitySettings, OneCallSettings, Options, Where
from tenure.sdk.activity.signature import Signature
from tenure.sdk.payload import Payload

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
Q = ParamSpec("Q")
S = TypeVar("S")


class Traits(msgspec.Struct, frozen=True):
    """The settings of an activity that no task can change."""

    name: str
    aliases: tuple[str, ...] = ()
    where: Where = "thread"
    is_exclusive: bool = False
    completes_later: bool = False


class Activity(Generic[P, R_co]):
    """A declared activity. Calling it runs the function here; a client enqueues it.

    >>> handle = await client.enqueue(charge.with_options(priority=1), order)
    """

    def __init__(
        self,
        function: Callable[..., Any],
        traits: Traits,
        options: Options,
        instance: object = None,
        *,
        is_method: bool = False,
    ) -> None:
        """Use the decorator ``activity`` instead."""
        self.function = function
        self.traits = traits
        self.options = options
        self.instance = instance
        self.is_method = is_method
        # Shared with the copies: as a function, and as a method.
        self.signatures: dict[bool, Signature] = {}
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", traits.name)
        self.__qualname__ = getattr(function, "__qualname__", traits.name)
        self.__module__ = function.__module__
        self.__wrapped__ = function

    def __repr__(self) -> str:
        return f"<activity {self.name} of {self.__module__}.{self.__qualname__}>"

    def __set_name__(self, owner: type, name: str) -> None:
        # Python calls this only for functions in the body of a class: methods.
        self.is_method = True

    @property
    def name(self) -> str:
        """The name of the activity, which is the type of its tasks."""
        return self.traits.name

    def check_signature(self) -> None:
        """Raise ``TypeError`` for parameters and results that cannot be sent as JSON."""
        if inspect.isgeneratorfunction(self.function) or inspect.isasyncgenfunction(self.function):
            message = f"activity {self.name}: a generator has no result; return a list instead"
            raise TypeError(message)
        # ``__set_name__``, which says that it is a method, is called later.
        owner = self.__qualname__.rpartition(".")[0]
        is_method = bool(owner) and not owner.endswith("<locals>")
        # A type that does not exist yet is looked up with the first call.
        with contextlib.suppress(NameError, AttributeError):
            self.signatures[is_method] = Signature(self.function, self.name, is_method=is_method)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R_co]:
        """Return a call to enqueue; raise ``TypeError`` for arguments that do not fit."""
        signature = signature_of(self)
        return Call(self, signature.encode(signature.bind(args, kwargs)))

    def with_options(self, **settings: Unpack[OneCallSettings]) -> Activity[P, R_co]:
        """Return a copy of this activity with other options."""
        try:
            options = self.options.changed(settings)
        except (TypeError, ValueError) as error:
            raise type(error)(f"activity {self.name}: {error}") from None
        copy: Activity[P, R_co] = self._copy(self.instance)
        copy.options = options
        return copy

    def bound(self, instance: object) -> Activity[Any, R_co]:
        """Return the activity as a method of an instance."""
        bound: Activity[Any, R_co] = self._copy(instance)
        return bound

    def invoke(self, arguments: dict[str, Any]) -> object:
        """Call the function; an async one returns its coroutine."""
        if self.is_method:
            return self.function(self.instance, **arguments)
        return self.function(**arguments)

    def _copy(self, instance: object) -> Any:  # noqa: ANN401 (the subclass)
        copy = type(self)(
            self.function, self.traits, self.options, instance, is_method=self.is_method
        )
        copy.signatures = self.signatures
        return copy


class AsyncActivity(Activity[P, R_co]):
    """An activity that runs on the worker's event loop."""

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run the function here, as a plain call."""
        result: R_co = await self.function(*_with_self(self, args), **kwargs)
        return result

    def __get__(
        self: AsyncActivity[Concatenate[Any, Q], S], instance: object, owner: type
    ) -> AsyncActivity[Q, S]:
        """Return the method of an instance or, on the class, a reference for enqueueing."""
        copy: AsyncActivity[Q, S] = self._copy(instance)
        return copy


class SyncActivity(Activity[P, R_co]):
    """An activity that runs in a thread or a process."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run the function here, as a plain call."""
        result: R_co = self.function(*_with_self(self, args), **kwargs)
        return result

    def __get__(
        self: SyncActivity[Concatenate[Any, Q], S], instance: object, owner: type
    ) -> SyncActivity[Q, S]:
        """Return the method of an instance or, on the class, a reference for enqueueing."""
        copy: SyncActivity[Q, S] = self._copy(instance)
        return copy


class Call(Generic[R_co]):
    """An activity and the arguments of one task; ``client.enqueue_many`` takes many."""

    __slots__ = ("activity", "payload")

    def __init__(self, activity: Activity[Any, R_co], payload: Payload) -> None:
        """Keep both; the payload has the checked arguments, before any codec."""
        self.activity = activity
        self.payload = payload


def signature_of(activity: Activity[..., Any]) -> Signature:
    """Return the parameters and types of an activity; made when all names they use exist."""
    found = activity.signatures.get(activity.is_method)
    if found is None:
        found = Signature(activity.function, activity.name, is_method=activity.is_method)
        activity.signatures[activity.is_method] = found
    return found


def check_activity(given: object) -> None:
    """Raise ``TypeError`` if what is to be enqueued is not an activity."""
    if isinstance(given, Activity):
        return
    if callable(given):
        raise TypeError(undecorated(given))
    if inspect.iscoroutine(given):
        # Nobody will await it, and Python would warn of that, too.
        given.close()
    message = (
        f"Expected an activity, not a value of type {type(given).__name__}. Give the activity and "
        "its arguments, such as run(greet, name), and do not call it: not run(greet(name))."
    )
    raise TypeError(message)


def check_call(given: object) -> None:
    """Raise ``TypeError`` if what is to be enqueued with others is not a call."""
    if not isinstance(given, Call):
        name = getattr(given, "__name__", type(given).__qualname__)
        message = f"{name} is not the call of an activity. Write [charge.call(order), …]."
        raise TypeError(message)


def undecorated(function: object) -> str:
    """Return what to say about a function where an activity is expected."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f'{name} is not an activity. Decorate the function with @activity(start_to_close="30s").'


def declare(function: Callable[P, Any], settings: ActivitySettings) -> Activity[P, Any]:
    """Make an activity of a function; raise ``ValueError`` or ``TypeError`` for bad settings."""
    if not inspect.isfunction(function):
        raise TypeError(f"@activity decorates a function, not {function!r}")
    values: dict[str, Any] = dict(settings)
    is_async = inspect.iscoroutinefunction(function)
    name = values.pop("name", None) or function.__name__
    try:
        traits = Traits(
            name=check.name(name, "name"),
            aliases=tuple(check.name(each, "aliases") for each in values.pop("aliases", ())),
            where=_where(values.pop("executor", None), is_async=is_async),
            is_exclusive=values.pop("exclusive", False),
            completes_later=values.pop("completes_later", False),
        )
        options = Options().changed(values)
    except InvalidArgument as error:
        raise ValueError(f"activity {name}: {error.message}") from None
    except (TypeError, ValueError) as error:
        raise type(error)(f"activity {name}: {error}") from None
    kind: type[Activity[P, Any]] = AsyncActivity if is_async else SyncActivity
    made = kind(function, traits, options)
    made.check_signature()
    return made


def _where(executor: Where | None, *, is_async: bool) -> Where:
    if is_async:
        if executor not in (None, "loop"):
            raise ValueError(f"an async function runs on the event loop, not in a {executor}")
        return "loop"
    if executor not in (None, "thread", "process"):
        raise ValueError('executor must be "thread" or "process" for a function without async')
    return executor or "thread"


def _with_self(activity: Activity[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    return args if activity.instance is None else (activity.instance, *args)
