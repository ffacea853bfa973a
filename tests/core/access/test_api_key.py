"""API keys: their text, what is kept of them, and when they are live."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core.access import api_key
from tenure.core.access.api_key import ApiKey, KeyText, Role
from tenure.errors import InvalidArgument

TEXT = api_key.make(id_bytes=bytes(range(10)), secret_bytes=bytes(range(32)))
KEY = ApiKey(
    id=TEXT.key_id,
    name="ci",
    role=Role.CLIENT,
    secret_digest=TEXT.digest(),
    created_at_ms=1_000,
    namespaces=("acme/default", "acme/test"),
)


@given(st.binary(min_size=10, max_size=10), st.binary(min_size=32, max_size=32))
def test_a_key_of_any_random_bytes_is_read_back_as_it_was(
    id_bytes: bytes, secret_bytes: bytes
) -> None:
    made = api_key.make(id_bytes=id_bytes, secret_bytes=secret_bytes)
    assert len(made.key_id) == 16
    assert len(made.secret) == 43
    assert api_key.parse(made.reveal()) == made


def test_the_text_of_a_key_says_what_it_is() -> None:
    assert TEXT.reveal() == f"tnr_{TEXT.key_id}_{TEXT.secret}"
    assert TEXT.key_id == "aaaqeayeaudaocaj"


def test_only_the_hash_of_the_secret_is_kept() -> None:
    assert KEY.secret_digest == hashlib.sha256(TEXT.secret.encode()).digest()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tnr_",
        TEXT.secret,
        TEXT.reveal()[:-1],
        TEXT.reveal() + "A",
        TEXT.reveal() + "\n",
        " " + TEXT.reveal(),
        TEXT.reveal().upper(),
        TEXT.reveal().replace("tnr_", "tnr-"),
        TEXT.reveal().replace(TEXT.key_id, "aaaaaaaaaaaaaaa1"),
        TEXT.reveal()[:-1] + "é",
        "x" * 1_000_000,
    ],
)
def test_a_text_that_is_no_key_has_no_parts(text: str) -> None:
    assert api_key.parse(text) is None


def test_the_secret_of_a_key_matches_it_alone() -> None:
    other = api_key.make(id_bytes=bytes(10), secret_bytes=bytes(range(32)))
    assert api_key.matches(KEY, TEXT)
    assert not api_key.matches(KEY, KeyText(TEXT.key_id, "A" * 43))
    assert not api_key.matches(KEY, other)
    assert not api_key.matches(None, TEXT)


def test_two_spellings_of_the_same_bytes_are_not_the_same_secret() -> None:
    # 43 characters have two bits more than 32 bytes.
    spare = TEXT.secret[:-1] + chr(ord(TEXT.secret[-1]) + 1)
    assert not api_key.matches(KEY, KeyText(TEXT.key_id, spare))


@pytest.mark.parametrize(
    ("changes", "is_live"),
    [
        ({}, True),
        ({"expires_at_ms": 5_001}, True),
        ({"expires_at_ms": 5_000}, False),
        ({"expires_at_ms": 4_999}, False),
        ({"revoked_at_ms": 2_000}, False),
        ({"revoked_at_ms": 6_000}, False),
        ({"revoked_at_ms": 2_000, "expires_at_ms": 9_000}, False),
    ],
)
def test_a_key_lives_until_it_is_revoked_or_expires(
    changes: dict[str, Any], *, is_live: bool
) -> None:
    key = ApiKey(
        id=TEXT.key_id,
        name="ci",
        role=Role.CLIENT,
        secret_digest=TEXT.digest(),
        created_at_ms=1_000,
        **changes,
    )
    assert key.is_live(5_000) is is_live


def test_nothing_of_a_secret_is_shown() -> None:
    assert repr(TEXT) == f"KeyText({TEXT.key_id})"
    assert repr(KEY) == f"ApiKey({TEXT.key_id})"
    assert TEXT.secret not in f"{TEXT} {KEY} {[TEXT, KEY]!r}"


@pytest.mark.parametrize("namespaces", [("b/x", "a/x"), ("a/x", "a/x")])
def test_the_namespaces_of_a_key_are_sorted_and_distinct(namespaces: tuple[str, ...]) -> None:
    with pytest.raises(AssertionError):
        ApiKey(
            id=TEXT.key_id,
            name="ci",
            role=Role.CLIENT,
            secret_digest=TEXT.digest(),
            created_at_ms=0,
            namespaces=namespaces,
        )


def test_a_good_id_is_returned() -> None:
    assert api_key.check_id(TEXT.key_id) == TEXT.key_id


@pytest.mark.parametrize("value", ["", "abc", TEXT.key_id.upper(), TEXT.reveal(), None, 7])
def test_a_bad_id_is_refused_without_being_repeated(value: object) -> None:
    with pytest.raises(InvalidArgument) as caught:
        api_key.check_id(value)
    assert caught.value.fields == {"field": "keyId"}
    assert TEXT.secret not in caught.value.message
