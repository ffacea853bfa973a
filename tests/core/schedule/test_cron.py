"""Which texts are rules, what they mean, and what is said of those that are none."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

from tenure.core.limits import RULE_BYTES_MAX
from tenure.core.schedule.cron import CronRule, parse
from tenure.errors import InvalidArgument
from tests.core.schedule.agreement import check_random_rule
from tests.core.schedule.fuzzed_text import Corpus

LAST_S = 4_102_444_799


def second_of(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def shown(local_s: int | None) -> str:
    assert local_s is not None
    return datetime.fromtimestamp(local_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


def first(rule: str, from_text: str, count: int = 1) -> list[str]:
    parsed = parse(rule)
    found: list[str] = []
    at_s = second_of(from_text)
    while len(found) < count:
        match = parsed.first_from(at_s)
        assert match is not None
        found.append(shown(match))
        at_s = match + 1
    return found


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("5 4 * * *", "0 5 4 * * *"),
        ("0 5 4 * * *", "0 5 4 * * * *"),
        ("@yearly", "0 0 0 1 1 *"),
        ("@annually", "0 0 0 1 1 *"),
        ("@monthly", "0 0 0 1 * *"),
        ("@weekly", "0 0 0 * * 0"),
        ("@daily", "0 0 0 * * *"),
        ("@midnight", "0 0 0 * * *"),
        ("@hourly", "0 0 * * * *"),
        ("@Daily", "@daily"),
        ("  5\t4 *  * * ", "5 4 * * *"),
        ("05 04 * * *", "5 4 * * *"),
        ("? ? ? ? ?", "* * * * *"),
        ("*/1 */1 */1 */1 */1", "* * * * *"),
        ("0,* 0,* 1,* 1,* 0,*", "* * * * *"),
        ("0 0 * jan,Dec mon-FRI", "0 0 * 1,12 1-5"),
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * SUN", "0 0 * * 0"),
        ("0 0 * * 5-7", "0 0 * * 5,6,0"),
        ("0 0 * * 0-7", "0 0 * * 0-6"),
        ("0 0 * * 7L", "0 0 * * sunl"),
        ("0 0 * * 7#2", "0 0 * * Sun#2"),
        ("10-30/10 * * * *", "10,20,30 * * * *"),
        ("50/5 * * * *", "50,55 * * * *"),
        ("0 0 * * 5/1", "0 0 * * 5,6"),
        ("0 0 * * 7/1", "0 0 * * 0"),
        ("*/60 * * * *", "0 * * * *"),
        ("0 0 0 1 1 * 2020-2030/5", "0 0 0 1 1 * 2020,2025,2030"),
    ],
)
def test_two_texts_are_the_same_rule(text: str, same: str) -> None:
    assert parse(text) == parse(same)


@pytest.mark.parametrize(
    ("rule", "since", "expected"),
    [
        ("0 0 L * *", "2027-01-31 00:00:01", ["2027-02-28", "2027-03-31", "2027-04-30"]),
        ("0 0 L 2 *", "2027-03-01", ["2028-02-29", "2029-02-28"]),
        ("0 0 LW * *", "2027-01-01", ["2027-01-29", "2027-02-26", "2027-03-31", "2027-04-30"]),
        ("0 0 LW 5 *", "2025-01-01", ["2025-05-30", "2026-05-29", "2027-05-31"]),
        ("0 0 15,L * *", "2027-02-01", ["2027-02-15", "2027-02-28", "2027-03-15"]),
        ("0 0 * * 5L", "2027-01-01", ["2027-01-29", "2027-02-26"]),
        ("0 0 * * FRIL", "2027-01-01", ["2027-01-29", "2027-02-26"]),
        ("0 0 * * MON#2", "2027-01-01", ["2027-01-11", "2027-02-08"]),
        ("0 0 * * MON#5", "2027-01-01", ["2027-03-29", "2027-05-31"]),
        ("0 0 * * MON#1,FRIL", "2027-01-01", ["2027-01-04", "2027-01-29", "2027-02-01"]),
        # Both day fields are restricted: either matches.
        ("0 0 13 * FRI", "2027-01-01", ["2027-01-01", "2027-01-08", "2027-01-13", "2027-01-15"]),
        ("0 0 */10 * 7", "2027-01-01", ["2027-01-01", "2027-01-03", "2027-01-10", "2027-01-11"]),
        # One is not: both have to match.
        ("0 0 ? * FRI", "2027-01-02", ["2027-01-08", "2027-01-15"]),
        ("0 0 */1 * FRI", "2027-01-02", ["2027-01-08", "2027-01-15"]),
        ("0 0 29 2 *", "2025-01-01", ["2028-02-29", "2032-02-29"]),
        ("0 0 31 * *", "2027-01-01", ["2027-01-31", "2027-03-31", "2027-05-31"]),
    ],
)
def test_days_are_found_by_the_calendar(rule: str, since: str, expected: list[str]) -> None:
    assert first(rule, since, len(expected)) == [f"{day} 00:00:00" for day in expected]


@pytest.mark.parametrize(
    ("rule", "at", "last", "next_one"),
    [
        ("59 59 23 31 12 *", "2027-06-01", "2026-12-31 23:59:59", "2027-12-31 23:59:59"),
        ("0 0 0 1 1 *", "2027-01-01 00:00:00", "2027-01-01 00:00:00", "2027-01-01 00:00:00"),
        ("* * * * * *", "2027-01-01 12:34:56", "2027-01-01 12:34:56", "2027-01-01 12:34:56"),
        ("30 15 10 * * *", "2027-01-01 10:15:29", "2026-12-31 10:15:30", "2027-01-01 10:15:30"),
        ("30 15 10 * * *", "2027-01-01 10:15:31", "2027-01-01 10:15:30", "2027-01-02 10:15:30"),
        ("30 15,45 10 * * *", "2027-01-01 10:20:00", "2027-01-01 10:15:30", "2027-01-01 10:45:30"),
        ("30 15 10 * * *", "2027-01-01 10:14:59", "2026-12-31 10:15:30", "2027-01-01 10:15:30"),
        ("30 15 10,12 * * *", "2027-01-01 11:00:00", "2027-01-01 10:15:30", "2027-01-01 12:15:30"),
        ("0 0 0 29 2 * 2096", "2096-03-01", "2096-02-29 00:00:00", None),
        ("0 0 0 29 2 * 2096", "1970-01-01", None, "2096-02-29 00:00:00"),
        ("59 59 23 31 12 * 2099", "2099-12-31", None, "2099-12-31 23:59:59"),
        ("0 0 0 1 1 * 1970", "2099-12-31", "1970-01-01 00:00:00", None),
        ("0 0 0 1 1 *", "2100-06-01", "2099-01-01 00:00:00", None),
        ("0 0 0 1 1 *", "1960-01-01", None, "1970-01-01 00:00:00"),
    ],
)
def test_a_match_is_found_from_either_side(
    rule: str, at: str, last: str | None, next_one: str | None
) -> None:
    parsed = parse(rule)
    at_s = second_of(at)
    assert parsed.last_until(at_s) == (None if last is None else second_of(last))
    assert parsed.first_from(at_s) == (None if next_one is None else second_of(next_one))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("60 * * * *", "rule is invalid in its minute, at character 1: allowed are 0-59, *, a "),
        ("0 24 * * *", "rule is invalid in its hour, at character 3: allowed are 0-23"),
        ("0 0 0 * *", "day of month, at character 5: allowed are 1-31, *, ?, L for the last day"),
        ("0 0 32 * *", "day of month, at character 5"),
        ("0 0 * 13 *", "month, at character 7: allowed are 1-12, JAN-DEC"),
        ("0 0 * * 8", "day of week, at character 9: allowed are 0-7 with Sunday 0 and 7, SUN-SAT"),
        ("0 0 0 1 1 * 1969", "year, at character 13: allowed are 1970-2099"),
        ("0 0 0 1 1 * 2100", "year, at character 13"),
        ("0  0 \t 1,2,32 * *", "day of month, at character 12"),
        ("61 0 0 * * *", "second, at character 1"),
        ("0 0 15W * *", "day of month, at character 5"),
        ("0 0 L-3 * *", "day of month, at character 5"),
        ("0 0 L/2 * *", "day of month, at character 5"),
        ("0 0 WL * *", "day of month, at character 5"),
        ("L * * * *", "minute, at character 1"),
        ("0 0 * * L", "day of week, at character 9"),
        ("0 0 * * LW", "day of week, at character 9"),
        ("0 0 * * 8L", "day of week, at character 9"),
        ("0 0 * * FOOL", "day of week, at character 9"),
        ("0 0 * * MON#0", "day of week, at character 9: behind # a number from 1 to 5 is allowed"),
        ("0 0 * * MON#6", "behind # a number from 1 to 5"),
        ("0 0 * * 9#1", "day of week, at character 9"),
        ("0 0 1#1 * *", "day of month, at character 5"),
        ("H * * * *", "minute, at character 1"),
        ("0 H(0-7) * * *", "hour, at character 3"),
        ("0 22-2 * * *", "hour, at character 3: a range must not run backwards; write two ranges"),
        ("0 0 * * FRI-MON", "a range must not run backwards; write FRI,SAT,SUN,MON or 5-7,1"),
        ("0 0 * * SAT-SUN", "a range must not run backwards; write FRI,SAT,SUN,MON or 5-7,1"),
        ("*/0 * * * *", "minute, at character 1: a step from 1 to 60 is allowed"),
        ("*/61 * * * *", "a step from 1 to 60 is allowed"),
        ("0 */25 * * *", "a step from 1 to 24 is allowed"),
        ("*/ * * * *", "minute, at character 1"),
        ("/5 * * * *", "minute, at character 1"),
        ("*-5 * * * *", "minute, at character 1"),
        ("1- * * * *", "minute, at character 1"),
        ("-1 * * * *", "minute, at character 1"),
        ("1-2-3 * * * *", "minute, at character 1"),
        ("1,,2 * * * *", "minute, at character 3"),
        (", * * * *", "minute, at character 1"),
        ("1, * * * *", "minute, at character 3"),
        ("+5 * * * *", "minute, at character 1"),
        ("1.5 * * * *", "minute, at character 1"),
        ("00000 * * * *", "minute, at character 1"),
        ("0 0 * JANUARY *", "month, at character 7"),
        ("0 0 * MON *", "month, at character 7"),
        ("", "rule must have 5 fields (minute hour day month weekday), 6 with the second in front"),
        ("* * * *", "rule must have 5 fields"),
        ("* * * * * * * *", "7 with a year at the end, or be one of @yearly, @annually, @monthly"),
        ("@reboot", "rule must have 5 fields"),
        ("@every 5m", "rule must have 5 fields"),
        ("@daily *", "rule must have 5 fields"),
        ("*\n* * * *", "rule must have 5 fields"),
        ("* * * * *\n", "rule is invalid in its day of week, at character 9"),
        ("\u0660 * * * *", "rule must be written in ASCII"),
        ("0 0 * * \u017fun", "rule must be written in ASCII"),
        ("0 0 0 30 2 *", "rule never matches: no year from 1970 to 2099 has such a day"),
        ("0 0 0 31 4,6,9,11 *", "rule never matches"),
        ("0 0 0 29 2 * 2025", "rule never matches"),
        ("0 0 0 ? 2 MON#5 2030", "rule never matches"),
        ("* * * * *" + " " * RULE_BYTES_MAX, "rule must have at most 512 bytes"),
        ("\0 * * * *", "rule must not contain NUL"),
        ("\ud800 * * * *", "rule must be valid Unicode"),
    ],
)
def test_what_is_no_rule_is_refused_with_its_place_and_what_is_allowed(
    text: str, said: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse(text)
    assert said in caught.value.message
    assert caught.value.fields == {"field": "rule"}


def test_a_rule_is_read_once() -> None:
    assert parse("1 2 3 4 *") is parse("1 2 3 4 *")


def test_the_longest_useful_rule_is_one() -> None:
    values = [",".join(str(each) for each in range(size)) for size in (60, 60, 24)]
    assert parse(f"{' '.join(values)} * * *") == parse("* * 0-23 * * *")


@pytest.mark.parametrize(
    ("hour", "is_hourly"),
    [("*", True), ("?", True), ("*/1", True), ("1,*", True), ("0-23", False), ("*/2", False)],
)
def test_an_hourly_rule_is_one_with_a_star(hour: str, is_hourly: bool) -> None:
    assert parse(f"0 {hour} * * *").is_hourly is is_hourly


@pytest.mark.parametrize("seed", range(5))
def test_matches_are_counted_as_they_are_found(seed: int) -> None:
    rng = random.Random(seed)
    rule = parse(rng.choice(("*/7 3-50/9 */5 * * *", "0 0 12 L * FRI", "30 */20 4 13 */2 *")))
    from_s = rng.randrange(LAST_S)
    to_s = min(from_s + rng.randrange(40 * 86_400), LAST_S)
    assert rule.count(from_s, to_s) == counted(rule, from_s, to_s)
    assert rule.count(to_s, from_s - 1) == 0


def counted(rule: CronRule, from_s: int, to_s: int) -> int:
    total = 0
    match = rule.first_from(from_s)
    while match is not None and match <= to_s:
        total += 1
        match = rule.first_from(match + 1)
    return total


def test_all_matches_of_all_years_are_counted() -> None:
    assert parse("* * * * * *").count(-(10**9), 10**10) == LAST_S + 1
    assert parse("0 0 29 2 *").count(0, 10**10) == 32


@pytest.mark.parametrize("first_seed", range(0, 60, 10))
def test_random_rules_have_the_ticks_of_a_walk(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 10):
        assert check_random_rule(seed).complaint == ""


def test_any_text_is_a_rule_or_is_refused() -> None:
    corpus = Corpus(random.Random(1))
    for _ in range(3_000):
        try:
            rule = parse(corpus.text())
        except InvalidArgument as refused:
            assert refused.fields == {"field": "rule"}  # noqa: PT017 (either is right)
        else:
            assert rule.first_from(0) is not None
            assert rule.last_until(LAST_S) is not None
