"""The id that a user gives a run: whether it is free, and what it means for a new run."""

from __future__ import annotations

import enum
from typing import Final

from tenure.core import check
from tenure.core.limits import EXTERNAL_ID_BYTES_MAX
from tenure.core.task.record import TERMINAL, NewTask, Task
from tenure.errors import AlreadyExists, InvalidArgument

PREFIX: Final = "external:"
"""Before an external id where the id of a run is expected."""


class OnLive(enum.StrEnum):
    """What a start does if a live run has its external id."""

    RETURN = "return"
    REJECT = "reject"


class OnFinished(enum.StrEnum):
    """What a start does if only finished runs have its external id."""

    ALLOW = "allow"
    RETURN = "return"
    REJECT = "reject"


def check_id(external_id: object, field: str = "externalId") -> str:
    """Return an external id: any text of a bounded length, without control characters."""
    given = check.text(external_id, field, bytes_max=EXTERNAL_ID_BYTES_MAX)
    if not given or not given.isprintable():
        message = f"{field} must not be empty or have control characters"
        raise InvalidArgument(message, field=field)
    return given


def known(
    external_id: str, found: Task, *, on_live: OnLive, on_finished: OnFinished
) -> Task | None:
    """Return the run that a start finds instead of a new one, or raise that the id is taken."""
    is_live = found.state not in TERMINAL
    if not is_live and on_finished is OnFinished.ALLOW:
        return None
    if on_live is OnLive.RETURN if is_live else on_finished is OnFinished.RETURN:
        return found
    message = (
        f"The external id {external_id!r} belongs to run {found.id}, which is {found.state}. "
        "Use another id, or that run."
    )
    raise AlreadyExists(message)


def differs(new: NewTask, found: Task, content: bytes | None) -> bool:
    """Tell whether a run that exists has another type, queue or input than what is asked for."""
    same = (new.type, new.queue, new.input or b"") == (found.type, found.queue, content or b"")
    return not same or new.spec.encoding != found.spec.encoding
