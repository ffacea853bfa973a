"""One client never takes all places, and what stands for a client."""

from __future__ import annotations

import pytest

from tenure.api.guard.fair_share import SharedPlaces, client_of


def fill(places: SharedPlaces, client: str) -> int:
    """Take as many places as a client may have, and return how many that is."""
    taken = 0
    while places.has_room(client):
        places.take(client)
        taken += 1
    return taken


def test_one_client_takes_half_of_all_places() -> None:
    places = SharedPlaces(1_000)
    assert fill(places, "greedy") == 500
    assert places.has_room("other")


def test_the_more_clients_there_are_the_fewer_each_may_hold() -> None:
    places = SharedPlaces(1_000)
    taken = [fill(places, f"greedy-{number}") for number in range(8)]
    assert taken == [500, 250, 125, 63, 31, 16, 8, 4]
    assert places.has_room("other")


def test_places_that_are_given_back_are_there_for_all() -> None:
    places = SharedPlaces(10)
    assert fill(places, "greedy") == 5
    for _ in range(5):
        places.leave("greedy")
    assert places.count == 0
    assert fill(places, "other") == 5


def test_nobody_gets_more_places_than_there_are() -> None:
    places = SharedPlaces(3)
    for number in range(3):
        places.take(str(number))
    assert not places.has_room("other")


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.1"),
        ("localhost", "localhost"),
    ],
)
def test_a_network_of_ipv6_is_one_client(host: str, client: str) -> None:
    assert client_of(host) == client
