"""What needs attention in a namespace."""

from __future__ import annotations

from typing import Any

from tenure.core.diagnosis.attention import QueueFacts, attention
from tenure.core.limits import ATTENTION_MAX

NOW_MS = 1_000_000


def facts(**fields: Any) -> QueueFacts:
    given = {
        "name": "mail",
        "pending": 0,
        "oldest_waiting_ms": 0,
        "worker_count": 1,
        "is_paused": False,
        "ended": 0,
        "failed": 0,
        "lost": 0,
        **fields,
    }
    return QueueFacts(**given)


def codes(*queues: QueueFacts, **healths: int) -> list[str]:
    return [each.code for each in attention(queues, healths, now_ms=NOW_MS)]


def test_a_quiet_namespace_needs_no_attention() -> None:
    assert codes(facts(), facts(is_paused=True), healthy=3) == []
    assert codes(facts(pending=9, oldest_waiting_ms=9_000, worker_count=0)) == []
    assert codes(facts(pending=9, oldest_waiting_ms=59_000)) == []


def test_what_waits_is_told_with_its_cause_and_its_beginning() -> None:
    waits: dict[str, Any] = {"pending": 2, "oldest_waiting_ms": 60_000}
    (found,) = attention([facts(**waits, worker_count=0)], {}, now_ms=NOW_MS)
    assert (found.code, found.since_ms) == ("no_worker", NOW_MS - 60_000)
    assert "--queue mail" in found.advice
    assert codes(facts(**waits)) == ["tasks_wait"]
    assert codes(facts(**waits, is_paused=True, worker_count=0)) == ["queue_paused"]


def test_losses_failures_and_unwell_workers_are_told() -> None:
    assert codes(facts(lost=1)) == ["attempts_lost"]
    assert codes(facts(failed=10, ended=100)) == ["tasks_fail"]
    assert codes(facts(failed=10, ended=101)) == []
    assert codes(facts(failed=9, ended=9)) == []
    (found,) = attention([], {"late": 2, "stuck": 1, "healthy": 7}, now_ms=NOW_MS)
    assert found.message == "Workers are unwell: 2 late, 1 stuck."


def test_the_worst_comes_first_and_the_list_has_an_end() -> None:
    many = [facts(name=f"q{number}", oldest_waiting_ms=61_000 + number) for number in range(30)]
    found = attention(
        [*many, facts(name="bad", worker_count=0, oldest_waiting_ms=20_000)], {}, now_ms=NOW_MS
    )
    assert len(found) == ATTENTION_MAX
    assert [each.code for each in found[:2]] == ["no_worker", "tasks_wait"]
    assert "q29" in found[1].message
