"""The kills that a seed means."""

from __future__ import annotations

from tests.soak.campaign.history import Part
from tests.soak.campaign.plan import Rates, make_plan
from tests.soak.campaign.scene import SIZES

SMALL = SIZES[True].rates
FULL = SIZES[False].rates
SEEDS = range(50)


def test_a_seed_is_always_the_same_plan_and_another_one_is_not() -> None:
    assert make_plan(1, "postgres", FULL) == make_plan(1, "postgres", FULL)
    assert make_plan(1, "postgres", FULL) != make_plan(2, "postgres", FULL)


def test_kills_come_in_their_order_and_within_the_time() -> None:
    plan = make_plan(1, "postgres", FULL)
    assert plan == sorted(plan)
    assert plan[0].at_s > 0
    assert plan[-1].at_s < FULL.duration_s


def test_every_kind_is_killed_whatever_the_seed() -> None:
    for rates in (SMALL, FULL):
        for seed in SEEDS:
            killed = {each.parts for each in make_plan(seed, "postgres", rates)}
            assert killed == set(rates.every_s)


def test_of_sqlite_the_server_is_the_database() -> None:
    killed = {part for each in make_plan(1, "sqlite", FULL) for part in each.parts}
    assert killed == {Part.WORKER, Part.CHILD, Part.SERVER}


def test_workers_are_killed_apart_from_outages_where_it_is_asked_for() -> None:
    rates = Rates(100.0, {(Part.WORKER,): 1.0, (Part.SERVER,): 20.0}, apart_s=3.0)
    for seed in SEEDS:
        plan = make_plan(seed, "sqlite", rates)
        outages_s = [each.at_s for each in plan if each.parts == (Part.SERVER,)]
        workers_s = [each.at_s for each in plan if each.parts == (Part.WORKER,)]
        assert all(abs(one - other) >= 3.0 for one in outages_s for other in workers_s)
