"""What runs report of their children: order, repeats, and what waits for what."""

from __future__ import annotations

from tenure.core.limits import FRAME_BYTES
from tenure.sdk.worker.connection.run_reports import RunReports
from tenure.sdk.worker.executor_protocol import AnsweredReport, NumberedEntry, WantedPage
from tenure.v1 import journal_pb2, task_pb2

REF = ("run", 1)


def spawn(
    number: int, group: str = "", *, run: str = "run", size: int = 0
) -> journal_pb2.SpawnReport:
    new = task_pb2.NewTask(input=b"x" * size)
    return journal_pb2.SpawnReport(
        task_id=run,
        attempt=1,
        number=number,
        group_key=group,
        children=[journal_pb2.NewChild(key=f"{run}-{number}", task=new)],
    )


def cancel(number: int) -> journal_pb2.ChildCancel:
    return journal_pb2.ChildCancel(task_id="run", attempt=1, number=number, child_ids=["a"])


def ack(number: int) -> journal_pb2.ChildAck:
    return journal_pb2.ChildAck(task_id="run", attempt=1, number=number)


def mark(no: int = 1) -> NumberedEntry:
    entry = task_pb2.NewEntry(kind=task_pb2.ENTRY_KIND_PATCH, key="new-way")
    return NumberedEntry("run", 1, no, entry, 0)


def sent(runs: RunReports) -> list[int]:
    messages, _ = runs.take(FRAME_BYTES)
    return [each.number for each in messages.children]


def test_reports_of_many_runs_go_together_and_are_answered_one_by_one() -> None:
    runs = RunReports()
    runs.children.put([spawn(1), spawn(1, run="other"), spawn(2), cancel(3)])

    messages, size = runs.take(FRAME_BYTES)

    assert [(each.task_id, each.number) for each in messages.spawns] == [
        ("run", 1),
        ("other", 1),
        ("run", 2),
    ]
    assert size == sum(each.ByteSize() for each in messages.spawns)
    assert not messages.child_cancels
    assert not runs.has_news
    assert runs.children.acknowledge(ack(2)) == AnsweredReport("run", 1, 2)
    assert runs.children.acknowledge(ack(2)) is None


def test_a_cancel_waits_for_the_answers_to_the_spawns_before_it() -> None:
    runs = RunReports()
    runs.children.put([spawn(1), spawn(2), cancel(3), spawn(4)])

    assert sent(runs) == [1, 2]
    runs.children.acknowledge(ack(2))
    assert not runs.has_news
    runs.children.acknowledge(ack(1))
    assert sent(runs) == [3, 4]


def test_the_parts_of_a_group_go_one_after_the_other() -> None:
    runs = RunReports()
    runs.children.put([spawn(1, "map:a"), spawn(2), spawn(3, "map:a"), spawn(4, "map:b")])

    assert sent(runs) == [1, 2]
    runs.children.acknowledge(ack(1))
    assert sent(runs) == [3, 4]


def test_after_a_new_session_what_is_not_answered_is_sent_again_in_its_order() -> None:
    runs = RunReports()
    runs.children.put([spawn(1), spawn(2), spawn(3)])
    assert sent(runs) == [1, 2, 3]
    runs.children.acknowledge(ack(2))
    runs.children.put([spawn(4), cancel(5)])

    runs.session_opened()

    assert sent(runs) == [1, 3, 4]
    for number in (1, 3, 4):
        runs.children.acknowledge(ack(number))
    assert sent(runs) == [5]


def test_a_call_without_an_answer_is_repeated_with_the_same_numbers() -> None:
    runs = RunReports()
    runs.children.put([spawn(1), spawn(2, "map:a"), spawn(3, "map:a")])
    messages, _ = runs.take(FRAME_BYTES)
    runs.children.acknowledge(ack(1))

    runs.restart(messages)

    assert sent(runs) == [2]


def test_what_the_server_could_not_take_is_tried_again_later_and_later() -> None:
    runs = RunReports()
    runs.children.put([spawn(1), spawn(2, "map:a"), spawn(3, "map:a")])
    assert sent(runs) == [1, 2]

    runs.children.refused(REF, 2, 10.0, 0.0)
    runs.children.put([spawn(4)])

    assert not runs.has_news
    assert runs.next_at_s() == 10.2
    runs.ripen(10.1)
    assert not runs.has_news
    runs.ripen(10.2)
    assert sent(runs) == [2]
    runs.children.refused(REF, 2, 11.0, 0.0)
    assert runs.next_at_s() == 11.4
    # The server says how long it wants to have peace.
    runs.ripen(12.0)
    assert sent(runs) == [2]
    runs.children.refused(REF, 2, 12.0, 3.0)
    assert runs.next_at_s() == 15.0
    runs.children.refused(REF, 2, 12.0, 99.0)
    assert runs.next_at_s() == 15.0


def test_nothing_follows_a_mark_that_is_not_recorded() -> None:
    runs = RunReports()
    runs.children.put([spawn(1)])
    runs.entries.put([mark()])
    runs.children.put([spawn(2)])

    messages, _ = runs.take(FRAME_BYTES)
    assert [each.number for each in messages.spawns] == [1]
    assert len(messages.steps) == 1
    # The answer was lost, and the mark with it.
    runs.session_opened()
    assert sent(runs) == [1]
    runs.entries.take_page(task_pb2.JournalPage(task_id="run", attempt=1))
    assert sent(runs) == []
    runs.entries.acknowledge(journal_pb2.StepAck(task_id="run", attempt=1, no=1, pos=1))
    assert runs.has_news
    assert sent(runs) == [2]


def test_a_frame_has_a_limited_size() -> None:
    runs = RunReports()
    runs.children.put([spawn(number, size=600_000) for number in range(1, 4)])

    assert sent(runs) == [1, 2]
    assert runs.has_news
    assert sent(runs) == [3]


def test_a_run_that_is_no_longer_held_is_forgotten() -> None:
    runs = RunReports()
    runs.children.put([spawn(1), spawn(2)])
    runs.children.refused(REF, 1, 0.0, 0.0)
    sent(runs)
    runs.children.put([spawn(3)])

    runs.drop(REF)

    assert not runs.has_news
    assert runs.children.acknowledge(ack(1)) is None
    runs.children.refused(REF, 1, 0.0, 0.0)
    runs.restart(messages=runs.take(FRAME_BYTES)[0])
    assert runs.next_at_s() == float("inf")


def test_a_refusal_for_good_is_an_answer() -> None:
    runs = RunReports()
    runs.children.put([spawn(1), cancel(2)])
    sent(runs)
    refused = ack(1)
    refused.error.code = "invalid_argument"

    assert runs.children.acknowledge(refused) == AnsweredReport("run", 1, 1, refused.error)
    assert sent(runs) == [2]


def test_a_request_that_the_server_could_not_answer_is_made_again() -> None:
    runs = RunReports()
    wanted = [
        WantedPage("run", 1, 7),
        WantedPage("run", 1, 3, group_key="map:a"),
        WantedPage("other", 1, open_after="id"),
    ]
    for each in wanted:
        runs.pages.ask(each)
    first = runs.pages.take()
    assert [(each.after, each.group_key, each.open_after) for each in first] == [
        (7, "", ""),
        (3, "map:a", ""),
        (0, "", "id"),
    ]
    page = task_pb2.JournalPage(task_id="run", attempt=1, after=3, group_key="map:a")
    runs.pages.refused(page, 5.0)
    assert runs.next_at_s() == 5.0
    runs.ripen(4.0)
    assert not runs.has_news
    runs.ripen(5.0)
    assert [each.group_key for each in runs.pages.take()] == ["map:a"]
    # Once more, and it is answered; so nothing of it is left.
    runs.pages.answered(page)
    runs.pages.refused(page, 6.0)
    assert runs.next_at_s() == float("inf")


def test_requests_are_forgotten_with_their_session_and_with_their_run() -> None:
    runs = RunReports()
    runs.pages.ask(WantedPage("run", 1, 7))
    sent(runs)
    runs.pages.ask(WantedPage("other", 1, 7))
    runs.drop(("other", 1))
    assert not runs.has_news

    runs.session_opened()

    # The run asks for what it lacks.
    assert not runs.has_news
    runs.pages.refused(task_pb2.JournalPage(task_id="run", attempt=1, after=7), 5.0)
    assert runs.next_at_s() == float("inf")
