"""What servers tell each other: hints as lines of text, in messages of a bounded size."""

from __future__ import annotations

from tenure.core.limits import NOTIFY_BYTES_MAX, NOTIFY_KIND_BYTES_MAX
from tenure.engine.replica.replica_hints import HintKind, heard, pack

NAMESPACE = "acme/default"


def task_id(number: int) -> str:
    return f"019b0000-0000-7000-8000-{number:012x}"


def test_what_is_packed_is_heard() -> None:
    hints = {
        HintKind.QUEUE: {f"{NAMESPACE} mail"},
        HintKind.WORKER: {task_id(1), task_id(2)},
        HintKind.RESULT: {f"{NAMESPACE} {task_id(3)}"},
        HintKind.RUN: {f"{NAMESPACE} {task_id(4)}"},
        HintKind.WANT: {"results"},
        HintKind.ACCESS: {"changed"},
    }
    (message,) = pack(hints)
    found = heard(message)
    assert found.queues == [(NAMESPACE, "mail")]
    assert found.workers == [task_id(1), task_id(2)]
    assert found.results == [(NAMESPACE, task_id(3))]
    assert found.runs == [(NAMESPACE, task_id(4))]
    assert found.is_result_wanted
    assert found.is_access_changed
    assert not found.everything


def test_many_hints_take_several_messages_that_the_database_accepts() -> None:
    told = {f"{NAMESPACE} {task_id(number)}" for number in range(300)}
    messages = list(pack({HintKind.RESULT: told}))
    assert len(messages) > 1
    assert max(map(len, messages)) <= NOTIFY_BYTES_MAX
    found = {f"{namespace} {task}" for each in messages for namespace, task in heard(each).results}
    assert found == told


def test_a_kind_of_which_there_is_too_much_is_told_in_one_word() -> None:
    told = {task_id(number) for number in range(5_000)}
    (message,) = pack({HintKind.WORKER: told, HintKind.QUEUE: {f"{NAMESPACE} mail"}})
    found = heard(message)
    assert found.everything == {HintKind.WORKER}
    assert found.workers == []
    assert found.queues == [(NAMESPACE, "mail")]


def test_the_longest_names_stay_within_the_limits() -> None:
    long = "n" * 255
    told = {f"{long}/{long} {number:0255d}" for number in range(1_000)}
    messages = list(pack({HintKind.QUEUE: told}))
    assert messages == ["queue"]
    few = sorted(told)[: NOTIFY_KIND_BYTES_MAX // 1_000]
    messages = list(pack({HintKind.QUEUE: set(few)}))
    assert max(map(len, messages)) <= NOTIFY_BYTES_MAX
    assert sum(len(heard(each).queues) for each in messages) == len(few)


def test_what_makes_no_sense_is_left_out() -> None:
    for message in (
        "",
        "\n\n",
        "nonsense",
        "queue acme",
        "result a/b ",
        "run a/b",
        "later x y",
        "  ",
    ):
        found = heard(message)
        assert (found.queues, found.workers, found.results) == ([], [], []), message
        assert not found.runs
        assert not found.everything
        assert not found.is_result_wanted
