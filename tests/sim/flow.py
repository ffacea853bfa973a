"""What runs of a world do: generated programs, the same on each worker, named by their input."""

from __future__ import annotations

import functools
from random import Random
from typing import Any, Final

import msgspec

from tenure.core.task.record import Spec, TaskKind
from tenure.core.task.retry import RetryPolicy
from tenure.sdk.payload import Converter
from tenure.sdk.workflow.definition import Workflow
from tests.sdk.workflow import program
from tests.sdk.workflow.program import End

TYPE: Final = "flow"
SIGNAL: Final = "ping"
CONVERTER: Final = Converter()
_ONCE: Final = RetryPolicy(maximum_attempts=1)
_AGAIN: Final = RetryPolicy(initial_interval_ms=100, maximum_interval_ms=500, maximum_attempts=2)
SPECS: Final = (
    Spec(kind=TaskKind.WORKFLOW, delivery_timeout_ms=1_200, retry=_ONCE),
    Spec(kind=TaskKind.WORKFLOW, delivery_timeout_ms=1_500, retry=_ONCE),
    Spec(kind=TaskKind.WORKFLOW, delivery_timeout_ms=1_000, retry=_AGAIN),
    Spec(
        kind=TaskKind.WORKFLOW, delivery_timeout_ms=1_200, schedule_to_close_ms=25_000, retry=_ONCE
    ),
)


class Plan(msgspec.Struct, frozen=True):
    """Which program a run is."""

    seed: int
    depth: int
    end: End


def drawn(random: Random) -> bytes:
    """Draw the input of a run."""
    end: End = random.choice(["returns", "returns", "returns", "is cancelled", "fails"])
    return msgspec.json.encode(Plan(random.randrange(10**6), random.choice([1, 1, 2, 2, 3]), end))


@functools.lru_cache(maxsize=256)
def program_of(given: bytes) -> Workflow[..., Any]:
    """Return the program of a run by its input."""
    plan = msgspec.json.decode(given, type=Plan)
    return program.make(plan.seed, depth=plan.depth, end=plan.end, is_alone=True)
