"""Paging cursors: only what this server signed for this very list comes back."""

import base64
import hashlib
import hmac
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core import cursor, limits
from tenure.errors import InvalidArgument

KEY = b"k" * 32
NAMESPACE = "acme/prod"
QUERY = "state=failed"
TOKEN = cursor.encode(KEY, namespace=NAMESPACE, query=QUERY, position="0192f0c1")


def decode(token: str) -> str:
    return cursor.decode(KEY, token, namespace=NAMESPACE, query=QUERY)


def refused(call: Callable[[], str]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        call()
    assert caught.value.fields == {"field": "page_token"}


@given(st.binary(min_size=1), st.text(), st.text(), st.text(max_size=150))
def test_a_cursor_gives_its_position_back(
    key: bytes, namespace: str, query: str, position: str
) -> None:
    token = cursor.encode(key, namespace=namespace, query=query, position=position)
    assert cursor.decode(key, token, namespace=namespace, query=query) == position


def test_a_cursor_can_stand_in_a_url_as_it_is() -> None:
    assert set(TOKEN) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


@pytest.mark.parametrize("namespace", ["acme/test", "other/prod", ""])
def test_a_cursor_of_another_namespace_is_refused(namespace: str) -> None:
    refused(lambda: cursor.decode(KEY, TOKEN, namespace=namespace, query=QUERY))


def test_a_cursor_of_another_query_or_key_is_refused() -> None:
    refused(lambda: cursor.decode(KEY, TOKEN, namespace=NAMESPACE, query="state=pending"))
    refused(lambda: cursor.decode(b"other", TOKEN, namespace=NAMESPACE, query=QUERY))


def test_namespace_query_and_position_cannot_flow_into_each_other() -> None:
    token = cursor.encode(KEY, namespace="ab", query="c", position="d")
    refused(lambda: cursor.decode(KEY, token, namespace="a", query="bc"))


@given(st.integers(0, len(TOKEN) - 1), st.characters())
def test_a_cursor_with_one_character_changed_is_refused(index: int, character: str) -> None:
    changed = TOKEN[:index] + character + TOKEN[index + 1 :]
    if changed != TOKEN:
        refused(lambda: decode(changed))


@given(st.text())
def test_any_other_text_is_refused(token: str) -> None:
    refused(lambda: decode(token))


@pytest.mark.parametrize(
    "token",
    [
        "",
        "A",
        "AQ",
        "\ud800",
        "ä" * 4,
        TOKEN[:-1],
        TOKEN + "A",
        TOKEN + "=",
        TOKEN + "\n",
        "!" + TOKEN,
        "A" * (limits.PAGE_TOKEN_LENGTH_MAX + 1),
    ],
)
def test_a_cut_padded_or_malformed_cursor_is_refused(token: str) -> None:
    refused(lambda: decode(token))


def test_a_cursor_of_another_version_is_refused_even_when_its_signature_is_right() -> None:
    raw = base64.urlsafe_b64decode(TOKEN + "=" * (-len(TOKEN) % 4))
    assert raw[:1] == b"\x01"
    refused(lambda: decode(base64.urlsafe_b64encode(b"\x02" + raw[1:]).rstrip(b"=").decode()))


def test_the_signature_is_half_of_an_hmac_sha256() -> None:
    raw = base64.urlsafe_b64decode(TOKEN + "=" * (-len(TOKEN) % 4))
    parts = (NAMESPACE.encode(), QUERY.encode(), b"0192f0c1")
    body = b"\x01" + b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    assert raw[1:17] == hmac.digest(KEY, body, hashlib.sha256)[:16]
    assert raw[17:] == b"0192f0c1"


def test_a_position_that_fits_no_cursor_is_our_mistake() -> None:
    with pytest.raises(AssertionError):
        cursor.encode(KEY, namespace=NAMESPACE, query=QUERY, position="x" * 800)


def test_an_empty_key_is_our_mistake() -> None:
    with pytest.raises(AssertionError):
        cursor.encode(b"", namespace=NAMESPACE, query=QUERY, position="x")
