"""Which key of task tokens signs, and how long each of them counts."""

import pytest

from tenure.core import limits
from tenure.core.access.task_token import Purpose
from tenure.core.access.token_key import TokenKey, TokenKeyRing

SECRET = bytes(32)
FIRST = TokenKey(1, SECRET, 0)
SECOND = TokenKey(2, SECRET, 100_000)
THIRD = TokenKey(3, SECRET, 200_000)
RING = TokenKeyRing([SECOND, FIRST, THIRD])
SIGNS_AT = limits.TOKEN_KEY_AGE_MS


@pytest.mark.parametrize(
    ("now_ms", "number"),
    [
        (0, 1),
        (100_000, 1),
        (100_000 + SIGNS_AT - 1, 1),
        (100_000 + SIGNS_AT, 2),
        (200_000, 2),
        (200_000 + SIGNS_AT, 3),
        (10**12, 3),
    ],
)
def test_the_newest_key_signs_that_every_server_has_read(now_ms: int, number: int) -> None:
    assert RING.signer(now_ms).number == number


@pytest.mark.parametrize(
    ("purpose", "life_ms"),
    [
        (Purpose.CALLBACK, limits.CALLBACK_TOKEN_MS_MAX),
        (Purpose.COMPLETION, limits.DURATION_MS_MAX),
    ],
)
def test_a_key_counts_until_its_last_token_has_ended(purpose: Purpose, life_ms: int) -> None:
    end_ms = SECOND.created_at_ms + SIGNS_AT + life_ms + limits.TOKEN_SKEW_MS
    assert not RING.is_over(FIRST, purpose, end_ms - 1)
    assert RING.is_over(FIRST, purpose, end_ms)
    assert not RING.is_over(THIRD, purpose, 10**15)


def test_a_ring_finds_its_keys_and_takes_a_new_one() -> None:
    assert RING.find(2) == SECOND
    assert RING.find(4) is None
    assert RING.next_number() == 4
    grown = RING.with_key(TokenKey(4, SECRET, 300_000))
    assert (len(grown), len(RING)) == (4, 3)
    assert len(grown.with_key(TokenKey(4, SECRET, 300_000))) == 4
    assert TokenKeyRing().next_number() == 1


@pytest.mark.parametrize(("number", "secret"), [(0, SECRET), (256, SECRET), (1, SECRET[:31])])
def test_a_key_has_a_number_of_one_byte_and_a_long_secret(number: int, secret: bytes) -> None:
    with pytest.raises(AssertionError):
        TokenKey(number, secret, 0)


def test_a_key_is_never_shown() -> None:
    assert repr(FIRST) == str(FIRST) == "TokenKey(1)"
