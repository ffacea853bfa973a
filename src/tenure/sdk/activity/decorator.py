"""``activity``: declares activities, and has the functions for use inside of them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any, NoReturn, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

from tenure.sdk.activity import context
from tenure.sdk.activity.context import CompletesLater, Info, StopReason
from tenure.sdk.activity.definition import AsyncActivity, SyncActivity, declare
from tenure.sdk.activity.option import ActivitySettings
from tenure.sdk.payload import UserValue

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class ActivityDecorator(Protocol):
    """What ``activity(…)`` returns."""

    # An async function is also a function whose result is a coroutine; the first one wins.
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]]
    ) -> AsyncActivity[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> SyncActivity[P, R]: ...


class _ActivityModule:
    """Declares activities, and has the functions for the one that is running.

    >>> @activity(start_to_close="30s", heartbeat_timeout="10s")
    ... async def charge(order: Order) -> Receipt: ...
    """

    def __call__(
        self, *functions: object, **settings: Unpack[ActivitySettings]
    ) -> ActivityDecorator:
        """Declare an activity; one of ``start_to_close`` and ``schedule_to_close`` is needed."""
        if functions:
            message = 'An activity needs a timeout. Write @activity(start_to_close="30s").'
            raise TypeError(message)
        return cast("ActivityDecorator", lambda function: declare(function, settings))

    @staticmethod
    def info() -> Info:
        """Return the attempt that is being executed."""
        return context.current().info

    @staticmethod
    def heartbeat(*details: object) -> None:
        """Report that the activity makes progress, and from where the next attempt can resume.

        Call it as often as you like: heartbeats are sent at most every few seconds. The last one
        before a failure is always sent.
        """
        current = context.current()
        current.send_beat(current.converter.encode_details(details) if details else None)

    @staticmethod
    def progress(percent: float | None = None, message: str | None = None) -> None:
        """Report how far the activity is; this is a heartbeat, too."""
        context.current().send_beat(None, percent, message)

    @staticmethod
    def has_heartbeat_details() -> bool:
        """Return whether an earlier attempt has left heartbeat details."""
        return context.current().details is not None

    @overload
    @staticmethod
    def heartbeat_details(type: type[T], /) -> T: ...
    @overload
    @staticmethod
    def heartbeat_details(*types: UserValue) -> UserValue: ...
    @staticmethod
    def heartbeat_details(*types: Any) -> Any:
        """Return the details of the last heartbeat of an earlier attempt, as the given types."""
        return context.heartbeat_details(*types)

    @staticmethod
    def idempotency_key() -> str:
        """Return a key that is the same in every attempt, for what must be done only once."""
        return context.current().info.idempotency_key

    @staticmethod
    def attempt_key() -> str:
        """Return a key that only this attempt has."""
        return context.current().info.attempt_key

    @staticmethod
    def is_cancelled() -> bool:
        """Return whether the activity has to stop, for any reason."""
        return context.current().stop_reason is not None

    @staticmethod
    def stop_reason() -> StopReason | None:
        """Return why the activity has to stop, or None."""
        return context.current().stop_reason

    @staticmethod
    def shield() -> AbstractContextManager[None]:
        """Delay a stop until the block ends."""
        return context.current().shield()

    @staticmethod
    def complete_later() -> NoReturn:
        """End the function without a result; the task is completed later, by token or by id."""
        context.current()
        raise CompletesLater


activity = _ActivityModule()
