"""The checksum of stored bytes: every flip of a bit is found, and what has none is believed."""

from __future__ import annotations

import pytest

from tenure.core.checksum import checksum, is_sound, is_version_sound, versioned

PAYLOADS = [b"\x00", b'{"amount": 1000000001}', bytes(range(256)) * 4]


def flips(data: bytes) -> list[bytes]:
    """Return the data with each of its bits flipped in turn."""
    number, size = int.from_bytes(data), len(data)
    return [(number ^ (1 << bit)).to_bytes(size) for bit in range(size * 8)]


@pytest.mark.parametrize("data", PAYLOADS)
def test_every_flipped_bit_is_found(data: bytes) -> None:
    stored, with_version = checksum(data), versioned(data, 7)
    assert is_sound(data, stored)
    assert is_version_sound(data, 7, with_version)
    for flipped in flips(data):
        assert not is_sound(flipped, stored)
        assert not is_version_sound(flipped, 7, with_version)


def test_a_payload_that_appears_or_vanishes_is_found() -> None:
    assert is_sound(None, checksum(b""))
    assert not is_sound(b"x", checksum(b""))
    assert not is_sound(None, checksum(b"x"))


def test_bytes_without_a_checksum_are_believed() -> None:
    assert is_sound(b"x", None)
    assert is_version_sound(b"x", 1, None)


def test_a_checksum_of_another_version_says_nothing() -> None:
    assert is_version_sound(b"by a server that knows no checksums", 8, versioned(b"x", 7))


def test_a_checksum_can_go_on_from_the_bytes_in_front() -> None:
    assert checksum(b"input", checksum(b"options")) == checksum(b"optionsinput")
