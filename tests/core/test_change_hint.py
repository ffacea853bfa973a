"""Hints as words between servers, and the ids of events."""

from __future__ import annotations

import pytest

from tenure.core.change_hint import (
    ALL_KINDS,
    EventFilter,
    EventKind,
    Hint,
    hint_of,
    position_of,
    position_text,
    text_of,
)

NAMESPACE = "acme/default"
ID = "019b0000-0000-7000-8000-000000000001"
TASK = Hint(EventKind.TASK, NAMESPACE, ID, 3, "RUNNING", "mail")


@pytest.mark.parametrize(
    "hint",
    [
        TASK,
        Hint(EventKind.RUN, NAMESPACE, ID, 3, "SLEEPING", "mail"),
        Hint(EventKind.WORKER, NAMESPACE, ID, 1, "DRAINING", "mail"),
        Hint(EventKind.QUEUE, NAMESPACE, "mail", 0, "PAUSED", "mail"),
        Hint(EventKind.NAMESPACE, NAMESPACE, NAMESPACE, 0, "ACTIVE"),
    ],
)
def test_what_one_server_tells_the_other_hears(hint: Hint) -> None:
    assert hint_of(text_of(hint)) == hint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "task",
        "task a b",
        "task  b 3 RUNNING mail",
        f"flow {NAMESPACE} {ID} 3 RUNNING mail",
        f"task {NAMESPACE} {ID} -3 RUNNING mail",
        f"task {NAMESPACE} {ID} ٣ RUNNING mail",
        f"task {NAMESPACE} {ID} {'9' * 400} RUNNING mail",
        f"task {NAMESPACE} {ID} 3 RUNNING mail more",
    ],
)
def test_what_makes_no_sense_is_no_hint(text: str) -> None:
    assert hint_of(text) is None


def test_an_id_of_an_event_is_that_of_one_server() -> None:
    text = position_text(ID, 42)
    assert position_of(text, ID) == 42
    assert position_of(text, NAMESPACE) is None


@pytest.mark.parametrize(
    "text", ["", ":", "42", f"{ID}:", f"{ID}:x", f"{ID}:-1", f"{ID}:{'9' * 40}"]
)
def test_what_is_no_id_of_an_event_has_no_number(text: str) -> None:
    assert position_of(text, ID) is None


def test_a_filter_takes_some_kinds_of_one_queue() -> None:
    assert EventFilter(NAMESPACE).takes(TASK)
    assert EventFilter(NAMESPACE).kinds == ALL_KINDS
    assert EventFilter(NAMESPACE, queue="mail").takes(TASK)
    assert not EventFilter(NAMESPACE, queue="other").takes(TASK)
    assert not EventFilter(NAMESPACE, frozenset({EventKind.WORKER})).takes(TASK)
