"""Heartbeats of an attempt: progress is told apart from a change."""

from tenure.core.task.confirmation import is_progress
from tenure.core.task.event import AttemptReleased, Heartbeaten
from tests.core.task.tasks import T0, after, cancelled, fresh, handed, report, running


def test_a_heartbeat_of_a_running_attempt_is_progress_alone() -> None:
    task = running()
    beaten = after(task, report(Heartbeaten, task, percent=50.0, message="half"), T0 + 10)
    assert is_progress(task, beaten)


def test_a_heartbeat_that_confirms_is_more_than_progress() -> None:
    task = handed(fresh())
    assert not is_progress(task, after(task, report(Heartbeaten, task), T0 + 10))


def test_another_attempt_is_more_than_progress() -> None:
    task = running()
    returned = after(task, report(AttemptReleased, task), T0 + 10)
    assert not is_progress(handed(fresh()), handed(returned, T0 + 20))


def test_a_cancel_request_is_more_than_progress() -> None:
    assert not is_progress(running(), cancelled(running()))
