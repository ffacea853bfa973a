"""Durations as people write them."""

import pytest

from tenure.core.duration import duration_text, parse_duration_ms, whole_ms


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("30s", 30_000), (" 1h30m ", 5_400_000), ("1.5d", 129_600_000), ("0.6ms", 1)],
)
def test_a_text_with_units_is_a_duration(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "30", "30 s", "-1s", "1y", "soon", "0s", "4000d"])
def test_another_text_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        parse_duration_ms(text)


@pytest.mark.parametrize("number", [0, -1, 0.5, float("nan"), float("inf")])
def test_what_is_no_time_is_none(number: float) -> None:
    with pytest.raises(ValueError, match="between 1ms and ten years"):
        whole_ms(number)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (-5, "0ms"),
        (450, "450ms"),
        (2_000, "2s"),
        (2_590, "2.5s"),
        (42_900, "42s"),
        (60_000, "1m"),
        (310_000, "5m10s"),
        (90 * 60_000, "1h30m"),
        (50 * 3_600_000, "2d2h"),
    ],
)
def test_a_duration_is_told_with_its_two_largest_units(milliseconds: int, text: str) -> None:
    assert duration_text(milliseconds) == text
