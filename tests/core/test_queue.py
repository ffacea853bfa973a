"""Queues: their brakes."""

import pytest

from tenure.core.queue import Namespace, Queue, free_slots, namespace_disabled


@pytest.mark.parametrize(
    ("concurrency_max", "held", "wanted", "free"),
    [(0, 10**6, 7, 7), (10, 4, 3, 3), (10, 4, 9, 6), (10, 10, 5, 0), (10, 12, 5, 0)],
)
def test_a_queue_lets_out_what_its_limit_leaves(
    concurrency_max: int, held: int, wanted: int, free: int
) -> None:
    queue = Queue("acme/default", "mail", concurrency_max=concurrency_max)
    assert free_slots(queue, held_count=held, wanted=wanted) == free


@pytest.mark.parametrize("concurrency_max", [0, 10])
def test_a_paused_queue_lets_nothing_out(concurrency_max: int) -> None:
    queue = Queue("acme/default", "mail", is_paused=True, concurrency_max=concurrency_max)
    assert free_slots(queue, held_count=0, wanted=5) == 0


def test_a_queue_that_nobody_changed_has_no_brakes() -> None:
    queue = Queue("acme/default", "mail")
    assert (queue.is_paused, queue.concurrency_max) == (False, 0)
    assert not queue.has_brakes


@pytest.mark.parametrize("brakes", [{"is_paused": True}, {"concurrency_max": 1}])
def test_a_pause_and_a_limit_are_brakes(brakes: dict[str, int]) -> None:
    assert Queue("acme/default", "mail", **brakes).has_brakes  # type: ignore[arg-type]  # both are fields


def test_a_limit_below_zero_is_our_mistake() -> None:
    with pytest.raises(AssertionError):
        Queue("acme/default", "mail", concurrency_max=-1)


def test_a_namespace_is_enabled_unless_said_otherwise() -> None:
    assert not Namespace("acme/default", 5).is_disabled


def test_the_refusal_of_a_disabled_namespace_says_how_to_go_on() -> None:
    refusal = namespace_disabled("acme/test")
    assert refusal.code == "wrong_state"
    assert refusal.fields == {"state": "disabled"}
    assert refusal.message.endswith("run: tenure namespaces enable acme/test")
