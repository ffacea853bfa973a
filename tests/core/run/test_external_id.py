"""The ids that users give runs."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.core.run import external_id
from tenure.core.run import start as run_start
from tenure.core.run.external_id import OnFinished, OnLive
from tenure.core.task.record import Task, TaskKind
from tenure.errors import AlreadyExists, InvalidArgument
from tests.core.task.tasks import JOURNAL_ID, NAMESPACE, T0, cancelled, fresh_run, new, waiting_run

ENDED = cancelled(fresh_run())


def test_an_external_id_stands_in_the_link_of_its_run() -> None:
    request = new(kind=TaskKind.WORKFLOW, start_to_close_ms=0)
    run = run_start.create(
        request, namespace=NAMESPACE, now_ms=T0, journal_id=JOURNAL_ID, external_id="order-42"
    )
    assert run.link is not None
    assert run.link.external_id == "order-42"


@pytest.mark.parametrize("good", ["a", "order 42", "x" * 255, "Bestellung für Ø"])
def test_an_external_id_is_any_text(good: str) -> None:
    assert external_id.check_id(good) == good


@pytest.mark.parametrize("bad", ["", "a\0b", "a\nb", "x" * 256, "ø" * 128, None])
def test_a_bad_external_id_is_named(bad: object) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        external_id.check_id(bad)
    assert refusal.value.fields["field"] == "externalId"


def known(found: Task, **policy: Any) -> Task | None:
    given = {"on_live": OnLive.RETURN, "on_finished": OnFinished.ALLOW, **policy}
    return external_id.known("order-42", found, **given)


def test_a_live_run_is_the_answer_or_a_refusal() -> None:
    live = waiting_run()
    assert known(live, on_finished=OnFinished.REJECT) is live
    with pytest.raises(AlreadyExists, match=live.id):
        known(live, on_live=OnLive.REJECT)


def test_a_finished_run_is_passed_over_the_answer_or_a_refusal() -> None:
    assert known(ENDED, on_live=OnLive.REJECT) is None
    assert known(ENDED, on_finished=OnFinished.RETURN) is ENDED
    with pytest.raises(AlreadyExists, match="cancelled"):
        known(ENDED, on_finished=OnFinished.REJECT)


@pytest.mark.parametrize(
    ("changes", "content", "differs"),
    [
        ({}, b"1", False),
        ({}, b"2", True),
        ({"type": "other"}, b"1", True),
        ({"queue": "other"}, b"1", True),
        ({"encoding": "bytes"}, b"1", True),
        ({"input": None}, None, False),
        ({"input": None}, b"", False),
    ],
)
def test_other_content_is_noticed(
    changes: dict[str, Any], content: bytes | None, differs: bool
) -> None:
    request = new(**{"kind": TaskKind.WORKFLOW, "input": b"1", **changes})
    found = fresh_run(encoding="")
    assert external_id.differs(request, found, content) is differs
