"""The changes that the data file of a zone lists (RFC 9636), read without `zoneinfo`."""

from __future__ import annotations

import struct
from importlib import resources
from typing import NamedTuple

_HEADER = struct.Struct(">4s c 15x 6l")


class Change(NamedTuple):
    """An instant, and what the clock is ahead of UTC from then on."""

    at_s: int
    offset_s: int


def names() -> list[str]:
    """Return the names of all zones."""
    return resources.files("tzdata").joinpath("zones").read_text("ascii").split()


def content(name: str) -> bytes:
    """Return the file of a zone; many names have the same."""
    return resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()


def listed_changes(data: bytes) -> list[Change]:
    """Return the changes of the clock since 1970 that a file lists one by one."""
    *_, utc, standard, leaps, times, types, letters = _HEADER.unpack_from(data, 0)
    at = _HEADER.size + times * 5 + types * 6 + letters + leaps * 8 + standard + utc
    *_, utc, standard, leaps, times, types, letters = _HEADER.unpack_from(data, at)
    at += _HEADER.size
    instants = struct.unpack_from(f">{times}q", data, at)
    kinds = data[at + 8 * times : at + 9 * times]
    at += 9 * times
    offsets = [struct.unpack_from(">l", data, at + 6 * kind)[0] for kind in range(types)]
    found: list[Change] = []
    before = offsets[0]
    for instant, kind in zip(instants, kinds, strict=True):
        if offsets[kind] != before and instant > 0:
            found.append(Change(instant, offsets[kind]))
        before = offsets[kind]
    return found


def year_rule(data: bytes) -> str:
    """Return the rule for the years after those that are listed."""
    return data.rstrip(b"\n").rpartition(b"\n")[2].decode()
