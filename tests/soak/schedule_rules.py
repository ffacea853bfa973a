"""Rules of schedules: all changes of the clock, random rules, and texts that are none."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import multiprocessing
import random
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeVar

import msgspec

from tenure.core.limits import TICKS_END_MS
from tenure.core.schedule.ticks import of_cron
from tenure.core.schedule.zone import find_zone
from tenure.errors import InvalidArgument
from tests.core.schedule import zone_file
from tests.core.schedule.agreement import ZONES, Outcome, check_random_rule
from tests.core.schedule.around_change import CHANGES, complaints, instants
from tests.core.schedule.fuzzed_text import Corpus
from tests.core.schedule.model import walk
from tests.core.schedule.zone_file import Change
from tests.soak.result import Result
from tests.soak.scene import spotless

PROCESSES: Final = 2
CHUNKS: Final = 20
SMALL_SEED: Final = 7
# Sparse days, sparse years, and days that exist once in decades.
WORST: Final = (
    *("0 0 0 29 2 * 2096", "59 59 23 30 12 * 2099", "0 0 0 29 2 MON", "0 0 0 ? 2 MON#5"),
    *("0 0 0 ? 2 SUN#5 2000-2099/4", "0 0 0 LW 2 SATL", "0 0 0 * * MON#5 2098", "0 0 0 1 1 *"),
    *("1-59/2 1-59/2 */5 L */11 FRIL", "* * 1-23 29 2 *", "* * * 29 2 * 2096"),
)
_A = TypeVar("_A")
_B = TypeVar("_B")


class Size(msgspec.Struct, frozen=True):
    """How much is looked at."""

    changes_each: int
    around_s: int
    zones: int
    rules: int
    texts: int


SIZES: Final = {
    False: Size(changes_each=1_000, around_s=6 * 3_600, zones=1_000, rules=10_000, texts=100_000),
    True: Size(changes_each=1, around_s=600, zones=10, rules=20, texts=500),
}


class Fuzzed(NamedTuple):
    """What came of some texts."""

    complaints: list[str]
    accepted: int
    slowest: tuple[float, str]


class _Pool:
    """Runs a function in some processes."""

    def __init__(self, executor: concurrent.futures.Executor) -> None:
        self._executor = executor

    async def each(self, function: Callable[[_A], _B], arguments: Iterable[_A]) -> list[_B]:
        loop = asyncio.get_running_loop()
        calls = [loop.run_in_executor(self._executor, function, each) for each in arguments]
        return list(await asyncio.gather(*calls))


async def run(small: bool) -> list[Result]:
    """Compare with walks, and try what people and programs might write."""
    size = SIZES[small]
    first_seed = SMALL_SEED if small else time.time_ns() % 10**9
    fresh = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(PROCESSES, mp_context=fresh) as executor:
        pool = _Pool(executor)
        return [
            await _changes(pool, size),
            await _zones(pool, size),
            *await _rules(pool, first_seed, size.rules),
            *await _texts(pool, first_seed, size.texts),
            _worst(),
        ]


async def _changes(pool: _Pool, size: Size) -> Result:
    looked_at = [
        (name, at_s, size.around_s)
        for name in CHANGES
        for at_s in instants(name)[: size.changes_each]
    ]
    found = await pool.each(_around, looked_at)
    return spotless(
        f"{len(looked_at)} changes of the clock in {len(CHANGES)} zones",
        "the ticks of a walk over every second",
        f"{size.around_s // 60} minutes to each side",
        [each for some in found for each in some],
    )


def _around(where: tuple[str, int, int]) -> list[str]:
    return complaints(*where, walk)


async def _zones(pool: _Pool, size: Size) -> Result:
    names = zone_file.names()[: size.zones]
    found = await pool.each(_changes_of, names)
    return spotless(
        f"{len(names)} zones",
        "change when their file says so",
        f"{sum(each.change_count for each in found):,} changes",
        [each.complaint for each in found if each.complaint],
    )


class _Zone(NamedTuple):
    change_count: int
    complaint: str


def _changes_of(name: str) -> _Zone:
    zone = find_zone(name)
    listed = zone_file.listed_changes(zone_file.content(name))
    found = []
    at_s = 0
    while at_s * 1_000 < TICKS_END_MS:
        span = zone.span(at_s)
        if span.offset_s != span.before_s:
            found.append(Change(span.start_s, span.offset_s))
        at_s = span.end_s
    wrong = found[: len(listed)] != listed
    return _Zone(len(found), f"{name}: {found}, listed {listed}" if wrong else "")


async def _rules(pool: _Pool, first_seed: int, count: int) -> list[Result]:
    found = await pool.each(_checked, _chunks(first_seed, count))
    outcomes = list(itertools.chain.from_iterable(found))
    slowest = max(outcomes, key=lambda outcome: outcome.slowest_s)
    broken = [f"seed {seed}: {each}" for seed, each in _numbered(first_seed, outcomes)]
    return [
        spotless(
            f"{count:,} random rules in {len(ZONES)} zones, from seed {first_seed}",
            "next, previous, around and count as a walk finds them",
            f"{count:,} compared",
            broken,
        ),
        _slowest("read a rule, its next or its previous tick", slowest.slowest_s, slowest.text),
    ]


def _numbered(first_seed: int, outcomes: list[Outcome]) -> list[tuple[int, str]]:
    """Return each complaint with its seed."""
    numbered = enumerate((each.complaint for each in outcomes), first_seed)
    return [(seed, complaint) for seed, complaint in numbered if complaint]


def _checked(seeds: range) -> list[Outcome]:
    return [check_random_rule(seed) for seed in seeds]


def _chunks(first: int, count: int) -> list[range]:
    step = -(-count // CHUNKS)
    return [range(at, min(at + step, first + count)) for at in range(first, first + count, step)]


async def _texts(pool: _Pool, first_seed: int, count: int) -> list[Result]:
    found = await pool.each(_fuzzed, _chunks(first_seed, count))
    accepted = sum(each.accepted for each in found)
    return [
        spotless(
            f"{count:,} fuzzed texts, from seed {first_seed}",
            "a rule, or a refusal that names the field",
            f"{accepted:,} are rules",
            [each for some in found for each in some.complaints],
        ),
        _slowest("read a fuzzed text and find its ticks", *max(each.slowest for each in found)),
    ]


def _fuzzed(seeds: range) -> Fuzzed:
    complaints_: list[str] = []
    accepted = 0
    slowest = (0.0, "")
    for seed in seeds:
        rng = random.Random(seed)
        text, zone = Corpus(rng).text(), rng.choice(ZONES)
        began = time.perf_counter()
        try:
            ticks = of_cron(text, zone)
            sides = (ticks.after(-1), ticks.until(TICKS_END_MS))
        except InvalidArgument as refused:
            if refused.fields != {"field": "rule"}:
                complaints_.append(f"seed {seed}: {refused.fields}")
        except Exception as error:  # noqa: BLE001 (anything else is what is looked for)
            complaints_.append(f"seed {seed}: {error!r}")
        else:
            accepted += 1
            if None in sides:
                complaints_.append(f"seed {seed}: no tick from one side")
        slowest = max(slowest, (time.perf_counter() - began, text))
    return Fuzzed(complaints_, accepted, slowest)


def _worst() -> Result:
    """Time the rules that have to look at the most days, when nothing is cached of them."""
    slowest = (0.0, "")
    for text, zone in itertools.product(WORST, ZONES):
        began = time.perf_counter()
        ticks = of_cron(text, zone)
        after_ms = ticks.after(0)
        until_ms = ticks.until(TICKS_END_MS)
        ticks.count(after_ms or 0, until_ms or 0, 10_000)
        slowest = max(slowest, (time.perf_counter() - began, f"{text} in {zone}"))
    return _slowest("read a rule with few days, its first, last and all ticks", *slowest)


def _slowest(what: str, took_s: float, text: str) -> Result:
    return Result(f"slowest: {what}", "reported", f"{took_s * 1_000:.1f} ms: {text[:80]!r}")
