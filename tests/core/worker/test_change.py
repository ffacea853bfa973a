"""The changes of workers that are kept for people."""

from __future__ import annotations

from tenure.core.worker.change import ChangeKind, WorkerChange


def test_a_change_of_the_worker_itself_has_no_cause_and_no_record() -> None:
    change = WorkerChange(
        id="c", namespace="acme/default", worker_id="w", at_ms=5, kind=ChangeKind.REGISTERED
    )
    assert (change.cause, change.audit_id) == ("", "")
    assert [each.value for each in ChangeKind][-2:] == ["draining", "offline"]
