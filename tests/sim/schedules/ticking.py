"""Rules whose ticks a test knows without the code that it tests."""

from __future__ import annotations

from random import Random
from typing import Final

from tenure.core.schedule.record import Rule

_INTERVALS_S: Final = (1, 2, 3, 5, 7, 30)
# Seconds of every minute.
_CRONS: Final = {
    "*/5 * * * * *": frozenset(range(0, 60, 5)),
    "*/7 * * * * *": frozenset(range(0, 60, 7)),
    "1,30-33,59 * * * * *": frozenset({1, 30, 31, 32, 33, 59}),
    "* * * * *": frozenset({0}),
}


def draw(random: Random) -> Rule:
    """Draw a rule that ticks within a minute."""
    if random.random() < 0.5:
        return Rule(cron=random.choice(list(_CRONS)))
    every_s = random.choice(_INTERVALS_S)
    return Rule(every_ms=every_s * 1_000, offset_ms=random.randrange(every_s) * 1_000)


def ticks_at(rule: Rule, second: int) -> bool:
    """Tell whether a rule ticks at a second since 1970."""
    if rule.cron:
        return second % 60 in _CRONS[rule.cron]
    return (second - rule.offset_ms // 1_000) % (rule.every_ms // 1_000) == 0


def walk(rule: Rule, after_ms: int, until_ms: int) -> list[int]:
    """Return all ticks in ``(after, until]``, second by second."""
    seconds = range(after_ms // 1_000 + 1, until_ms // 1_000 + 1)
    return [each * 1_000 for each in seconds if ticks_at(rule, each)]
