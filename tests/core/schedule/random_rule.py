"""Random rules: their texts, with the sets that they mean beside them."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date
from typing import NamedTuple

from tests.core.schedule.model import DayTest, Model, days_in

MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


class Numbers(NamedTuple):
    """A field: its text, what it means, and whether it is ``*``."""

    text: str
    values: frozenset[int]
    is_star: bool = False


def make(rng: random.Random) -> Model:
    """Make a rule of five, six or seven fields."""
    size = rng.choice((5, 6, 6, 7))
    second = _field(rng, 0, 59) if size > 5 else Numbers("0", frozenset({0}))
    minute = _field(rng, 0, 59)
    hour = _field(rng, 0, 23, star=0.5)
    day_text, day_test = _day(rng)
    month = _field(rng, 1, 12, star=0.7, names=MONTHS)
    weekday_text, weekday_test = _weekday(rng)
    year = _field(rng, 1970, 2099) if size > 6 else Numbers("*", frozenset(range(1970, 2100)))
    words = [second.text, minute.text, hour.text, day_text, month.text, weekday_text, year.text]
    words = words[1 if size == 5 else 0 : 7 if size == 7 else 6]
    return Model(
        text=_spelled(rng, words),
        seconds=second.values,
        minutes=minute.values,
        hours=None if hour.is_star else hour.values,
        months=month.values,
        years=year.values,
        day_of_month=day_test,
        day_of_week=weekday_test,
    )


def _spelled(rng: random.Random, words: list[str]) -> str:
    text = rng.choice((" ", "  ", "\t")).join(words)
    return rng.choice((text, text, text.lower(), f" {text} "))


def _field(
    rng: random.Random, low: int, high: int, *, star: float = 0.3, names: tuple[str, ...] = ()
) -> Numbers:
    if rng.random() < star:
        return Numbers(rng.choice("**?"), frozenset(range(low, high + 1)), is_star=True)
    items = [_item(rng, low, high, names) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    return Numbers(
        ",".join(item.text for item in items),
        frozenset().union(*(item.values for item in items)),
        is_star=any(item.is_star for item in items),
    )


def _item(rng: random.Random, low: int, high: int, names: tuple[str, ...]) -> Numbers:
    def word(value: int) -> str:
        if names and rng.random() < 0.5:
            return names[value - low]
        return rng.choice((str(value), f"{value:02d}"))

    first = rng.randint(low, high)
    last = rng.randint(first, high)
    step = rng.randint(1, high - low + 1)
    forms: list[Callable[[], Numbers]] = [
        lambda: Numbers(word(first), frozenset({first})),
        lambda: Numbers(f"{word(first)}-{word(last)}", frozenset(range(first, last + 1))),
        lambda: Numbers(
            f"{word(first)}-{word(last)}/{step}", frozenset(range(first, last + 1, step))
        ),
        lambda: Numbers(f"{word(first)}/{step}", frozenset(range(first, high + 1, step))),
        lambda: Numbers(f"*/{step}", frozenset(range(low, high + 1, step)), is_star=step == 1),
    ]
    return rng.choice(forms)()


def _day(rng: random.Random) -> tuple[str, DayTest | None]:
    if rng.random() < 0.5:
        return rng.choice("**?"), None
    numbers = _field(rng, 1, 31, star=0.0)
    special = rng.choice(("", "", "L", "LW"))
    if numbers.is_star:
        return numbers.text, None
    if not special:
        return numbers.text, lambda day: day.day in numbers.values
    test = _is_last if special == "L" else _is_last_workday
    if rng.random() < 0.5:
        return special, test
    return f"{numbers.text},{special}", lambda day: day.day in numbers.values or test(day)


def _is_last(day: date) -> bool:
    return day.day == days_in(day)


def _is_last_workday(day: date) -> bool:
    rest = [day.replace(day=number) for number in range(day.day, days_in(day) + 1)]
    return [each for each in rest if each.isoweekday() <= 5] == [day]


def _weekday(rng: random.Random) -> tuple[str, DayTest | None]:
    if rng.random() < 0.5:
        return rng.choice("**?"), None
    weekday = rng.randint(0, 7)
    word = WEEKDAYS[weekday % 7] if rng.random() < 0.5 else str(weekday)
    kind = rng.choice(("field", "field", "sunday", "last", "nth"))
    if kind == "last":
        return f"{word}L", lambda day: day.isoweekday() % 7 == weekday % 7 and _in_last_week(day)
    if kind == "nth":
        nth = rng.randint(1, 5)
        return (
            f"{word}#{nth}",
            lambda day: day.isoweekday() % 7 == weekday % 7 and (day.day - 1) // 7 + 1 == nth,
        )
    if kind == "sunday":
        return f"{weekday}-7", lambda day: day.isoweekday() >= weekday
    numbers = _field(rng, 0, 6, star=0.0, names=WEEKDAYS)
    if numbers.is_star:
        return numbers.text, None
    return numbers.text, lambda day: day.isoweekday() % 7 in numbers.values


def _in_last_week(day: date) -> bool:
    return day.day > days_in(day) - 7
