"""Runs over HTTP: start, show, list, journal, signals and changes."""

from __future__ import annotations

import asyncio
import base64
from typing import Any, Final

import pytest

from tenure.core.limits import SIGNAL_BYTES_MAX
from tenure.core.run.record import Wait
from tenure.engine.task.command import FinishKind, HeartbeatTasks, PauseTask, TaskBeat
from tests.api.http.site import UNKNOWN_ID, Site
from tests.engine.run.children import (
    items,
    new_child,
    new_run,
    parent_of,
    spawn,
    spawn_children,
    spawn_report,
)
from tests.engine.run.runs import give_up_slot, positions, report, running_run, step
from tests.engine.world import FATAL, NAMESPACE

RUN: Final = {"type": "order", "queue": "default"}


async def start(site: Site, **changes: Any) -> str:
    answer = await site.call("POST", "/v1/runs", json={**RUN, **changes})
    return str(answer["runId"])


async def get(site: Site, run_id: str) -> Any:
    return await site.call("GET", f"/v1/runs/{run_id}")


async def journal(site: Site, run_id: str, **query: Any) -> Any:
    return await site.call("GET", f"/v1/runs/{run_id}/journal", params=query)


async def test_a_started_run_is_shown_with_everything_that_was_asked_for(site: Site) -> None:
    body = {
        **RUN,
        "input": {"id": 42},
        "priority": 1,
        "runAt": "2100-01-01T00:00:00Z",
        "timeoutMs": 60_000,
        "retry": {"maximumAttempts": 3},
        "labels": {"team": "a"},
        "idempotencyKey": "k",
        "signals": [
            {"name": "go", "payload": [1], "signalId": "s", "sender": "me"},
            {"name": "raw", "payloadBase64": "AAE=", "encoding": "bytes"},
            {"name": "bare"},
        ],
    }
    made = await site.client.post("/v1/runs", json=body)
    assert made.status_code == 201
    answer = made.json()
    assert (answer["status"], answer["isNew"]) == ("PENDING", True)
    again = await site.client.post("/v1/runs", json=body)
    assert (again.status_code, again.json()) == (200, {**answer, "isNew": False})
    run = await get(site, answer["runId"])
    assert (run["type"], run["queue"], run["namespace"]) == ("order", "default", NAMESPACE)
    assert (run["input"], run["priority"], run["timeoutMs"]) == ({"id": 42}, 1, 60_000)
    assert (run["runAt"], run["labels"]) == ("2100-01-01T00:00:00.000Z", {"team": "a"})
    assert (run["retry"]["maximumAttempts"], run["idempotencyKey"]) == (3, "k")
    assert (run["entryCount"], run["journalBytes"] > 0) == (3, True)
    page = await journal(site, answer["runId"])
    first, second, third = page["entries"]
    assert (first["kind"], first["key"], first["output"]) == ("SIGNAL", "go", [1])
    assert (first["signalId"], first["sender"], first["pos"]) == ("s", "me", 1)
    assert (second["outputBase64"], second["encoding"]) == ("AAE=", "bytes")
    assert third.keys().isdisjoint({"output", "outputBase64", "encoding"})
    assert page["end"] == 3


async def test_a_run_has_one_attempt_unless_a_retry_is_wanted(small: Site) -> None:
    assert (await get(small, await start(small)))["retry"]["maximumAttempts"] == 1
    unlimited = await get(small, await start(small, retry={}))
    assert unlimited["retry"]["maximumAttempts"] == 0


@pytest.mark.parametrize(
    ("changes", "status", "code", "field"),
    [
        ({"type": "a b"}, 400, "invalid_argument", "type"),
        ({"queue": ""}, 400, "invalid_argument", "queue"),
        ({"runId": "x"}, 400, "invalid_argument", "runId"),
        ({"isResend": True}, 400, "invalid_argument", "isResend"),
        ({"timeoutMs": -1}, 400, "invalid_argument", "timeoutMs"),
        ({"timeoutMs": 0}, 400, "invalid_argument", "timeoutMs"),
        ({"startToCloseMs": 5}, 400, "invalid_argument", "startToCloseMs"),
        ({"priority": 10}, 400, "invalid_argument", "priority"),
        ({"runAt": "yesterday"}, 400, "invalid_argument", "runAt"),
        ({"runAt": "1969-01-01T00:00:00Z"}, 400, "invalid_argument", "runAt"),
        ({"inputBase64": "AA=="}, 400, "invalid_argument", "encoding"),
        ({"encoding": "bytes"}, 400, "invalid_argument", "encoding"),
        ({"labels": {"a b": ""}}, 400, "invalid_argument", "labels"),
        ({"signals": [{}]}, 400, "invalid_argument", "signals[0].name"),
        ({"signals": [{"name": "a b"}]}, 400, "invalid_argument", "signal"),
        ({"signals": [{"name": "a"}] * 101}, 413, "payload_too_large", None),
        ({"signals": [{"name": "a", "payload": "x" * 2**18}]}, 413, "payload_too_large", None),
        ({"input": "x" * 2**21}, 413, "payload_too_large", None),
    ],
)
async def test_a_wrong_start_names_its_field_and_changes_nothing(
    small: Site, changes: dict[str, Any], status: int, code: str, field: str | None
) -> None:
    before = await small.world.dump()
    found = await small.refused("POST", "/v1/runs", json={**RUN, **changes})
    assert (found[0], found[1], found[2].get("field")) == (status, code, field)
    assert await small.world.dump() == before


async def test_a_key_that_was_used_for_other_content_is_a_conflict(small: Site) -> None:
    run_id = await start(small, idempotencyKey="k", input=1)
    body = {**RUN, "idempotencyKey": "k", "input": 2}
    status, code, fields = await small.refused("POST", "/v1/runs", json=body)
    assert (status, code, fields["taskId"]) == (409, "idempotency_conflict", run_id)


async def test_a_run_that_waits_says_for_what_and_shows_its_state(site: Site) -> None:
    world, engine = site.world, site.engine
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    beat = TaskBeat(task_id=run.id, attempt=1, details=b"\x01", percent=30, message="packing")
    await engine.submit(HeartbeatTasks(namespace=NAMESPACE, worker_id=worker, items=(beat,)))
    entry = step("2/ship#3", output=b'{"no": 7}', encoding="json", took_ms=7, site="orders.py:3")
    await positions(engine, worker, report(run, entry))
    wish = {"wake_at_ms": world.clock.now_ms() + 1_000, "wait_count": 2}
    waits = (Wait("signal", "approve", world.clock.now_ms(), "for ann", "orders.py:9"),)
    await give_up_slot(world, engine, worker, run, seen=1, waits=waits, **wish)
    shown = await get(site, run.id)
    assert (shown["status"], shown["waitCount"], shown["attempt"]) == ("WAITING", 2, 1)
    (wait,) = shown["waits"]
    assert (wait["kind"], wait["key"]) == ("signal", "approve")
    assert (wait["detail"], wait["site"]) == ("for ann", "orders.py:9")
    assert shown["stateBase64"] == base64.b64encode(b"\x01").decode()
    assert (shown["progressPercent"], shown["progressMessage"]) == (30, "packing")
    assert shown["wakesAt"] > shown["createdAt"]
    (found,) = (await journal(site, run.id))["entries"]
    assert (found["key"], found["output"], found["tookMs"]) == ("2/ship#3", {"no": 7}, 7)
    assert (found["site"], found["attempt"], found["kind"]) == ("orders.py:3", 1, "STEP")
    assert (await journal(site, run.id, after=1))["entries"] == []
    (listed,) = (await site.call("GET", "/v1/runs"))["runs"]
    assert listed.keys().isdisjoint({"input", "stateBase64", "entryCount"})


async def test_a_parked_run_says_why_and_is_resumed(site: Site) -> None:
    world, engine = site.world, site.engine
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    await world.finish(engine, worker, run, FinishKind.PARKED, error=FATAL)
    shown = await get(site, run.id)
    assert (shown["status"], shown["parkCount"]) == ("PARKED", 1)
    assert shown["parkError"]["message"] == FATAL.message
    answer = await site.call("POST", f"/v1/runs/{run.id}/resume")
    assert answer == {"runId": run.id, "status": "PENDING"}
    found = await site.refused("POST", f"/v1/runs/{run.id}/resume")
    assert found == (409, "wrong_state", {"state": "PENDING"})


async def test_runs_are_listed_by_filters_and_pages(site: Site) -> None:
    first = await start(site, labels={"team": "a", "stage": "live"})
    await site.world.advance(1_000)
    second = await start(site, type="refund", queue="other")
    await site.enqueue()
    since = (await get(site, second))["createdAt"]
    for query, expected in (
        ({}, [second, first]),
        ({"type": "refund"}, [second]),
        ({"queue": "default"}, [first]),
        ({"status": "PENDING"}, [second, first]),
        ({"status": "SLEEPING"}, []),
        ({"label": ["team=a", "stage=live"]}, [first]),
        ({"label": ["team=b"]}, []),
        ({"createdFrom": since}, [second]),
        ({"createdTo": since}, [first]),
    ):
        params: Any = {"totalCount": "true", **query}
        found = await site.call("GET", "/v1/runs", params=params)
        assert [each["runId"] for each in found["runs"]] == expected, query
        assert (found["totalCount"], found["isTotalExact"]) == (len(expected), True)
    page = await site.call("GET", "/v1/runs", params={"pageSize": 1})
    token = page["nextPageToken"]
    rest = await site.call("GET", "/v1/runs", params={"pageSize": 1, "pageToken": token})
    assert [each["runId"] for each in (*page["runs"], *rest["runs"])] == [second, first]
    other = {"pageSize": 1, "pageToken": token, "type": "refund"}
    found = await site.refused("GET", "/v1/runs", params=other)
    assert found == (400, "invalid_argument", {"field": "pageToken"})


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"status": "ASLEEP"}, "status"),
        ({"label": "team"}, "label"),
        ({"createdFrom": "now"}, "createdFrom"),
        ({"createdTo": "2026-01-01T00:00:00"}, "createdTo"),
        ({"createdTo": "1960-01-01T00:00:00Z"}, "createdTo"),
        ({"type": "a b"}, "type"),
        ({"pageSize": -1}, "pageSize"),
        ({"state": "PENDING"}, "state"),
    ],
)
async def test_a_wrong_filter_is_named(small: Site, query: dict[str, Any], field: str) -> None:
    found = await small.refused("GET", "/v1/runs", params=query)
    assert found == (400, "invalid_argument", {"field": field})


async def test_a_signal_is_its_body_and_its_id_makes_it_repeatable(site: Site) -> None:
    run_id = await start(site)
    path, headers = f"/v1/runs/{run_id}/signal/approve", {"signal-id": "s1"}
    made = await site.client.post(path, json={"isOk": True}, headers=headers)
    assert (made.status_code, made.json()) == (201, {"runId": run_id, "isNew": True})
    again = await site.client.post(path, json={"isOk": True}, headers=headers)
    assert (again.status_code, again.json()) == (200, {"runId": run_id, "isNew": False})
    await site.call("POST", path)
    first, second = (await journal(site, run_id))["entries"]
    assert (first["output"], first["encoding"], first["signalId"]) == ({"isOk": True}, "json", "s1")
    assert second.keys().isdisjoint({"output", "encoding", "signalId"})
    found = await site.refused("POST", path, json={"isOk": False}, headers=headers)
    assert (found[0], found[1]) == (409, "idempotency_conflict")


async def test_a_wrong_signal_is_refused_and_changes_nothing(small: Site) -> None:
    run_id = await start(small)
    before = await small.world.dump()
    path = f"/v1/runs/{run_id}/signal"
    large = await small.refused("POST", f"{path}/go", json="x" * SIGNAL_BYTES_MAX)
    assert large == (413, "payload_too_large", {"limit": SIGNAL_BYTES_MAX})
    json_type = {"content-type": "application/json"}
    for options, field in (
        ({"content": b"{", "headers": json_type}, "body"),
        ({"content": b'{"a":1,"a":2}', "headers": json_type}, "a"),
        ({"content": b"[" * 5_000 + b"]" * 5_000, "headers": json_type}, "body"),
        ({"headers": {"signal-id": "a b"}}, "signalId"),
        ({"headers": [("signal-id", "a"), ("signal-id", "b")]}, "Signal-Id"),
    ):
        found = await small.refused("POST", f"{path}/go", **options)
        assert found == (400, "invalid_argument", {"field": field}), field
    assert (await small.refused("POST", f"{path}/a b"))[:2] == (400, "invalid_argument")
    text = await small.refused("POST", f"{path}/go", content=b"x")
    assert text[:2] == (415, "unsupported_media_type")
    assert await small.world.dump() == before


async def test_a_run_is_cancelled_and_one_that_has_ended_says_so(site: Site) -> None:
    run_id = await start(site)
    path = f"/v1/runs/{run_id}"
    answer = await site.call("POST", f"{path}/cancel", json={"reason": "enough"})
    assert answer == {"runId": run_id, "status": "CANCELLED"}
    run = await get(site, run_id)
    assert (run["status"], run["cancelReason"]) == ("CANCELLED", "enough")
    before = await site.world.dump()
    found = await site.refused("POST", f"{path}/resume")
    assert found == (409, "wrong_state", {"state": "CANCELLED"})
    for action in ("cancel", "terminate", "signal/go"):
        found = await site.refused("POST", f"{path}/{action}")
        assert found == (409, "task_already_terminal", {"state": "CANCELLED"}), action
    assert await site.world.dump() == before


async def test_a_cancelled_run_that_sleeps_in_its_clean_up_says_so(site: Site) -> None:
    world, engine = site.world, site.engine
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    path = f"/v1/runs/{run.id}/cancel"
    assert (await site.call("POST", path))["status"] == "CANCELLING"
    await give_up_slot(world, engine, worker, run, seen=1, wake_at_ms=world.clock.now_ms() + 9_000)
    assert (await site.call("POST", path))["status"] == "SLEEPING"


async def test_a_run_is_terminated_and_a_paused_one_goes_on(site: Site) -> None:
    run_id = await start(site)
    await site.engine.submit(PauseTask(namespace=NAMESPACE, task_id=run_id))
    assert (await get(site, run_id))["status"] == "PAUSED"
    assert (await site.call("POST", f"/v1/runs/{run_id}/resume"))["status"] == "PENDING"
    assert (await site.call("POST", f"/v1/runs/{run_id}/terminate"))["status"] == "FAILED"
    assert (await get(site, run_id))["failureReason"] == "TERMINATED"


async def test_a_wait_is_answered_when_the_run_has_ended(site: Site) -> None:
    run_id = await start(site)
    waiting = asyncio.create_task(site.call("GET", f"/v1/runs/{run_id}?wait=60s"))
    await site.call("POST", f"/v1/runs/{run_id}/cancel")
    assert (await waiting)["status"] == "CANCELLED"
    assert (await site.call("GET", f"/v1/runs/{run_id}?wait=60s"))["status"] == "CANCELLED"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("GET", "/journal"),
        ("POST", "/cancel"),
        ("POST", "/terminate"),
        ("POST", "/resume"),
        ("POST", "/signal/go"),
    ],
)
async def test_what_is_no_run_of_this_namespace_is_not_found(
    small: Site, method: str, path: str
) -> None:
    run_id, task_id = await start(small), await small.enqueue()
    before = await small.world.dump()
    elsewhere = {"tenure-namespace": "other"}
    for wanted, headers in ((run_id, elsewhere), (UNKNOWN_ID, {}), (task_id, {})):
        found = await small.refused(method, f"/v1/runs/{wanted}{path}", headers=headers)
        assert found == (404, "not_found", {})
    found = await small.refused(method, f"/v1/runs/x{path}")
    assert found == (400, "invalid_argument", {"field": "runId"})
    assert await small.world.dump() == before


async def test_a_page_of_a_journal_begins_behind_no_negative_position(small: Site) -> None:
    run_id = await start(small)
    found = await small.refused("GET", f"/v1/runs/{run_id}/journal?after=-1")
    assert found == (400, "invalid_argument", {"field": "after"})
    assert await journal(small, run_id, after=7) == {"entries": [], "end": 0}


async def test_a_child_names_its_run_its_call_and_the_first_run(site: Site) -> None:
    world, engine = site.world, site.engine
    worker = await world.worker(engine)
    root, (activity_id,) = await parent_of(world, engine, worker)
    (run_id,) = await spawn_children(engine, worker, root, new_run(world, "1/child:ship"))
    shipper = await world.worker(engine, "ship")
    (run,) = await world.claim(engine, shipper, types=frozenset({"ship"}))
    (child_id,) = await spawn_children(engine, shipper, run, new_child(world, "2/pack"))
    activity, shown, child = [
        await site.task(activity_id),
        await get(site, run_id),
        await site.task(child_id),
    ]
    assert (activity["runId"], activity["parentId"]) == (root.id, root.id)
    assert (activity["rootRunId"], activity["stepKey"]) == (root.id, "resize#0")
    assert (shown["parentId"], shown["rootRunId"]) == (root.id, root.id)
    assert shown["stepKey"] == "1/child:ship"
    assert (child["runId"], child["rootRunId"], child["stepKey"]) == (run_id, root.id, "2/pack")
    assert (await get(site, root.id)).keys().isdisjoint({"parentId", "rootRunId", "stepKey"})


async def test_a_run_shows_its_open_children_and_the_progress_of_its_groups(site: Site) -> None:
    world, engine = site.world, site.engine
    worker = await world.worker(engine)
    run, (child_id,) = await parent_of(world, engine, worker)
    group = {"group_key": "map:resize", "group_index": 1, "group_total": 4}
    made = items(world, 0, 3, new={"queue": "other"})
    await spawn(engine, worker, spawn_report(run, *made, **group))
    found = await get(site, run.id)
    assert found["openChildCount"] == 1
    (shown,) = found["groups"]
    assert {**shown, "groupId": ""} == {
        "groupId": "",
        "key": "map:resize",
        "index": 1,
        "type": "resize",
        "total": 4,
        "spawned": 3,
        "openCount": 3,
        "failed": 0,
    }
    page = await journal(site, run.id)
    assert (page["open"][0]["taskId"], page["open"][0]["kind"]) == (child_id, "ACTIVITY")
    assert page["groups"] == found["groups"]
    assert "openNext" not in page
    await site.call("POST", f"/v1/tasks/{made[1].new.id}/cancel", json={})
    results = await journal(site, run.id, groupKey="map:resize")
    (end,) = results["entries"]
    assert (results["end"], end["pos"], end["kind"], end["key"]) == (4, 2, "CHILD", "1")
    assert (end["child"]["taskId"], end["child"]["state"]) == (made[1].new.id, "CANCELLED")
    assert (await get(site, run.id))["groups"][0]["openCount"] == 2
    rest = await journal(site, run.id, openAfter=child_id)
    assert (rest["entries"], "open" in rest) == ([], False)


@pytest.mark.parametrize(
    ("query", "status", "code", "field"),
    [
        ({"groupKey": "map:nothing"}, 404, "not_found", None),
        ({"groupKey": "k" * 513}, 400, "invalid_argument", "groupKey"),
        ({"openAfter": "x"}, 400, "invalid_argument", "openAfter"),
    ],
)
async def test_a_wrong_page_of_children_is_refused(
    small: Site, query: dict[str, str], status: int, code: str, field: str | None
) -> None:
    run_id = await start(small)
    path = f"/v1/runs/{run_id}/journal"
    told = await small.refused("GET", path, params=query)
    assert told[:2] == (status, code)
    assert told[2].get("field") == field


async def test_an_id_of_the_user_stands_for_its_run(site: Site) -> None:
    run_id = await start(site, externalId="order 42", input=1)
    path = "/v1/runs/external:order%2042"
    again = await site.client.post("/v1/runs", json={**RUN, "externalId": "order 42", "input": 2})
    assert (again.status_code, again.json()["runId"]) == (200, run_id)
    assert again.json()["contentDiffers"] is True
    shown = await site.call("GET", path)
    assert (shown["runId"], shown["externalId"]) == (run_id, "order 42")
    assert (await site.call("GET", f"{path}/journal"))["end"] == 0
    assert (await site.call("POST", f"{path}/signal/go"))["runId"] == run_id
    listed = await site.call("GET", "/v1/runs", params={"externalId": "order"})
    assert [each["runId"] for each in listed["runs"]] == [run_id]
    cancelled = await site.call("POST", f"{path}/cancel")
    assert (cancelled["runId"], cancelled["status"]) == (run_id, "CANCELLED")


@pytest.mark.parametrize(
    ("changes", "status", "code", "field"),
    [
        ({"onLive": "REJECT"}, 409, "already_exists", None),
        ({"onLive": "maybe"}, 400, "invalid_argument", "onLive"),
        ({"onFinished": "return"}, 400, "invalid_argument", "onFinished"),
        ({"externalId": "a\nb"}, 400, "invalid_argument", "externalId"),
        ({"externalId": "x" * 256}, 400, "invalid_argument", "externalId"),
    ],
)
async def test_a_start_that_is_refused_for_its_external_id_changes_nothing(
    small: Site, changes: dict[str, Any], status: int, code: str, field: str | None
) -> None:
    await start(small, externalId="order-42")
    before = await small.world.dump()
    body = {**RUN, "externalId": "order-42", **changes}
    found = await small.refused("POST", "/v1/runs", json=body)
    assert (found[0], found[1], found[2].get("field")) == (status, code, field)
    assert await small.world.dump() == before


async def test_a_finished_run_is_retried_from_a_step(site: Site) -> None:
    world, engine = site.world, site.engine
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    path = f"/v1/runs/{run.id}/retry"
    assert (await site.refused("POST", path))[1] == "wrong_state"
    await positions(engine, worker, report(run, step("a"), step("b", error=FATAL)))
    await world.finish(engine, worker, run, FinishKind.FAILED, error=FATAL)
    body = {"fromStep": "last", "newRunId": world.clock.new_id()}
    made = await site.client.post(path, json=body)
    assert made.status_code == 201
    answer = made.json()
    assert (answer["runId"], answer["keptEntries"]) == (body["newRunId"], 1)
    again = await site.client.post(path, json=body)
    assert (again.status_code, again.json()) == (200, {**answer, "isNew": False})
    assert (await get(site, answer["runId"]))["retryOf"] == run.id
    for wrong, field in (
        ({"fromStep": "c"}, "fromStep"),
        ({"fromPosition": 4}, "fromPosition"),
        ({"fromPosition": -1}, "fromPosition"),
        ({"fromStep": "a", "fromPosition": 1}, "fromPosition"),
        ({"newRunId": "x"}, "newRunId"),
    ):
        assert (await site.refused("POST", path, json=wrong))[2]["field"] == field
    whole = await site.call("POST", path)
    assert whole["keptEntries"] == 0
