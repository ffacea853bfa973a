"""``tenure queues`` against a real server."""

from __future__ import annotations

import json

import pytest

from tenure.api.http.route.queue import QueueItem
from tenure.cli.show.view import ShownQueue
from tests.cli.conftest import Run, read

# What changes with every sample of the server.
_SAMPLED = (*("perMinute", "waitMs", "held", "workerCount", "slots", "oldestWaitingMs"), "sampleAt")


def test_a_queue_is_shown_with_its_tasks_by_type_and_state(run: Run, queue: str) -> None:
    for kind in ("mail", "mail", "post"):
        run("tasks", "enqueue", kind, "--queue", queue)
    shown = read(run("queues", "show", queue, "-o", "json"))
    assert shown["perMinute"]["enqueued"] == 3
    assert {name: value for name, value in shown.items() if name not in _SAMPLED} == {
        "name": queue,
        "paused": False,
        "concurrencyMax": 0,
        "counts": {"PENDING": 3},
        "types": {"mail": {"PENDING": 2}, "post": {"PENDING": 1}},
        "isCountExact": True,
        "isTypeCountExact": True,
    }
    (row,) = [
        row
        for row in run("queues", "ls", "--all").stdout.splitlines()
        if row.startswith(f"{queue} ")
    ]
    assert row.split()[:9] == [queue, "ACTIVE", "none", "3", "0", "0", "0", "0", "0"]
    listed = read(run("queues", "ls", "--all", "-o", "json"))["queues"]
    assert shown["types"] in [each["types"] for each in listed]
    lines = run("queues", "ls", "--all", "-o", "jsonl").stdout.splitlines()
    assert queue in [json.loads(line)["name"] for line in lines]


def test_a_queue_is_paused_and_resumed(run: Run, queue: str) -> None:
    paused = run("queues", "pause", queue)
    assert "PAUSED" in paused.stdout
    assert "no live tasks" in paused.stdout
    assert read(run("queues", "resume", queue, "-o", "json"))["paused"] is False


def test_a_limit_is_set_and_taken_away(run: Run, queue: str) -> None:
    assert read(run("queues", "limit", queue, "5", "-o", "json"))["concurrencyMax"] == 5
    assert read(run("queues", "pause", queue, "-o", "json"))["concurrencyMax"] == 5
    lines = run("queues", "limit", queue, "none").stdout.splitlines()
    assert ["limit:", "none"] in [line.split() for line in lines]


@pytest.mark.parametrize("limit", ["0", "-1", "many", "1.5", "99999999999"])
def test_a_limit_that_is_no_limit_is_refused(run: Run, queue: str, limit: str) -> None:
    assert run("queues", "limit", queue, "--", limit).exit_code == 2


def test_the_names_in_json_are_those_of_http() -> None:
    # What an act would do is in answers to dry runs only.
    over_http = set(QueueItem.__struct_encode_fields__) - {"consequences"}
    assert set(ShownQueue.__struct_encode_fields__) == over_http


def test_queues_are_listed_page_by_page(run: Run, queue: str) -> None:
    for number in range(3):
        run("queues", "limit", f"{queue}-{number}", "1")
    first = read(run("queues", "ls", "--limit", "1", "-o", "json"))
    assert len(first["queues"]) == 1
    rest = run("queues", "ls", "--all", "--page-token", first["nextPageToken"], "-o", "jsonl")
    names = [first["queues"][0]["name"]]
    names += [json.loads(line)["name"] for line in rest.stdout.splitlines()]
    assert sorted(set(names)) == sorted(names)
    assert {f"{queue}-{number}" for number in range(3)} <= set(names)
