"""The checker of the chaos tests finds each broken promise, and nothing in a good run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chaos.checker import Stored, check, check_audit
from tests.chaos.journal import Acknowledged, Done, Journal, count_lines, read


def told() -> Acknowledged:
    found = Acknowledged({"a", "b"})
    found.done["a"].add(Done("a", 2, "x"))
    return found


def stored() -> Stored:
    found = Stored({"b"})
    found.finished["a"].append(("succeeded", 2, "x"))
    found.attempts["a"].append(1)
    return found


def test_a_good_run_has_no_complaints() -> None:
    assert check(told(), stored()) == []


def test_a_lost_enqueue_is_found() -> None:
    rows = stored()
    rows.live.clear()
    assert check(told(), rows) == ["task b was acknowledged and is not stored"]


def test_a_lost_completion_is_found() -> None:
    rows = stored()
    rows.live.add("a")
    rows.finished.clear()
    (complaint,) = check(told(), rows)
    assert "was accepted and is not stored" in complaint


def test_a_replaced_completion_is_found() -> None:
    rows = stored()
    rows.finished["a"] = [("succeeded", 2, "other")]
    (complaint,) = check(told(), rows)
    assert "is stored" in complaint


def test_a_second_accepted_outcome_is_found() -> None:
    ours = told()
    ours.done["a"].add(Done("a", 1, "early"))
    assert len(check(ours, stored())) == 1


def test_two_ends_and_a_life_after_the_end_are_found() -> None:
    rows = stored()
    rows.finished["a"] *= 2
    assert "has 2 ends" in check(told(), rows)[0]
    rows = stored()
    rows.live.add("a")
    assert "lives on" in check(told(), rows)[0]


@pytest.mark.parametrize("numbers", [[], [1, 1], [2]])
def test_a_missing_or_repeated_attempt_is_found(numbers: list[int]) -> None:
    rows = stored()
    rows.attempts["a"] = numbers
    assert "has attempts" in check(told(), rows)[0]


def test_a_task_that_failed_is_found() -> None:
    rows = stored()
    rows.finished["a"] = [("failed", 2, "x")]
    assert "ended as failed" in check(told(), rows)[0]


def chain(*words: str) -> dict[str, list[dict[str, Any]]]:
    """Make versions of one task from words like ``pending#0`` and, for its end, ``gone``."""
    rows: list[dict[str, Any]] = []
    for word in words:
        if word == "gone":
            rows.append({**rows[-1], "op": "gone"})
            continue
        state, _, rest = word.partition("#")
        attempt, _, version = rest.partition("v")
        number = int(version) if version else len(rows)
        row = {"op": "tasks", "state": state, "attempt": int(attempt), "version": number}
        rows.append({**row, "worker_id": None})
    return {"a": rows}


@pytest.mark.parametrize(
    "words",
    [
        "pending#0 dispatched#1 gone",
        "dispatched#1 gone",
        "pending#0 dispatched#1 dispatched#1 running#1 pending#1 dispatched#2 gone",
    ],
)
def test_a_good_chain_has_no_complaints(words: str) -> None:
    assert check_audit(chain(*words.split())) == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("pending#0v1", "was not born new"),
        ("dispatched#2", "was not born new"),
        ("pending#0 dispatched#1v2", "skipped a version"),
        ("pending#0 dispatched#2", "skipped an attempt"),
        ("pending#0 dispatched#1 running#2", "while it was held"),
        ("pending#0 dispatched#1 pending#1 dispatched#1", "a number that was used"),
        ("pending#0 gone gone", "ended twice"),
        ("pending#0 gone pending#0", "lived on after its end"),
    ],
)
def test_a_broken_chain_is_found(words: str, problem: str) -> None:
    complaints = check_audit(chain(*words.split()))
    assert any(problem in each for each in complaints), complaints


def test_a_journal_is_read_without_the_line_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path)
    journal.enqueued("a")
    journal.done(Done("a", 1, "x"))
    journal.sync()
    with path.open("a") as file:
        file.write("enqueued b")
    found = read([path, tmp_path / "missing"])
    assert (found.enqueued, found.done) == ({"a"}, {"a": {Done("a", 1, "x")}})
    assert count_lines(path) == 2
