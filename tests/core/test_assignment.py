"""Dealing: who gets which task, in which order, and who never does."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tenure.core.assignment import Count, Hand, assign, order
from tenure.core.limits import PAYLOAD_BYTES_MAX
from tenure.core.run.record import RunProgress
from tenure.core.task.crash_guard import Suspects
from tenure.core.task.record import Spec, Task, TaskKind
from tests.core.task.tasks import NAMESPACE, T0, fresh

MAIL = frozenset({"mail"})
ONE = Suspects(1, 1)


def task(number: int, **changes: Any) -> Task:
    made = fresh(id=f"0190a000-0000-7000-8000-{number:012}")
    return replace(made, **changes)


def tasks(count: int, **changes: Any) -> list[Task]:
    return [task(number, **changes) for number in range(count)]


def avoiding(number: int, worker_id: str) -> Task:
    made = task(number)
    return replace(made, progress=replace(made.progress, avoid_worker_id=worker_id))


def suspects(count: int, group_max: int = 1) -> list[Task]:
    found = tasks(count, is_guarded=True)
    return [
        replace(each, progress=replace(each.progress, loss_count=2, group_max=group_max))
        for each in found
    ]


def hand(number: int, credit: int = 10, **changes: Any) -> Hand:
    made = Hand(
        offer_id=number,
        receiver_id=f"worker-{number}",
        namespace=NAMESPACE,
        queue="default",
        types=MAIL,
        credit=credit,
        window=changes.pop("window", max(credit, 1)),
    )
    return replace(made, **changes)


def offers(dealt: list[tuple[Task, Hand]]) -> list[int]:
    return [to.offer_id for _, to in dealt]


def test_the_best_task_goes_first() -> None:
    first = task(9, priority=0, run_at_ms=T0 + 9)
    second = task(8, priority=1, run_at_ms=T0)
    third = task(1, priority=1, run_at_ms=T0 + 1)
    fourth = task(2, priority=1, run_at_ms=T0 + 1)
    dealt = assign([fourth, second, third, first], [hand(1)])
    assert [given_task for given_task, _ in dealt] == [first, second, third, fourth]


def test_the_order_is_priority_then_run_at_then_id() -> None:
    assert order(task(3, priority=2, run_at_ms=7)) == (2, 7, task(3).id)


def test_the_longest_waiting_offer_is_served_first() -> None:
    assert offers(assign(tasks(1), [hand(3), hand(1), hand(2)])) == [3]


def test_offers_are_served_in_turn() -> None:
    assert offers(assign(tasks(5), [hand(2), hand(1), hand(3)])) == [2, 1, 3, 2, 1]


def test_the_largest_free_share_of_a_window_is_served_first() -> None:
    hands = [
        hand(1, credit=5, window=10),
        hand(2, credit=3, window=4),
        hand(3, credit=60, window=100),
    ]
    assert offers(assign(tasks(4), hands)) == [2, 3, 3, 3]


def test_of_equal_shares_the_longest_waiting_is_served_first() -> None:
    hands = [hand(1, credit=1, window=2), hand(2, credit=50, window=100)]
    assert offers(assign(tasks(2), hands)) == [1, 2]
    assert offers(assign(tasks(1), hands[::-1])) == [2]


def test_a_large_window_gets_more_than_a_small_one() -> None:
    shares = Counter(offers(assign(tasks(40), [hand(1, credit=10), hand(2, credit=30)])))
    assert shares == {1: 10, 2: 30}
    shares = Counter(offers(assign(tasks(20), [hand(1, credit=10), hand(2, credit=30)])))
    assert shares == {1: 5, 2: 15}


def test_all_offers_of_a_counted_receiver_share_its_slots() -> None:
    hands = [hand(1, receiver_id="w"), hand(2, receiver_id="w"), hand(3, receiver_id="w")]
    dealt = assign(tasks(9), hands, counts={"w": Count(free=4, slots=10)})
    assert offers(dealt) == [1, 2, 3, 1]


def test_an_offer_of_a_counted_receiver_gets_no_more_than_it_asks_for() -> None:
    hands = [hand(1, credit=1, receiver_id="w"), hand(2, credit=2, receiver_id="w")]
    both = frozenset({"mail", "sms"})
    hands.append(hand(3, credit=1, receiver_id="w", types=both))
    line = [task(0, type="sms"), *[task(number) for number in range(1, 9)]]
    dealt = assign(line, hands, counts={"w": Count(free=9, slots=10)})
    assert offers(dealt) == [3, 1, 2, 2]


def test_an_offer_of_a_counted_receiver_without_room_leaves_a_task_to_another() -> None:
    hands = [hand(1, receiver_id="w", room_bytes=10), hand(2, receiver_id="w", credit=1)]
    line = [large(number, 1_000) for number in range(3)]
    assert offers(assign(line, hands, counts={"w": Count(free=9, slots=10)})) == [2]


def test_a_counted_receiver_without_a_free_slot_gets_nothing() -> None:
    counts = {"worker-1": Count(free=0, slots=3), "worker-2": Count(free=-1, slots=3)}
    assert offers(assign(tasks(3), [hand(1), hand(2), hand(3, credit=1)], counts=counts)) == [3]


def test_the_share_of_a_poll_is_that_of_its_worker() -> None:
    hands = [hand(1, credit=4), hand(2, credit=2)]
    counts = {"worker-1": Count(free=4, slots=10), "worker-2": Count(free=9, slots=10)}
    dealt = assign(tasks(3), hands, counts=counts)
    assert offers(dealt) == [2, 2, 1]
    assert counts["worker-2"] == Count(free=9, slots=10)


def test_a_served_offer_goes_behind_all_others_in_every_line() -> None:
    both = frozenset({"mail", "sms"})
    hands = [hand(1, types=both), hand(2, types=both), hand(3, types=frozenset({"sms"}))]
    dealt = assign([task(1), task(2, type="sms"), task(3, type="sms"), task(4)], hands)
    assert offers(dealt) == [1, 2, 3, 1]


def test_credit_is_never_exceeded() -> None:
    hands = [hand(1, credit=1), hand(2, credit=2), hand(3, credit=0)]
    assert offers(assign(tasks(9), hands)) == [1, 2, 2]


def test_a_type_that_was_not_offered_is_never_given() -> None:
    dealt = assign([task(1, type="sms"), task(2)], [hand(1)])
    assert [given_task.type for given_task, _ in dealt] == ["mail"]


def test_nothing_is_dealt_when_nobody_waits() -> None:
    assert assign(tasks(3), []) == []


def test_a_worker_gets_one_suspect_task_at_a_time() -> None:
    dealt = assign(tasks(3, is_guarded=True), [hand(1), hand(2)])
    assert offers(dealt) == [1, 2]


def test_a_worker_that_holds_a_suspect_task_gets_no_other() -> None:
    hands = [hand(1), hand(2)]
    dealt = assign([task(1, is_guarded=True), task(2)], hands, {"worker-1": ONE})
    assert offers(dealt) == [2, 1]


def test_two_offers_of_one_worker_get_one_suspect_task_together() -> None:
    hands = [hand(1, receiver_id="w"), hand(2, receiver_id="w"), hand(3)]
    assert offers(assign(tasks(3, is_guarded=True), hands)) == [1, 3]


def test_suspects_share_a_worker_up_to_the_size_of_their_group() -> None:
    assert offers(assign(suspects(9, group_max=3), [hand(1), hand(2)])) == [1, 2, 1, 2, 1, 2]


def test_the_smallest_group_among_the_suspects_of_a_worker_bounds_them_all() -> None:
    held = {"worker-1": Suspects(2, 3), "worker-2": Suspects(2, 2)}
    assert offers(assign(suspects(4, group_max=10), [hand(1), hand(2)], held)) == [1]
    assert assign(suspects(1, group_max=2), [hand(1)], {"worker-1": Suspects(2, 9)}) == []


def test_a_suspect_that_fits_nobody_keeps_others_from_the_worker_with_the_fewest() -> None:
    alone, *others = suspects(5, group_max=10)
    alone = replace(alone, progress=replace(alone.progress, group_max=1))
    held = {"worker-1": Suspects(3, 10), "worker-2": Suspects(1, 10)}
    dealt = assign([alone, *others], [hand(1), hand(2)], held)
    assert offers(dealt) == [1, 1, 1, 1]
    assert alone not in [each for each, _ in dealt]


def test_suspects_that_fit_nobody_keep_a_worker_each() -> None:
    waiting = suspects(3)
    held = {"worker-1": ONE, "worker-2": ONE}
    later = replace(suspects(4, group_max=10)[3], run_at_ms=T0 + 1)
    assert assign([*waiting, later], [hand(1), hand(2)], held) == []


def test_what_cannot_be_given_does_not_use_up_the_limit() -> None:
    waiting = [*suspects(2), task(7), task(8)]
    dealt = assign(waiting, [hand(1)], {"worker-1": ONE}, most=1)
    assert [each.id for each, _ in dealt] == [task(7).id]


def test_a_passed_offer_keeps_its_place() -> None:
    hands = [hand(1), hand(2), hand(3)]
    waiting = [task(1, is_guarded=True), task(2), task(3), task(4)]
    dealt = assign(waiting, hands, {"worker-1": ONE})
    assert offers(dealt) == [2, 1, 3, 2]


def test_a_task_prefers_a_worker_other_than_the_one_that_did_not_get_it() -> None:
    assert offers(assign([avoiding(1, "worker-1")], [hand(1), hand(2)])) == [2]


def test_a_task_goes_to_the_worker_it_avoids_when_there_is_no_other() -> None:
    dealt = assign([avoiding(1, "worker-1"), task(2)], [hand(1)])
    assert offers(dealt) == [1, 1]


def test_the_longest_waiting_of_two_avoided_offers_is_taken() -> None:
    hands = [hand(2, receiver_id="w"), hand(1, receiver_id="w"), hand(3, credit=0)]
    assert offers(assign([avoiding(1, "w")], hands)) == [2]


def test_a_suspect_task_is_not_forced_on_the_worker_it_avoids() -> None:
    suspect = replace(avoiding(1, "worker-1"), is_guarded=True)
    assert assign([suspect], [hand(1)], {"worker-1": ONE}) == []
    assert offers(assign([suspect], [hand(1)])) == [1]


def test_a_deal_changes_nothing_that_it_was_given() -> None:
    hands, holders = [hand(1), hand(2)], {"worker-1": ONE}
    dealt = assign(tasks(3, is_guarded=True), hands, holders)
    assert hands == [hand(1), hand(2)]
    assert holders == {"worker-1": ONE}
    assert [to for _, to in dealt] == [hands[1]]


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Task], list[Hand], set[str]]:
    types = st.sampled_from(["mail", "sms", "fax"])
    dealt_tasks = [
        replace(
            avoiding(number, draw(st.sampled_from(["worker-1", "worker-9"]))),
            type=draw(types),
            priority=draw(st.integers(0, 2)),
            is_guarded=draw(st.booleans()),
        )
        for number in range(draw(st.integers(0, 12)))
    ]
    hands = [
        hand(
            number,
            credit=draw(st.integers(0, 4)),
            types=draw(st.frozensets(types)),
            receiver_id=f"worker-{draw(st.integers(1, 3))}",
        )
        for number in range(draw(st.integers(0, 5)))
    ]
    return dealt_tasks, hands, draw(st.sets(st.sampled_from(["worker-1", "worker-2"])))


@given(tables())
def test_every_deal_is_fair_and_complete(table: tuple[list[Task], list[Hand], set[str]]) -> None:
    waiting, hands, holders = table
    dealt = assign(waiting, hands, dict.fromkeys(holders, ONE))
    given_ids = [each.id for each, _ in dealt]
    assert len(set(given_ids)) == len(given_ids)
    assert [order(each) for each, _ in dealt] == sorted(order(each) for each, _ in dealt)
    assert all(each.type in to.types for each, to in dealt)
    counts = Counter(offers(dealt))
    credits_left = {each.offer_id: each.credit - counts[each.offer_id] for each in hands}
    assert all(left >= 0 for left in credits_left.values())
    held = Counter(holders)
    held.update(to.receiver_id for each, to in dealt if each.is_guarded)
    assert all(count == 1 for count in held.values())
    # What is left over, nobody who still has credit could have taken.
    for left in waiting:
        takers = [each for each in hands if left.type in each.types and credits_left[each.offer_id]]
        if left.id not in given_ids:
            assert all(left.is_guarded and held[each.receiver_id] for each in takers)


@pytest.mark.parametrize("count", [1, 7, 100])
def test_equal_offers_get_equal_shares(count: int) -> None:
    dealt = assign(tasks(count), [hand(number, credit=100) for number in range(3)])
    shares = Counter(offers(dealt))
    assert max(shares.values()) - min(shares[number] for number in range(3)) <= 1


@given(tables())
def test_nobody_with_a_larger_free_share_is_passed_over(
    table: tuple[list[Task], list[Hand], set[str]],
) -> None:
    waiting, hands, _ = table
    plain = [replace(each, is_guarded=False, progress=fresh().progress) for each in waiting]
    left = {each.offer_id: each.credit for each in hands}
    for each, to in assign(plain, hands):
        others = [other for other in hands if each.type in other.types and left[other.offer_id]]
        largest = max(left[other.offer_id] / other.window for other in others)
        assert left[to.offer_id] / to.window == largest
        left[to.offer_id] -= 1


# -- Payloads


def large(number: int, size: int, **changes: Any) -> Task:
    """Return a task whose input was left in the store."""
    return task(number, unread_bytes=size, **changes)


def test_a_hand_gets_what_it_has_room_for_and_others_get_the_rest() -> None:
    line = [large(number, 1_000) for number in range(5)]
    hands = [hand(1, room_bytes=2_500), hand(2, room_bytes=1_000)]
    dealt = [(each.id[-1], to.offer_id) for each, to in assign(line, hands)]
    assert dealt == [("0", 1), ("1", 2), ("2", 1)]


def test_a_deal_ends_with_the_first_task_that_does_not_fit_it() -> None:
    line = [large(0, 600), large(1, 600), large(2, 10)]
    assert [each.id for each, _ in assign(line, [hand(1)], room_bytes=1_000)] == [line[0].id]
    assert [each.id for each, _ in assign(line[1:], [hand(1)], room_bytes=1_000)] == [
        line[1].id,
        line[2].id,
    ]


def test_whatever_its_size_a_task_fits_an_empty_hand() -> None:
    huge = large(0, 100 * PAYLOAD_BYTES_MAX)
    assert assign([huge], [hand(1, room_bytes=PAYLOAD_BYTES_MAX)])
    assert not assign([huge], [hand(1, room_bytes=PAYLOAD_BYTES_MAX - 1)])


def test_inputs_and_details_count_as_well_as_what_was_not_read() -> None:
    progress = replace(fresh().progress, details=b"12")
    assert task(0, input=b"123", progress=progress, unread_bytes=5).payload_bytes == 10


def at_home(number: int, home: str | None, **changes: Any) -> Task:
    made = task(number)
    progress = replace(made.progress, run=RunProgress(home_worker_id=home), **changes)
    return replace(made, progress=progress)


def test_a_run_goes_to_the_worker_that_had_it_last() -> None:
    dealt = assign([at_home(1, "worker-2")], [hand(1), hand(2, credit=1, window=9), hand(3)])
    assert offers(dealt) == [2]


@pytest.mark.parametrize(
    "away",
    [
        hand(2, credit=0, window=9),
        hand(2, types=frozenset({"other"})),
        hand(2, room_bytes=0),
        hand(4),
    ],
)
def test_nobody_waits_for_the_worker_that_had_a_run_last(away: Hand) -> None:
    run = replace(at_home(1, "worker-2"), unread_bytes=1)
    assert offers(assign([run], [away, hand(1, credit=20)])) in ([1], [4])


def test_a_run_without_a_home_or_that_avoids_it_goes_to_anybody() -> None:
    free = [hand(1, credit=2), hand(2, credit=1, window=9)]
    assert offers(assign([at_home(1, None)], free)) == [1]
    avoiding_home = at_home(1, "worker-2", avoid_worker_id="worker-2")
    assert offers(assign([avoiding_home], free)) == [1]


def test_runs_fill_their_home_and_then_others() -> None:
    runs = [at_home(number, "worker-2") for number in range(3)]
    assert offers(assign(runs, [hand(1, credit=9), hand(2, credit=2)])) == [2, 2, 1]


def test_a_home_with_several_offers_gets_a_run_by_one_that_can_take_it() -> None:
    polls = [
        hand(1, credit=1, receiver_id="worker-1", types=frozenset({"other"})),
        hand(2, credit=1, receiver_id="worker-1"),
    ]
    count = {"worker-1": Count(2, 2)}
    dealt = assign([at_home(1, "worker-1")], [hand(3), *polls], counts=count)
    assert offers(dealt) == [2]


def test_a_poll_that_is_only_checked_gets_nothing_of_what_its_worker_has_free() -> None:
    hands = [hand(1, receiver_id="w1", credit=0), hand(2, receiver_id="w1", credit=2)]
    counts = {"w1": Count(free=5, slots=5)}
    assert offers(assign(tasks(3), hands, counts=counts)) == [2, 2]


def test_a_run_never_goes_to_a_worker_that_a_server_drives() -> None:
    run = task(1, spec=Spec(kind=TaskKind.WORKFLOW))
    driven, session = hand(1, takes_runs=False), hand(2, credit=1)
    assert offers(assign([run], [driven, session])) == [2]
    assert assign([run], [driven]) == []
    assert offers(assign([task(2)], [driven])) == [1]
