"""What the scenes on the wire share: short leases for the small size, and how promises are kept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec

from tests.soak.result import Result
from tests.wire.stage import STORES, Stage, open_stage

# For make test, where a lease of 15 s would be most of the time.
SHORT: Final[Mapping[str, int]] = {
    "lease_least_ms": 500,
    "session_lease_ms": 2_400,
    "poll_lease_ms": 2_400,
    "suspect_grace_ms": 1_500,
    "judge_ms": 100,
    "fallback_poll_ms": 200,
}
DEFAULT: Final[Mapping[str, int]] = {}
SESSION_LEASE_S: Final = 15.0
POLL_LEASE_S: Final = 30.0
SHORT_LEASE_S: Final = 2.4
# Two test processes share the machine with all that they start: a bound in seconds gets slack.
SMALL_SLACK: Final = 3.0


class Scale(msgspec.Struct, frozen=True):
    """The settings of the servers and what they promise."""

    settings: Mapping[str, int]
    session_lease_s: float
    poll_lease_s: float
    slack: float
    # Scenes mostly wait; where no time is measured to be told, they wait together.
    is_side_by_side: bool = False

    def lease_s(self, mode: str) -> float:
        return self.session_lease_s if mode == "session" else self.poll_lease_s


SCALES: Final = {
    False: Scale(DEFAULT, SESSION_LEASE_S, POLL_LEASE_S, 1.0),
    True: Scale(SHORT, SHORT_LEASE_S, SHORT_LEASE_S, SMALL_SLACK, is_side_by_side=True),
}

Scene = Callable[[Stage, str], Awaitable[list[Result]]]


async def on_both_stores(scale: Scale, scene: Scene) -> list[Result]:
    """Play a scene on each kind of store."""
    return await on_stores(STORES, scale, scene)


async def on_stores(stores: Sequence[str], scale: Scale, scene: Scene) -> list[Result]:
    """Play a scene on some kinds of stores."""

    async def play(dialect: str) -> list[Result]:
        async with open_stage(dialect, scale.settings) as stage:
            return await scene(stage, dialect)

    if scale.is_side_by_side:
        found = await asyncio.gather(*map(play, stores))
    else:
        found = [await play(dialect) for dialect in stores]
    return [each for some in found for each in some]


def bound(name: str, promised_s: float, measured_s: float, scale: Scale) -> Result:
    """Return whether something happened in time."""
    return Result(
        name,
        f"within {promised_s:g} s",
        f"{measured_s:.2f} s",
        held=measured_s <= promised_s * scale.slack,
    )


def spotless(name: str, promised: str, measured: str, complaints: list[str]) -> Result:
    """Return whether nothing is to be complained about."""
    return Result(
        name,
        promised,
        f"{measured}, {len(complaints)} broken promises",
        held=not complaints,
        details=tuple(complaints),
    )
