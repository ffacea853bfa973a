"""Durations as people write them."""

from datetime import timedelta

import pytest

from tenure.sdk.duration import Duration, duration_ms


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        ("30s", 30_000),
        (" 1h30m ", 5_400_000),
        ("1.5d", 129_600_000),
        (2, 2_000),
        (0.001, 1),
        (timedelta(minutes=1), 60_000),
    ],
)
def test_a_duration_is_a_text_a_number_of_seconds_or_a_timedelta(
    value: Duration, milliseconds: int
) -> None:
    assert duration_ms(value) == milliseconds


@pytest.mark.parametrize(
    "value",
    [
        "",
        "30",
        "30 s",
        "-1s",
        "1y",
        "soon",
        0,
        -1,
        float("nan"),
        float("inf"),
        True,
        None,
        [],
        "0s",
    ],
)
def test_what_is_no_duration_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="must be"):
        duration_ms(value)  # type: ignore[arg-type]
