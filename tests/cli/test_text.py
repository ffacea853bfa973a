"""Text for people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.cli.show.text import (
    age_text,
    clean,
    duration_text,
    escaped,
    escaped_json,
    instant_text,
    one_line,
    parse_instant_ms,
    size_text,
)
from tenure.core.duration import parse_duration_ms
from tenure.core.limits import DURATION_MS_MAX, INSTANT_MS_MAX


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("5m", 300_000),
        ("1h30m", 5_400_000),
        ("2d", 172_800_000),
        ("1.5s", 1_500),
        (" 1s ", 1_000),
        ("1m1s1ms", 61_001),
    ],
)
def test_a_duration_is_read_as_people_write_it(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    "text", ["", "30", "s", "-1s", "1 s", "1y", "0s", "9999999d", "1e3s", "٣s"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (-5, "0ms"),
        (0, "0ms"),
        (999, "999ms"),
        (1_000, "1s"),
        (2_550, "2.5s"),
        (59_999, "59s"),
        (60_000, "1m"),
        (310_000, "5m10s"),
        (7_260_000, "2h1m"),
        (90_000_000, "1d1h"),
    ],
)
def test_a_duration_is_written_with_its_two_largest_units(milliseconds: int, text: str) -> None:
    assert duration_text(milliseconds) == text


@given(st.integers(1, DURATION_MS_MAX))
def test_a_written_duration_can_be_read_and_is_never_longer(milliseconds: int) -> None:
    assert milliseconds / 2 < parse_duration_ms(duration_text(milliseconds)) <= milliseconds


@given(st.integers(0, INSTANT_MS_MAX))
def test_an_instant_survives_writing_and_reading(at_ms: int) -> None:
    assert parse_instant_ms(instant_text(at_ms)) == at_ms


@pytest.mark.parametrize(
    "text", ["", "tomorrow", "2030-01-31", "2030-01-31T09:00:00", "1960-01-01T00:00:00Z"]
)
def test_an_instant_without_a_zone_or_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        parse_instant_ms(text)


def test_an_age_is_never_negative() -> None:
    assert age_text(instant_text(5_000), 2_000) == "0ms"
    assert age_text(instant_text(5_000), 65_000) == "1m"
    assert age_text(None, 0) == "-"


def test_control_and_direction_characters_never_reach_a_terminal() -> None:
    assert clean("a\x1b[31mb\u202ec\x9bd\nnext\te") == "a�[31mb�c�d\nnext\te"
    assert one_line("a\n  b\x07") == "a b�"
    assert escaped("a\nb\tc\r\x1b[31m\x85\u2028é😀") == r"a\nb\tc\r\x1b[31m\x85\u2028é😀"
    assert escaped_json('{"a":"\x9b\u202e"}') == r'{"a":"\u009b\u202e"}'


def test_a_size_has_its_unit() -> None:
    assert [size_text(size) for size in (0, 1_023, 1_536, 5 * 1024**3, 3 * 1024**5)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 GiB",
        "3072.0 TiB",
    ]
