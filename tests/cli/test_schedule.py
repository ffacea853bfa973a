"""``tenure schedules`` against a real server."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any, Final

import pytest

from tenure.api.http.route.schedule import view as http_view
from tenure.cli.show import schedule_table, schedule_view
from tenure.cli.show.table import Layout
from tenure.cli.show.view import ShownRetry
from tests.cli.conftest import Run, read
from tests.polling import eventually_sync

RULE: Final = ("--rule", "0 0 1 1 *")
_numbers = itertools.count(1)


@pytest.fixture
def name() -> str:
    """Return an id that no other test uses."""
    return f"s{next(_numbers):03d}"


@pytest.fixture
def put(run: Run, queue: str) -> Callable[..., Any]:
    """Return a function that puts a schedule in a queue of its own."""

    def call(schedule_id: str, *options: str) -> Any:
        given = options if {"--rule", "--every"} & set(options) else (*RULE, *options)
        answer = run(
            "schedules", "put", schedule_id, "report", "--queue", queue, *given, "-o", "json"
        )
        return read(answer)

    return call


def test_every_option_reaches_the_schedule(run: Run, queue: str, name: str) -> None:
    result = run(
        *("schedules", "put", name, "report", '{"shop": 1}', "--queue", queue),
        *("--rule", "0 2 * * *", "--zone", "Europe/Berlin", "--overlap", "skip"),
        *("--starts-at", "2020-01-01T00:00:00Z", "--ends-at", "2090-01-01T00:00:00Z"),
        *("--priority", "2", "--label", "team=a", "--max-attempts", "3"),
        *("--start-to-close", "10m", "--heartbeat-timeout", "1m"),
        *("--max-catchup", "5", "--catchup-window", "1h", "--jitter", "30s"),
        *("--pause-after-failures", "4", "--note", "for the shop", "-o", "json"),
    )
    made = read(result)
    assert (made["scheduleId"], made["state"], made["isNew"]) == (name, "ACTIVE", True)
    assert (made["rule"], made["zone"], made["overlap"]) == ("0 2 * * *", "Europe/Berlin", "SKIP")
    assert (made["startsAt"], made["endsAt"]) == (
        "2020-01-01T00:00:00.000Z",
        "2090-01-01T00:00:00.000Z",
    )
    assert (made["maxCatchup"], made["catchupWindowMs"], made["jitterMs"]) == (5, 3_600_000, 30_000)
    assert (made["pauseAfterFailures"], made["note"]) == (4, "for the shop")
    target = made["target"]
    assert (target["type"], target["queue"], target["input"]) == ("report", queue, {"shop": 1})
    assert (target["priority"], target["labels"]) == (2, {"team": "a"})
    assert (target["startToCloseMs"], target["heartbeatTimeoutMs"]) == (600_000, 60_000)
    assert target["retry"]["maximumAttempts"] == 3
    lines = run("schedules", "show", name).stdout
    for text in ("0 2 * * * Europe/Berlin", "the newest 5, not older than 1h", "team=a", "skip"):
        assert text in lines, lines


def test_a_put_says_what_it_has_done(run: Run, queue: str, name: str) -> None:
    given = ("schedules", "put", name, "report", "--queue", queue)
    created = run(*given, *RULE)
    assert created.stdout == f"Schedule {name} is created.\n"
    assert created.stderr.startswith("It fires next at 20")
    assert run(*given, *RULE).stdout == f"Schedule {name} is unchanged.\n"
    changed = run(*given, "--every", "90m", "--offset", "5m")
    assert changed.stdout == f"Schedule {name} is changed.\n"
    shown = read(run("schedules", "show", name, "-o", "json"))
    assert (shown["every"], shown["offset"]) == (5_400_000, 300_000)
    assert shown["target"]["startToCloseMs"] == 300_000
    run("schedules", "pause", name)
    again = run(*given, *RULE)
    assert f"Resume it: tenure schedules resume {name}" in again.stderr


def test_a_schedule_may_start_runs(run: Run, queue: str, name: str) -> None:
    month = f"month-{queue}"
    options = ("--workflow", "--schedule-to-close", "1h", "--id", month, "--on-live", "reject")
    given = ("schedules", "put", name, "close", "--queue", queue, *RULE, *options)
    target = read(run(*given, "-o", "json"))["target"]
    assert (target["workflow"], target["timeoutMs"], target["externalId"]) == (
        True,
        3_600_000,
        month,
    )
    assert (target["retry"]["maximumAttempts"], target["onLive"]) == (1, "REJECT")
    run_id = run("schedules", "trigger", name).stdout.strip()
    shown = read(run("runs", "show", run_id, "-o", "json"))
    assert (shown["externalId"], shown["scheduleId"]) == (month, name)
    assert f"schedule {name}, planned for" in run("runs", "show", run_id).stdout
    again = run("schedules", "trigger", name)
    assert (again.exit_code, again.stdout) == (4, "")
    assert "tenure runs show external:ID" in again.stderr


def test_schedules_are_listed_with_their_next_fire(run: Run, name: str, put: Any) -> None:
    for suffix in "cab":
        put(f"{name}{suffix}")
    run("schedules", "pause", f"{name}b", "--note", "a move")
    lines = run("schedules", "ls", "--all").stdout.splitlines()
    rows = [line.split() for line in lines if line.startswith(name)]
    assert [row[:2] for row in rows] == [
        [f"{name}a", "ACTIVE"],
        [f"{name}b", "PAUSED"],
        [f"{name}c", "ACTIVE"],
    ]
    assert rows[1][-2:] == ["a", "move"]
    paused = run("schedules", "ls", "--paused", "--all", "-o", "jsonl").stdout.splitlines()
    found = [json.loads(line)["scheduleId"] for line in paused]
    assert [each for each in found if each.startswith(name)] == [f"{name}b"]
    first = read(run("schedules", "ls", "--type", "report", "--limit", "1", "-o", "json"))
    assert len(first["schedules"]) == 1
    assert first["nextPageToken"]
    nothing = run("schedules", "ls", "--type", "nothing")
    assert (nothing.stdout, nothing.stderr) == ("", "No schedules found.\n")


def test_the_next_times_of_a_rule_are_shown(run: Run, name: str, put: Any) -> None:
    result = run("schedules", "next", "--rule", "30 2 * * *", "--zone", "Asia/Kolkata")
    header, *rows = result.stdout.splitlines()
    assert header.split() == ["UTC", "LOCAL", "IN"]
    assert len(rows) == 10
    assert all("T21:00:00.000Z" in row and "T02:30:00.000+05:30" in row for row in rows)
    assert "once" in result.stderr
    put(name)
    plan = read(run("schedules", "next", name, "--count", "2", "-o", "json"))
    assert [each["fireAt"][4:] for each in plan["fires"]] == ["-01-01T00:00:00.000Z"] * 2
    lines = run("schedules", "next", "--every", "6h", "--count", "3", "-o", "jsonl").stdout
    assert len(lines.splitlines()) == 3
    ended = run("schedules", "next", *RULE, "--ends-at", "2020-01-01T00:00:00Z")
    assert (ended.stdout, ended.stderr) == ("", "It never fires again.\n")


def test_a_schedule_fires_and_its_fires_are_listed(run: Run, name: str, put: Any) -> None:
    put(name, "--every", "1s")

    def found() -> list[Any]:
        fires: list[Any] = read(run("schedules", "fires", name, "-o", "json"))["fires"]
        return fires

    eventually_sync(lambda: len(found()) >= 2)
    run("schedules", "rm", name)
    header, *rows = run("schedules", "fires", name).stdout.splitlines()
    assert header.split() == ["PLANNED", "KIND", "OUTCOME", "LATE", "TASK", "NOTE"]
    fires = found()
    assert len(rows) == len(fires)
    assert fires[0]["fireAt"] > fires[1]["fireAt"]
    task = read(run("tasks", "show", fires[0]["taskId"], "-o", "json"))
    assert (task["type"], task["idempotencyKey"]) == ("report", fires[0]["key"])
    assert (task["scheduleId"], task["fireAt"]) == (name, fires[0]["fireAt"])
    made_by = f"schedule {name}, planned for {task['fireAt']}"
    assert made_by in run("tasks", "show", task["taskId"]).stdout
    lines = run("schedules", "fires", name, "--all", "-o", "jsonl").stdout.splitlines()
    assert [json.loads(line) for line in lines] == fires


def test_a_schedule_is_paused_and_resumed(run: Run, name: str, put: Any) -> None:
    put(name)
    paused = run("schedules", "pause", name, "--note", "a move")
    assert paused.stdout == f"Schedule {name} is paused.\n"
    lines = run("schedules", "show", name).stdout
    assert "PAUSED" in lines
    assert "a move" in lines
    assert "paused" in run("schedules", "next", name).stderr
    resumed = run("schedules", "resume", name, "--skip")
    assert resumed.stdout == f"Schedule {name} goes on.\n"
    assert read(run("schedules", "resume", name, "-o", "json"))["state"] == "ACTIVE"


def test_a_trigger_prints_nothing_but_the_id_of_its_task(run: Run, name: str, put: Any) -> None:
    put(name)
    first = run("schedules", "trigger", name, "--trigger-id", "one")
    task_id = first.stdout.strip()
    assert read(run("tasks", "show", task_id, "-o", "json"))["type"] == "report"
    again = run("schedules", "trigger", name, "--trigger-id", "one")
    assert again.stdout.strip() == task_id
    assert "has fired already" in again.stderr
    made = read(run("schedules", "trigger", name, "-o", "json"))
    assert (made["isNew"], made["fire"]["kind"]) == (True, "TRIGGER")


def test_a_backfill_may_be_repeated(run: Run, name: str, put: Any) -> None:
    put(name, "--every", "1h")
    period = ("--from", "2024-01-01T00:00:00Z", "--to", "2024-01-01T05:00:00+01:00")
    first = run("schedules", "backfill", name, *period)
    assert first.stdout == "4 times fired.\n"
    again = run("schedules", "backfill", name, *period)
    assert again.stdout == "0 times fired. 4 had fired before.\n"
    answer = read(run("schedules", "backfill", name, *period, "-o", "json"))
    assert (answer["started"], len(answer["knownKeys"])) == ([], 4)


def test_a_removed_schedule_is_gone(run: Run, name: str, put: Any) -> None:
    put(name)
    assert run("schedules", "rm", name).stdout == f"Schedule {name} is removed.\n"
    missing = run("schedules", "show", name)
    assert missing.exit_code == 3
    assert "List the schedules: tenure schedules ls" in missing.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ("put x report", 2, "Give --rule or --every"),
        ("put x report --rule @daily --every 1m", 2, "Give --rule or --every"),
        ("put x report --rule @reboot", 2, "rule"),
        ("put x report --rule @daily --zone Mars", 2, "zone"),
        ("put x report --every 10ms", 2, "every"),
        ("put x report --every soon", 2, "must be a duration"),
        ("put x report --rule @daily --id a", 2, "--workflow"),
        ("put x report --rule @daily --workflow --start-to-close 1m", 2, "--schedule-to-close"),
        ("put x report {no} --rule @daily", 2, "JSON"),
        ("put a/b report --rule @daily", 2, "schedule_id"),
        ("next", 2, "Give the ID of a schedule, or --rule"),
        ("next x --rule @daily", 2, "Give the ID of a schedule, or --rule"),
        ("next --rule @daily --every 1m", 2, "Give --rule or --every"),
        ("next unknown", 3, "tenure schedules ls"),
        ("show unknown", 3, "tenure schedules ls"),
        ("pause unknown", 3, "tenure schedules ls"),
        ("resume unknown", 3, "tenure schedules ls"),
        ("trigger unknown", 3, "tenure schedules ls"),
        ("rm unknown", 3, "tenure schedules ls"),
        ("backfill unknown --from 2024-01-01T00:00:00Z", 2, "--to"),
        ("backfill x --from yesterday --to 2024-01-01T00:00:00Z", 2, "must be an instant"),
    ],
)
def test_a_mistake_is_told_with_its_exit_code(
    run: Run, arguments: str, code: int, said: str
) -> None:
    result = run("schedules", *arguments.split())
    assert result.exit_code == code, result.output
    assert said in result.stderr


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (schedule_view.ShownStored, http_view.StoredItem),
        (schedule_view.ShownTarget, http_view.TargetItem),
        (schedule_view.ShownFire, http_view.FireItem),
        (schedule_view.ShownTriggered, http_view.TriggeredView),
        (schedule_view.ShownBackfilled, http_view.BackfilledView),
        (schedule_view.ShownPlan, http_view.PlannedView),
        (schedule_view.ShownPlanned, http_view.PlannedItem),
    ],
)
def test_the_names_in_json_are_those_of_http(ours: Any, theirs: Any) -> None:
    assert set(ours.__struct_encode_fields__) == set(theirs.__struct_encode_fields__)


def _schedule(**changes: Any) -> schedule_view.ShownSchedule:
    retry = ShownRetry(1_000, 2.0, 0, 0, [])
    target = schedule_view.ShownTarget(
        type="reports.compute_everything",
        queue="default",
        workflow=False,
        priority=5,
        retry=retry,
        labels={},
        encoding="json",
    )
    instant = "2030-01-31T09:00:00.000Z"
    given = {
        "schedule_id": "a-nightly-report-of-everything",
        "namespace": "default/default",
        "state": "ACTIVE",
        "rule": "0 2 * * MON-FRI",
        "zone": "Europe/Berlin",
        "target": target,
        "overlap": "ALLOW",
        "max_catchup": 100,
        "failure_count": 0,
        "created_at": instant,
        "changed_at": instant,
        "version": 1,
        "next_fire_at": "2030-01-31T10:00:00.000Z",
        "last_fire_at": instant,
    }
    return schedule_view.ShownSchedule(**{**given, **changes})


def test_a_list_fits_a_terminal_of_80_columns() -> None:
    now_ms = 1_896_166_800_000
    items = [_schedule(), _schedule(state="BROKEN", error="the zone has gone" * 10)]
    layout = Layout(schedule_table.columns(now_ms), items, 80)
    lines = [layout.header.plain, *(layout.row(each).plain for each in items)]
    assert max(map(len, lines)) <= 80
    assert {"SCHEDULE", "STATE", "NEXT"} <= set(lines[0].split())


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, ""),
        ({"note": "for the shop"}, "for the shop"),
        ({"note": "for the shop", "pause_note": "a move"}, "a move"),
        ({"error": "no such zone", "pause_note": "a move"}, "no such zone"),
        ({"failure_count": 3}, "failed 3 times in a row"),
    ],
)
def test_the_note_of_a_schedule_is_what_matters_most(changes: Any, text: str) -> None:
    assert schedule_table.note(_schedule(**changes)) == text
