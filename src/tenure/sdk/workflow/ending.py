"""How an attempt of a run ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from tenure.sdk.payload import Payload, UserValue
from tenure.sdk.workflow.journal import Mismatch
from tenure.sdk.workflow.source_line import UNKNOWN


class Wait(msgspec.Struct, frozen=True):
    """What a run waits for, at which line of its body, and since when if that is known."""

    kind: str
    key: str
    detail: str = ""
    line: str = ""
    since_ms: int = 0


def shown(waits: Iterable[Wait], line: str) -> tuple[Wait, ...]:
    """Return waits with lines: a task without code of the user waits at ``line``, as the body."""
    return tuple([replace(each, line=line) if each.line == UNKNOWN else each for each in waits])


class Returned(msgspec.Struct, frozen=True):
    """The body returned."""

    value: UserValue


class Raised(msgspec.Struct, frozen=True):
    """The body raised; ``is_cancel`` says that it was asked to end."""

    error: BaseException
    is_cancel: bool


class Yielded(msgspec.Struct, frozen=True):
    """The run waits for the server and holds no slot."""

    seen: int
    wake_at_ms: int
    wake_key: str
    wake_index: int
    patience_n: int
    patience_ms: int
    waits: tuple[Wait, ...]
    wait_count: int


class Parked(msgspec.Struct, frozen=True):
    """The code does not fit the journal."""

    mismatch: Mismatch


class Refused(msgspec.Struct, frozen=True):
    """The server does not take what the run asks for, such as more children; it is parked."""

    code: str
    message: str


class Continued(msgspec.Struct, frozen=True):
    """The run begins anew with other arguments.

    ``keep`` are the positions, up to ``seen``, of signals that nobody has taken.
    """

    arguments: Payload
    keep: tuple[int, ...]
    seen: int


class ContinueAsNew(BaseException):
    """Raised through a body that begins anew; ``finally`` blocks run."""

    def __init__(self, arguments: Payload) -> None:
        """Use ``ctx.continue_as_new`` instead."""
        super().__init__("the workflow begins anew: let this exception pass")
        self.arguments = arguments


def continuation(error: BaseException) -> ContinueAsNew | None:
    """Return what a body that ended with an exception begins anew with; a task group wraps it."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error if isinstance(error, ContinueAsNew) else None


def ending_of(
    main: asyncio.Future[UserValue], *, is_cancel: bool, untaken: tuple[int, ...], seen: int
) -> Returned | Raised | Continued:
    """Return how a body has ended that was perhaps asked to, and what it has left to begin anew."""
    if main.cancelled():
        return Raised(asyncio.CancelledError(), is_cancel)
    error = main.exception()
    if error is None:
        return Returned(main.result())
    anew = continuation(error)
    return Raised(error, is_cancel) if anew is None else Continued(anew.arguments, untaken, seen)


class Released(msgspec.Struct, frozen=True):
    """The worker ends, and another one goes on with what was not carried out."""


Ending = Returned | Raised | Yielded | Parked | Refused | Continued | Released
