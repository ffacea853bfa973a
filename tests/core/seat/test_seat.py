"""Seats: who may take one, how many a server has, where a worker may listen, and its secret."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from tenure.core.address import AllowList
from tenure.core.seat.kill import Kill, KillReason
from tenure.core.seat.place import read_place
from tenure.core.seat.record import Seat
from tenure.core.seat.secret import call_secret
from tenure.core.seat.share import Survey, fair_share, surplus_count, wanted_count
from tenure.core.worker.record import WorkerMode
from tenure.errors import InvalidArgument

NOW = 1_000_000
STALE_MS = 5_000


def seat(**changes: object) -> Seat:
    fields = {"server_id": None, "driver_at_ms": None, **changes}
    return Seat("w", "n", WorkerMode.SERVED, "127.0.0.1:1", "127.0.0.1", **fields)  # type: ignore[arg-type]  # of a test


@pytest.mark.parametrize(
    ("taken", "is_free"),
    [
        ({}, True),
        ({"is_open": False}, False),
        ({"server_id": "me", "driver_at_ms": NOW}, True),
        ({"server_id": "other", "driver_at_ms": NOW}, False),
        ({"server_id": "other", "driver_at_ms": NOW - STALE_MS}, False),
        ({"server_id": "other", "driver_at_ms": NOW - STALE_MS - 1}, True),
        ({"server_id": "other", "driver_at_ms": NOW + 1}, True),
        ({"server_id": "other", "driver_at_ms": None}, True),
    ],
)
def test_a_seat_is_free_if_no_other_server_drives_it(
    taken: dict[str, object], is_free: bool
) -> None:
    assert seat(**taken).is_free_for("me", now_ms=NOW, stale_ms=STALE_MS) is is_free


@pytest.mark.parametrize(
    ("seats", "own", "servers", "share", "wanted", "surplus"),
    [
        (0, 0, 0, 0, 0, 0),
        (10, 0, 1, 10, 10, 0),
        (90, 45, 3, 30, 0, 5),
        (90, 31, 3, 30, 0, 1),
        (91, 30, 3, 31, 1, 0),
        (3, 2, 3, 1, 0, 1),
        (2_000, 0, 1, 2_000, 500, 0),
    ],
)
def test_a_server_takes_its_share_at_once_and_gives_back_a_tenth(
    seats: int, own: int, servers: int, share: int, wanted: int, surplus: int
) -> None:
    survey = Survey(seat_count=seats, own_count=own, server_count=servers)
    assert fair_share(survey) == share
    assert (wanted_count(survey), surplus_count(survey)) == (wanted, surplus)


def test_a_worker_may_listen_at_its_own_host_or_where_it_is_allowed() -> None:
    rule = read_place("worker-1:7310").rule("10.1.1.1", AllowList.parse(["10.2.0.0/16"], "x"))
    allowed = [each for each in ("10.1.1.1", "10.2.3.4", "10.3.0.1") if rule(ip_address(each))]
    assert allowed == ["10.1.1.1", "10.2.3.4"]


@pytest.mark.parametrize("text", ["", None, 7, "host", "host:0", "x" * 300 + ":1", "a b:1"])
def test_a_place_that_is_not_host_and_port_is_refused(text: object) -> None:
    with pytest.raises(InvalidArgument) as refused:
        read_place(text)
    assert refused.value.fields["field"] == "address"


def test_a_place_may_be_longer_than_a_name_but_not_than_a_text() -> None:
    with pytest.raises(InvalidArgument):
        read_place("x" * 100_000)


def test_a_secret_is_the_same_at_every_server_and_another_for_each_worker() -> None:
    assert call_secret(b"k" * 32, "a") == call_secret(b"k" * 32, "a")
    others = {call_secret(key, worker) for key in (b"k" * 32, b"l" * 32) for worker in "ab"}
    assert len(others) == 4


def test_a_kill_names_its_attempt() -> None:
    kill = Kill("task", 2, KillReason.CANCEL)
    assert (kill.attempt, kill.cause) == (2, None)
