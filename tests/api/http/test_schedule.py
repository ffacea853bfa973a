"""Schedules over HTTP, on both stores."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tenure.core.limits import SCHEDULE_NOTE_BYTES_MAX
from tenure.engine.schedule.command import FireSchedules
from tests.api.http.site import UNKNOWN_ID, Site

TARGET: Final = {"type": "report", "queue": "default", "startToCloseMs": 60_000}
NIGHTLY: Final = {"rule": "0 2 * * *", "zone": "Europe/Berlin", "target": TARGET}
EACH_MINUTE: Final = {"every": "1m", "target": TARGET}
PERIOD: Final = {"from": "2023-11-14T22:00:00Z", "to": "2023-11-14T22:10:00Z"}


async def put(site: Site, schedule_id: str = "nightly", **changes: Any) -> Any:
    return await site.call("PUT", f"/v1/schedules/{schedule_id}", json={**NIGHTLY, **changes})


async def fires(site: Site, schedule_id: str = "nightly") -> list[Any]:
    answer = await site.call("GET", f"/v1/schedules/{schedule_id}/fires")
    found: list[Any] = answer["fires"]
    return found


async def pass_minutes(site: Site, minutes: int) -> None:
    """Let time pass, and a scheduler look at what is due."""
    await site.world.advance(minutes * 60_000)
    await site.engine.submit(FireSchedules(amount=100, fires_max=1_000))


async def test_a_schedule_is_created_once(site: Site) -> None:
    body = {
        "scheduleId": "nightly",
        "rule": "0 2 * * *",
        "zone": "Europe/Berlin",
        "target": {
            **TARGET,
            "input": {"shop": "north"},
            "priority": 2,
            "labels": {"team": "a"},
            "retry": {"maximumAttempts": 3},
            "resources": {"gpu": "1"},
        },
        "overlap": "SKIP",
        "maxCatchup": 5,
        "catchupWindowMs": 3_600_000,
        "jitterMs": 1_000,
        "startsAt": "2020-01-01T00:00:00Z",
        "endsAt": "2090-01-01T00:00:00+01:00",
        "pauseAfterFailures": 4,
        "note": "for the shop",
    }
    answer = await site.client.post("/v1/schedules", json=body)
    made = answer.json()
    assert (answer.status_code, made.pop("isNew"), made.pop("isChanged")) == (201, True, True)
    target = made.pop("target")
    asked: Any = body["target"]
    retry = target.pop("retry")
    assert (retry["maximumAttempts"], retry["initialIntervalMs"]) == (3, 1_000)
    assert target == {
        **{name: value for name, value in asked.items() if name != "retry"},
        "workflow": False,
        "encoding": "json",
        "cancelGracePeriodMs": 30_000,
        "deliveryTimeoutMs": 20_000,
    }
    now = made.pop("createdAt")
    assert made.pop("changedAt") == now
    assert made.pop("firedUntil") == now
    assert made.pop("nextFireAt") == "2026-01-01T01:00:00.000Z"
    assert made.pop("version") >= 0
    assert made == {
        **{name: value for name, value in body.items() if name != "target"},
        "startsAt": "2020-01-01T00:00:00.000Z",
        "endsAt": "2089-12-31T23:00:00.000Z",
        "namespace": made["namespace"],
        "state": "ACTIVE",
        "failureCount": 0,
    }
    again = await site.client.post("/v1/schedules", json=body)
    assert (again.status_code, again.json()["isNew"]) == (200, False)
    before = await site.world.dump()
    other = {**body, "overlap": "ALLOW"}
    refused = await site.refused("POST", "/v1/schedules", json=other)
    assert refused[:2] == (409, "already_exists")
    assert await site.world.dump() == before
    shown = await site.call("GET", "/v1/schedules/nightly")
    assert shown["target"]["input"] == {"shop": "north"}


async def test_the_server_makes_an_id_for_a_schedule_without_one(site: Site) -> None:
    first = await site.call("POST", "/v1/schedules", json=NIGHTLY)
    second = await site.call("POST", "/v1/schedules", json=NIGHTLY)
    assert first["scheduleId"] != second["scheduleId"]
    assert await site.call("GET", f"/v1/schedules/{first['scheduleId']}")


async def test_a_put_creates_or_replaces(site: Site) -> None:
    answer = await site.client.put("/v1/schedules/nightly", json=NIGHTLY)
    assert (answer.status_code, answer.json()["isNew"]) == (201, True)
    same = await site.client.put("/v1/schedules/nightly", json=NIGHTLY)
    assert (same.status_code, same.json()["isNew"], same.json()["isChanged"]) == (200, False, False)
    changed = await put(site, rule="0 0 3 * * *")
    assert (changed["isNew"], changed["isChanged"], changed["rule"]) == (False, True, "0 0 3 * * *")
    interval = {"every": 90_000, "offset": "30s", "target": TARGET}
    shown = await site.call("PUT", "/v1/schedules/nightly", json=interval)
    assert (shown["every"], shown["offset"], shown["zone"]) == (90_000, 30_000, "UTC")
    assert "rule" not in shown


async def test_a_schedule_may_start_runs(site: Site) -> None:
    target = {
        "type": "close",
        "queue": "default",
        "workflow": True,
        "timeoutMs": 3_600_000,
        "externalId": "month",
        "onLive": "REJECT",
        "inputBase64": "AQI=",
        "encoding": "bytes",
    }
    shown = (await put(site, target=target))["target"]
    assert shown.pop("retry")["maximumAttempts"] == 1
    assert shown == {**target, "priority": 5, "labels": {}}
    answer = await site.call("POST", "/v1/schedules/nightly/trigger")
    run = await site.call("GET", f"/v1/runs/{answer['fire']['taskId']}")
    assert (run["type"], run["status"], run["externalId"]) == ("close", "PENDING", "month")


async def test_schedules_are_listed_by_id(site: Site) -> None:
    for name in ("c", "a", "b"):
        await put(site, name, target={**TARGET, "type": f"kind-{name}", "input": 1})
    await site.call("POST", "/v1/schedules/b/pause")
    first = await site.call("GET", "/v1/schedules?pageSize=2&totalCount=true")
    assert [each["scheduleId"] for each in first["schedules"]] == ["a", "b"]
    assert (first["totalCount"], first["isTotalExact"]) == (3, True)
    assert "input" not in first["schedules"][0]["target"]
    rest = await site.call("GET", f"/v1/schedules?pageToken={first['nextPageToken']}")
    assert [each["scheduleId"] for each in rest["schedules"]] == ["c"]
    assert "nextPageToken" not in rest
    for query, names in (
        ("paused=true", ["b"]),
        ("paused=false", ["a", "c"]),
        ("type=kind-a", ["a"]),
        ("type=none", []),
    ):
        found = await site.call("GET", f"/v1/schedules?{query}")
        assert [each["scheduleId"] for each in found["schedules"]] == names, query


async def test_a_schedule_fires_and_its_fires_are_listed(site: Site) -> None:
    await site.call("PUT", "/v1/schedules/often", json={**EACH_MINUTE, "maxCatchup": 2})
    await pass_minutes(site, 1)
    await pass_minutes(site, 5)
    found = await fires(site, "often")
    kinds = [(each["kind"], each.get("reason"), each["count"]) for each in found]
    assert kinds == [
        ("TICK", None, 1),
        ("TICK", None, 1),
        ("SKIPPED", "catchup_limit", 3),
        ("TICK", None, 1),
    ]
    newest, skipped = found[0], found[2]
    task = await site.task(newest["taskId"])
    assert (task["type"], task["idempotencyKey"]) == ("report", newest["key"])
    assert newest["key"].startswith("schedule:often:20")
    assert newest["latenessMs"] == site.world.clock.now_ms() % 60_000
    assert "outcome" not in newest
    assert skipped["until"] > skipped["fireAt"]
    assert "until" not in newest
    assert (skipped["isCountExact"], "taskId" in skipped) == (True, False)
    shown = await site.call("GET", "/v1/schedules/often")
    assert (shown["lastFireAt"], shown["lastTaskId"]) == (newest["fireAt"], newest["taskId"])
    page = await site.call("GET", "/v1/schedules/often/fires?pageSize=3")
    rest = await site.call("GET", f"/v1/schedules/often/fires?pageToken={page['nextPageToken']}")
    assert [*page["fires"], *rest["fires"]] == found


async def test_a_paused_schedule_fires_nothing_until_it_is_resumed(site: Site) -> None:
    await site.call("PUT", "/v1/schedules/often", json=EACH_MINUTE)
    body = {"note": "the database moves"}
    paused = await site.call("POST", "/v1/schedules/often/pause", json=body)
    assert (paused["state"], paused["pauseNote"]) == ("PAUSED", "the database moves")
    assert "nextFireAt" not in paused
    await pass_minutes(site, 3)
    assert await fires(site, "often") == []
    resumed = await site.call("POST", "/v1/schedules/often/resume", json={"mode": "SKIP"})
    assert (resumed["state"], "pauseNote" in resumed) == ("ACTIVE", False)
    await pass_minutes(site, 1)
    found = await fires(site, "often")
    assert [each.get("reason") for each in found] == [None, "paused"]
    await site.call("POST", "/v1/schedules/often/pause")
    await pass_minutes(site, 2)
    await site.call("POST", "/v1/schedules/often/resume")
    await pass_minutes(site, 0)
    assert [each.get("reason") for each in await fires(site, "often")] == [None] * 3 + ["paused"]


async def test_a_trigger_fires_once_for_each_trigger_id(site: Site) -> None:
    await put(site)
    answer = await site.client.post("/v1/schedules/nightly/trigger", json={"triggerId": "one"})
    first = answer.json()
    assert (answer.status_code, first["isNew"], first["fire"]["kind"]) == (201, True, "TRIGGER")
    again = await site.client.post("/v1/schedules/nightly/trigger", json={"triggerId": "one"})
    assert (again.status_code, again.json()["isNew"]) == (200, False)
    assert again.json()["fire"] == first["fire"]
    for _ in range(2):
        assert (await site.call("POST", "/v1/schedules/nightly/trigger"))["isNew"]
    assert len(await fires(site)) == 3
    assert (await site.task(first["fire"]["taskId"]))["state"] == "PENDING"


async def test_a_backfill_fires_what_has_not_fired(site: Site) -> None:
    await site.call("PUT", "/v1/schedules/often", json=EACH_MINUTE)
    first = await site.call("POST", "/v1/schedules/often/backfill", json=PERIOD)
    assert [each["fireAt"] for each in first["started"]] == [
        f"2023-11-14T22:{minute:02d}:00.000Z" for minute in range(1, 11)
    ]
    assert {each["kind"] for each in first["started"]} == {"BACKFILL"}
    again = await site.call("POST", "/v1/schedules/often/backfill", json=PERIOD)
    assert again["started"] == []
    assert again["knownKeys"] == [each["key"] for each in first["started"]]
    assert len(await fires(site, "often")) == 10


async def test_a_deleted_schedule_is_gone_and_its_tasks_go_on(site: Site) -> None:
    await put(site)
    fire = (await site.call("POST", "/v1/schedules/nightly/trigger"))["fire"]
    deleted = await site.call("DELETE", "/v1/schedules/nightly")
    assert (deleted["scheduleId"], deleted["rule"]) == ("nightly", "0 2 * * *")
    refused = await site.refused("GET", "/v1/schedules/nightly")
    assert refused == (404, "not_found", {})
    assert (await site.task(fire["taskId"]))["state"] == "PENDING"
    assert (await put(site))["isNew"]


async def test_the_next_fires_are_shown_in_utc_and_in_the_zone(site: Site) -> None:
    await put(site)
    shown = await site.call("GET", "/v1/schedules/nightly/next?count=2")
    assert shown["fires"] == [
        {"fireAt": "2026-01-01T01:00:00.000Z", "local": "2026-01-01T02:00:00.000+01:00"},
        {"fireAt": "2026-01-02T01:00:00.000Z", "local": "2026-01-02T02:00:00.000+01:00"},
    ]
    (note,) = shown["notes"]
    assert "once" in note
    assert len((await site.call("GET", "/v1/schedules/nightly/next"))["fires"]) == 10
    await site.call("POST", "/v1/schedules/nightly/pause")
    shown = await site.call("GET", "/v1/schedules/nightly/next?count=1")
    assert "paused" in shown["notes"][0]


async def test_a_rule_that_is_not_stored_is_previewed(site: Site) -> None:
    before = await site.world.dump()
    body = {
        "rule": "30 2 * * *",
        "zone": "Europe/Berlin",
        "count": 3,
        "after": "2026-03-28T00:00:00Z",
    }
    shown = await site.call("POST", "/v1/schedules:preview", json=body)
    assert [each["local"] for each in shown["fires"]] == [
        "2026-03-28T02:30:00.000+01:00",
        "2026-03-29T03:00:00.000+02:00",
        "2026-03-30T02:30:00.000+02:00",
    ]
    both = {"rule": "0 0 13 * FRI", "endsAt": "2026-01-05T00:00:00Z"}
    shown = await site.call("POST", "/v1/schedules:preview", json=both)
    assert [each["fireAt"] for each in shown["fires"]] == ["2026-01-02T00:00:00.000Z"]
    assert any("either" in note for note in shown["notes"])
    assert any("Sunday" in note for note in shown["notes"])
    interval = {"every": "6h", "offset": "30m", "count": 1}
    shown = await site.call("POST", "/v1/schedules:preview", json=interval)
    assert shown["fires"][0]["fireAt"] == "2026-01-01T00:30:00.000Z"
    assert await site.world.dump() == before


BAD_CONTENT: Final[list[tuple[dict[str, Any], str]]] = [
    ({"rule": ""}, "rule"),
    ({"rule": "0 2 * *"}, "rule"),
    ({"rule": "0 25 * * *"}, "rule"),
    ({"rule": "0 0 15W * *"}, "rule"),
    ({"rule": "0 0 30 2 *"}, "rule"),
    ({"rule": 7}, "rule"),
    ({"rule": "x" * 10_000}, "rule"),
    ({"every": "1m"}, "rule"),
    ({"rule": "", "every": "soon"}, "every"),
    ({"rule": "", "every": 999, "zone": "UTC"}, "every"),
    ({"rule": "", "every": 0, "zone": "UTC"}, "every"),
    ({"rule": "", "every": -1, "zone": "UTC"}, "every"),
    ({"rule": "", "every": 2**63, "zone": "UTC"}, "every"),
    ({"rule": "", "every": "1m"}, "zone"),
    ({"offset": "1m"}, "offset"),
    ({"rule": "", "every": "1m", "zone": "UTC", "offset": "1h"}, "offset"),
    ({"zone": "Mars/Base"}, "zone"),
    ({"zone": "../../etc/passwd"}, "zone"),
    ({"overlap": "NEVER"}, "overlap"),
    ({"overlap": "skip"}, "overlap"),
    ({"maxCatchup": -1}, "maxCatchup"),
    ({"maxCatchup": 10**9}, "maxCatchup"),
    ({"catchupWindowMs": 0}, "catchupWindowMs"),
    ({"catchupWindowMs": 2**62}, "catchupWindowMs"),
    ({"jitterMs": -1}, "jitterMs"),
    ({"jitterMs": 2**53}, "jitterMs"),
    ({"startsAt": "yesterday"}, "startsAt"),
    ({"startsAt": "2020-01-01T00:00:00"}, "startsAt"),
    ({"startsAt": "2040-01-01T00:00:00Z", "endsAt": "2030-01-01T00:00:00Z"}, "endsAt"),
    ({"endsAt": "2020-01-01T00:00:00Z"}, "rule"),
    ({"pauseAfterFailures": -1}, "pauseAfterFailures"),
    ({"pauseAfterFailures": 2**40}, "pauseAfterFailures"),
    ({"note": "x" * (SCHEDULE_NOTE_BYTES_MAX + 1)}, "note"),
    ({"isPaused": True}, "isPaused"),
    ({"target": None}, "target"),
    ({"target": {**TARGET, "type": ""}}, "type"),
    ({"target": {**TARGET, "queue": "a b"}}, "queue"),
    ({"target": {"type": "report", "queue": "default"}}, "startToCloseMs"),
    ({"target": {**TARGET, "priority": 10}}, "target.priority"),
    ({"target": {**TARGET, "labels": {"__proto__": "x"}}}, "labels"),
    ({"target": {**TARGET, "runAt": "2030-01-01T00:00:00Z"}}, "target.runAt"),
    ({"target": {**TARGET, "timeoutMs": 1}}, "timeoutMs"),
    ({"target": {**TARGET, "externalId": "x"}}, "externalId"),
    ({"target": {**TARGET, "workflow": True}}, "startToCloseMs"),
    ({"target": {**TARGET, "inputBase64": "=", "encoding": "bytes"}}, "inputBase64"),
    ({"target": {**TARGET, "inputBase64": "AQI="}}, "encoding"),
    ({"target": {"type": "a", "queue": "b", "workflow": True, "onLive": "MAYBE"}}, "onLive"),
]


@pytest.mark.parametrize(("changes", "field"), BAD_CONTENT)
async def test_bad_content_is_refused_by_its_field(
    small: Site, changes: dict[str, Any], field: str
) -> None:
    await put(small)
    before = await small.world.dump()
    body = {**NIGHTLY, **changes}
    expected = (400, "invalid_argument", {"field": field})
    assert await small.refused("PUT", "/v1/schedules/nightly", json=body) == expected
    body = {**body, "scheduleId": "other"}
    assert await small.refused("POST", "/v1/schedules", json=body) == expected
    assert await small.world.dump() == before


async def test_a_rule_that_cannot_be_read_is_told_with_its_place(small: Site) -> None:
    answer = await small.client.put("/v1/schedules/x", json={**NIGHTLY, "rule": "0 2 * 13 *"})
    message = answer.json()["message"]
    assert "month" in message
    assert "character 7" in message
    assert "1-12" in message


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("POST", "", {**NIGHTLY, "scheduleId": "a b"}, "scheduleId"),
        ("POST", "", {**NIGHTLY, "scheduleId": "x" * 256}, "scheduleId"),
        ("PUT", "/a%20b", NIGHTLY, "scheduleId"),
        ("POST", "/nightly/pause", {"note": "x" * (SCHEDULE_NOTE_BYTES_MAX + 1)}, "note"),
        ("POST", "/nightly/pause", {"reason": "x"}, "reason"),
        ("POST", "/nightly/resume", {"mode": "LATER"}, "mode"),
        ("POST", "/nightly/trigger", {"triggerId": "a\u200bb"}, "triggerId"),
        ("POST", "/nightly/backfill", {"from": PERIOD["from"]}, "to"),
        ("POST", "/nightly/backfill", {"from": PERIOD["to"], "to": PERIOD["from"]}, "to"),
        ("POST", "/nightly/backfill", {**PERIOD, "to": "2030-01-01T00:00:00Z"}, "to"),
        ("GET", "/nightly/next?count=0", None, "count"),
        ("GET", "/nightly/next?count=101", None, "count"),
        ("GET", "/nightly/fires?pageToken=x", None, "pageToken"),
        ("GET", "?paused=maybe", None, "paused"),
        ("GET", "?type=a%20b", None, "type"),
        ("GET", "?pageToken=x", None, "pageToken"),
        ("POST", ":preview", {"rule": "@reboot"}, "rule"),
        ("POST", ":preview", {"rule": "@daily", "count": 0}, "count"),
        ("POST", ":preview", {"rule": "@daily", "zone": "Nowhere"}, "zone"),
        ("POST", ":preview", {"rule": "@daily", "every": "1m"}, "rule"),
        ("POST", ":preview", {}, "rule"),
    ],
)
async def test_a_bad_request_is_refused_by_its_field_and_changes_nothing(
    small: Site, method: str, path: str, body: Any, field: str
) -> None:
    await put(small)
    before = await small.world.dump()
    options = {} if body is None else {"json": body}
    refused = await small.refused(method, f"/v1/schedules{path}", **options)
    assert refused == (400, "invalid_argument", {"field": field})
    assert await small.world.dump() == before


async def test_a_backfill_of_too_much_is_refused(small: Site) -> None:
    await small.call("PUT", "/v1/schedules/often", json={"every": "1s", "target": TARGET})
    before = await small.world.dump()
    body = {**PERIOD, "to": "2023-11-14T22:16:41Z"}
    refused = await small.refused("POST", "/v1/schedules/often/backfill", json=body)
    assert refused == (400, "invalid_argument", {"field": "to"})
    assert await small.world.dump() == before


@pytest.mark.parametrize("schedule_id", ["unknown", UNKNOWN_ID])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("DELETE", "", None),
        ("GET", "/next", None),
        ("POST", "/pause", {}),
        ("POST", "/resume", {}),
        ("POST", "/trigger", {}),
        ("POST", "/backfill", PERIOD),
    ],
)
async def test_a_schedule_that_is_not_there_is_not_found(
    small: Site, schedule_id: str, method: str, path: str, body: Any
) -> None:
    options = {} if body is None else {"json": body}
    refused = await small.refused(method, f"/v1/schedules/{schedule_id}{path}", **options)
    assert refused == (404, "not_found", {})
