"""What runs report: numbers, acknowledgements, and what is sent again after a new session."""

from __future__ import annotations

from tenure.core.limits import FRAME_BYTES, JOURNAL_REQUESTS_MAX, STEP_ENTRIES_MAX
from tenure.sdk.worker.connection.run_reports import RunReports
from tenure.sdk.worker.executor_protocol import NumberedEntry, RecordedEntries, WantedPage
from tenure.v1 import journal_pb2, task_pb2

REF = ("run", 1)


def entry(no: int, *, run: str = "run", seen: int = 0, size: int = 0) -> NumberedEntry:
    made = task_pb2.NewEntry(kind=task_pb2.ENTRY_KIND_STEP, key=f"{run}-{no}", output=b"x" * size)
    return NumberedEntry(run, 1, no, made, seen)


def ack(no: int, pos: int) -> journal_pb2.StepAck:
    return journal_pb2.StepAck(task_id="run", attempt=1, no=no, pos=pos, at_ms=1)


def page(after: int, *found: tuple[int, int], end: int | None = None) -> task_pb2.JournalPage:
    """Return a page with (attempt, number) of each entry."""
    entries = [
        task_pb2.Entry(pos=after + 1 + index, attempt=attempt, no=no)
        for index, (attempt, no) in enumerate(found)
    ]
    last = after + len(found) if end is None else end
    return task_pb2.JournalPage(task_id="run", attempt=1, after=after, entries=entries, end=last)


def sent(runs: RunReports) -> list[tuple[str, int, list[str]]]:
    reports, _ = runs.entries.take(FRAME_BYTES)
    return [
        (each.task_id, each.first_no, [found.key for found in each.entries]) for each in reports
    ]


def asked(runs: RunReports) -> list[tuple[str, int]]:
    return [(each.task_id, each.after) for each in runs.pages.take()]


def take(runs: RunReports, found: task_pb2.JournalPage) -> None:
    runs.pages.answered(found)
    runs.entries.take_page(found)


def test_entries_of_many_runs_go_together_and_each_run_has_one_report() -> None:
    runs = RunReports()
    runs.entries.put([entry(1), entry(1, run="other"), entry(2)])

    assert runs.has_news
    assert sent(runs) == [("run", 1, ["run-1", "run-2"]), ("other", 1, ["other-1"])]
    assert not runs.has_news


def test_an_acknowledgement_stands_for_all_entries_of_its_report() -> None:
    runs = RunReports()
    runs.entries.put([entry(1), entry(2)])
    sent(runs)
    runs.entries.put([entry(3)])
    sent(runs)

    assert runs.entries.acknowledge(ack(2, 5)) == RecordedEntries("run", 1, 1, 2, pos=5, at_ms=1)
    assert runs.entries.acknowledge(ack(3, 9)) == RecordedEntries("run", 1, 3, 3, pos=9, at_ms=1)
    assert runs.entries.acknowledge(ack(3, 9)) is None


def test_two_answers_to_one_report_are_both_heard() -> None:
    runs = RunReports()
    runs.entries.put([entry(1), entry(2), entry(3)])
    sent(runs)

    assert runs.entries.acknowledge(ack(1, 4)) == RecordedEntries("run", 1, 1, 1, pos=4, at_ms=1)
    assert runs.entries.acknowledge(ack(3, 8)) == RecordedEntries("run", 1, 2, 3, pos=8, at_ms=1)


def test_after_a_new_session_the_tail_is_asked_for_and_only_the_rest_is_sent_again() -> None:
    runs = RunReports()
    runs.entries.put([entry(1, seen=3), entry(2, seen=3)])
    sent(runs)
    runs.entries.put([entry(3, seen=3)])

    runs.session_opened()

    assert sent(runs) == []
    assert asked(runs) == [("run", 3)]
    # Made meanwhile, it waits too.
    runs.entries.put([entry(4, seen=3)])
    assert sent(runs) == []
    take(runs, page(3, (1, 1), (0, 0)))
    # Each alone: between two of them something else may have been recorded.
    assert sent(runs) == [("run", 2, ["run-2"]), ("run", 3, ["run-3"]), ("run", 4, ["run-4"])]
    runs.entries.put([entry(5, seen=5), entry(6, seen=5)])
    assert sent(runs) == [("run", 5, ["run-5", "run-6"])]


def test_entries_of_an_earlier_attempt_are_not_taken_for_own_ones() -> None:
    runs = RunReports()
    runs.entries.put([NumberedEntry("run", 2, 1, task_pb2.NewEntry(key="mine"), 0)])
    sent(runs)
    runs.session_opened()
    found = page(0, (1, 1))
    found.attempt = 2
    take(runs, found)

    assert sent(runs) == [("run", 1, ["mine"])]


def test_a_tail_of_several_pages_is_read_to_its_end() -> None:
    runs = RunReports()
    runs.entries.put([entry(1)])
    sent(runs)
    runs.session_opened()
    assert asked(runs) == [("run", 0)]

    take(runs, page(0, (0, 0), (0, 0), end=3))

    assert sent(runs) == []
    assert asked(runs) == [("run", 2)]
    # There was no room for entries in the frame.
    take(runs, page(2, end=3))
    assert asked(runs) == [("run", 2)]
    take(runs, page(2, (1, 1)))
    assert sent(runs) == []
    assert not runs.has_news


def test_what_the_server_could_not_take_is_looked_for_later() -> None:
    runs = RunReports()
    runs.entries.put([entry(1)])
    sent(runs)
    runs.entries.ask_again(REF, 10.0)
    runs.entries.ask_again(REF, 10.5)

    assert runs.next_at_s() == 10.0
    runs.ripen(9.0)
    assert not runs.has_news
    runs.ripen(10.0)
    assert asked(runs) == [("run", 0)]


def test_a_call_without_an_answer_is_repeated() -> None:
    runs = RunReports()
    runs.entries.put([entry(1)])
    runs.pages.ask(WantedPage("other", 1, 7))
    messages, _ = runs.take(FRAME_BYTES)

    runs.restart(messages)

    assert asked(runs) == [("run", 0), ("other", 7)]


def test_a_run_that_is_no_longer_held_is_forgotten() -> None:
    runs = RunReports()
    runs.entries.put([entry(1)])
    runs.pages.ask(WantedPage(*REF, 7))
    runs.drop(REF)

    assert not runs.has_news
    assert runs.entries.acknowledge(ack(1, 1)) is None


def test_a_frame_has_a_limited_size_and_a_report_a_limited_number() -> None:
    runs = RunReports()
    runs.entries.put([entry(no, size=1_000_000) for no in range(1, 5)])
    runs.entries.put([entry(no, run="other") for no in range(1, STEP_ENTRIES_MAX + 2)])

    assert sent(runs) == [("run", 1, ["run-1", "run-2"])]
    assert sent(runs) == [("run", 3, ["run-3", "run-4"])]
    assert [len(keys) for _, _, keys in sent(runs)] == [STEP_ENTRIES_MAX, 1]


def test_no_more_pages_are_asked_for_at_a_time_than_a_server_reads() -> None:
    runs = RunReports()
    for number in range(JOURNAL_REQUESTS_MAX + 1):
        runs.pages.ask(WantedPage(f"run-{number}", 1, 0))
    assert len(asked(runs)) == JOURNAL_REQUESTS_MAX
    assert runs.has_news
    assert asked(runs) == [(f"run-{JOURNAL_REQUESTS_MAX}", 0)]
    assert not runs.has_news
