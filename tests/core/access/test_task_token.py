"""Task tokens: who made them, for what, and until when."""

import base64
import hashlib
import hmac

import msgspec
import pytest

from tenure.core import limits
from tenure.core.access import task_token as task_tokens
from tenure.core.access.task_token import Claims, Purpose
from tenure.errors import InvalidToken

KEY = b"k" * 32
NOW_MS = 1_000_000
GOOD = Claims(
    purpose=Purpose.COMPLETION,
    namespace="acme/default",
    run_id="",
    task_id="0190f5fe-7c00-7a00-8000-000000000001",
    attempt=3,
    expires_at_ms=NOW_MS + 1,
)


def verify(text: str, *, key: bytes = KEY, purpose: Purpose = Purpose.COMPLETION) -> Claims:
    return task_tokens.verify(key, text, purpose=purpose, now_ms=NOW_MS)


def test_a_token_gives_back_what_it_was_made_for() -> None:
    assert verify(task_tokens.sign(KEY, GOOD)) == GOOD


def test_a_token_fits_its_limit_with_the_longest_names() -> None:
    name = "n" * limits.NAME_LENGTH_MAX
    claims = Claims(Purpose.COMPLETION, f"{name}/{name}", GOOD.task_id, GOOD.task_id, 1, 2**62)
    assert len(task_tokens.sign(KEY, claims)) <= limits.TASK_TOKEN_LENGTH_MAX


def test_a_token_of_another_key_is_refused() -> None:
    with pytest.raises(InvalidToken, match="not from this server"):
        verify(task_tokens.sign(b"x" * 32, GOOD))


def test_a_token_for_another_purpose_is_refused() -> None:
    with pytest.raises(InvalidToken, match="another purpose"):
        verify(task_tokens.sign(KEY, GOOD), purpose=Purpose.CALLBACK)


def test_a_token_is_refused_from_the_instant_at_which_it_expires() -> None:
    with pytest.raises(InvalidToken, match="expired"):
        task_tokens.verify(
            KEY, task_tokens.sign(KEY, GOOD), purpose=Purpose.COMPLETION, now_ms=GOOD.expires_at_ms
        )


@pytest.mark.parametrize("place", range(0, 130, 7))
def test_a_token_with_a_changed_byte_is_refused(place: int) -> None:
    raw = bytearray(base64.urlsafe_b64decode(task_tokens.sign(KEY, GOOD) + "=="))
    raw[place % len(raw)] ^= 0x20
    with pytest.raises(InvalidToken):
        verify(base64.urlsafe_b64encode(bytes(raw)).rstrip(b"=").decode())


@pytest.mark.parametrize("text", ["", "a", "!", "ä" * 8, "x" * 1025, "AQ", "A" * 64])
def test_a_malformed_token_is_refused(text: str) -> None:
    with pytest.raises(InvalidToken):
        verify(text)


def test_signed_claims_of_an_unknown_shape_are_refused() -> None:
    head, body = b"\x01\x01", b"\x93\x01\x02\x03"
    raw = head + hmac.digest(KEY, head + body, hashlib.sha256) + body
    with pytest.raises(InvalidToken, match="another version"):
        verify(base64.urlsafe_b64encode(raw).rstrip(b"=").decode())


def test_a_token_names_the_number_of_its_key() -> None:
    text = task_tokens.sign(KEY, GOOD, number=7)
    assert task_tokens.key_number(text) == 7
    assert verify(text) == GOOD


@pytest.mark.parametrize("raw", [b"", b"\x01", b"\x02\x01" + bytes(64), b"\x01\x01" + bytes(32)])
def test_a_text_without_the_form_of_a_token_names_no_key(raw: bytes) -> None:
    with pytest.raises(InvalidToken):
        task_tokens.key_number(base64.urlsafe_b64encode(raw).rstrip(b"=").decode())


def test_the_number_of_a_key_is_signed() -> None:
    raw = bytearray(base64.urlsafe_b64decode(task_tokens.sign(KEY, GOOD) + "=="))
    raw[1] = 2
    with pytest.raises(InvalidToken, match="not from this server"):
        verify(base64.urlsafe_b64encode(bytes(raw)).rstrip(b"=").decode())


def test_without_a_key_no_token_is_good() -> None:
    forged = task_tokens.sign(b"", GOOD)
    for text in (forged, task_tokens.sign(KEY, GOOD)):
        with pytest.raises(InvalidToken, match="not from this server"):
            task_tokens.verify(None, text, purpose=Purpose.COMPLETION, now_ms=NOW_MS)


def test_a_token_that_was_issued_in_the_future_is_refused() -> None:
    far = msgspec.structs.replace(GOOD, issued_at_ms=NOW_MS + limits.TOKEN_SKEW_MS)
    assert verify(task_tokens.sign(KEY, far)) == far
    with pytest.raises(InvalidToken, match="not valid yet"):
        verify(
            task_tokens.sign(KEY, msgspec.structs.replace(far, issued_at_ms=far.issued_at_ms + 1))
        )


def test_a_token_of_an_earlier_version_counts() -> None:
    head, body = b"\x01\x01", msgspec.msgpack.encode(msgspec.structs.astuple(GOOD)[:6])
    raw = head + hmac.digest(KEY, head + body, hashlib.sha256) + body
    assert verify(base64.urlsafe_b64encode(raw).rstrip(b"=").decode()) == GOOD
