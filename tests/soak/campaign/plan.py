"""Which kills a seed means."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

import msgspec

from tests.soak.campaign.history import Part

# For how long something is away before it is started again.
AWAY_S_MIN: Final = 0.2
AWAY_S_MAX: Final = 2.0


class PlannedKill(msgspec.Struct, frozen=True, order=True):
    """Kill some parts at once, ``at_s`` after the beginning, and start them ``away_s`` later.

    ``choice`` picks one of those that are there: 0 the first, just below 1 the last.
    """

    at_s: float
    parts: tuple[Part, ...]
    away_s: float
    choice: float


class Rates(msgspec.Struct, frozen=True):
    """How long it lasts, how far apart the kills of each kind are, and what is kept apart."""

    duration_s: float
    every_s: Mapping[tuple[Part, ...], float]
    # No server and no database is killed before.
    outages_after_s: float = 0.0
    # No worker is killed this close to an outage, before and after.
    apart_s: float = 0.0


def make_plan(seed: int, dialect: str, rates: Rates) -> list[PlannedKill]:
    """Return the kills of a campaign in their order. Of SQLite the server is the database."""
    chance = random.Random(f"{seed} {dialect}")
    kills = []
    for parts, every_s in rates.every_s.items():
        if Part.DATABASE in parts and dialect == "sqlite":
            continue
        at_s = every_s * chance.uniform(0.4, 0.8)
        at_s += rates.outages_after_s if _is_outage(parts) else 0.0
        while at_s < rates.duration_s:
            away_s = chance.uniform(AWAY_S_MIN, AWAY_S_MAX)
            kills.append(PlannedKill(at_s, parts, away_s, chance.random()))
            at_s += every_s * chance.uniform(0.5, 1.5)
    outages = [each for each in kills if _is_outage(each.parts)]
    return sorted(
        each
        for each in kills
        if each.parts != (Part.WORKER,)
        or not any(_is_close(each, outage, rates.apart_s) for outage in outages)
    )


def _is_outage(parts: tuple[Part, ...]) -> bool:
    return Part.SERVER in parts or Part.DATABASE in parts


def _is_close(planned: PlannedKill, outage: PlannedKill, apart_s: float) -> bool:
    if not apart_s:
        return False
    return outage.at_s - apart_s < planned.at_s < outage.at_s + outage.away_s + apart_s
