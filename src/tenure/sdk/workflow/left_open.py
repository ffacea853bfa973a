"""The warning about calls that a body leaves open when it returns."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from tenure.sdk.workflow.loop import RunTask
from tenure.sdk.workflow.port import RunIdentity
from tenure.sdk.workflow.step import Step

_log = logging.getLogger("tenure.workflow")
_NAMED_MAX: Final = 3


def has_returned(main: RunTask) -> bool:
    """Tell whether a body that has ended has returned: one that raises forgets nothing."""
    return not main.cancelled() and main.exception() is None


def warn_of_open(
    identity: RunIdentity, steps: Sequence[Step[Any]], children: Sequence[Step[Any]]
) -> None:
    """Say in one line what a body has left open, and what becomes of it."""
    named = [f"{each.key}, called at {each.line} (it is waited for)" for each in steps[:_NAMED_MAX]]
    named += [
        f"{each.key}, called at {each.line} (it is cancelled)" for each in children[:_NAMED_MAX]
    ]
    count = len(steps) + len(children)
    if not count:
        return
    _log.warning(
        "The body of run %s (%s) returned while %s open: %s%s. Await what it starts.",
        identity.run_id,
        identity.type,
        "1 call was" if count == 1 else f"{count:,} calls were",
        "; ".join(named[:_NAMED_MAX]),
        "; …" if count > _NAMED_MAX else "",
        extra={"task_id": identity.run_id, "task_type": identity.type},
    )
