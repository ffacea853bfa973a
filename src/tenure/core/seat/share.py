"""How many seats a server may have: an equal share, taken at once and given back slowly."""

from __future__ import annotations

import msgspec

from tenure.core.limits import SEAT_RETURN_PARTS, SEATS_TAKEN_MAX


class Survey(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How many seats are open, how many of them this server has, and how many servers drive."""

    seat_count: int
    own_count: int
    server_count: int


def fair_share(survey: Survey) -> int:
    """Return how many seats a server may have: all of them, divided by the servers, rounded up."""
    return -(-survey.seat_count // max(1, survey.server_count))


def wanted_count(survey: Survey) -> int:
    """Return how many free seats to take in this round."""
    return min(SEATS_TAKEN_MAX, max(0, fair_share(survey) - survey.own_count))


def surplus_count(survey: Survey) -> int:
    """Return how many seats to give back in this round: a tenth of them, while there are more."""
    surplus = survey.own_count - fair_share(survey)
    most = -(-survey.own_count // SEAT_RETURN_PARTS)
    return max(0, min(surplus, most))
